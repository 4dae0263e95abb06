"""Sparse tensors: making them, changing their form, dense copies  (§3.1). Arithmetic is in `sparse_math`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import SIZE_VARIES
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.control_flow.checks import assert_equal, assert_less_equal
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import IndexedSlices, SparseTensor, SparseTensorLike, SparseTensorValue
from anabranch.graph.constants import constant_value, constant_value_as_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def as_sparse_tensor(value: SparseTensorLike) -> SparseTensor:
    """A `SparseTensor` from one, or from a `SparseTensorValue`.

    Raises:
        TypeError: it is neither.
    """
    try:
        return SparseTensor.from_value(value)
    except TypeError as error:
        raise TypeError(f"Input must be a SparseTensor, got {value!r}") from error


def parts_of(value: SparseTensor) -> list[Tensor]:
    """The three tensors that a `SparseTensor` is made of, in their usual order."""
    return [value.indices, value.values, value.dense_shape]


# ---------------------------------------------------------------------- making
def sparse_placeholder(dtype: DTypeLike, shape: ShapeLike | None = None, name: str | None = None) -> SparseTensor:
    """A sparse tensor that must be fed: with a `SparseTensorValue`, or with a triple (indices, values, dense_shape).

    It is taken to have another number of elements in each step: no program is compiled for one.

    Args:
        dtype: of the values.
        shape: the dense shape: a list, with None for dimensions that may vary, or a tensor; default: any.
    """
    prefix = None if name is None else name + "/"

    def named(part: str) -> str | None:
        return None if prefix is None else prefix + part

    if shape is None:
        rank = None
        dense_shape = raw.Placeholder(dtype=dtypes.int64, shape=TensorShape([None]), name=named("shape"))
    elif isinstance(shape, Tensor):
        rank, dense_shape = shape.shape.with_rank(1).as_list()[0], shape
    else:
        dims = TensorShape(shape)
        rank = dims.ndims
        if dims.is_fully_defined():
            dense_shape = convert_to_tensor(np.array(dims.as_list(), np.int64), name=named("shape"))
        else:
            dense_shape = raw.Placeholder(dtype=dtypes.int64, shape=TensorShape([rank]), name=named("shape"))
    values = raw.Placeholder(dtype=dtype, shape=TensorShape([None]), name=named("values"))
    indices = raw.Placeholder(dtype=dtypes.int64, shape=TensorShape([None, rank]), name=named("indices"))
    for tensor in (values, indices):
        tensor.op._set_attr(SIZE_VARIES, True)
    return SparseTensor(indices, values, dense_shape)


def sparse_from_dense(tensor: TensorLike, name: str | None = None) -> SparseTensor:
    """The elements of a dense tensor that are not zero (or empty, or False)."""
    with name_scope(name, "dense_to_sparse"):
        dense = convert_to_tensor(tensor)
        indices = raw.Where(raw.NotEqual(dense, raw.ZerosLike(dense)))
        return SparseTensor(indices, raw.GatherNd(dense, indices), raw.Shape(dense, out_type="int64"))


def sparse_eye(
    num_rows: TensorLike,
    num_columns: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> SparseTensor:
    """The identity matrix (with zeros added or columns left out where `num_columns` differs)."""
    with name_scope(name, "eye"):
        rows = raw.Cast(num_rows, DstT="int64")
        columns = rows if num_columns is None else raw.Cast(num_columns, DstT="int64")
        diagonal = raw.Range(np.int64(0), raw.Minimum(rows, columns), np.int64(1))
        base_dtype = as_dtype(dtype).base_dtype
        ones = raw.Fill(raw.Shape(diagonal), np.ones((), base_dtype.as_numpy_dtype))
        return SparseTensor(raw.Pack([diagonal, diagonal], axis=1), ones, raw.Pack([rows, columns]))


# ---------------------------------------------------------------------- order and shape
def sparse_reorder(sp_input: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The elements in row-major order, as most operations expect them."""
    value = as_sparse_tensor(sp_input)
    indices, values = raw.SparseReorder(*parts_of(value), name=name)
    return SparseTensor(indices, values, raw.Identity(value.dense_shape))


