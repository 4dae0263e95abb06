"""Variables as resources: assigning, reading, gathering and scattering rows, errors that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.autodiff.gradients import gradients
from anabranch.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, OutOfRangeError
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session

Array = np.ndarray[Any, Any]
TABLE = np.arange(1, 13, dtype=np.float32).reshape(4, 3)


class Variable:
    """A graph with one variable and a session in which it holds `value`."""

    def __init__(self, value: Any = TABLE, shape: Any = None, initialize: bool = True) -> None:
        self.value = np.asarray(value)
        self.graph = Graph()
        self.session = Session(graph=self.graph)
        with self.graph.as_default():
            static = self.value.shape if shape is None else shape
            self.handle = raw.VarHandleOp(dtype=self.value.dtype, shape=static, shared_name="table")
            self.reading = raw.ReadVariableOp(self.handle, dtype=self.value.dtype)
            self.init = raw.AssignVariableOp(self.handle, self.value)
        if initialize:
            self.session.run(self.init)

    def run(self, op: str, *args: Any, **attrs: Any) -> Any:
        """Runs a new operation on the variable; arguments are fed, so that nothing about them is known."""
        with self.graph.as_default():
            fed = {self._placeholder(a): a for a in args}
            return self.session.run(getattr(raw, op)(self.handle, *fed, **attrs), fed)

    def _placeholder(self, value: Any) -> Any:
        array = np.asarray(value)
        return raw.Placeholder(dtype=np.int32 if array.dtype == np.int64 else array.dtype)

    def read(self) -> Array:
        value: Array = self.session.run(self.reading)
        return value


# ---------------------------------------------------------------------- whole values
def test_assign_and_read() -> None:
    variable = Variable()
    variable.run("AssignVariableOp", TABLE * 2)
    np.testing.assert_array_equal(variable.read(), TABLE * 2)


def test_assign_add_and_sub() -> None:
    variable = Variable()
    variable.run("AssignAddVariableOp", TABLE)
    variable.run("AssignSubVariableOp", np.ones_like(TABLE))
    np.testing.assert_array_equal(variable.read(), TABLE * 2 - 1)


def test_a_variable_of_partial_shape_can_change_its_size() -> None:
    variable = Variable(shape=[None, 3])
    variable.run("AssignVariableOp", TABLE[:2])
    assert variable.run("VariableShape").tolist() == [2, 3]
    with pytest.raises(ValueError, match="AssignVariableOp"), variable.graph.as_default():
        raw.AssignVariableOp(variable.handle, np.zeros((2, 2), np.float32))


def test_reading_before_initializing_is_an_error() -> None:
    variable = Variable(initialize=False)
    assert not variable.run("VarIsInitializedOp")
    with pytest.raises(FailedPreconditionError, match="table"):
        variable.read()
    variable.session.run(variable.init)
    assert variable.run("VarIsInitializedOp")


def test_destroy() -> None:
    variable = Variable()
    variable.run("DestroyResourceOp")
    assert not variable.run("VarIsInitializedOp")
    variable.run("DestroyResourceOp")
    with pytest.raises(NotFoundError, match="table"):
        variable.run("DestroyResourceOp", ignore_lookup_error=False)


def test_count_up_to_stops_at_its_limit() -> None:
    variable = Variable(np.int64(0))
    assert [variable.run("ResourceCountUpTo", limit=2, T="int64") for _ in range(2)] == [0, 1]
    with pytest.raises(OutOfRangeError, match="limit of 2"):
        variable.run("ResourceCountUpTo", limit=2, T="int64")
    assert variable.read() == 2


# ---------------------------------------------------------------------- reading rows
@pytest.mark.parametrize("indices", [[2, 0, 2], [[1], [3]], 3, np.zeros((0,), np.int32), np.zeros((2, 0), np.int32)])
def test_gather(indices: Any) -> None:
    found = Variable().run("ResourceGather", indices, dtype="float32")
    np.testing.assert_array_equal(found, TABLE[np.asarray(indices, np.int32)])


def test_gather_with_batch_dimensions() -> None:
    value, indices = np.arange(24.0).reshape(2, 4, 3), np.array([[3, 0], [1, 1]])
    found = Variable(value).run("ResourceGather", indices, dtype="float64", batch_dims=1)
    np.testing.assert_array_equal(found, np.take_along_axis(value, indices[..., None], 1))


def test_gather_nd() -> None:
    indices = np.array([[3, 1], [0, 2]])
    np.testing.assert_array_equal(Variable().run("ResourceGatherNd", indices, dtype="float32"), TABLE[[3, 0], [1, 2]])
    np.testing.assert_array_equal(Variable().run("ResourceGatherNd", [[3], [1]], dtype="float32"), TABLE[[3, 1]])


@pytest.mark.parametrize(("indices", "message"), [([0, 4], r"indices\[1\] = 4 .* \[0, 4\)"), ([[-1]], "-1")])
def test_gather_out_of_range(indices: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Variable().run("ResourceGather", indices, dtype="float32")


def test_gather_nd_out_of_range() -> None:
    with pytest.raises(InvalidArgumentError, match=r"indices\[1\] = \[2 3\] does not index into param shape \[4, 3\]"):
        Variable().run("ResourceGatherNd", [[0, 0], [2, 3]], dtype="float32")


def test_static_shapes_of_gathers() -> None:
    variable = Variable()
    with variable.graph.as_default():
        indices = raw.Placeholder(dtype="int32", shape=[None, 2])
        assert raw.ResourceGather(variable.handle, indices, dtype="float32").shape.as_list() == [None, 2, 3]
        assert raw.ResourceGatherNd(variable.handle, indices, dtype="float32").shape.as_list() == [None]
        with pytest.raises(ValueError, match="too long"):
            raw.ResourceGatherNd(variable.handle, [[1, 1, 1]], dtype="float32")


def test_what_little_is_known_of_shapes_is_compared() -> None:
    unknown = tf.placeholder(tf.int32, None)
    with pytest.raises(ValueError, match="out of valid range"):
        tf.gather(tf.zeros([4]), unknown, axis=1)
    assert tf.gather(tf.zeros([4]), unknown, axis=-1).shape.ndims is None
    shape = tf.placeholder(tf.int32, None)
    with pytest.raises(ValueError, match="outer 1 dimensions"):
        tf.scatter_nd([[0]], tf.zeros([3, 3]), shape)
    assert tf.scatter_nd([[0]], tf.placeholder(tf.float32, [None, 3]), shape).shape.ndims is None


def test_the_gradient_of_a_gather_is_sparse() -> None:
    variable = Variable()
    with variable.graph.as_default():
        rows = raw.ResourceGather(variable.handle, [[2, 0], [2, 1]], dtype="float32")
        (grad,) = gradients(raw.Mul(rows, rows), [variable.handle])
    assert isinstance(grad, IndexedSlices)
    values, indices, shape = variable.session.run([grad.values, grad.indices, grad.dense_shape])
    np.testing.assert_array_equal(indices, [2, 0, 2, 1])
    np.testing.assert_array_equal(values, 2 * TABLE[[2, 0, 2, 1]])
    np.testing.assert_array_equal(shape, [4, 3])


def test_the_gradient_of_a_gather_with_batch_dimensions() -> None:
    value, indices = np.arange(24.0).reshape(2, 4, 3), np.array([[3, 0], [1, 1]])
    variable = Variable(value)
    with variable.graph.as_default():
        (grad,) = gradients(
            raw.ResourceGather(variable.handle, indices, dtype="float64", batch_dims=1), [variable.handle]
        )
    expected = np.zeros_like(value)
    np.add.at(expected, ([[0], [1]], indices), 1.0)
    np.testing.assert_array_equal(variable.session.run(grad), expected)


@pytest.mark.parametrize(("indices", "sparse"), [([[2], [2]], True), ([[2, 1], [2, 1]], False)])
def test_the_gradient_of_gather_nd(indices: Any, sparse: bool) -> None:
    variable = Variable()
    with variable.graph.as_default():
        picked = raw.ResourceGatherNd(variable.handle, np.array(indices, np.int32), dtype="float32")
        (grad,) = gradients(picked, [variable.handle])
    assert isinstance(grad, IndexedSlices) == sparse
    expected = np.zeros_like(TABLE)
    np.add.at(expected, tuple(np.array(indices).T), 1.0)
    if sparse:
        values, rows = variable.session.run([grad.values, grad.indices])
        dense = np.zeros_like(TABLE)
        np.add.at(dense, rows, values)
    else:
        dense = variable.session.run(grad)
    np.testing.assert_array_equal(dense, expected)


# ---------------------------------------------------------------------- changing rows
#: what each scatter does, on a copy of the table
ROW_ORACLES: dict[str, Any] = {
    "ResourceScatterUpdate": lambda table, at, updates: table.__setitem__(at, updates),
    "ResourceScatterAdd": np.add.at,
    "ResourceScatterSub": np.subtract.at,
    "ResourceScatterMul": np.multiply.at,
    "ResourceScatterDiv": np.divide.at,
    "ResourceScatterMin": np.minimum.at,
    "ResourceScatterMax": np.maximum.at,
}
ELEMENT_ORACLES: dict[str, Any] = {
    "ResourceScatterNdUpdate": ROW_ORACLES["ResourceScatterUpdate"],
    "ResourceScatterNdAdd": np.add.at,
    "ResourceScatterNdSub": np.subtract.at,
    "ResourceScatterNdMin": np.minimum.at,
    "ResourceScatterNdMax": np.maximum.at,
}


@pytest.mark.parametrize("op", ROW_ORACLES)
@pytest.mark.parametrize("indices", [[2, 0], [[3], [1]], 1, np.zeros(0, np.int32)])
def test_row_scatters(op: str, indices: Any) -> None:
    at = np.asarray(indices, np.int32)
    updates = np.random.default_rng(0).uniform(0.5, 9, (*at.shape, 3)).astype(np.float32)
    variable, expected = Variable(), TABLE.copy()
    variable.run(op, at, updates)
    ROW_ORACLES[op](expected, at, updates)
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)


@pytest.mark.parametrize("op", [op for op in ROW_ORACLES if op != "ResourceScatterUpdate"])
def test_row_scatters_combine_repeated_rows(op: str) -> None:
    at = np.array([2, 0, 2, 2], np.int32)
    updates = np.random.default_rng(1).uniform(0.5, 9, (4, 3)).astype(np.float32)
    variable, expected = Variable(), TABLE.copy()
    variable.run(op, at, updates)
    ROW_ORACLES[op](expected, at, updates)
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)


@pytest.mark.parametrize("op", ROW_ORACLES)
def test_row_scatters_take_a_scalar(op: str) -> None:
    variable, expected = Variable(), TABLE.copy()
    variable.run(op, np.array([3, 1], np.int32), np.float32(4))
    ROW_ORACLES[op](expected, [3, 1], np.float32(4))
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)


def test_integers_are_divided_towards_zero() -> None:
    variable = Variable(np.array([[7, -7, 9], [1, 2, 3]], np.int32))
    variable.run("ResourceScatterDiv", np.array([0, 0], np.int32), np.array([[2, 2, -2], [2, 1, 1]], np.int32))
    np.testing.assert_array_equal(variable.read(), [[1, -3, -4], [1, 2, 3]])


@pytest.mark.parametrize("op", ELEMENT_ORACLES)
@pytest.mark.parametrize("indices", [[[2, 1], [0, 0]], [[2], [3]], [[[1, 2]], [[3, 0]]]])
def test_element_scatters(op: str, indices: Any) -> None:
    at = np.asarray(indices, np.int32)
    updates = (
        np.random.default_rng(0).uniform(0.5, 9, (*at.shape[:-1], *TABLE.shape[at.shape[-1] :])).astype(np.float32)
    )
    variable, expected = Variable(), TABLE.copy()
    variable.run(op, at, updates)
    ELEMENT_ORACLES[op](expected, tuple(np.moveaxis(at, -1, 0)), updates)
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)


def test_an_element_scatter_may_ignore_bad_indices() -> None:
    variable, expected = Variable(), TABLE.copy()
    variable.run(
        "ResourceScatterNdAdd",
        np.array([[-1, 0], [1, 1], [0, 3]], np.int32),
        np.ones(3, np.float32),
        bad_indices_policy="IGNORE",
    )
    expected[1, 1] += 1
    np.testing.assert_array_equal(variable.read(), expected)


@pytest.mark.parametrize("bad", [-1, 4])
@pytest.mark.parametrize("op", [*ROW_ORACLES, *ELEMENT_ORACLES])
def test_an_index_out_of_range_changes_nothing(op: str, bad: int) -> None:
    variable = Variable()
    at = np.array([0, bad], np.int32)
    updates = np.full((2, 3), 3, np.float32)
    with pytest.raises(InvalidArgumentError, match=rf"indices\[1\] = \[?{bad}"):
        variable.run(op, at[:, None] if op in ELEMENT_ORACLES else at, updates)
    assert variable.read().tobytes() == TABLE.tobytes()


@pytest.mark.parametrize("op", [*ROW_ORACLES, *ELEMENT_ORACLES])
def test_constant_indices_are_checked_as_well(op: str) -> None:
    variable, expected = Variable(), TABLE.copy()
    nested = op in ELEMENT_ORACLES
    with variable.graph.as_default():
        good, bad = (getattr(raw, op)(variable.handle, [[at]] if nested else [at], TABLE[:1] + 2) for at in (2, 9))
    variable.session.run(good)
    (ELEMENT_ORACLES if nested else ROW_ORACLES)[op](expected, ([2],) if nested else [2], TABLE[:1] + 2)
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match=r"indices\[0\] = \[?9"):
        variable.session.run(bad)
    np.testing.assert_allclose(variable.read(), expected, rtol=1e-6)


def test_constant_indices_of_gathers() -> None:
    variable = Variable()
    with variable.graph.as_default():
        made = [raw.ResourceGather(variable.handle, i, dtype="float32") for i in ([2, 0], [2, 9])]
        made += [raw.ResourceGatherNd(variable.handle, i, dtype="float32") for i in ([[2, 0]], [[2, 9]])]
    rows, elements = variable.session.run([made[0], made[2]])
    np.testing.assert_array_equal(rows, TABLE[[2, 0]])
    np.testing.assert_array_equal(elements, TABLE[[2], [0]])
    for bad, message in ((made[1], r"indices\[1\] = 9"), (made[3], r"indices\[0\] = \[2 9\]")):
        with pytest.raises(InvalidArgumentError, match=message):
            variable.session.run(bad)


def test_a_check_elsewhere_in_the_step_stops_a_scatter_as_well() -> None:
    variable = Variable()
    with variable.graph.as_default():
        good = raw.Placeholder(dtype="int32", shape=[1])
        bad = raw.Placeholder(dtype="int32", shape=[1])
        scatter = raw.ResourceScatterAdd(variable.handle, good, np.ones((1, 3), np.float32))
        gather = raw.GatherV2(np.arange(3.0), bad, 0)
    with pytest.raises(InvalidArgumentError, match="5 is not in"):
        variable.session.run([scatter, gather], {good: [1], bad: [5]})
    assert variable.read().tobytes() == TABLE.tobytes()
    variable.session.run([scatter, gather], {good: [1], bad: [2]})
    np.testing.assert_array_equal(variable.read()[1], TABLE[1] + 1)


def test_updates_of_another_shape_are_refused_when_the_graph_is_built() -> None:
    variable = Variable()
    with variable.graph.as_default(), pytest.raises(ValueError, match="updates must be a scalar or have shape"):
        raw.ResourceScatterAdd(variable.handle, [1, 2], np.ones((2, 2), np.float32))
    with variable.graph.as_default(), pytest.raises(ValueError, match="updates must have shape"):
        raw.ResourceScatterNdAdd(variable.handle, [[1, 2]], np.ones((2,), np.float32))
