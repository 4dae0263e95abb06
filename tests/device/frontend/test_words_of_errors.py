"""Errors whose words programs and tests of TensorFlow's time look for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf


def _indexed(index: int) -> Any:
    array = tf.TensorArray(tf.float32, 3).unstack([1.0, 2.0, 3.0])
    return array.read(tf.placeholder_with_default(index, []))


def _concatenated_ranks() -> Any:
    array = tf.TensorArray(tf.float32, 2, infer_shape=False)
    return array.write(0, [1.0]).write(1, [[2.0]]).concat()


def _concatenated() -> Any:
    return tf.TensorArray(tf.float32, 2).unstack([1.0, 2.0]).concat()


def _split(rows: int) -> Any:
    lengths = tf.placeholder_with_default([rows], [1])
    return tf.TensorArray(tf.float32, 1, infer_shape=False).split([1.0, 2.0, 3.0], lengths).read(0)


def _reshaped(shape: list[int]) -> Any:
    given = tf.placeholder_with_default(tf.constant([5, 6], tf.int64), [2])
    wanted = tf.placeholder_with_default(tf.constant(shape, tf.int64), [len(shape)])
    return tf.sparse_reshape(tf.SparseTensor([[0, 0]], [1.0], given), wanted)


def _cross_entropy(labels: Any) -> Any:
    given = tf.placeholder_with_default(labels, None)
    return tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=tf.zeros([2, 4]), labels=given)[0]


def _sparse(shape: list[int]) -> Any:
    given = tf.placeholder_with_default(tf.constant(shape, tf.int64), None)
    return tf.SparseTensor([[0] * len(shape)], [1.0], given)


def _reset(shape: list[int]) -> Any:
    wanted = tf.placeholder_with_default(tf.constant(shape), None)
    return tf.sparse_reset_shape(tf.SparseTensor([[0, 0]], [1.0], [4, 2]), wanted)


def _segment_gradient(segments: int, ids: list[int]) -> Any:
    given = tf.placeholder_with_default(tf.ones([segments, 4]), [segments, 4])
    return tf.raw_ops.SparseSegmentMeanGrad(grad=given, indices=[8, 3, 0, 9], segment_ids=ids, output_dim0=10)


def _fed(value: Any) -> tf.Tensor:
    """A tensor of which nothing is known before the step."""
    return tf.placeholder_with_default(tf.constant(value), None)


#: inputs of a rank that only the step knows -> what TensorFlow's kernels say of it
RANKS: list[tuple[Callable[[], Any], str]] = [
    (lambda: tf.fill(_fed(2), 3), "dims must be a vector"),
    (lambda: tf.fill(_fed([2]), _fed([3])), "value must be a scalar"),
    (lambda: tf.range(_fed([0]), 3, 2), "start must be a scalar"),
    (lambda: tf.range(0, 3, _fed([2])), "delta must be a scalar"),
    (lambda: tf.lin_space(0.0, _fed([3.0]), 2), "stop must be a scalar"),
    (lambda: tf.reshape(_fed(7), _fed(1)), "sizes input must be 1-D"),
    (lambda: tf.tile(_fed([7]), _fed(2)), "Expected multiples to be 1-D"),
    (lambda: tf.slice(_fed([1, 2, 3]), _fed(1), [1]), "Expected begin and size arguments to be 1-D tensors"),
    (lambda: tf.pad(_fed(7), _fed([[1, 2]])), "The first dimension of paddings must be the rank of inputs"),
    (lambda: tf.random_uniform(_fed(3)), "shape must be a vector"),
    (lambda: tf.sparse_to_dense(1, _fed(4), 7), "output_shape should be a vector"),
    (lambda: tf.unsorted_segment_sum(_fed(7), _fed(1), _fed([4])), "num_segments should be a scalar"),
    (lambda: tf.concat([_fed([2]), _fed([3])], _fed([0])), "axis tensor should be a scalar integer"),
    (lambda: tf.concat([_fed(2), _fed([3])], _fed(0)), r"Expected concatenating dimensions in the range \[0, 0\)"),
    (lambda: tf.concat([_fed([2]), _fed(3)], _fed(0)), "Ranks of all input tensors should match"),
    (lambda: tf.raw_ops.ShardedFilespec(basename="a", num_shards=_fed([1])), "num_shards must be a scalar"),
    (lambda: tf.reverse_sequence(tf.zeros([2, 3]), _fed([1, 1]), seq_axis=0), "batch_dim == seq_dim"),
    (lambda: tf.TensorArray(tf.float32, 1).split([1.0], _fed(1)).read(0), "Expected lengths to be a vector"),
    (_concatenated_ranks, "Incompatible ranks"),
]


SPARSE = tf.SparseTensorValue([[0]], [1.0], [2])


def _deserialized(dtype: tf.DType) -> Any:
    of_one, of_two = (tf.SparseTensor([[0] * rank], [1.0], [2] * rank) for rank in (1, 2))
    rows = tf.stack([tf.serialize_sparse(of_one), tf.serialize_sparse(of_two)])
    return tf.deserialize_many_sparse(rows, dtype).values


STEPS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: tf.reshape(_fed([1, 2, 3, 4, 5, 6]), _fed([4, 5])),
        "Input to reshape is a tensor with 6 values, but the requested shape has 20",
    ),
    (
        lambda: tf.reshape(_fed([1, 2, 3, 4, 5, 6]), _fed([4, -1])),
        "Input to reshape is a tensor with 6 values, but the requested shape requires a multiple of 4",
    ),
    (
        lambda: _deserialized(tf.float32),
        r"Inconsistent shape across SparseTensors: rank prior to SparseTensor\[1\] was: 1 but rank of .* is: 2",
    ),
    (
        lambda: _deserialized(tf.int32),
        r"Requested SparseTensor of type int32 but SparseTensor\[0\]\.values\.dtype\(\) == float32",
    ),
    (
        lambda: tf.deserialize_many_sparse([["a", "b", "c"]], tf.float32).values,
        "Could not parse serialized proto",
    ),
    (
        lambda: tf.raw_ops.StringToHashBucketStrong(input=["a"], num_buckets=2, key=[1]),
        "Key must have 2 elements",
    ),
    (
        lambda: tf.sparse_add(tf.SparseTensor([[1, 3]], [0.0], [2, 2]), tf.zeros([2, 2])),
        r"invalid index: a_indices\[0\] = \[1 3\]",
    ),
    (lambda: _indexed(3), "Tried to read from index 3 but array size is: 3"),
    (lambda: _indexed(-1), "index -1"),
    (lambda: _indexed(-1), "Trying to access element -1 in a list with 3 elements."),
    (lambda: _split(1), "Unused values in tensor. Length of tensor: 3 Values used: 1"),
    (_concatenated, "Concat saw a scalar shape at index 0 but requires at least vectors"),
    (
        lambda: _split(1),
        r"Expected sum of lengths to be equal to values.shape\[0\], but sum of lengths is 1 and value's shape",
    ),
    (lambda: tf.gather_nd(tf.zeros([0, 3]), [[0, 0]]), "Requested more than 0 entries, but params is empty."),
    (
        lambda: tf.reduce_join(["a"], tf.placeholder_with_default(-2, [])),
        r"Invalid reduction dimension -2 for input with 1 dimension\(s\)",
    ),
    (lambda: tf.raw_ops.ReduceJoin(inputs=[["a"]], reduction_indices=[1, 1]), "Duplicate reduction dimension 1"),
    (
        lambda: tf.sparse_to_dense([1, 3], [5], [[1], [2]]),
        r"sparse_values has incorrect shape \[2,1\], should be \[\] or \[2\]",
    ),
    (lambda: tf.sparse_to_dense([1, 3], [5], [1, 2], [0]), "default_value should be a scalar"),
    (lambda: tf.nn.top_k([1.0], tf.placeholder_with_default(-7, []))[0], "Need k >= 0, got -7"),
    (lambda: tf.placeholder_with_default(0, None)[:], "out of range"),
    (lambda: _cross_entropy([0, 4]), r"Received a label value of 4 which is outside the valid range of \[0, 4\)."),
    (lambda: _cross_entropy(0), "labels must be 1-D"),
    (lambda: tf.roll([1, 2], tf.placeholder_with_default([[1]], None), 0), "shift must be a scalar or a 1-D vector"),
    (lambda: tf.roll(tf.placeholder_with_default(1, None), 1, 0), "input must be 1-D or higher"),
    (lambda: tf.roll([1, 2], tf.placeholder_with_default([1], None), [0, 0]), "shift and axis must have the same size"),
    (
        lambda: tf.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[2, 10], grad_values=[0, 1, 2, 3])[0],
        r"Elements in reverse index must be in \[0, 4\)",
    ),
    (lambda: _reshaped([4, 7]), "Input to reshape is a tensor with 30 dense values"),
    (lambda: _reshaped([4, -1]), "requested shape requires a multiple"),
    (lambda: _reshaped([4, -1, -1]), "only one output dimension may be -1"),
    (lambda: tf.raw_ops.DataFormatDimMap(x=[0], src_format="12345678"), "Source format must be of length 4 or 5"),
    (lambda: _segment_gradient(3, [0, 1, 1, 4]), "Invalid number of segments"),
    (lambda: _segment_gradient(1, [0, 1, 2, 0]), r"Segment id 1 out of range \[0, 1\)"),
    (lambda: _segment_gradient(0, [0, 1, 2, -1]), r"Segment id 0 out of range \[0, 0\)"),
    (
        lambda: tf.sparse_reduce_sum(_sparse([2, 5]), tf.placeholder_with_default(2, [])),
        "Invalid reduction dimension 2, for input with 2 dimensions",
    ),
    (lambda: (tf.ones([3, 4]) * _sparse([4, 2])).values, "broadcasts dense to sparse only; got incompatible shapes"),
    (lambda: tf.sparse_maximum(_sparse([1, 2]), _sparse([2, 2])).values, "Operands' shapes do not match"),
    (lambda: _reset([3, 7]).dense_shape, r"x <= y did not hold element-wise"),
    (lambda: _reset([3, 4, 5]).dense_shape, r"x == y did not hold element-wise"),
]


def _assigned_raw(value: Any) -> Any:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[])
    return tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value))


BUILDING: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: tf.reverse_sequence(tf.zeros([2, 3]), [1, 1], seq_axis=2),
        ValueError,
        "seq_dim must be < input rank, got 2 for rank 2",
    ),
    (
        lambda: tf.reverse_sequence(tf.zeros([2, 3]), [1, 1], seq_axis=1, batch_axis=3),
        ValueError,
        "batch_dim must be < input rank, got 3 for rank 2",
    ),
    (lambda: tf.sparse_split(num_split=2, axis=0), ValueError, "sp_input is required"),
    (lambda: tf.sparse_split(sp_input=SPARSE, axis=0), ValueError, "num_split is required"),
    (lambda: tf.sparse_split(sp_input=SPARSE, num_split=2), ValueError, "axis is required"),
    (lambda: tf.nn.softsign(1), TypeError, "'features' has DataType int32 not in list of allowed values"),
    (
        lambda: tf.strings.length("a", unit="XYZ"),
        ValueError,
        "Attr 'unit' of 'StringLength' Op passed string 'XYZ' not in: \"BYTE\", \"UTF8_CHAR\"",
    ),
    (lambda: tf.reduce_join([["a"]], [0, -3]), ValueError, "Invalid reduction dimension -3"),
    (lambda: tf.split([0, 1, 2, 3], 3), ValueError, "should evenly divide"),
    (lambda: tf.split([1, 2, 3], [-1, -2]), ValueError, "Split size at index 1 must be >= 0. Got: -2"),
    (lambda: tf.split([1, 2], [1, 2]), ValueError, "can't split axis"),
    (lambda: tf.reshape(tf.zeros([23, 29, 31]), [17, -1]), ValueError, "must be evenly divisible by 17"),
    (lambda: tf.reshape(tf.zeros([32, 128]), [4095]), ValueError, "Cannot reshape a tensor with 4096 elements"),
    (lambda: tf.reshape(tf.zeros([2, 3]), [0, -1]), ValueError, "Cannot reshape a tensor with 6 elements .*0 elements"),
    (lambda: tf.constant([1, 2])[1:, 1:], ValueError, "out of range"),
    (lambda: tf.decode_csv(["1"], [[[0]]]), ValueError, "Shape must be at most rank 1 but is rank 2"),
    (
        lambda: tf.stack([tf.zeros([2]), tf.zeros([2], tf.int32)]),
        TypeError,
        "Input 'values' of 'Pack' Op has type int32",
    ),
    (lambda: tf.decode_csv(["1"], np.zeros(5)), TypeError, "Expected list for 'record_defaults'"),
    (
        lambda: tf.sparse_reset_shape(tf.SparseTensor([[0, 0]], [1.0], [4, 2]), [3, 7]),
        ValueError,
        "should have dimension sizes",
    ),
    (
        lambda: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=tf.ones([2, 1, 4]), labels=tf.ones([2, 1, 4])),
        ValueError,
        "rank 2, but is rank 3",
    ),
    (
        lambda: tf.strings.unicode_transcode("a", "UTF-8", "UTF-8", errors="invalid"),
        ValueError,
        'passed string \'invalid\' not in: "strict", "replace", "ignore"',
    ),
    (
        lambda: tf.TensorArray(tf.float32, 1).write(0, "a"),
        TypeError,
        "TensorArray dtype is float32 but Op is trying to write dtype string",
    ),
    (lambda: tf.TensorArray(tf.float32, 1).split(1.0, [1]), ValueError, "Shape must be at least rank 1 but is rank 0"),
    (lambda: _assigned_raw(0.0), ValueError, "wrong dtype. Expected int32 got float32"),
    (lambda: _assigned_raw([0]), ValueError, "are incompatible"),
    (lambda: tf.Variable([1, 2], shape=[3]), ValueError, "not compatible with"),
    (lambda: tf.fill([2, -1], 7), ValueError, "Fill dimensions must be >= 0"),
    (lambda: tf.nn.max_pool_v2(tf.zeros([1, 2]), 1, 1, "SAME"), ValueError, "Input tensor must be of rank 3, 4 or 5"),
    (lambda: tf.Variable([1, 2]).assign(1), ValueError, "(?i)shapes must be equal"),
    (lambda: list(tf.Variable([1, 2])), TypeError, "not iterable"),
    (
        lambda: tf.gradients(tf.constant(1j), []),
        TypeError,
        r"Gradients of complex tensors must set grad_ys \(y\.dtype = tf\.complex128\)",
    ),
    (
        lambda: tf.gradients([], [], unconnected_gradients="nonsense"),
        ValueError,
        "Unknown value for unconnected_gradients: 'nonsense'",
    ),
    (lambda: tf.constant(1, name="c").op.get_attr("x"), ValueError, "Operation 'c' has no attr named 'x'."),
    (lambda: tf.make_template(None, len), ValueError, "name cannot be None"),
    (
        lambda: tf.while_loop(lambda i: i < 2, lambda i: tf.Variable(tf.zeros([], tf.int32)).value() + i, [0]),
        ValueError,
        "inside a control-flow",
    ),
]


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize(("made", "words"), [*STEPS, *RANKS])
def test_in_a_step(made: Callable[[], Any], words: str) -> None:
    value = made()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=words):
        session.run(value)


@pytest.mark.parametrize(("made", "error", "words"), BUILDING)
def test_while_a_graph_is_built(made: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        made()


def test_operators_of_variables_are_shown_as_those_of_tensors() -> None:
    for name in ("__add__", "__rmul__", "__lt__"):
        for attribute in ("__module__", "__name__", "__doc__"):
            assert getattr(getattr(tf.Variable, name), attribute) == getattr(getattr(tf.Tensor, name), attribute)


def test_the_sum_of_colocated_gradients_lies_where_they_do() -> None:
    w = tf.constant(1.0)
    a, b = w * 2.0, w * 3.0
    total = tf.gradients([a, b], w, colocate_gradients_with_ops=True)[0]
    assert total.op.type == "AddN"
    assert total.op.colocation_groups() == total.op.inputs[-1].op.colocation_groups()
    with tf.device("/task:1"):
        c = w * 2.0
    apart = tf.gradients([a, c], w, colocate_gradients_with_ops=True)[0]
    assert apart.op.colocation_groups() == w.op.colocation_groups()