def sparse_reshape(sp_input: SparseTensorLike, shape: TensorLike, name: str | None = None) -> SparseTensor:
    """The elements at the same row-major positions in another shape, of int32 or int64; one dimension may be -1.

    Raises:
        ValueError: both shapes are known, and the new one has another number of elements, or several -1.
    """
    value = as_sparse_tensor(sp_input)
    wanted = convert_to_tensor(shape, dtype_hint=dtypes.int64)
    known = _reshaped(value.shape, wanted)
    as_given = wanted if wanted.dtype is dtypes.int64 else raw.Cast(wanted, DstT=dtypes.int64)
    indices, dense_shape = raw.SparseReshape(value.indices, value.dense_shape, as_given, name=name)
    if known is not None:
        dense_shape = convert_to_tensor(np.array(known, np.int64))
    return SparseTensor(indices, raw.Identity(value.values), dense_shape)


def _reshaped(old: TensorShape, wanted: Tensor) -> list[int] | None:
    """The new shape, if both are known but for one dimension of the new one."""
    new = constant_value_as_shape(wanted)
    if new.ndims is None or not old.is_fully_defined():
        return None
    given = constant_value(wanted)
    if given is not None and np.count_nonzero(given == -1) > 1:
        raise ValueError(f"At most one dimension can be inferred (-1), and the new shape is {given.tolist()}")
    total, sizes = old.num_elements() or 0, new.as_list()
    rest = math.prod(size for size in sizes if size is not None)
    if sizes.count(None) > 1 or (None in sizes and rest == 0):
        return None
    whole = [total // rest if size is None else size for size in sizes]
    if math.prod(whole) != total:
        raise ValueError(f"Cannot reshape a sparse tensor of shape {old}, {total} elements, to {sizes}")
    return whole


def sparse_transpose(
    sp_input: SparseTensorLike, perm: TensorLike | None = None, name: str | None = None
) -> SparseTensor:
    """Permutes the dimensions; default: reverses them."""
    with name_scope(name, "SparseTranspose"):
        value = as_sparse_tensor(sp_input)
        if perm is None:
            rank = raw.Size(value.dense_shape)
            perm = raw.Sub(raw.Sub(rank, 1), raw.Range(0, rank, 1))
        indices, shape = raw.GatherV2(value.indices, perm, 1), raw.GatherV2(value.dense_shape, perm, 0)
        return sparse_reorder(SparseTensor(indices, value.values, shape))


def sparse_expand_dims(
    sp_input: SparseTensorLike, axis: TensorLike | None = None, name: str | None = None
) -> SparseTensor:
    """Adds a dimension of size 1 before dimension `axis` (default: at the end), a number or an integer scalar tensor.

    Raises:
        ValueError: the rank is not known, or the axis is known and outside [-rank - 1, rank].
    """
    with name_scope(name, "expand_dims"):
        value = as_sparse_tensor(sp_input)
        rank = value.dense_shape.shape.as_list()[0]
        if rank is None:
            raise ValueError("sparse_expand_dims needs a sparse tensor of known rank")
        at = convert_to_tensor(-1 if axis is None else axis, dtype_hint=dtypes.int32)
        known = constant_value(at)
        if known is not None and not -rank - 1 <= known <= rank:
            raise ValueError(f"axis = {known} is not in [{-rank - 1}, {rank}]")
        at = raw.Reshape(raw.FloorMod(raw.Cast(at, DstT=dtypes.int64), np.int64(rank + 1)), np.array([1]))
        zero, rest = np.array([0]), raw.Sub(np.array([rank]), at)
        count = raw.Shape(value.values, out_type="int64")
        zeros = raw.Fill(raw.ConcatV2([count, np.array([1])], 0), np.int64(0))
        whole = np.array([-1])
        before, after = (
            raw.Slice(value.indices, raw.ConcatV2([zero, b], 0), raw.ConcatV2([whole, n], 0))
            for b, n in ((zero, at), (at, rest))
        )
        indices = raw.ConcatV2([before, zeros, after], 1)
        shape = raw.ConcatV2(
            [raw.Slice(value.dense_shape, zero, at), np.array([1]), raw.Slice(value.dense_shape, at, rest)], 0
        )
        return SparseTensor(indices, value.values, shape)


def sparse_reset_shape(sp_input: SparseTensorLike, new_shape: TensorLike | None = None) -> SparseTensor:
    """The same elements in another dense shape of the same rank.

    Args:
        new_shape: default: the smallest that holds all elements.

    Raises:
        ValueError: the new shape has another rank, or is known to be smaller; what is found only when the step runs is
            an InvalidArgumentError.
    """
    value = as_sparse_tensor(sp_input)
    indices, values = raw.Identity(value.indices), raw.Identity(value.values)
    if new_shape is None:
        ends = raw.AddV2(raw.Max(value.indices, [0]), np.int64(1))
        # the maximum over no elements at all is the smallest integer
        return SparseTensor(indices, values, raw.Maximum(np.int64(0), ends))
    wanted = convert_to_tensor(new_shape, preferred_dtype=dtypes.int64)
    if wanted.dtype is not dtypes.int64:
        wanted = raw.Cast(wanted, DstT=dtypes.int64)
    wanted.shape.with_rank(1).merge_with(value.dense_shape.shape)
    old, new = value.shape, TensorShape(constant_value(wanted))
    if old.ndims is not None and new.ndims is not None:
        for i, (a, b) in enumerate(zip(old.as_list(), new.as_list(), strict=True)):
            if a is not None and b is not None and b < a:
                raise ValueError(
                    f"the new shape {new} should have dimension sizes >= those of the old shape {old}, but is smaller "
                    f"in dimension {i}"
                )
    ranks = assert_equal(raw.Shape(value.dense_shape), raw.Shape(wanted), message="the new shape has another rank")
    with wanted.graph.control_dependencies([ranks]):
        sizes = assert_less_equal(value.dense_shape, wanted, message="the new shape is smaller than the old one")
    with wanted.graph.control_dependencies([sizes]):
        return SparseTensor(indices, values, raw.Identity(wanted))


# ---------------------------------------------------------------------- putting together and taking apart
def sparse_concat(
    axis: int | None = None,
    sp_inputs: Sequence[SparseTensorLike] | None = None,
    name: str | None = None,
    expand_nonconcat_dim: bool = False,
    concat_dim: int | None = None,
    expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:
    """Sparse tensors one after the other along `axis`.

    Args:
        expand_nonconcat_dim: whether the other dimensions may differ; the result's are then the largest.
        concat_dim, expand_nonconcat_dims: deprecated names.
    """
    at = one_of("axis", axis, "concat_dim", concat_dim)
    if sp_inputs is None:
        raise TypeError("sparse_concat needs sp_inputs, a list of sparse tensors")
    inputs = [as_sparse_tensor(value) for value in sp_inputs]
    if len(inputs) == 1:
        return inputs[0]
    shapes = [value.dense_shape for value in inputs]
    if expand_nonconcat_dims if expand_nonconcat_dims is not None else expand_nonconcat_dim:
        shapes = _expanded(shapes, at)
    indices, values, dense_shape = raw.SparseConcat(
        [v.indices for v in inputs], [v.values for v in inputs], shapes, concat_dim=at, name=name
    )
    whole = _joined([constant_value(shape) for shape in shapes], at)
    return SparseTensor(indices, values, dense_shape if whole is None else convert_to_tensor(whole))


def _joined(shapes: list[Any], axis: int) -> Any:
    """The shape of what is joined along an axis, if all shapes are known and go together."""
    if any(shape is None or len(shape) != len(shapes[0]) for shape in shapes):
        return None
    table = np.array(shapes, np.int64)
    if not -table.shape[1] <= axis < table.shape[1] or np.ptp(np.delete(table, axis, 1), 0).any():
        return None
    whole = table[0].copy()
    whole[axis] = table[:, axis].sum()
    return whole


def _expanded(shapes: list[Tensor], axis: int) -> list[Tensor]:
    largest = raw.Max(raw.Pack(shapes), [0])
    rank = raw.Size(largest)
    is_axis = raw.Equal(raw.Range(0, rank, 1), raw.FloorMod(axis, rank))
    return [raw.Select(is_axis, shape, largest) for shape in shapes]


def sparse_split(
    keyword_required: object = None,
    sp_input: SparseTensorLike | None = None,
    num_split: int | None = None,
    axis: int | None = None,
    name: str | None = None,
    split_dim: int | None = None,
) -> list[SparseTensor]:
    """Parts of a sparse tensor along `axis`; call it with keyword arguments only.

    The first parts are one larger where the size is no multiple of `num_split`. `split_dim` is the deprecated name of
    `axis`.

    Raises:
        ValueError: positional arguments, or a missing one.
    """
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    at = one_of("axis", axis, "split_dim", split_dim)
    if sp_input is None:
        raise ValueError("sp_input is required")
    if num_split is None:
        raise ValueError("num_split is required")
    if at is None:
        raise ValueError("axis is required")
    parts = raw.SparseSplit(
        convert_to_tensor(at, dtypes.int64), *parts_of(as_sparse_tensor(sp_input)), num_split=num_split, name=name
    )
    return [SparseTensor(*part) for part in zip(*parts, strict=True)]


def sparse_slice(
    sp_input: SparseTensorLike, start: TensorLike, size: TensorLike, name: str | None = None
) -> SparseTensor:
    """The part that begins at `start` and has at most `size` (both with one number per dimension)."""
    with name_scope(name, "SparseSlice") as scope:
        first, extent = convert_to_tensor(start, dtypes.int64), convert_to_tensor(size, dtypes.int64)
        return SparseTensor(*raw.SparseSlice(*parts_of(as_sparse_tensor(sp_input)), first, extent, name=scope))


def sparse_retain(sp_input: SparseTensorLike, to_retain: TensorLike) -> SparseTensor:
    """The elements for which `to_retain` (a boolean vector, one per element) is true."""
    value, chosen = as_sparse_tensor(sp_input), convert_to_tensor(to_retain, dtypes.bool)
    chosen.shape.with_rank(1).merge_with(value.values.shape)
    where = raw.Reshape(raw.Where(chosen), [-1])
    indices, values = raw.GatherV2(value.indices, where, 0), raw.GatherV2(value.values, where, 0)
    return SparseTensor(indices, values, raw.Identity(value.dense_shape))


def sparse_fill_empty_rows(
    sp_input: SparseTensorLike, default_value: TensorLike, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """Gives each row (index along the first dimension) without elements one element, `default_value`, in column 0.

    Returns:
        the filled tensor, in row-major order; which rows were empty: boolean, one per row.
    """
    value = as_sparse_tensor(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [value.indices]):
        default = convert_to_tensor(default_value, value.values.dtype)
        indices, values, empty, _ = raw.SparseFillEmptyRows(*parts_of(value), default)
        return SparseTensor(indices, values, value.dense_shape), empty


def sparse_mask(a: IndexedSlices, mask_indices: TensorLike, name: str | None = None) -> IndexedSlices:
    """The slices of `a` whose indices are not in `mask_indices`."""
    with name_scope(name, "sparse_mask", [a.values, a.indices]) as scope:
        indices, kept = raw.ListDiff(a.indices, mask_indices)
        return IndexedSlices(raw.GatherV2(a.values, kept, 0, name=scope), indices, a.dense_shape)


def sparse_merge(
    sp_ids: SparseTensorLike | Sequence[SparseTensorLike],
    sp_values: SparseTensorLike,
    vocab_size: TensorLike | Sequence[TensorLike],
    name: str | None = None,
    already_sorted: bool = False,
) -> SparseTensor:
    """Values at the places that ids name: element i becomes values[i] at [*indices[i][:-1], ids[i]].

    Args:
        sp_ids: a sparse tensor of integers with the indices of `sp_values`, or a list of them: one dimension each.
        vocab_size: the size of the new last dimension, or a list of sizes.
        already_sorted: whether the elements are in row-major order by their ids already.
    """
    single = isinstance(sp_ids, SparseTensor | SparseTensorValue)
    given: Any = [sp_ids] if single else sp_ids
    ids = [as_sparse_tensor(v) for v in given]
    sizes = [vocab_size] if single else list(vocab_size)
    if len(sizes) != len(ids):
        raise ValueError(f"sp_ids and vocab_size must have the same length, got {len(ids)} and {len(sizes)}")
    values = as_sparse_tensor(sp_values)
    with name_scope(name, "SparseMerge"):
        leading = raw.StridedSlice(ids[0].indices, [0, 0], [0, -1], [1, 1], begin_mask=3, end_mask=1)
        columns = [raw.ExpandDims(raw.Cast(v.values, DstT="int64"), 1) for v in ids]
        indices = raw.ConcatV2([leading, *columns], 1)
        new_dims = [raw.Reshape(raw.Cast(convert_to_tensor(size), DstT="int64"), [1]) for size in sizes]
        shape = raw.ConcatV2([raw.StridedSlice(ids[0].dense_shape, [0], [-1], [1]), *new_dims], 0)
        merged = SparseTensor(indices, values.values, shape)
        return merged if already_sorted else sparse_reorder(merged)


# ---------------------------------------------------------------------- dense copies
def sparse_to_dense(
    sparse_indices: TensorLike,
    output_shape: TensorLike,
    sparse_values: TensorLike,
    default_value: TensorLike = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """A dense tensor with `sparse_values` at `sparse_indices` and `default_value` elsewhere.

    Args:
        sparse_indices: a scalar, a vector (for a result of rank 1), or a matrix with one index vector per row.
        sparse_values: a vector with one value per index, or a scalar for all.
        validate_indices: whether indices that are repeated or not in row-major order are an error.
    """
    result: Tensor = raw.SparseToDense(
        sparse_indices, output_shape, sparse_values, default_value, validate_indices=validate_indices, name=name
    )
    return result


def _zero(dtype: DType) -> Any:
    return "" if dtype is dtypes.string else np.zeros((), dtype.as_numpy_dtype)


def sparse_tensor_to_dense(
    sp_input: SparseTensorLike,
    default_value: TensorLike | None = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """The dense form, with `default_value` (default: zero or "") where no element is stored.

    Args:
        sp_input: a `SparseTensor` of any shape.
        default_value: a scalar; default: 0 or "".
        validate_indices: whether indices must be in order and different.
        name: of the operation.

    Returns:
        A tensor of the dense shape and of the values' dtype.

    Raises:
        TypeError: `sp_input` is not a `SparseTensor`.

    Raises (in the step):
        InvalidArgumentError: an index is out of range, or they are not in order.

    Example:
        >>> sparse = tf.SparseTensor(indices=[[0, 1], [1, 0]], values=[5, 6], dense_shape=[2, 2])
        >>> sess.run(tf.sparse_tensor_to_dense(sparse))
        array([[0, 5],
               [6, 0]], dtype=int32)
    """
    value = as_sparse_tensor(sp_input)
    default = _zero(value.dtype.base_dtype) if default_value is None else default_value
    return sparse_to_dense(value.indices, value.dense_shape, value.values, default, validate_indices, name)


def sparse_to_indicator(sp_input: SparseTensorLike, vocab_size: TensorLike, name: str | None = None) -> Tensor:
    """Which ids each row has: boolean, the last dimension replaced by one of size `vocab_size`.

    Args:
        sp_input: sparse ids, int32 or int64, in [0, vocab_size).
    """
    value = as_sparse_tensor(sp_input)
    with name_scope(name, "SparseToIndicator", [value.indices]) as scope:
        ones = raw.Fill(raw.Shape(value.values), True)
        flags = SparseTensor(value.indices, ones, value.dense_shape)
        merged = sparse_merge(value, flags, vocab_size)
        return sparse_tensor_to_dense(merged, default_value=False, validate_indices=False, name=scope)
