"""Operations on lists of tensors, dense and on the host, and the operations that loops are made of.

TensorListReserve, EmptyTensorList, TensorListFromTensor, TensorListLength, TensorListElementShape, TensorListResize,
TensorListGetItem, TensorListSetItem, TensorListPushBack, TensorListPopBack, TensorListStack, TensorListGather,
TensorListScatterIntoExistingList, TensorListScatterV2, TensorListSplit, TensorListConcatV2; _TensorListAdd,
_TensorListAddItems, _TensorListZeros, _TensorListZerosLike; While, StatelessWhile, _RecordingWhile, _LoopRecords,
_LoopBound, _DeviceLoopBound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.core.kernel_context import KernelContext
from anabranch.errors import InternalError
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.ops import raw
from anabranch.ops.lists.tensor_list import TensorListAdd, TensorListZeros, TensorListZerosLike
from anabranch.pipeline import plan_step
from anabranch.session import Session

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])


def placeholder(shape: Any = (3, 2), dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def dense(x: Any) -> Any:
    return raw.TensorListFromTensor(x, [2])


def ragged(x: Any) -> Any:
    """The same list, made by host kernels only."""
    return raw.TensorListSplit(raw.Reshape(x, [6]), [-1], placeholder_lengths())


def placeholder_lengths() -> Any:
    return raw.PlaceholderWithDefault(np.array([2, 2, 2], np.int64), shape=[None])


FORMS = [dense, ragged]


def stack(handle: Any) -> Any:
    return raw.TensorListStack(handle, [2], element_dtype="float64")


def item(handle: Any, index: int) -> Any:
    return raw.TensorListGetItem(handle, index, [2], element_dtype="float64")


USES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "get": (lambda h, x: item(h, 1), lambda v: v[1]),
    "set": (
        lambda h, x: stack(raw.TensorListSetItem(h, 2, raw.Square(item(h, 0)))),
        lambda v: np.stack([v[0], v[1], v[0] ** 2]),
    ),
    "push": (
        lambda h, x: stack(raw.TensorListPushBack(h, raw.Mul(item(h, 0), item(h, 1)))),
        lambda v: np.stack([*v, v[0] * v[1]]),
    ),
    "pop": (
        lambda h, x: raw.AddV2(
            raw.Sum(stack(raw.TensorListPopBack(h, [2], element_dtype="float64").output_handle), [0]),
            raw.Square(raw.TensorListPopBack(h, [2], element_dtype="float64").tensor),
        ),
        lambda v: v[0] + v[1] + v[2] ** 2,
    ),
    "gather": (
        lambda h, x: raw.Square(raw.TensorListGather(h, [2, 0, 2], [2], element_dtype="float64")),
        lambda v: v[[2, 0, 2]] ** 2,
    ),
    "scatter into": (
        lambda h, x: stack(raw.TensorListScatterIntoExistingList(h, raw.Square(stack(h)), [2, 1, 0])),
        lambda v: v[::-1] ** 2,
    ),
    "resize": (lambda h, x: stack(raw.TensorListResize(h, 2)), lambda v: v[:2]),
    "concat": (
        lambda h, x: raw.Square(raw.TensorListConcatV2(h, [2], np.zeros(0, np.int64), element_dtype="float64").tensor),
        lambda v: v.reshape(-1) ** 2,
    ),
    "add": (
        lambda h, x: stack(
            TensorListAdd(h, TensorListAdd(raw.TensorListSetItem(h, 0, item(h, 1)), TensorListZeros(h)))
        ),
        lambda v: v + np.stack([v[1], v[1], v[2]]),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", sorted(USES))
def test_values_and_gradients(form: Any, use: str) -> None:
    build, oracle = USES[use]
    x = placeholder()
    y = build(form(x), x)
    weights = np.random.default_rng(1).normal(size=oracle(X).shape)
    (dx,) = gradients(y, x, grad_ys=convert_to_tensor(weights))
    value, grad = run([y, convert_to_tensor(dx)], {x: X})
    np.testing.assert_allclose(value, oracle(X))
    numeric = np.zeros_like(X)
    for at in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[at] = 1e-6
        numeric[at] = ((oracle(X + step) - oracle(X - step)) * weights).sum() / 2e-6
    np.testing.assert_allclose(grad, numeric, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_lengths_shapes_and_zeros(form: Any) -> None:
    handle = form(placeholder(name="y"))
    feeds = {get_default_graph().get_tensor_by_name("y:0"): X}
    fetches = [
        raw.TensorListLength(handle),
        raw.TensorListElementShape(handle, shape_type="int32"),
        stack(TensorListZeros(handle)),
        stack(TensorListZerosLike(handle)),
    ]
    length, shape, *zeros = run(fetches, feeds)
    assert length == 3
    assert shape.tolist() == ([2] if form is dense else [-1]), "what the list was declared with"
    for value in zeros:
        np.testing.assert_array_equal(value, np.zeros((3, 2)))


def test_new_lists() -> None:
    reserved = raw.TensorListReserve([2], 3, element_dtype="float64")
    empty = raw.EmptyTensorList([2], -1, element_dtype="float64")
    scattered = raw.TensorListScatterV2(convert_to_tensor(X), [2, 0, 1], [2], 4)
    got = run(
        [stack(reserved), raw.TensorListLength(empty), stack(raw.TensorListPushBack(empty, X[0])), stack(scattered)]
    )
    np.testing.assert_array_equal(got[0], np.zeros((3, 2)))
    assert got[1] == 0
    np.testing.assert_array_equal(got[2], X[:1])
    np.testing.assert_array_equal(got[3], [X[1], X[2], X[0], [0, 0]])


def test_a_loop_and_what_its_gradient_adds_beside_it() -> None:
    x, n = placeholder([]), placeholder([], "int32", "n")
    limits: tuple[Any, ...] = (3, n)
    types = []
    for limit in limits:
        y = while_loop(
            lambda i, y, limit=limit: raw.Less(i, limit), lambda i, y: (raw.AddV2(i, 1), raw.Mul(raw.Sin(y), y)), (0, x)
        )[1]
        assert y.op.type == "StatelessWhile"
        dx = gradients(y, x)[0]
        (records,) = y.op.control_outputs
        types.append((y.op.type, records.type, records.inputs[0].op.type))
        planned = [op.type for op in plan_step([y, dx], [], [x, n]).step.operations]
        assert planned.count("_RecordingWhile") == 2, "the loop, and its gradient"
        assert not {"StatelessWhile", "_LoopRecords"} & {*planned}
    assert types == [("StatelessWhile", "_LoopRecords", f"_{kind}LoopBound") for kind in ("", "Device")]


def test_what_stands_beside_a_loop_runs_as_a_part_of_it() -> None:
    x = placeholder([])
    y = while_loop(lambda i, _: raw.Less(i, 3), lambda i, y: (raw.AddV2(i, 1), raw.Mul(y, y)), (0, x))[1]
    gradients(y, x)
    (records,) = y.op.control_outputs
    kernel = BoundKernel(records, records.op_def.host_rule, ctx=KernelContext(records))
    with pytest.raises(InternalError, match="is part of the operation that it waits for"):
        kernel([3, 0, 1.5])


def test_an_exported_loop_runs_again() -> None:
    x = placeholder([])
    y = while_loop(lambda i, y: raw.Less(i, 3), lambda i, y: (raw.AddV2(i, 1), raw.Mul(y, y)), (0, x))[1]
    dx = gradients(y, x)[0]
    names = [x.name, y.name, dx.name]
    message = get_default_graph().as_graph_def()
    other = Graph()
    with other.as_default():
        import_graph_def(message, name="")
    x, y, dx = (other.get_tensor_by_name(name) for name in names)
    with Session(graph=other) as session:
        np.testing.assert_allclose(session.run([y, dx], {x: 1.5}), [1.5**8, 8 * 1.5**7])
