"""The array functions of the front end: results, names, static shapes, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.core.dimensions import Dimension
from anabranch.core.shapes import TensorShape
from anabranch.frontend.arrays import (
    constants,
    data_flow,
    gathering,
    identities,
    joining,
    layout,
    rearranging,
    shapes,
    slicing,
)
from anabranch.frontend.control_flow import grouping
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.constants import constant_value
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.session import Session


def run(*fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        values = session.run(list(fetches), feeds)
    return values[0] if len(values) == 1 else values


def same(tensor: Any, wanted: Any, feeds: Any = None) -> None:
    got = run(tensor, feeds=feeds)
    np.testing.assert_array_equal(got, np.asarray(wanted))
    assert tensor.shape.is_compatible_with(got.shape)


X = np.arange(12, dtype=np.float32).reshape(3, 4)


# ---------------------------------------------------------------------- constants and placeholders
def test_constants_follow_their_values() -> None:
    assert constants.constant(1).dtype.name == "int32"
    assert constants.constant(2**40).dtype.name == "int64"
    assert constants.constant(1.0, dtype="float64").dtype.name == "float64"
    assert constants.constant("é").dtype.name == "string"
    same(constants.constant([1, 2], shape=[2, 2]), [[1, 2], [2, 2]])
    assert constants.constant(1).op.name == "Const_5"
    with pytest.raises(TypeError, match="Expected Tensor's shape"):
        constants.constant([1, 2], shape=[3], verify_shape=True)
    with pytest.raises(ValueError, match="Too many elements"):
        constants.constant([1, 2], shape=[1])
    with pytest.raises(TypeError, match="Expected int32"):
        constants.constant(1.5, dtype="int32")


def test_a_range_is_a_list_of_numbers() -> None:
    assert constants.constant(range(3)).dtype.name == "int32"
    same(constants.constant(range(1, 4), dtype="int64"), [1, 2, 3])
    same(constants.constant(range(2), dtype="float32"), [0.0, 1.0])


def test_a_placeholder_must_be_fed() -> None:
    x = constants.placeholder("float32", [None, 2], name="x")
    assert x.shape.as_list() == [None, 2]
    assert x.name == "x:0"
    with pytest.raises(errors.InvalidArgumentError, match="feed a value for placeholder tensor 'x'"):
        run(identities.identity(x))
    assert constants.placeholder("float32").shape.ndims is None
    with pytest.raises(errors.InvalidArgumentError, match="feed a value"):
        run(raw.Identity(raw.PlaceholderV2(dtype="float32", shape=[2])))


def test_a_placeholder_with_default_is_never_taken_for_a_constant() -> None:
    x = constants.placeholder_with_default([1.0, 2.0], [None])
    assert x.op.type == "PlaceholderWithDefault"
    doubled = raw.Mul(x, 2.0)
    same(doubled, [2.0, 4.0])
    same(doubled, [6.0], feeds={x: [3.0]})
    assert constant_value(doubled) is None
    text = constants.placeholder_with_default("a", [])
    assert run(text) == b"a"
    (grad,) = gradients([doubled], [x])
    same(grad, [2.0, 2.0])


def test_small_fills_are_constants_and_large_ones_are_computed() -> None:
    small, large = constants.zeros([2, 3]), constants.ones([100, 100], dtype="int64")
    assert (small.op.type, small.op.name) == ("Const", "zeros")
    assert (large.op.type, large.op.name) == ("Fill", "ones")
    same(small, np.zeros((2, 3)))
    same(large, np.ones((100, 100)))
    same(constants.zeros([], "bool"), False)
    assert run(constants.zeros([2], "string")).tolist() == [b"", b""]
    same(constants.fill([2], 7), [7, 7])
    same(constants.ones(TensorShape([Dimension(2)])), [1, 1])
    x = constants.placeholder("float32", [None, 4])
    same(constants.zeros([item(shapes.shape(x), 0), 2]), np.zeros((3, 2)), feeds={x: X})
    assert constants.zeros([item(shapes.shape(x), 0), 2]).shape.as_list() == [None, 2]


def test_zeros_like_uses_what_is_known() -> None:
    known, unknown = constants.constant(X), constants.placeholder("float32", [None, 4])
    assert constants.zeros_like(known).op.type == "Const"
    assert constants.zeros_like(known, optimize=False).op.type == "ZerosLike"
    like = constants.ones_like(unknown, dtype="int32")
    assert like.shape.as_list() == [None, 4]
    same(like, np.ones((3, 4)), feeds={unknown: X})
    sparse = SparseTensor([[0, 1]], [5.0], [2, 2])
    same(constants.zeros_like(sparse), np.zeros((2, 2)))


# ---------------------------------------------------------------------- identities and groups
def test_gradients_stop_where_they_are_told_to() -> None:
    x = constants.constant(X)
    assert gradients([identities.stop_gradient(x)], [x]) == [None]
    with pytest.raises(LookupError, match="explicitly disabled .* Reason: why"):
        gradients([raw.PreventGradient(x, message="why")], [x])


def test_group_waits_for_everything() -> None:
    x = constants.constant(1.0)
    slices = IndexedSlices(x, constants.constant(0))
    op = grouping.group(x, [slices, {"a": x.op}], name="all")
    assert op.name == "all"
    assert op.type == "NoOp"
    assert set(op.control_inputs) == {x.op}
    assert grouping.group().type == "NoOp"
    with pytest.raises(TypeError, match="Expected tf.group"):
        grouping.group(3)
    with pytest.raises(ValueError, match="Unknown keyword"):
        grouping.group(x, nam="x")


def test_group_waits_once_per_device() -> None:
    graph = get_default_graph()
    with graph.device("/job:a/task:0"):
        x = constants.constant(1.0)
    with graph.device("/job:a/task:1"):
        y = constants.constant(2.0)
    op = grouping.group(x, y)
    assert sorted(c.device for c in op.control_inputs) == [x.device, y.device]


def test_tuple_gates_its_tensors() -> None:
    x, y = constants.constant(1.0), constants.constant(2.0)
    a, nothing, b = grouping.tuple([x, None, y])
    assert nothing is None
    assert a.op.control_inputs == b.op.control_inputs
    assert set(a.op.control_inputs[0].control_inputs) == {x.op, y.op}
    assert run(a, b) == [1.0, 2.0]
    with pytest.raises(ValueError, match="at least one Tensor"):
        grouping.tuple([None])


# ---------------------------------------------------------------------- shapes
def test_shapes_are_constants_where_known() -> None:
    known, partial = constants.constant(X), constants.placeholder("float32", [None, 4])
    assert shapes.shape(known).op.type == "Const"
    same(shapes.shape(known, out_type="int64"), [3, 4])
    same(shapes.shape(partial), [3, 4], feeds={partial: X})
    same(shapes.size(partial), 12, feeds={partial: X})
    same(shapes.rank(partial), 2)
    sparse = SparseTensor([[0, 1]], [5.0], [2, 5])
    same(shapes.shape(sparse), [2, 5])
    same(shapes.size(sparse), 10)
    same(shapes.rank(sparse), 2)
    assert [t.shape.as_list() for t in shapes.shape_n([known, partial])] == [[2], [2]]


def test_types_of_shapes_are_checked_where_tensorflow_checks_them() -> None:
    """A known shape is a constant of any dtype; an operation gives int32 or int64."""
    known, partial = constants.constant(X), constants.placeholder("float32", [None, 4])
    for function in (shapes.shape, shapes.size):
        assert [function(known, out_type=name).dtype.name for name in ("float32", "int8")] == ["float32", "int8"]
        with pytest.raises(TypeError, match="Expected bool"):
            function(known, out_type="bool")
        for name in ("float32", "int8", "uint8", "bool", "string"):
            with pytest.raises(TypeError, match=rf"'out_type' has DataType {name} not in"):
                function(partial, out_type=name)
    with pytest.raises(TypeError, match=r"'out_type' has DataType float32 not in .* \(operation ShapeN\)"):
        shapes.shape_n([known], out_type="float32")


def test_reshape_and_its_kin() -> None:
    x = constants.placeholder("float32", [None, 4])
    assert shapes.reshape(x, [-1, 2, 2]).shape.as_list() == [None, 2, 2]
    assert shapes.reshape(x, [item(shapes.shape(x), 0), 2, 2]).shape.as_list() == [None, 2, 2]
    same(shapes.reshape(constants.constant([5.0]), []), 5.0)
    same(shapes.expand_dims(x, -1), X[..., None], feeds={x: X})
    same(shapes.expand_dims(x, dim=0), X[None], feeds={x: X})
    same(shapes.squeeze([[1]], axis=0), [1])
    same(shapes.squeeze([[1]], squeeze_dims=[0, 1]), 1)
    with pytest.raises(ValueError, match="axis argument"):
        shapes.expand_dims(x)
    with pytest.raises(ValueError, match="both"):
        shapes.squeeze([[1]], axis=0, squeeze_dims=0)
    with pytest.raises(ValueError, match="(?i)cannot reshape"):
        shapes.reshape(constants.constant(X), [5, 2])
    same(shapes.broadcast_to([1, 2], [2, 2]), [[1, 2], [1, 2]])
    assert shapes.broadcast_static_shape(TensorShape([2, 1]), TensorShape([3])).as_list() == [2, 3]
    same(shapes.broadcast_dynamic_shape([2, 1], [3]), [2, 3])


# ---------------------------------------------------------------------- joining and splitting
def test_stack_and_unstack() -> None:
    x = constants.constant(X)
    assert joining.stack([1, 2]).op.type == "Const"
    stacked = joining.stack([x, x], axis=1, name="s")
    assert stacked.op.name == "s"
    same(stacked, np.stack([X, X], 1))
    rows = joining.unstack(stacked, axis=1)
    assert len(rows) == 2
    same(rows[1], X)
    same(joining.parallel_stack([x, x]), np.stack([X, X]))
    with pytest.raises(ValueError, match="not in"):
        joining.stack([x, x], axis=4)
    with pytest.raises(ValueError, match="Cannot infer num"):
        joining.unstack(constants.placeholder("float32"))


def test_concat_and_split() -> None:
    x = constants.constant(X)
    same(joining.concat([x, x], 1), np.concatenate([X, X], 1))
    assert joining.concat([x], 0).op.type == "Identity"
    same(joining.split(x, 2, axis=1)[1], X[:, 2:])
    first, second = joining.split(x, [1, -1], axis=0)
    assert (first.shape.as_list(), second.shape.as_list()) == ([1, 4], [2, 4])
    same(second, X[1:])
    with pytest.raises(ValueError, match="Rank-0"):
        joining.split(x, constants.constant(2))
    with pytest.raises(ValueError, match="Cannot infer num"):
        joining.split(x, constants.placeholder("int32", [None]))


def test_the_gradient_of_a_concatenation_knows_unknown_sizes() -> None:
    x, y = constants.placeholder("float32", [None, 2]), constants.constant(np.ones((1, 2), np.float32))
    joined = joining.concat([x, y], 0)
    grads = gradients([raw.Mul(joined, joined)], [x, y])
    same(grads[0], 2 * X[:, :2], feeds={x: X[:, :2]})
    same(grads[1], [[2, 2]], feeds={x: X[:, :2]})


# ---------------------------------------------------------------------- transposing, padding, one-hot
def test_transpose_reverses_by_default() -> None:
    x = constants.placeholder("float32")
    same(layout.transpose(x), X.T, feeds={x: X})
    same(layout.transpose(constants.constant(X)), X.T)
    same(layout.transpose(constants.constant([[1 + 2j]]), conjugate=True), [[1 - 2j]])
    volume = np.zeros((2, 3, 4), np.float32)
    assert layout.matrix_transpose(volume).shape.as_list() == [2, 4, 3]
    same(layout.matrix_transpose(x), volume.swapaxes(1, 2), feeds={x: volume})
    with pytest.raises(ValueError, match="rank >= 2"):
        layout.matrix_transpose([1.0])


def test_pad_modes() -> None:
    same(layout.pad([1, 2, 3], [[1, 2]]), [0, 1, 2, 3, 0, 0])
    same(layout.pad([1, 2, 3], [[1, 2]], constant_values=9), [9, 1, 2, 3, 9, 9])
    same(layout.pad([1, 2, 3], [[1, 2]], "reflect"), [2, 1, 2, 3, 2, 1])
    same(layout.pad([1, 2, 3], [[1, 2]], "SYMMETRIC"), [1, 1, 2, 3, 3, 2])
    with pytest.raises(ValueError, match="Unknown padding mode"):
        layout.pad([1], [[1, 1]], "WRAP")
    same(layout.tile([[1, 2]], [2, 2]), [[1, 2, 1, 2]] * 2)


def test_one_hot_chooses_its_dtype() -> None:
    assert constants.one_hot([0], 2).dtype.name == "float32"
    assert constants.one_hot([0], 2, on_value=5, off_value=1).dtype.name == "int32"
    assert constants.one_hot([0], 2, dtype="int64").dtype.name == "int64"
    same(constants.one_hot([1, -1], 2, on_value=True, off_value=False), [[False, True], [False, False]])
    with pytest.raises(TypeError, match="does not match"):
        constants.one_hot([0], 2, on_value=constants.constant(1.0), dtype="int32")


# ---------------------------------------------------------------------- gathering and masking
def test_gather_axes_and_batches() -> None:
    x = constants.constant(X)
    same(gathering.gather(x, [2, 0]), X[[2, 0]])
    same(gathering.gather(x, [1], axis=1), X[:, [1]])
    same(gathering.batch_gather(x, [[0], [1], [2]]), [[0], [5], [10]])
    same(gathering.gather_nd(x, [[0, 1], [2, 3]]), [1, 11])
    same(gathering.gather_nd(x, [[1], [2], [3]], batch_dims=1), [1, 6, 11])
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[1\] = 3 is not in \[0, 3\)"):
        run(gathering.gather(x, [0, 3]))
    (grad,) = gradients([gathering.gather(x, [0, 0])], [x])
    assert isinstance(grad, IndexedSlices)


def test_boolean_mask() -> None:
    x, mask = constants.placeholder("float32", [None, 4]), constants.placeholder("bool", [None, None])
    same(gathering.boolean_mask(x, [True, False, True]), X[[0, 2]], feeds={x: X})
    same(gathering.boolean_mask(x, [True, False, False, True], axis=1), X[:, [0, 3]], feeds={x: X})
    same(gathering.boolean_mask(x, mask), X[X > 5], feeds={x: X, mask: X > 5})
    assert gathering.boolean_mask(x, mask).shape.as_list() == [None]
    (grad,) = gradients([gathering.boolean_mask(raw.Mul(x, x), mask)], [x])
    same(grad, np.where(X > 5, 2 * X, 0), feeds={x: X, mask: X > 5})
    with pytest.raises(ValueError, match="cannot be scalar"):
        gathering.boolean_mask(x, True)
    with pytest.raises(ValueError, match="Number of mask dimensions"):
        gathering.boolean_mask(x, constants.placeholder("bool"))


def test_where_has_two_meanings() -> None:
    same(gathering.where([True, False, True]), [[0], [2]])
    same(gathering.where([True, False], [1, 2], [3, 4]), [1, 4])
    same(gathering.where([True, False], [[1, 1], [2, 2]], [[3, 3], [4, 4]]), [[1, 1], [4, 4]])
    same(gathering.where_v2([[True], [False]], [1, 2], 0), [[1, 2], [0, 0]])
    with pytest.raises(ValueError, match="both"):
        gathering.where([True], [1])


def test_sequence_mask() -> None:
    same(gathering.sequence_mask([1, 3], 4), [[1, 0, 0, 0], [1, 1, 1, 0]])
    lengths = constants.placeholder("int32", [None])
    same(gathering.sequence_mask(lengths, dtype="float32"), [[1, 0], [1, 1]], feeds={lengths: [1, 2]})
    with pytest.raises(ValueError, match="scalar"):
        gathering.sequence_mask([1], [2, 3])


# ---------------------------------------------------------------------- rearranging
def test_reverse_roll_repeat() -> None:
    same(rearranging.reverse([[1, 2], [3, 4]], [1]), [[2, 1], [4, 3]])
    same(rearranging.reverse_sequence([[1, 2, 3]], [2], seq_axis=1), [[2, 1, 3]])
    same(rearranging.reverse_sequence([[1, 2, 3]], [2], seq_dim=1, batch_dim=0), [[2, 1, 3]])
    same(rearranging.roll([1, 2, 3], 1, 0), [3, 1, 2])
    same(rearranging.repeat([1, 2], [1, 3]), [1, 2, 2, 2])
    same(rearranging.repeat([[1, 2], [3, 4]], 2, axis=1), [[1, 1, 2, 2], [3, 3, 4, 4]])
    counts = constants.placeholder("int32", [2])
    same(rearranging.repeat([[1, 2], [3, 4]], counts, axis=0), [[1, 2], [1, 2]], feeds={counts: [2, 0]})
    with pytest.raises(ValueError, match="seq_axis"):
        rearranging.reverse_sequence([[1]], [1])
    with pytest.raises(ValueError, match="axis = 2"):
        rearranging.repeat([1], 1, axis=2)


def test_meshgrid_orders() -> None:
    for indexing in ("xy", "ij"):
        wanted = np.meshgrid([1, 2, 3], [4, 5], [6], indexing=indexing)  # type: ignore[call-overload]
        for got, grid in zip(rearranging.meshgrid([1, 2, 3], [4, 5], [6], indexing=indexing), wanted, strict=True):
            same(got, grid)
    with pytest.raises(ValueError, match="indexing"):
        rearranging.meshgrid([1], indexing="yx")
    with pytest.raises(TypeError, match="invalid keyword"):
        rearranging.meshgrid([1], indices="xy")


def test_diagonals() -> None:
    same(rearranging.diag([1, 2]), [[1, 0], [0, 2]])
    same(rearranging.diag_part([[1, 3], [4, 2]]), [1, 2])
    same(rearranging.matrix_diag([[1, 2]]), [[[1, 0], [0, 2]]])
    same(rearranging.matrix_diag_part([[1, 3], [4, 2]]), [1, 2])
    same(rearranging.matrix_set_diag([[1, 3], [4, 2]], [7, 8]), [[7, 3], [4, 8]])
    same(rearranging.matrix_diag([1, 2], k=1), [[0, 1, 0], [0, 0, 2], [0, 0, 0]])
    same(rearranging.matrix_diag([1, 2], num_cols=3, padding_value=9), [[1, 9, 9], [9, 2, 9]])
    same(rearranging.matrix_diag_part([[1, 3], [4, 2]], k=(0, 1)), [[3, 0], [1, 2]])
    same(rearranging.matrix_set_diag([[1, 3], [4, 2]], [7], k=-1), [[1, 3], [7, 2]])
    same(rearranging.matrix_band_part([[1, 2], [3, 4]], 0, -1), [[1, 2], [0, 4]])


def test_required_space_to_batch_paddings() -> None:
    paddings, crops = rearranging.required_space_to_batch_paddings([5, 4], [2, 3], [[1, 0], [0, 0]])
    assert paddings.op.type == "Const"
    same(paddings, [[1, 0], [0, 2]])
    same(crops, [[0, 0], [0, 2]])


def test_blocks_move_there_and_back() -> None:
    images = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
    there = rearranging.space_to_batch(images, [[0, 0], [0, 0]], block_size=2)
    assert there.shape.as_list() == [4, 2, 2, 2]
    same(rearranging.batch_to_space(there, [[0, 0], [0, 0]], 2), images)
    same(rearranging.depth_to_space(rearranging.space_to_depth(images, 2), 2), images)


# ---------------------------------------------------------------------- data flow
def test_partition_and_stitch() -> None:
    data, parts = constants.placeholder("float32", [None, 4]), constants.placeholder("int32", [None])
    pieces = data_flow.dynamic_partition(data, parts, 2)
    places = data_flow.dynamic_partition(raw.Range(0, item(shapes.shape(data), 0), 1), parts, 2)
    whole = data_flow.dynamic_stitch(places, pieces)
    for chosen in ([0, 1, 0], [1, 1, 1]):
        same(whole, X, feeds={data: X, parts: chosen})
    (grad,) = gradients([raw.Mul(whole, whole)], [data])
    same(grad, 2 * X, feeds={data: X, parts: [0, 1, 0]})


def test_distinct_values_and_search() -> None:
    found = data_flow.unique(["b", "a", "b"])
    assert run(found.y).tolist() == [b"b", b"a"]
    same(data_flow.unique_with_counts([2, 2, 5]).count, [2, 1])
    same(data_flow.setdiff1d([1, 2, 3], [2]).idx, [0, 2])
    same(data_flow.searchsorted([[1, 3, 5]], [[3, 6]]), [[1, 3]])
    same(data_flow.searchsorted([1, 3, 5], [3], side="right"), [2])
    same(data_flow.scatter_nd([[1], [1]], [2, 3], [3]), [0, 5, 0])
    same(data_flow.tensor_scatter_update([1, 2], [[0]], [9]), [9, 2])
    same(data_flow.tensor_scatter_add([1, 2], [[0]], [9]), [10, 2])
    same(data_flow.tensor_scatter_sub([1, 2], [[0]], [9]), [-8, 2])
    same(data_flow.unravel_index([4, 5], [2, 3]), [[1, 1], [1, 2]])
    with pytest.raises(ValueError, match="side"):
        data_flow.searchsorted([1], [1], side="middle")


def test_edit_distance_takes_sparse_tensors() -> None:
    said = SparseTensor([[0, 0], [0, 1]], ["a", "b"], [1, 2])
    meant = SparseTensor([[0, 0]], ["a"], [1, 1])
    same(data_flow.edit_distance(said, meant), [1.0])
    with pytest.raises(TypeError, match="SparseTensor"):
        data_flow.edit_distance([1], meant)


# ---------------------------------------------------------------------- x[...]
def item(x: Tensor, entry: Any) -> Tensor:
    return slicing.slice_helper(x, entry)


@pytest.mark.parametrize(
    "entry",
    [
        1,
        -1,
        np.int64(2),
        (slice(None), 1),
        (slice(1, None), slice(None, -1)),
        (Ellipsis, None),
        (None, 0),
        slice(None, None, -1),
        (slice(None, None, 2), Ellipsis),
    ],
)
def test_indexing_is_numpys(entry: Any) -> None:
    x = constants.placeholder("float32", [None, 4])
    same(item(x, entry), X[entry], feeds={x: X})


def test_indices_may_be_computed() -> None:
    x, i = constants.placeholder("float32", [None, 4]), constants.placeholder("int32", [])
    picked = item(x, (i, slice(None), None))
    assert picked.shape.as_list() == [4, 1]
    for value in (0, 2, -1):
        same(picked, X[value, :, None], feeds={x: X, i: value})
    same(item(x, (slice(None, i), 1)), X[:2, 1], feeds={x: X, i: 2})
    (grad,) = gradients([item(raw.Mul(x, x), i)], [x])
    wanted = np.zeros_like(X)
    wanted[1] = 2 * X[1]
    same(grad, wanted, feeds={x: X, i: 1})
    with pytest.raises(errors.InvalidArgumentError, match="slice index 3 of dimension 0 out of bounds"):
        run(picked, feeds={x: X, i: 3})
    cut = slicing.slice(x, joining.stack([i, 0]), [1, 2])
    assert cut.shape.as_list() == [1, 2]
    same(cut, X[2:3, :2], feeds={x: X, i: 2})
    (grad,) = gradients([cut], [x])
    wanted = np.zeros_like(X)
    wanted[2, :2] = 1
    same(grad, wanted, feeds={x: X, i: 2})


def test_indexing_names_its_operations_as_tensorflow_does() -> None:
    picked = item(constants.constant(X, name="c"), 0)
    assert [op.name for op in get_default_graph().get_operations()] == [
        "c",
        "strided_slice/stack",
        "strided_slice/stack_1",
        "strided_slice/stack_2",
        "strided_slice",
    ]
    assert picked.op.attrs["shrink_axis_mask"] == 1


@pytest.mark.parametrize("entry", ["a", 1.5, [[1, 2]], np.array([1, 2]), True])
def test_what_is_no_index(entry: Any) -> None:
    with pytest.raises(TypeError, match="valid indices"):
        item(constants.constant(X), entry)


def test_slices_out_of_range_are_refused_while_building() -> None:
    x = constants.constant(X)
    with pytest.raises(ValueError, match="out of bounds"):
        item(x, 3)
    with pytest.raises(ValueError, match="input dim 2; input has only 2 dims"):
        item(x, (0, 0, 0))
    with pytest.raises(ValueError, match="ellipses"):
        item(x, (Ellipsis, Ellipsis))
    same(slicing.slice(x, [1, 0], [-1, 2]), X[1:, :2])
    same(slicing.strided_slice(x, [0], [2]), X[:2])
