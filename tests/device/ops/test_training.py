"""The training operations: against TensorFlow's own results, and what the sparse ones promise beyond them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.dtypes import as_dtype
from anabranch.errors import InvalidArgumentError
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session

Array = np.ndarray[Any, Any]
FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow" / "training_ops.npz"

#: each dense operation with its sparse form
OPERATIONS = {
    "ResourceApplyAdaMax": None,
    "ResourceApplyAdadelta": "ResourceSparseApplyAdadelta",
    "ResourceApplyAdagrad": "ResourceSparseApplyAdagrad",
    "ResourceApplyAdagradDA": "ResourceSparseApplyAdagradDA",
    "ResourceApplyAdagradV2": "ResourceSparseApplyAdagradV2",
    "ResourceApplyAdam": None,
    "ResourceApplyAdamWithAmsgrad": None,
    "ResourceApplyAddSign": None,
    "ResourceApplyCenteredRMSProp": "ResourceSparseApplyCenteredRMSProp",
    "ResourceApplyFtrl": "ResourceSparseApplyFtrl",
    "ResourceApplyFtrlV2": "ResourceSparseApplyFtrlV2",
    "ResourceApplyGradientDescent": None,
    "ResourceApplyKerasMomentum": "ResourceSparseApplyKerasMomentum",
    "ResourceApplyMomentum": "ResourceSparseApplyMomentum",
    "ResourceApplyPowerSign": None,
    "ResourceApplyProximalAdagrad": "ResourceSparseApplyProximalAdagrad",
    "ResourceApplyProximalGradientDescent": "ResourceSparseApplyProximalGradientDescent",
    "ResourceApplyRMSProp": "ResourceSparseApplyRMSProp",
}


@functools.cache
def fixture() -> dict[str, dict[str, dict[str, Array]]]:
    """By case, then by "before", "input" or "after", then by name."""
    found: dict[str, dict[str, dict[str, Array]]] = {}
    with np.load(FIXTURE) as file:
        for key in file.files:
            case, part, name = key.rsplit("/", 2)
            found.setdefault(case, {}).setdefault(part, {})[name] = file[key]
    return found


def sparse_cases() -> list[str]:
    return [case for case in fixture() if "Sparse" in case]


class Update:
    """A graph with one training operation on fed inputs."""

    def __init__(self, case: str, before: dict[str, Array], inputs: dict[str, Array]) -> None:
        operation, _, flag = case.rstrip("]").partition("[")
        name, _, value = flag.partition("=")
        attrs = {name: value == "True"} if flag and name != "lr_power" else {}
        self.graph = Graph()
        with self.graph.as_default():
            self.handles = {n: self._handle(n, v) for n, v in before.items()}
            self.fed = {n: raw.Placeholder(dtype=v.dtype, shape=self.fed_shape(n, v)) for n, v in inputs.items()}
            self.init = [raw.AssignVariableOp(h, before[n]) for n, h in self.handles.items()]
            self.read = {n: raw.ReadVariableOp(h, dtype=before[n].dtype) for n, h in self.handles.items()}
            self.op = getattr(raw, operation)(**self.handles, **self.fed, **attrs)
        self.session = Session(graph=self.graph)
        self.session.run(self.init)

    @staticmethod
    def fed_shape(name: str, value: Array) -> list[int | None]:
        """What is known of an input's shape when the graph is built."""
        return list(value.shape)

    def _handle(self, name: str, value: Array) -> Any:
        return raw.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        self.session.run(self.op, {self.fed[n]: v for n, v in inputs.items()})
        return self.state()

    def state(self) -> dict[str, Array]:
        values: dict[str, Array] = self.session.run(self.read)
        return values


