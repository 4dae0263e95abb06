"""The optimizers of `tf.contrib.opt`, beside their formulas in NumPy."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.example_checker import run_example

opt = tf.contrib.opt
RNG = np.random.default_rng(5)
STEPS = 4
START = RNG.normal(size=(5, 3))
GRADS = [RNG.normal(size=(5, 3)) for _ in range(STEPS)]
INDICES = [np.array(rows) for rows in ([1, 3, 1], [0], [3, 4, 3], [1, 0, 2])]
ROWS = [RNG.normal(size=(len(rows), 3)) for rows in INDICES]

#: changes the value and the slots in place, given them, the gradient, and the number of the step, from 1
Formula = Callable[[Any, dict[str, Any], Any, int], None]


def adam_rate(t: int) -> float:
    return float(0.1 * np.sqrt(1 - 0.99**t) / (1 - 0.8**t))


def adam(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["m"][...] = 0.8 * slots["m"] + 0.2 * g
    slots["v"][...] = 0.99 * slots["v"] + 0.01 * g**2
    w -= adam_rate(t) * slots["m"] / (np.sqrt(slots["v"]) + 1e-3)


def adamax(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["m"][...] = 0.8 * slots["m"] + 0.2 * g
    slots["v"][...] = np.maximum(0.99 * slots["v"], abs(g))
    w -= 0.1 / (1 - 0.8**t) * slots["m"] / (slots["v"] + 1e-3)


def nadam(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    before = w.copy()
    adam(w, slots, g, t)
    w[...] = before - adam_rate(t) * (0.8 * slots["m"] + 0.2 * g) / (np.sqrt(slots["v"]) + 1e-3)


def add_sign(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["m"][...] = 0.8 * slots["m"] + 0.2 * g
    w -= 0.1 * (0.5 + np.sign(g) * np.sign(slots["m"])) * g


def power_sign(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["m"][...] = 0.8 * slots["m"] + 0.2 * g
    w -= 0.1 * 3 ** (np.sign(g) * np.sign(slots["m"])) * g


def momentum(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["momentum"][...] = 0.8 * slots["momentum"] + g
    w -= 0.1 * slots["momentum"]


def lars(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    norm, slope = np.linalg.norm(w), np.linalg.norm(g)
    rate = 0.1 * 0.2 * norm / (slope + 0.05 * norm + 1e-3)
    slots["momentum"][...] = 0.8 * slots["momentum"] + rate * (g + 0.05 * w)
    w -= slots["momentum"]


def adagrad(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
    slots["accumulator"] += g**2
    w -= 0.1 * g / np.sqrt(slots["accumulator"])


def decayed(formula: Formula) -> Formula:
    def with_decay(w: Any, slots: dict[str, Any], g: Any, t: int) -> None:
        w *= 1 - 0.05
        formula(w, slots, g, t)

    return with_decay


def nadam_rows(w: Any, slots: dict[str, Any], g: Any, t: int, indices: Any) -> None:
    """All means decay; the rows with a gradient move."""
    moved = w.copy()
    whole = np.zeros_like(w)
    whole[indices] = g
    nadam(moved, slots, whole, t)
    w[indices] = moved[indices]


def decayed_adam_rows(w: Any, slots: dict[str, Any], g: Any, t: int, indices: Any) -> None:
    """The rows with a gradient decay; all of them move."""
    whole = np.zeros_like(w)
    whole[indices] = g
    w[indices] *= 1 - 0.05
    adam(w, slots, whole, t)


@dataclass(frozen=True)
class Case:
    """An optimizer and what it should do.

    Attributes:
        sparse: the formula, which then concerns the rows alone, None where a sparse gradient is a dense one, or another
            formula that is given the indices, too.
    """

    make: Callable[[Any], tf.train.Optimizer]
    formula: Formula
    slots: tuple[str, ...]
    sparse: Callable[..., None] | None
    start: float = 0.0


def betas(make: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda step: make(learning_rate=0.1, beta1=0.8, beta2=0.99, epsilon=1e-3)


def counted(make: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda step: make(step, learning_rate=0.1, beta1=0.8, beta2=0.99, epsilon=1e-3)


CASES = {
    "AdaMax": Case(betas(opt.AdaMaxOptimizer), adamax, ("m", "v"), adamax),
    "AdamGS": Case(counted(opt.AdamGSOptimizer), adam, ("m", "v"), None),
    "LazyAdam": Case(betas(opt.LazyAdamOptimizer), adam, ("m", "v"), adam),
    "LazyAdamGS": Case(counted(opt.LazyAdamGSOptimizer), adam, ("m", "v"), adam),
    "Nadam": Case(betas(opt.NadamOptimizer), nadam, ("m", "v"), nadam_rows),
    "AddSign": Case(lambda step: opt.AddSignOptimizer(0.1, 0.5, 0.8), add_sign, ("m",), None),
    "PowerSign": Case(lambda step: opt.PowerSignOptimizer(0.1, 3.0, 0.8), power_sign, ("m",), None),
    "LARS": Case(lambda step: opt.LARSOptimizer(0.1, 0.8, 0.05, 0.2, 1e-3), lars, ("momentum",), momentum),
    "RegAdagrad": Case(lambda step: opt.RegAdagradOptimizer(0.1, 0.5), adagrad, ("accumulator",), adagrad, 0.5),
    "MomentumW": Case(
        lambda step: opt.MomentumWOptimizer(0.05, 0.1, 0.8), decayed(momentum), ("momentum",), decayed(momentum)
    ),
    "AdamW": Case(
        lambda step: opt.AdamWOptimizer(lambda: 0.05, 0.1, 0.8, 0.99, 1e-3),
        decayed(adam),
        ("m", "v"),
        decayed_adam_rows,
    ),
    "extended": Case(
        lambda step: opt.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)(
            0.05, learning_rate=0.1, initial_accumulator_value=0.5
        ),
        decayed(adagrad),
        ("accumulator",),
        decayed(adagrad),
        0.5,
    ),
}


def trained(case: Case, dtype: Any, gradients: Iterable[Any]) -> tuple[Any, dict[str, Any]]:
    """The variable and its slots after a step for each gradient, an array or (rows, indices)."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=START.astype(dtype))
    optimizer = case.make(step)
    fed = [tf.placeholder(dtype), tf.placeholder(tf.int64)]
    gradients = list(gradients)
    is_sparse = isinstance(gradients[0], tuple)
    grad = tf.IndexedSlices(tf.reshape(fed[0], [-1, 3]), fed[1], [5, 3]) if is_sparse else tf.reshape(fed[0], w.shape)
    train = optimizer.apply_gradients([(grad, w)], global_step=step)
    slots = {name: optimizer.get_slot(w, name) for name in case.slots}
    assert optimizer.get_slot_names() == sorted(case.slots)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for given in gradients:
            session.run(train, dict(zip(fed, given, strict=True)) if is_sparse else {fed[0]: given})
        return session.run((w, slots))


