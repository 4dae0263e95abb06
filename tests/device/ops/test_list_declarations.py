"""The shape that the elements of a list are declared with: kept by whatever is made of the list, and held to.

What is refused here and what is taken, genuine TensorFlow refuses and takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.graph.graph import Graph
from anabranch.pipeline import lowering_everything

R = tf.raw_ops


def _hidden(value: Any, dtype: Any = None) -> Any:
    return tf.placeholder_with_default(tf.constant(value, dtype), None)


def _ints(value: Any) -> Any:
    return tf.constant(value, tf.int32)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "reserve": lambda s: R.TensorListReserve(element_shape=_ints(s), num_elements=3, element_dtype=tf.float32),
    "empty": lambda s: R.TensorListPushBack(
        input_handle=R.EmptyTensorList(element_shape=_ints(s), max_num_elements=-1, element_dtype=tf.float32),
        tensor=tf.ones([1, 2]),
    ),
    "from tensor": lambda s: R.TensorListFromTensor(tensor=tf.ones([3, 1, 2]), element_shape=_ints(s)),
    "split": lambda s: R.TensorListSplit(
        tensor=tf.ones([3, 2]), element_shape=_ints(s), lengths=_hidden([1, 1, 1], tf.int64)
    ),
    "scatter": lambda s: R.TensorListScatterV2(
        tensor=tf.ones([3, 1, 2]), indices=_ints([0, 1, 2]), element_shape=_ints(s), num_elements=4
    ),
}


def _popped(h: Any) -> Any:
    longer = R.TensorListPushBack(input_handle=h, tensor=_hidden(np.ones([1, 2], np.float32)))
    return R.TensorListPopBack(input_handle=longer, element_shape=-1, element_dtype=tf.float32).output_handle


def _chosen(h: Any) -> Any:
    return tf.cond(_hidden(True), lambda: _popped(h), lambda: R.Identity(input=h))


def _looped(h: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, _popped(a)), (0, h))[1]


#: a list of the elements of another one
KEEPERS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda h: h,
    "resize": lambda h: R.TensorListResize(input_handle=h, size=5),
    "push and pop": _popped,
    "set": lambda h: R.TensorListSetItem(input_handle=h, index=0, item=_hidden(np.ones([1, 2], np.float32))),
    "scatter into": lambda h: R.TensorListScatterIntoExistingList(
        input_handle=h, tensor=tf.ones([1, 1, 2]), indices=_ints([0])
    ),
    "zeros": tf.zeros_like,
    "sum": lambda h: tf.add_n([h, h]),
    "conditional": _chosen,
    "loop": _looped,
}

#: what gives a list an element
TAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda h, x: R.TensorListSetItem(input_handle=h, index=0, item=x),
    "push": lambda h, x: R.TensorListPushBack(input_handle=h, tensor=x),
}

SHAPES = [[1, 2], [-1, 2], [-1, -1], -1]


def _fits(declared: Any, shape: list[int]) -> bool:
    return declared == -1 or tf.TensorShape([None if d < 0 else d for d in declared]).is_compatible_with(shape)


#: what passes a list on knows nothing of who made it, so that each way of making one takes one of those that take long
PASSED = [
    *((maker, keeper, False) for maker in MAKERS for keeper in KEEPERS if keeper not in ("conditional", "loop")),
    *(("reserve", "conditional", False), ("empty", "conditional", True)),
    *(("from tensor", "loop", False), ("split", "loop", True), ("scatter", "loop", False)),
]


@pytest.mark.parametrize(("maker", "keeper", "lowered"), PASSED)
def test_elements_of_another_shape_are_refused(maker: str, keeper: str, lowered: bool) -> None:
    with lowering_everything() if lowered else contextlib.nullcontext(), Graph().as_default(), tf.Session() as session:
        item = tf.placeholder(tf.float32, None)
        taken, shapes = [], []
        for declared in SHAPES:
            handle = KEEPERS[keeper](MAKERS[maker](declared))
            shapes.append(R.TensorListElementShape(input_handle=handle, shape_type=tf.int32))
            taken += [(declared, R.TensorListLength(input_handle=take(handle, item))) for take in TAKERS.values()]
        assert [shape.tolist() for shape in session.run(shapes)] == SHAPES
        for shape in ([1, 2], [1, 3], [2, 2], [2], []):
            feeds = {item: np.ones(shape, np.float32)}
            assert min(session.run([length for declared, length in taken if _fits(declared, shape)], feeds)) > 0
            for length in (length for declared, length in taken if not _fits(declared, shape)):
                with pytest.raises(errors.InvalidArgumentError, match="incompatible shape"):
                    session.run(length, feeds)


#: reading elements, given the shape that the operation states
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda h, s: R.TensorListGetItem(input_handle=h, index=0, element_shape=_ints(s), element_dtype=tf.float32),
    "stack": lambda h, s: R.TensorListStack(input_handle=h, element_shape=_ints(s), element_dtype=tf.float32),
    "gather": lambda h, s: R.TensorListGather(
        input_handle=h, indices=_ints([0]), element_shape=_ints(s), element_dtype=tf.float32
    ),
    "concat": lambda h, s: (
        R.TensorListConcatV2(
            input_handle=h, element_shape=_ints(s), leading_dims=tf.constant([], tf.int64), element_dtype=tf.float32
        ).tensor
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_stated_shape_that_contradicts_the_declared_one_is_refused(maker: str, reader: str) -> None:
    with Graph().as_default(), tf.Session() as session:
        read = [READERS[reader](MAKERS[maker]([1, 2]), stated) for stated in ([1, 2], [-1, 2], -1)]
        assert {value.size for value in session.run(read)} <= {2, 6, 8}
        for stated in ([1, 3], [-1, 3], [2], [1, 1, 2]):
            with pytest.raises((errors.InvalidArgumentError, ValueError)):
                session.run(READERS[reader](MAKERS[maker]([1, 2]), stated))


@pytest.mark.parametrize("stated", [[-1, 2], [3, 2]])
def test_nothing_is_concatenated_to_no_rows_of_the_stated_shape(stated: list[int]) -> None:
    with Graph().as_default(), tf.Session() as session:
        empty = R.EmptyTensorList(element_shape=_ints(-1), max_num_elements=-1, element_dtype=tf.float32)
        assert session.run(READERS["concat"](empty, stated)).shape == (0, 2)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(READERS["concat"](empty, -1))


def _empty(limit: int, shape: Any = -1) -> Any:
    return R.EmptyTensorList(element_shape=_ints(shape), max_num_elements=limit, element_dtype=tf.float32)


def _push(handle: Any, item: Any = 1.0) -> Any:
    return R.TensorListPushBack(input_handle=handle, tensor=item)


def _pop(handle: Any) -> Any:
    return R.TensorListPopBack(input_handle=handle, element_shape=_ints([]), element_dtype=tf.float32).output_handle


#: how many elements fit into a list that grows to two
GROWING: dict[str, tuple[Callable[[], Any], bool]] = {
    "two": (lambda: _push(_push(_empty(2))), True),
    "three": (lambda: _push(_push(_push(_empty(2)))), False),
    "any number": (lambda: _push(_push(_push(_empty(-1)))), True),
    "after one is taken": (lambda: _push(_pop(_push(_push(_empty(2, []))))), True),
    "after it was made longer": (lambda: _push(R.TensorListResize(input_handle=_empty(2), size=2)), False),
    "in a loop": (
        lambda: tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, _push(h)), [0, _empty(2, [])])[1],
        False,
    ),
    "in a branch": (lambda: tf.cond(_hidden(True), lambda: _push(_empty(0)), lambda: _empty(0)), False),
    "in the other branch": (lambda: tf.cond(_hidden(False), lambda: _push(_empty(0)), lambda: _empty(0)), True),
}


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("name", GROWING)
def test_a_list_grows_to_its_declared_number_of_elements(name: str, lowered: bool) -> None:
    make, fits = GROWING[name]
    with lowering_everything() if lowered else contextlib.nullcontext(), Graph().as_default(), tf.Session() as session:
        length = R.TensorListLength(input_handle=make())
        if fits:
            assert session.run(length) in {0, 2, 3}
            return
        with pytest.raises(errors.InvalidArgumentError, match="full list"):
            session.run(length)


#: what an operation of another dtype does with a list of float32
STRANGERS: dict[str, Callable[[Any], Any]] = {
    "get": lambda h: R.TensorListGetItem(input_handle=h, index=0, element_shape=_ints(-1), element_dtype=tf.int32),
    "stack": lambda h: R.TensorListStack(input_handle=h, element_shape=_ints(-1), element_dtype=tf.int32),
    "gather": lambda h: R.TensorListGather(
        input_handle=h, indices=_ints([0]), element_shape=_ints(-1), element_dtype=tf.int32
    ),
    "pop": lambda h: R.TensorListPopBack(input_handle=h, element_shape=_ints(-1), element_dtype=tf.int32).tensor,
    "concat": lambda h: (
        R.TensorListConcatV2(
            input_handle=h, element_shape=_ints(-1), leading_dims=tf.constant([], tf.int64), element_dtype=tf.int32
        ).tensor
    ),
    "set": lambda h: R.TensorListLength(
        input_handle=R.TensorListSetItem(input_handle=h, index=0, item=_ints([[1, 2]]))
    ),
    "push": lambda h: R.TensorListLength(input_handle=_push(h, _ints([[1, 2]]))),
    "scatter": lambda h: R.TensorListLength(
        input_handle=R.TensorListScatterIntoExistingList(input_handle=h, tensor=_ints([[[1, 2]]]), indices=_ints([0]))
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("lowered", [False, True])
def test_elements_of_another_dtype_are_refused(maker: str, name: str, lowered: bool) -> None:
    with lowering_everything() if lowered else contextlib.nullcontext(), Graph().as_default(), tf.Session() as session:
        strange = (
            tf.cond(
                _hidden(True),
                lambda: STRANGERS[name](MAKERS[maker]([1, 2])),
                lambda: 0 * STRANGERS[name](MAKERS[maker]([1, 2])),
            )
            if lowered
            else STRANGERS[name](MAKERS[maker]([1, 2]))
        )
        with pytest.raises(errors.InvalidArgumentError, match="Invalid data types"):
            session.run(strange)


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("declared", [-1, [-1], [2, -1]])
def test_nothing_is_stacked_where_the_shape_of_the_elements_is_open(declared: Any, lowered: bool) -> None:
    with lowering_everything() if lowered else contextlib.nullcontext(), Graph().as_default(), tf.Session() as session:
        for empty in (
            _empty(-1, declared),
            R.TensorListReserve(element_shape=_ints(declared), num_elements=_hidden(0), element_dtype=tf.float32),
        ):
            with pytest.raises(errors.InvalidArgumentError, match="elements of an empty list"):
                session.run(READERS["stack"](empty, -1))
            # a branch that is not taken is no error
            other = tf.cond(_hidden(False), lambda e=empty: READERS["stack"](e, -1), lambda: tf.zeros([3]))
            assert session.run(other).shape == (3,)
        assert session.run(READERS["stack"](_empty(-1, -1), [3, 2])).shape == (0, 3, 2)


@pytest.mark.parametrize(("rows", "indices"), [([1.0, 2.0], [0]), ([1.0], [0, 1]), (1.0, [0])])
def test_as_many_rows_are_scattered_as_there_are_indices(rows: Any, indices: list[int]) -> None:
    with Graph().as_default(), pytest.raises(ValueError, match="indices|rank"):
        R.TensorListScatterIntoExistingList(input_handle=_empty(-1), tensor=tf.constant(rows), indices=_ints(indices))
    with Graph().as_default(), tf.Session() as session:
        shape, count = _ints(-1), tf.constant(3)
        made = R.TensorListScatterV2(
            tensor=tf.constant(rows), indices=_ints(indices), element_shape=shape, num_elements=count
        )
        with pytest.raises(errors.InvalidArgumentError):
            session.run(R.TensorListLength(input_handle=made))