@pytest.mark.parametrize("case", fixture())
def test_it_does_what_tensorflow_does(case: str) -> None:
    data = fixture()[case]
    after = Update(case, data["before"], data["input"]).run(data["input"])
    assert after.keys() == data["after"].keys()
    for name, expected in data["after"].items():
        np.testing.assert_allclose(after[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)


def test_the_fixture_has_every_operation() -> None:
    have = {case.partition("[")[0] for case in fixture()}
    assert have == set(OPERATIONS) | {sparse for sparse in OPERATIONS.values() if sparse}


@pytest.mark.parametrize("case", sparse_cases())
def test_repeated_rows_are_summed_first(case: str) -> None:
    data = fixture()[case]
    inputs = dict(data["input"])
    once = Update(case, data["before"], inputs).run(inputs)
    # the first row's gradient in three parts, between the others
    grad, indices = inputs["grad"], inputs["indices"]
    parts = np.stack([grad[0] * 0.25, grad[1], grad[0] * 0.5, grad[2], grad[0] * 0.25])
    inputs.update(grad=parts, indices=indices[[0, 1, 0, 2, 0]])
    repeated = Update(case, data["before"], inputs).run(inputs)
    for name, expected in once.items():
        np.testing.assert_allclose(repeated[name], expected, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", sparse_cases())
def test_rows_that_are_not_named_stay_bit_identical(case: str) -> None:
    data = fixture()[case]
    after = Update(case, data["before"], data["input"]).run(data["input"])
    others = np.setdiff1d(np.arange(5), data["input"]["indices"])
    for name, before in data["before"].items():
        assert after[name][others].tobytes() == before[others].tobytes(), name


@pytest.mark.parametrize("indices", [[3, 0, 5], [3, -1, 4]])
@pytest.mark.parametrize("case", sparse_cases())
def test_an_index_out_of_range_changes_nothing(case: str, indices: list[int]) -> None:
    data = fixture()[case]
    update = Update(case, data["before"], data["input"])
    bad = next(i for i in indices if not 0 <= i < 5)
    with pytest.raises(InvalidArgumentError, match=rf"indices\[\d\] = {bad} is not in \[0, 5\)"):
        update.run({**data["input"], "indices": np.array(indices, np.int32)})
    for name, value in update.state().items():
        assert value.tobytes() == data["before"][name].tobytes(), name


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("case", ["ResourceApplyAdam[use_nesterov=True]", "ResourceSparseApplyFtrl[lr_power=-0.7]"])
def test_other_types_stay_what_they_are(case: str, dtype: str) -> None:
    kind, data = np.dtype(as_dtype(dtype).as_numpy_dtype), fixture()[case]
    cast = {p: {n: v.astype(kind) if v.dtype == np.float32 else v for n, v in data[p].items()} for p in data}
    after = Update(case, cast["before"], cast["input"]).run(cast["input"])
    for name, expected in data["after"].items():
        assert after[name].dtype == kind
        tolerance = {"float64": 1e-4, "float16": 2e-2, "bfloat16": 0.15}[dtype]
        np.testing.assert_allclose(after[name].astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_no_rows_at_all() -> None:
    case = "ResourceSparseApplyMomentum[use_nesterov=False]"
    data = fixture()[case]
    none = {**data["input"], "grad": np.zeros((0, 3), np.float32), "indices": np.zeros(0, np.int32)}
    for name, value in Update(case, data["before"], none).run(none).items():
        np.testing.assert_array_equal(value, data["before"][name])


def test_slots_of_another_shape_are_refused_when_the_graph_is_built() -> None:
    case = "ResourceApplyMomentum[use_nesterov=False]"
    data = fixture()[case]
    before = {**data["before"], "accum": np.zeros((5, 2), np.float32)}
    with pytest.raises(ValueError, match="ResourceApplyMomentum"):
        Update(case, before, data["input"])


def test_many_rows_with_repetitions_match_numpy() -> None:
    random = np.random.default_rng(3)
    size, count = 50, 400
    indices = random.integers(0, size, count)
    grad = random.normal(size=(count, 4))
    inputs = {"lr": np.float64(0.5), "grad": grad, "indices": indices, "momentum": np.float64(0.9)}
    before = {"var": random.normal(size=(size, 4)), "accum": random.normal(size=(size, 4))}
    after = Update("ResourceSparseApplyMomentum", before, inputs).run(inputs)
    summed = np.zeros((size, 4))
    np.add.at(summed, indices, grad)
    named = np.unique(indices)
    accum = before["accum"].copy()
    accum[named] = accum[named] * 0.9 + summed[named]
    var = before["var"].copy()
    var[named] -= 0.5 * accum[named]
    np.testing.assert_allclose(after["accum"], accum, rtol=1e-12)
    np.testing.assert_allclose(after["var"], var, rtol=1e-12)


def test_a_gradient_that_is_known_when_the_step_is_compiled() -> None:
    variable = tf.get_variable("variable", initializer=np.array([1.0, 2.0], np.float32), use_resource=True)
    update = tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=tf.constant(0.5), delta=tf.constant([2.0, 4.0])
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):  # directly, and compiled
            session.run(update)
        assert session.run(variable).tolist() == [-3.0, -6.0]