def compare(found: tuple[Any, dict[str, Any]], w: Any, slots: dict[str, Any], dtype: Any) -> None:
    rtol = 1e-5 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(found[0], w, rtol=rtol, atol=1e-6)
    for name, value in slots.items():
        np.testing.assert_allclose(found[1][name], value, rtol=rtol, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_dense_gradients(name: str, dtype: Any) -> None:
    case = CASES[name]
    w, slots = START.copy(), {slot: np.full_like(START, case.start) for slot in case.slots}
    for t, grad in enumerate(GRADS, 1):
        case.formula(w, slots, grad, t)
    compare(trained(case, dtype, GRADS), w, slots, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_sparse_gradients(name: str, dtype: Any) -> None:
    case = CASES[name]
    w, slots = START.copy(), {slot: np.full_like(START, case.start) for slot in case.slots}
    for t, (rows, indices) in enumerate(zip(ROWS, INDICES, strict=True), 1):
        whole = np.zeros_like(w)
        np.add.at(whole, indices, rows)
        unique = np.unique(indices)
        if case.sparse is None:
            case.formula(w, slots, whole, t)
        elif case.sparse in (nadam_rows, decayed_adam_rows):
            case.sparse(w, slots, whole[unique], t, unique)
        else:
            part, parts = w[unique], {slot: value[unique] for slot, value in slots.items()}
            case.sparse(part, parts, whole[unique], t)
            w[unique] = part
            for slot, value in parts.items():
                slots[slot][unique] = value
    compare(trained(case, dtype, zip(ROWS, INDICES, strict=True)), w, slots, dtype)


@pytest.mark.parametrize("name", ["AdaMax", "LazyAdam", "LazyAdamGS", "LARS", "RegAdagrad", "MomentumW"])
def test_a_sparse_gradient_reads_and_writes_its_rows_only(name: str) -> None:
    """No operation of the update makes or takes as many numbers as the variable has."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [1000, 3])
    grad = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([4, 6]), [1000, 3])
    optimizer = CASES[name].make(step)
    optimizer.apply_gradients([(grad, w)], name="update")
    inside = [op for op in tf.get_default_graph().get_operations() if op.name.startswith("update/")]
    assert any(op.type.startswith("Resource") for op in inside)
    assert all((out.shape.num_elements() or 0) <= 6 for op in inside for out in op.outputs)


@pytest.mark.parametrize("name", ["AdaMax", "LazyAdam", "RegAdagrad", "MomentumW"])
def test_rows_of_a_table_that_grows(name: str) -> None:
    """The rows of keys that were asked for are those of a variable with these rows."""
    case = CASES[name]
    table = tf.train.GrowingTable("words", 3, initializer=tf.ones_initializer(), dtype=tf.float64)
    keys = tf.placeholder(tf.int64, [None])
    train = case.make(None).minimize(tf.reduce_sum(tf.square(table.lookup(keys))))
    w, slots = np.ones([2, 3]), {slot: np.full([2, 3], case.start) for slot in case.slots}
    assert case.sparse is not None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for t, given in enumerate(([70, -3], [70, -3, 70], [-3, 70]), 1):
            session.run(train, {keys: given})
            case.sparse(w, slots, 2 * w * [[given.count(70)], [given.count(-3)]], t)
        found = session.run(table.lookup([70, -3], training=False))
    np.testing.assert_allclose(found, w, rtol=1e-6)


def test_hyperparameters_may_be_functions_and_tensors() -> None:
    w = tf.get_variable("w", initializer=START)
    rate = tf.placeholder_with_default(0.1, [])
    made = opt.AdaMaxOptimizer(lambda: rate, tf.constant(0.8), lambda: 0.99, 1e-3)
    train = made.apply_gradients([(tf.constant(GRADS[0]), w)])
    value, slots = START.copy(), {"m": np.zeros_like(START), "v": np.zeros_like(START)}
    adamax(value, slots, GRADS[0], 1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(w), value, rtol=1e-6)


# ---------------------------------------------------------------------- signs
def cosine(periods: Any) -> Any:
    return (1 + np.cos(np.pi * periods)) / 2


@pytest.mark.parametrize("is_integer", [True, False])
def test_decays(is_integer: bool) -> None:
    steps = np.arange(0, 14).astype(np.int64 if is_integer else np.float32)
    bounded = np.minimum(steps, 10).astype(np.float64)
    fed = tf.placeholder(steps.dtype, [None])
    decays = {
        "line": (opt.get_linear_decay_fn(10), 1 - bounded / 10),
        "cosine": (opt.get_cosine_decay_fn(10), cosine(bounded / 10)),
        "cosines": (
            opt.get_cosine_decay_fn(10, num_periods=2, zero_after=1.5),
            np.where(bounded / 10 >= 0.75, 0, cosine(4 * bounded / 10)),
        ),
        "restarts": (opt.get_restart_decay_fn(10, num_periods=3), cosine((3 * bounded % 10) / 10)),
        "fewer": (
            opt.get_restart_decay_fn(10, num_periods=3, zero_after=2),
            np.where(3 * bounded / 10 >= 2, 0, cosine((3 * bounded % 10) / 10)),
        ),
    }
    with tf.Session() as session:
        for name, (decay, expected) in decays.items():
            found = session.run(decay(fed), {fed: steps})
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
            with pytest.raises(ValueError, match="global_step is required"):
                decay(None)


@pytest.mark.parametrize("name", ["AddSign", "PowerSign"])
def test_the_agreement_of_signs_decays(name: str) -> None:
    decay = opt.get_linear_decay_fn(4)
    makes = {
        "AddSign": lambda: opt.AddSignOptimizer(0.1, 0.5, 0.8, decay),
        "PowerSign": lambda: opt.PowerSignOptimizer(0.1, 3.0, 0.8, decay),
    }
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=START)
    grad = tf.placeholder(tf.float64, START.shape)
    made = makes[name]()
    with pytest.raises(ValueError, match="global_step is required for linear_decay"):
        made.apply_gradients([(grad, w)])
    train = made.apply_gradients([(grad, w)], global_step=step)
    expected, m = START.copy(), np.zeros_like(START)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for t, given in enumerate(GRADS):
            session.run(train, {grad: given})
            m = 0.8 * m + 0.2 * given
            sign = (1 - t / 4) * np.sign(m) * np.sign(given)
            expected -= 0.1 * given * (0.5 + sign if name == "AddSign" else 3**sign)
        np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)


# ---------------------------------------------------------------------- what single ones do besides
def test_lars_leaves_out_what_is_named_and_what_is_zero() -> None:
    with tf.variable_scope("norm"):
        skipped = tf.get_variable("bias", initializer=[1.0, 2.0])
    zero = tf.get_variable("zero", initializer=[0.0, 0.0])
    flat = tf.get_variable("flat", initializer=[3.0, 4.0])
    grads = [[1.0, 1.0], [1.0, 2.0], [0.0, 0.0]]
    made = opt.LARSOptimizer(0.5, 0.0, weight_decay=0.25, eeta=0.1, skip_list=["bias"])
    train = made.apply_gradients(zip([tf.constant(g) for g in grads], [skipped, zero, flat], strict=True))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        found = session.run([skipped, zero, flat])
    np.testing.assert_allclose(found[0], [0.5, 1.5])
    np.testing.assert_allclose(found[1], [-0.5, -1.0])
    np.testing.assert_allclose(found[2], [3 - 0.5 * 0.25 * 3, 4 - 0.5 * 0.25 * 4])


def test_adagrad_without_its_accumulators() -> None:
    w = tf.get_variable("w", initializer=START)
    made = opt.RegAdagradOptimizer(0.1, 0.5)
    rows = tf.IndexedSlices(tf.constant(ROWS[1]), tf.constant(INDICES[1]), [5, 3])
    with made.avoid_updating_slots():
        dense = made.apply_gradients([(tf.constant(GRADS[0]), w)])
        with made.avoid_updating_slots():
            pass
        sparse = made.apply_gradients([(rows, w)])
    usual = made.apply_gradients([(tf.constant(GRADS[1]), w)])
    expected, slots = START.copy(), {"accumulator": np.full_like(START, 0.5)}
    expected -= 0.1 * GRADS[0] / np.sqrt(0.5)
    expected[INDICES[1]] -= 0.1 * ROWS[1] / np.sqrt(0.5)
    adagrad(expected, slots, GRADS[1], 1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for train in (dense, sparse, usual):
            session.run(train)
        compare(session.run((w, {"accumulator": made.get_slot(w, "accumulator")})), expected, slots, np.float64)


@pytest.mark.parametrize("by_minimize", [True, False])
def test_some_variables_decay(by_minimize: bool) -> None:
    a, b = (tf.get_variable(name, initializer=[2.0, 4.0]) for name in "ab")
    made = opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)(0.5, learning_rate=1.0)
    loss = tf.reduce_sum(a + b)
    if by_minimize:
        some = made.minimize(loss, decay_var_list=[a])
    else:
        some = made.apply_gradients(made.compute_gradients(loss), decay_var_list=[a])
    everything = made.apply_gradients(made.compute_gradients(loss))  # which variables decayed before does not matter
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(some)
        np.testing.assert_allclose(session.run([a, b]), [[0, 1], [1, 3]])
        session.run(everything)
        np.testing.assert_allclose(session.run([a, b]), [[-1, -0.5], [-0.5, 0.5]])


def test_an_optimizer_of_a_programs_own_with_decay() -> None:
    class Sign(tf.train.Optimizer):
        def __init__(self, rate: float) -> None:
            super().__init__(False, "Sign")
            self._rate = rate

        def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
            return handle.assign_sub(self._rate * tf.sign(grad))

        def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
            return handle.scatter_sub(tf.IndexedSlices(self._rate * tf.sign(grad), indices))

    w = tf.get_variable("w", initializer=[2.0, 4.0])
    made = opt.extend_with_decoupled_weight_decay(Sign)(0.5, rate=0.25)
    assert isinstance(made, Sign)
    assert isinstance(made, opt.DecoupledWeightDecayExtension)
    rows = tf.IndexedSlices(tf.constant([3.0, -1.0]), tf.constant([1, 1]), [2])
    dense, sparse = made.minimize(tf.reduce_sum(w)), made.apply_gradients([(rows, w)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(dense)
        np.testing.assert_allclose(session.run(w), [0.75, 1.75])
        session.run(sparse)
        np.testing.assert_allclose(session.run(w), [0.75, 0.625])


def test_several_optimizers_of_one_step() -> None:
    """The corrections for the start of the means follow the step, not how often an optimizer was used."""
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=START)
    made = counted(opt.AdamGSOptimizer)(step)
    assert [v.op.name for v in made.variables()] == []
    train = made.apply_gradients([(tf.constant(GRADS[0]), w)], global_step=step)
    assert [v.op.name for v in made.variables()] == ["w/Adam", "w/Adam_1"]
    expected, slots = START.copy(), {"m": np.zeros_like(START), "v": np.zeros_like(START)}
    adam(expected, slots, GRADS[0], 8)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step.assign(7))
        session.run(train)
        np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="momentum should be positive"):
        opt.LARSOptimizer(0.1, momentum=-0.5)
    with pytest.raises(ValueError, match="weight_decay should be positive"):
        opt.LARSOptimizer(0.1, weight_decay=-0.5)
    with pytest.raises(ValueError, match="base must be positive"):
        opt.PowerSignOptimizer(base=0.0)
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive"):
        opt.RegAdagradOptimizer(0.1, 0.0)
    with pytest.raises(ValueError, match="name"):
        opt.AdamGSOptimizer(name="")


def test_every_name_is_there() -> None:
    """The names of TensorFlow 1.15's module, apart from one that it lists and does not have, and the decays."""
    names = """AdaMaxOptimizer AdamGSOptimizer PowerSignOptimizer AddSignOptimizer DropStaleGradientOptimizer
    ExternalOptimizerInterface LARSOptimizer LazyAdamGSOptimizer LazyAdamOptimizer NadamOptimizer MovingAverageOptimizer
    MomentumWOptimizer AdamWOptimizer DecoupledWeightDecayExtension extend_with_decoupled_weight_decay
    ScipyOptimizerInterface VariableClippingOptimizer MultitaskOptimizerWrapper clip_gradients_by_global_norm
    AGNOptimizer AGNCustomGetter ElasticAverageOptimizer ElasticAverageCustomGetter ModelAverageOptimizer
    ModelAverageCustomGetter GGTOptimizer ShampooOptimizer RegAdagradOptimizer get_cosine_decay_fn get_linear_decay_fn
    get_restart_decay_fn"""
    assert sorted(opt.__all__) == sorted(names.split())
    assert all(callable(getattr(opt, name)) for name in names.split())


@pytest.mark.parametrize("name", sorted(set(opt.__all__) - {"ExternalOptimizerInterface"}))
def test_example_of_the_help(name: str) -> None:
    """Of all but the base class whose one method users write."""
    if name == "ScipyOptimizerInterface":
        pytest.importorskip("scipy.optimize")
    example = textwrap.dedent((inspect.getdoc(getattr(opt, name)) or "").partition("Example:")[2])
    with tf.Session() as sess, sess.as_default():
        failed, said = run_example(name, example, {"tf": tf, "np": np, "sess": sess})
    assert failed == 0, said
    assert ">>> " in example
