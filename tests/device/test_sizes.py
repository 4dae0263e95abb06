"""Sizes that 64 bits cannot count or no memory holds: errors that name the operation, never the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.core import sizes
from anabranch.graph.graph import Graph
from anabranch.runtime import host_sizes
from anabranch.xla.executable import EAGER_VARIANTS
from tests.device.refusals import refused

HUGE = 2**40


def vector(n: int) -> Any:
    return tf.placeholder(tf.int64, [n], name="sizes")


def scalar() -> Any:
    return tf.placeholder(tf.int64, [], name="sizes")


def gradient_of_fill() -> Any:
    value = tf.constant(1.0)
    return tf.gradients(tf.fill(vector(2), value), value)


#: what makes a tensor of a fed size, and the feed; each result, or something inside of its kernel, overflows 64 bits
OVERFLOWING: dict[str, tuple[Callable[[], Any], Any]] = {
    "fill": (lambda: tf.fill(vector(2), 1.0), [HUGE, HUGE]),
    "fill_with_none": (lambda: tf.fill(vector(3), 1.0), [0, HUGE, HUGE]),
    "fill_strings": (lambda: tf.fill(vector(2), "a"), [HUGE, HUGE]),
    "fill_bytes": (lambda: tf.fill(vector(1), np.int16(1)), [2**62]),
    "fill_negative": (lambda: tf.fill(vector(1), 1.0), [-(2**63)]),
    "broadcast_to": (lambda: tf.broadcast_to(1.0, vector(2)), [HUGE, HUGE]),
    "tile": (lambda: tf.tile([[1.0]], vector(2)), [HUGE, HUGE]),
    "tile_strings": (lambda: tf.tile([["a"]], vector(2)), [HUGE, HUGE]),
    "pad": (lambda: tf.pad([1.0], tf.reshape(vector(2), [1, 2])), [2**62, 2**62]),
    "random_normal": (lambda: tf.random_normal(vector(2)), [HUGE, HUGE]),
    "random_gamma": (lambda: tf.random_gamma(vector(2), 1.0), [HUGE, HUGE]),
    "scatter_nd": (lambda: tf.scatter_nd(np.int64([[0, 0]]), [1.0], vector(2)), [HUGE, HUGE]),
    "unsorted_segment_sum": (lambda: tf.unsorted_segment_sum([[1.0]], [0], scalar()), 2**62),
    "range": (lambda: tf.range(scalar()), 2**62),
    "reduced": (lambda: tf.reduce_sum(tf.fill(vector(2), 1.0)), [HUGE, HUGE]),
    "shape_of": (lambda: tf.reduce_max(tf.fill(vector(2), 1.0)[:1, :1]), [HUGE, HUGE]),
    "gradient": (gradient_of_fill, [HUGE, HUGE]),
    "in_a_branch": (lambda: tf.cond(tf.size(vector(2)) > 0, lambda: tf.zeros([HUGE, HUGE]), lambda: 0.0), [1, 1]),
    "in_a_loop": (
        lambda: tf.while_loop(lambda i: i < 2.0, lambda i: i + tf.reduce_sum(tf.ones([HUGE, HUGE])), [0.0]),
        1,
    ),
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_products_that_overflow(name: str) -> None:
    make, value = OVERFLOWING[name]
    with Graph().as_default() as graph, tf.Session() as session:
        result = make()
        feeds = {op.outputs[0]: value for op in graph.get_operations() if op.name == "sizes"}
        with pytest.raises(errors.InvalidArgumentError) as caught:
            session.run(result, feeds)
        assert caught.value.op is not None
        assert "test_sizes.py" in str(caught.value)


def test_the_error_names_the_operation_and_its_line() -> None:
    with Graph().as_default(), tf.Session() as session:
        size = tf.placeholder(tf.int64, [2])
        filled = tf.fill(size, 1.0, name="plenty")  # filled
        with refused(errors.InvalidArgumentError, "'plenty'", str(HUGE), "overflows 64 bits", line="filled"):
            session.run(tf.reduce_sum(filled), {size: [HUGE, HUGE]})


@pytest.mark.parametrize("value", [1.0, "text"])
def test_what_no_memory_holds(value: Any) -> None:
    with Graph().as_default(), tf.Session() as session:
        size = tf.placeholder(tf.int64, [1])
        filled = tf.fill(size, value, name="plenty")  # too large
        with refused(
            errors.ResourceExhaustedError, "OOM when allocating tensor with shape", "plenty", line="too large"
        ):
            session.run(filled, {size: [10**13]})


def test_the_memory_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "available_memory", lambda: 1 << 30)
    with pytest.raises(errors.ResourceExhaustedError, match="1,073,741,824 are available"):
        sizes.check_storable([1 << 29], np.float32)
    sizes.check_storable([1 << 28], np.float32)
    sizes.check_storable([0, 1 << 40], np.float32)


def hollow_loop(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]


#: what meets arrays that have no elements, but a huge dimension before the one of 0, as argument, result or in between
HOLLOW: dict[str, Callable[[Any, Any], Any]] = {
    "given_back": lambda x, n: tf.identity(x),
    "element_by_element": lambda x, n: tf.sin(x) + 1,
    "in_between": lambda x, n: tf.reduce_sum(x + 1),
    "made": lambda x, n: tf.random_uniform([n, 0], seed=1),
    "made_inside": lambda x, n: tf.reduce_sum(tf.random_uniform([n, 0], seed=1)),
    "in_a_loop": lambda x, n: hollow_loop(x),
    "in_a_branch": lambda x, n: tf.cond(n > 0, lambda: tf.reduce_sum(tf.sin(x)), lambda: 0.0),
    "gradient": lambda x, n: tf.gradients(tf.reduce_sum(tf.sin(x)), x),
    "gathered": lambda x, n: tf.gather(x, tf.zeros([0], tf.int32), axis=1),
    "transposed": lambda x, n: tf.transpose(tf.random_uniform([0, n], seed=1)),
    "after_host_work": lambda x, n: tf.py_func(lambda value: value, [x], tf.float32) + 1,
}


@pytest.mark.parametrize("n", [2**31 - 1, 2**24 + 1])
@pytest.mark.parametrize("name", HOLLOW)
def test_arrays_without_elements_that_XLA_cannot_write_down(name: str, n: int) -> None:
    with Graph().as_default(), tf.Session() as session:
        x, size = tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.int32, [])
        made = HOLLOW[name](x, size)
        with pytest.raises(errors.ResourceExhaustedError, match="has no elements") as caught:
            session.run(made, {x: np.zeros((n, 0)), size: n})
        assert caught.value.op is not None


@pytest.mark.parametrize("name", HOLLOW)
def test_small_arrays_without_elements(name: str) -> None:
    with Graph().as_default(), tf.Session() as session:
        x, size = tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.int32, [])
        result = session.run(HOLLOW[name](x, size), {x: np.zeros((7, 0)), size: 7})
        assert np.size(result) == 0 or np.all(np.equal(result, 0))


def test_lists_of_elements_without_elements() -> None:
    with Graph().as_default(), tf.Session() as session:
        rows = tf.TensorArray(tf.float32, 2**31 - 1, element_shape=[0]).stack()
        with pytest.raises(errors.ResourceExhaustedError, match="has no elements"):
            session.run(rows)


def long_list(size: Any, **more: Any) -> Any:
    return tf.raw_ops.TensorListReserve(element_shape=-1, num_elements=size, element_dtype=tf.float32, **more)


#: lists of so many elements that only the step knows how many
LONG_LISTS: dict[str, Callable[[Any], Any]] = {
    "reserved": long_list,
    "array": lambda n: tf.TensorArray(tf.float32, n).write(0, [1.0]).flow,
    "resized": lambda n: tf.raw_ops.TensorListResize(input_handle=long_list(1), size=n),
    "written": lambda n: tf.raw_ops.TensorListSetItem(
        input_handle=long_list(1), index=n - 1, item=[1.0], resize_if_index_out_of_bounds=True
    ),
    "scattered": lambda n: tf.raw_ops.TensorListScatterV2(
        tensor=[[1.0]], indices=[0], element_shape=-1, num_elements=n
    ),
    "scattered_to": lambda n: tf.raw_ops.TensorListScatterV2(
        tensor=[[1.0]], indices=[n - 1], element_shape=-1, num_elements=-1
    ),
    # these are no lists, but dense all the same
    "made_dense": lambda n: tf.sparse_to_dense([0], tf.stack([n]), 1.0),
    "multiplied": lambda n: tf.raw_ops.SparseTensorDenseMatMul(
        a_indices=np.zeros((1, 2), np.int64), a_values=[1.0], a_shape=tf.cast(tf.stack([n, 1]), tf.int64), b=[[1.0]]
    ),
    "stitched": lambda n: tf.dynamic_stitch([tf.stack([n - 1])], [[1.0]]),
}


@pytest.mark.parametrize("name", LONG_LISTS)
def test_lists_that_no_memory_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "available_memory", lambda: 1 << 30)
    with Graph().as_default(), tf.Session() as session:
        size = tf.placeholder(tf.int32, [])
        made = LONG_LISTS[name](size)
        length = made if made.dtype != tf.variant else tf.raw_ops.TensorListLength(input_handle=made)
        with pytest.raises(errors.ResourceExhaustedError, match="OOM when allocating"):
            session.run(length, {size: 2**31 - 1})


def test_arrays_without_elements_whose_large_dimension_comes_last() -> None:
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, None])
        assert session.run(tf.sin(x), {x: np.zeros((0, 2**31 - 1))}).shape == (0, 2**31 - 1)


def test_a_shape_is_known_of_any_array_without_elements() -> None:
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, None])
        assert session.run([tf.shape(x), tf.size(x)], {x: np.zeros((2**31 - 1, 0))})[0].tolist() == [2**31 - 1, 0]


def test_what_is_interpreted_first_is_looked_at_too() -> None:
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, None])
        sorted_rows = tf.cumsum(tf.sort(tf.sin(x)))
        for columns in range(1, 2 + EAGER_VARIANTS):
            session.run(sorted_rows, {x: np.zeros((1, columns))})
        with pytest.raises(errors.ResourceExhaustedError, match="has no elements"):
            session.run(sorted_rows, {x: np.zeros((2**31 - 1, 0))})


def test_more_tensors_than_an_operation_has() -> None:
    with Graph().as_default() as graph:
        parts = tf.split(tf.placeholder(tf.float32, [4]), 2)
        graph_def = graph.as_graph_def()
        assert len(parts) == 2
    next(n for n in graph_def.node if n.op == "Split").attr["num_split"].i = 2**40
    with Graph().as_default(), pytest.raises(ValueError, match="num_split = 1099511627776 tensors"):
        tf.import_graph_def(graph_def)


def test_rows_and_reshapes_are_not_traced_for_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes are known to be no more than these, so that no step waits for a trace."""
    traced: list[str] = []
    trace = host_sizes.HostSizes._traced
    monkeypatch.setattr(
        host_sizes.HostSizes, "_traced", lambda self, *a: (traced.append(self._op.type), trace(self, *a))[1]
    )
    x, count = tf.placeholder(tf.float32, [None, 512]), tf.placeholder(tf.int32, [])
    kept = tf.boolean_mask(x, x[:, 0] >= 0)
    ids = tf.zeros([tf.shape(kept)[0]], tf.int32)
    sums = tf.math.unsorted_segment_sum(tf.reshape(kept, [-1, 512]), ids, count)
    given = np.ones((300, 512), np.float32)
    with tf.Session() as session:
        assert session.run(sums, {x: given, count: 1024})[0].tolist() == [300] * 512
        assert not traced
        with pytest.raises((tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError)):
            session.run(sums, {x: given[:0], count: 2**31 - 1})
    assert traced == ["UnsortedSegmentSum"]
