"""Optimizers: every update against its formula in NumPy, dense and sparse; slots, names, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core import dtypes
from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.pipeline import plan_step
from anabranch.session import Session
from anabranch.train.optimizer import Optimizer
from anabranch.train.optimizers.adadelta import AdadeltaOptimizer
from anabranch.train.optimizers.adagrad import AdagradDAOptimizer, AdagradOptimizer, ProximalAdagradOptimizer
from anabranch.train.optimizers.adam import AdamOptimizer
from anabranch.train.optimizers.ftrl import FtrlOptimizer
from anabranch.train.optimizers.gradient_descent import GradientDescentOptimizer, ProximalGradientDescentOptimizer
from anabranch.train.optimizers.momentum import MomentumOptimizer
from anabranch.train.optimizers.rmsprop import RMSPropOptimizer
from anabranch.train.training_util import get_or_create_global_step
from tests.device.train.one_update import run_once

State = dict[str, Any]
Rule = Callable[[State, Any, int], None]


# ---------------------------------------------------------------------- the formulas
def gradient_descent(s: State, g: Any, t: int) -> None:
    s["w"] = s["w"] - s["lr"] * g


def momentum(s: State, g: Any, t: int) -> None:
    s["momentum"] = s["mu"] * s["momentum"] + g
    s["w"] = s["w"] - s["lr"] * s["momentum"]


def nesterov(s: State, g: Any, t: int) -> None:
    s["momentum"] = s["mu"] * s["momentum"] + g
    s["w"] = s["w"] - s["lr"] * (g + s["mu"] * s["momentum"])


def adagrad(s: State, g: Any, t: int) -> None:
    s["accumulator"] = s["accumulator"] + g * g
    s["w"] = s["w"] - s["lr"] * g / np.sqrt(s["accumulator"])


def adagrad_da(s: State, g: Any, t: int) -> None:
    s["gradient_accumulator"] = s["gradient_accumulator"] + g
    s["gradient_squared_accumulator"] = s["gradient_squared_accumulator"] + g * g
    total = s["gradient_accumulator"]
    shrunk = np.sign(total) * np.maximum(np.abs(total) - s["l1"] * t, 0)
    s["w"] = -s["lr"] * shrunk / (s["l2"] * t * s["lr"] + np.sqrt(s["gradient_squared_accumulator"]))


def adadelta(s: State, g: Any, t: int) -> None:
    s["accum"] = s["rho"] * s["accum"] + (1 - s["rho"]) * g * g
    step = np.sqrt(s["accum_update"] + s["eps"]) / np.sqrt(s["accum"] + s["eps"]) * g
    s["accum_update"] = s["rho"] * s["accum_update"] + (1 - s["rho"]) * step * step
    s["w"] = s["w"] - s["lr"] * step


def rmsprop(s: State, g: Any, t: int) -> None:
    s["rms"] = s["decay"] * s["rms"] + (1 - s["decay"]) * g * g
    s["momentum"] = s["mu"] * s["momentum"] + s["lr"] * g / np.sqrt(s["rms"] + s["eps"])
    s["w"] = s["w"] - s["momentum"]


def centered_rmsprop(s: State, g: Any, t: int) -> None:
    s["rms"] = s["decay"] * s["rms"] + (1 - s["decay"]) * g * g
    s["mg"] = s["decay"] * s["mg"] + (1 - s["decay"]) * g
    s["momentum"] = s["mu"] * s["momentum"] + s["lr"] * g / np.sqrt(s["rms"] - s["mg"] ** 2 + s["eps"])
    s["w"] = s["w"] - s["momentum"]


def float32_power(beta: Any, t: int) -> Any:
    """The powers are variables of dtype float32, whatever that of the weights."""
    return np.cumprod(np.full(t, beta, np.float32))[-1].astype(beta.dtype)


def adam(s: State, g: Any, t: int) -> None:
    rate = s["lr"] * np.sqrt(1 - float32_power(s["beta2"], t)) / (1 - float32_power(s["beta1"], t))
    s["m"] = s["beta1"] * s["m"] + (1 - s["beta1"]) * g
    s["v"] = s["beta2"] * s["v"] + (1 - s["beta2"]) * g * g
    s["w"] = s["w"] - rate * s["m"] / (np.sqrt(s["v"]) + s["eps"])


def ftrl(s: State, g: Any, t: int) -> None:
    shrunk = g + 2 * s["shrinkage"] * s["w"]
    accum = s["accum"] + g * g
    sigma = (accum ** -s["power"] - s["accum"] ** -s["power"]) / s["lr"]
    s["linear"] = s["linear"] + shrunk - sigma * s["w"]
    s["accum"] = accum
    quadratic = accum ** -s["power"] / s["lr"] + 2 * s["l2"]
    over = np.abs(s["linear"]) > s["l1"]
    s["w"] = np.where(over, (np.sign(s["linear"]) * s["l1"] - s["linear"]) / quadratic, 0)


def proximal(w: Any, rate: Any, g: Any, l1: Any, l2: Any) -> Any:
    moved = w - rate * g
    return np.sign(moved) * np.maximum(np.abs(moved) - rate * l1, 0) / (1 + rate * l2)


def proximal_gradient_descent(s: State, g: Any, t: int) -> None:
    s["w"] = proximal(s["w"], s["lr"], g, s["l1"], s["l2"])


def proximal_adagrad(s: State, g: Any, t: int) -> None:
    s["accumulator"] = s["accumulator"] + g * g
    s["w"] = proximal(s["w"], s["lr"] / np.sqrt(s["accumulator"]), g, s["l1"], s["l2"])


#: name -> (makes the optimizer, formula, hyperparameters, slots with their initial values, rows decay without gradient)
CASES: dict[str, tuple[Callable[[], Optimizer], Rule, dict[str, float], dict[str, float], bool]] = {
    "GradientDescent": (lambda: GradientDescentOptimizer(0.3), gradient_descent, {"lr": 0.3}, {}, False),
    "Momentum": (lambda: MomentumOptimizer(0.1, 0.9), momentum, {"lr": 0.1, "mu": 0.9}, {"momentum": 0.0}, False),
    "Nesterov": (
        lambda: MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        nesterov,
        {"lr": 0.1, "mu": 0.9},
        {"momentum": 0.0},
        False,
    ),
    "Adagrad": (lambda: AdagradOptimizer(0.5), adagrad, {"lr": 0.5}, {"accumulator": 0.1}, False),
    "AdagradDA": (
        lambda: AdagradDAOptimizer(
            0.5, get_or_create_global_step(), l1_regularization_strength=0.01, l2_regularization_strength=0.02
        ),
        adagrad_da,
        {"lr": 0.5, "l1": 0.01, "l2": 0.02},
        {"gradient_accumulator": 0.0, "gradient_squared_accumulator": 0.1},
        False,
    ),
    "Adadelta": (
        lambda: AdadeltaOptimizer(1.0, rho=0.9, epsilon=1e-4),
        adadelta,
        {"lr": 1.0, "rho": 0.9, "eps": 1e-4},
        {"accum": 0.0, "accum_update": 0.0},
        False,
    ),
    "RMSProp": (
        lambda: RMSPropOptimizer(0.1, decay=0.8, momentum=0.5, epsilon=1e-3),
        rmsprop,
        {"lr": 0.1, "decay": 0.8, "mu": 0.5, "eps": 1e-3},
        {"rms": 1.0, "momentum": 0.0},
        False,
    ),
    "CenteredRMSProp": (
        lambda: RMSPropOptimizer(0.1, decay=0.8, momentum=0.5, epsilon=1e-3, centered=True),
        centered_rmsprop,
        {"lr": 0.1, "decay": 0.8, "mu": 0.5, "eps": 1e-3},
        {"rms": 1.0, "mg": 0.0, "momentum": 0.0},
        False,
    ),
    "Adam": (
        lambda: AdamOptimizer(0.1, beta1=0.8, beta2=0.9, epsilon=1e-4),
        adam,
        {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "eps": 1e-4},
        {"m": 0.0, "v": 0.0},
        True,
    ),
    "Ftrl": (
        lambda: FtrlOptimizer(0.5, l1_regularization_strength=0.1, l2_regularization_strength=0.2),
        ftrl,
        {"lr": 0.5, "l1": 0.1, "l2": 0.2, "power": -0.5, "shrinkage": 0.0},
        {"accum": 0.1, "linear": 0.0},
        False,
    ),
    "FtrlShrinkage": (
        lambda: FtrlOptimizer(
            0.5, learning_rate_power=-0.4, initial_accumulator_value=0.2, l2_shrinkage_regularization_strength=0.3
        ),
        ftrl,
        {"lr": 0.5, "l1": 0.0, "l2": 0.0, "power": -0.4, "shrinkage": 0.3},
        {"accum": 0.2, "linear": 0.0},
        False,
    ),
    "ProximalGradientDescent": (
        lambda: ProximalGradientDescentOptimizer(0.3, 0.1, 0.2),
        proximal_gradient_descent,
        {"lr": 0.3, "l1": 0.1, "l2": 0.2},
        {},
        False,
    ),
    "ProximalAdagrad": (
        lambda: ProximalAdagradOptimizer(0.3, 0.1, l1_regularization_strength=0.1, l2_regularization_strength=0.2),
        proximal_adagrad,
        {"lr": 0.3, "l1": 0.1, "l2": 0.2},
        {"accumulator": 0.1},
        False,
    ),
}

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def initial_state(numbers: dict[str, float], slots: dict[str, float], w: Any) -> State:
    """Numbers as the optimizer sees them: those given as Python floats become float32 tensors first."""
    dtype = w.dtype.type
    given = {name: dtype(np.float32(value)) for name, value in numbers.items()}
    return {"w": w, **given, **{name: np.full_like(w, value) for name, value in slots.items()}}


def expected_after(rule: Rule, state: State, slots: dict[str, float], steps: list[Any], decays: bool) -> State:
    """The state after the steps: dense gradients, or pairs (rows, values) of which equal rows are summed."""
    for t, step in enumerate(steps, start=1):
        if not isinstance(step, tuple):
            rule(state, step, t)
            continue
        dense = np.zeros_like(state["w"])
        np.add.at(dense, step[0], step[1])
        if decays:
            rule(state, dense, t)
            continue
        rows = np.unique(step[0])
        part = {k: v[rows] if k == "w" or k in slots else v for k, v in state.items()}
        rule(part, dense[rows], t)
        for name in ("w", *slots):
            state[name] = state[name].copy()
            state[name][rows] = part[name]
    return state


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_dense_updates_follow_the_formula(name: str, dtype: str) -> None:
    make, rule, numbers, slots, decays = CASES[name]
    random = np.random.default_rng(1)
    w0 = random.normal(size=(3, 4)).astype(dtype)
    grads = [random.normal(size=w0.shape).astype(dtype) for _ in range(4)]
    w = Variable(w0, name="w")
    fed = raw.Placeholder(dtype=dtype, shape=w0.shape)
    optimizer = make()
    update = optimizer.apply_gradients([(fed, w)], global_step=get_or_create_global_step())
    with Session() as session:
        session.run(global_variables_initializer())
        for grad in grads:
            session.run(update, {fed: grad})
        got = session.run({"w": w, **{slot: optimizer.get_slot(w, slot) for slot in slots}})
        assert session.run(get_or_create_global_step()) == len(grads)
    want = expected_after(rule, initial_state(numbers, slots, w0), slots, grads, decays)
    for key, value in got.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(value, want[key], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=key)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_sparse_updates_sum_repeated_rows(name: str, dtype: str) -> None:
    make, rule, numbers, slots, decays = CASES[name]
    random = np.random.default_rng(2)
    w0 = random.normal(size=(6, 2)).astype(dtype)
    steps = [
        (np.array(rows, np.int32), random.normal(size=(4, 2)).astype(dtype)) for rows in ([1, 4, 1, 5], [0, 0, 0, 4])
    ]
    w = Variable(w0, name="w")
    values = raw.Placeholder(dtype=dtype, shape=[None, 2])
    indices = raw.Placeholder(dtype="int32", shape=[None])
    optimizer = make()
    grad = IndexedSlices(values, indices, convert_to_tensor([6, 2]))
    update = optimizer.apply_gradients([(grad, w)], global_step=get_or_create_global_step())
    with Session() as session:
        session.run(global_variables_initializer())
        for rows, row_values in steps:
            session.run(update, {indices: rows, values: row_values})
        got = session.run({"w": w, **{slot: optimizer.get_slot(w, slot) for slot in slots}})
    want = expected_after(rule, initial_state(numbers, slots, w0), slots, list(steps), decays)
    for key, value in got.items():
        np.testing.assert_allclose(value, want[key], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=key)
        if not decays:
            start = w0 if key == "w" else np.full_like(w0, slots[key])
            np.testing.assert_array_equal(value[2:4], start[2:4])


def test_minimize_goes_downhill_through_gather_without_a_dense_gradient() -> None:
    table = Variable(np.ones((100, 3), np.float32), name="table")
    rows = raw.ResourceGather(table.handle, [3, 3, 7], dtype="float32")
    loss = raw.Sum(rows, [0, 1])
    optimizer = GradientDescentOptimizer(0.25)
    [(grad, _)] = optimizer.compute_gradients(loss)
    assert isinstance(grad, IndexedSlices)
    train = optimizer.apply_gradients([(grad, table)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        value = session.run(table)
    assert value[3].tolist() == [0.5] * 3
    assert value[7].tolist() == [0.75] * 3
    assert value[0].tolist() == [1.0] * 3


# ---------------------------------------------------------------------- names, slots, collections
def two_variables() -> tuple[Any, Any, Any]:
    graph = get_default_graph()
    with graph.name_scope("layer"):
        w = Variable(np.ones((2, 2), np.float32), name="w")
        b = Variable(np.ones(2, np.float32), name="b")
    return w, b, raw.Sum(raw.Mul(w.value(), b.value()), [0, 1], name="loss")


def test_names_of_operations_and_slots() -> None:
    w, b, loss = two_variables()
    optimizer = AdamOptimizer(0.1)
    train = optimizer.minimize(loss, global_step=get_or_create_global_step())
    graph = get_default_graph()
    assert train.name == "Adam"
    assert train.type == "AssignAddVariableOp"
    assert graph.get_operation_by_name("Adam/update_layer/w/ResourceApplyAdam").type == "ResourceApplyAdam"
    assert graph.get_operation_by_name("Adam/learning_rate").type == "Const"
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(w, "m").name == "layer/w/Adam:0"
    assert optimizer.get_slot(w, "v").name == "layer/w/Adam_1:0"
    assert optimizer.get_slot(b, "v").shape == b.shape
    assert optimizer.get_slot(w, "nothing") is None
    assert [v.name for v in optimizer.variables()] == [
        "beta1_power:0",
        "beta2_power:0",
        "layer/b/Adam:0",
        "layer/b/Adam_1:0",
        "layer/w/Adam:0",
        "layer/w/Adam_1:0",
    ]
    assert not any(v in graph.get_collection(GraphKeys.TRAINABLE_VARIABLES) for v in optimizer.variables())
    assert set(optimizer.variables()) <= set(graph.get_collection(GraphKeys.GLOBAL_VARIABLES))
    assert graph.get_collection(GraphKeys.TRAIN_OP) == [train]
    assert optimizer.get_name() == "Adam"


def test_a_second_optimizer_has_slots_of_its_own() -> None:
    w, _, loss = two_variables()
    first, second = MomentumOptimizer(0.1, 0.9), MomentumOptimizer(0.1, 0.9)
    assert first.minimize(loss).name == "Momentum"
    assert second.minimize(loss).name == "Momentum_1"
    assert first.get_slot(w, "momentum").name == "layer/w/Momentum:0"
    assert second.get_slot(w, "momentum").name == "layer/w/Momentum_1:0"


def test_the_name_can_be_given_and_stands_in_the_open_scope() -> None:
    w, _, loss = two_variables()
    with get_default_graph().name_scope("train"):
        train = GradientDescentOptimizer(0.1).minimize(loss, var_list=[w], name="descend")
    assert train.name == "train/descend"
    get_default_graph().get_operation_by_name("train/descend/update_layer/w/ResourceApplyGradientDescent")


def test_slots_of_a_second_update_are_shared() -> None:
    w, _, loss = two_variables()
    optimizer = AdagradOptimizer(0.1)
    optimizer.minimize(loss)
    slot = optimizer.get_slot(w, "accumulator")
    optimizer.minimize(loss)
    assert optimizer.get_slot(w, "accumulator") is slot


# ---------------------------------------------------------------------- hyperparameters
@pytest.mark.parametrize(
    "rate",
    [
        lambda: 0.5,
        lambda: lambda: 0.5,
        lambda: convert_to_tensor(0.5),
        lambda: Variable(0.5, trainable=False),
        lambda: np.float64(0.5),
    ],
)
@pytest.mark.parametrize("make", [GradientDescentOptimizer, AdamOptimizer, lambda r: MomentumOptimizer(r, r)])
def test_a_learning_rate_may_be_a_number_a_tensor_a_variable_or_a_function(make: Any, rate: Any) -> None:
    w = Variable(np.array([1.0, 2.0], np.float32))
    loss = raw.Sum(w.value(), [0])
    got = run_once(make(rate()).minimize(loss, var_list=[w]), w)
    np.testing.assert_allclose(got, [0.5, 1.5], atol=1e-5)


def test_a_learning_rate_can_be_fed() -> None:
    w = Variable(np.array([1.0], np.float64))
    rate = raw.Placeholder(dtype="float32", shape=[])
    train = GradientDescentOptimizer(rate).minimize(raw.Sum(w.value(), [0]))
    assert run_once(train, w, {rate: 0.25}).tolist() == [0.75]


def test_a_constraint_is_applied_after_the_update() -> None:
    w = Variable(np.array([1.0, -1.0], np.float32), constraint=lambda v: raw.Maximum(v, 0.0))
    train = GradientDescentOptimizer(0.5).minimize(raw.Sum(w.value(), [0]))
    assert run_once(train, w).tolist() == [0.5, 0.0]


def test_a_constraint_and_a_sparse_gradient_do_not_go_together() -> None:
    w = Variable(np.ones((3, 1), np.float32), constraint=lambda v: v)
    loss = raw.Sum(raw.ResourceGather(w.handle, [0], dtype="float32"), [0, 1])
    with pytest.raises(RuntimeError, match="constraint function on a sparse variable"):
        GradientDescentOptimizer(0.5).minimize(loss)


@pytest.mark.parametrize("gate", [Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH])
def test_all_gates_give_the_same_update(gate: int) -> None:
    w, b, loss = two_variables()
    train = GradientDescentOptimizer(1.0).minimize(loss, gate_gradients=gate)
    got = run_once(train, [w, b])
    assert got[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert got[1].tolist() == [-1.0, -1.0]


def test_a_gate_asks_for_no_gradient_that_leads_nowhere() -> None:
    """Of x @ w only the gradient to w is wanted; the one to fed data would cost as much."""
    x = raw.Placeholder(dtype="float32", shape=(4, 3))
    w = Variable(np.ones((3, 2), np.float32))
    loss = raw.Sum(raw.MatMul(x, w.value()), [0, 1])
    ((gradient, _),) = GradientDescentOptimizer(1.0).compute_gradients(loss, gate_gradients=Optimizer.GATE_OP)
    plan = plan_step([gradient], [], [x])
    products = [op for item in plan.items for op in getattr(item, "operations", ()) if op.type == "MatMul"]
    assert [op for op in products if op.attrs["transpose_a"]]
    assert not [op for op in products if op.attrs["transpose_b"]]


def test_grad_loss_scales_the_gradient() -> None:
    w = Variable(np.array([1.0], np.float32))
    train = GradientDescentOptimizer(1.0).minimize(raw.Mul(w.value(), 1.0), grad_loss=convert_to_tensor([0.25]))
    assert run_once(train, w).tolist() == [0.75]


def test_gradients_of_tensors_can_be_computed_but_not_applied() -> None:
    x = convert_to_tensor([1.0, 2.0])
    optimizer = GradientDescentOptimizer(1.0)
    pairs = optimizer.compute_gradients(raw.Sum(raw.Mul(x, x), [0]), var_list=[x])
    with Session() as session:
        assert session.run(pairs[0][0]).tolist() == [2.0, 4.0]
    with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
        optimizer.apply_gradients(pairs)


def test_a_half_precision_variable_is_updated_in_its_dtype() -> None:
    w = Variable(convert_to_tensor([1.0, 2.0], dtypes.bfloat16))
    train = MomentumOptimizer(0.5, 0.9).minimize(raw.Sum(w.value(), [0]))
    got = run_once(train, w)
    assert got.dtype == dtypes.bfloat16.as_numpy_dtype
    assert got.astype(np.float32).tolist() == [0.5, 1.5]


# ---------------------------------------------------------------------- errors
def test_what_cannot_be_minimized_is_named() -> None:
    w = Variable(1.0, name="w")
    loss = convert_to_tensor(1.0)
    optimizer = GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match=r"No gradients provided for any variable.*'w:0'"):
        optimizer.minimize(loss)
    with pytest.raises(ValueError, match=r"No gradients provided for any variable.*'w:0'"):
        optimizer.minimize(lambda: loss)
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, w)])
    with pytest.raises(ValueError, match="No variables provided"):
        optimizer.apply_gradients([])
    with pytest.raises(ValueError, match="No variables to optimize"):
        optimizer.compute_gradients(loss, var_list=[])
    with pytest.raises(TypeError, match="Argument is not a variable"):
        optimizer.compute_gradients(loss, var_list=[1.0])
    with pytest.raises(TypeError, match="Gradient must be"):
        optimizer.apply_gradients([(object(), w)])
    with pytest.raises(TypeError, match=r"must be a tf\.Variable"):
        optimizer.apply_gradients([(loss, 3)])
    with pytest.raises(ValueError, match="gate_gradients must be one of"):
        optimizer.minimize(loss, gate_gradients=7)
    with pytest.raises(ValueError, match="Invalid type 'int32'"):
        optimizer.minimize(convert_to_tensor(1))
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        GradientDescentOptimizer(0.1, name="")


def test_hyperparameters_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        AdagradOptimizer(0.1, 0.0)
    with pytest.raises(ValueError, match="must be positive"):
        AdagradDAOptimizer(0.1, None, -1.0)
    with pytest.raises(ValueError, match="needs to be negative or zero"):
        FtrlOptimizer(0.1, learning_rate_power=0.5)
    with pytest.raises(ValueError, match="l1_regularization_strength"):
        FtrlOptimizer(0.1, l1_regularization_strength=-0.5)


def test_ftrl_at_a_rate_of_zero() -> None:
    """What has no linear term becomes zero, as in TensorFlow; a term that is not finite leaves no number."""
    w = Variable(np.array([0.0, 1.0, 0.5], np.float32))
    optimizer = FtrlOptimizer(0.0, l1_regularization_strength=0.01)
    train = optimizer.apply_gradients([(convert_to_tensor(np.array([0.0, 0.0, 1.0], np.float32)), w)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(w), [0.0, 0.0, np.nan])
        np.testing.assert_array_equal(session.run(optimizer.get_slot(w, "linear")), [np.nan, np.nan, -np.inf])


def test_a_gradient_of_another_shape_is_refused() -> None:
    w = Variable(np.zeros((2, 2), np.float32))
    with pytest.raises(ValueError, match="ResourceApplyGradientDescent"):
        GradientDescentOptimizer(0.1).apply_gradients([(convert_to_tensor([1.0]), w)])


def test_an_index_out_of_range_fails_and_changes_nothing() -> None:
    w = Variable(np.ones((3, 1), np.float32))
    indices = raw.Placeholder(dtype="int32", shape=[1])
    grad = IndexedSlices(convert_to_tensor([[1.0]]), indices, None)
    train = MomentumOptimizer(0.1, 0.9).apply_gradients([(grad, w)])
    with Session() as session:
        session.run(global_variables_initializer())
        with pytest.raises(Exception, match=r"\b3\b"):
            session.run(train, {indices: [3]})
        assert session.run(w).tolist() == [[1.0]] * 3


def test_programs_compare_the_base_of_each_optimizer() -> None:
    named = [name for name in dir(tf.train) if name.endswith("Optimizer") and name != "Optimizer"]
    assert len(named) > 10
    for name in named:
        assert getattr(tf.train, name).__base__ is tf.train.Optimizer, name
