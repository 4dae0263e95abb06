"""Reversing, rolling, repeating, grids, diagonals, and moving blocks between batch, space and depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arrays.shapes import reshape, shape
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- order of elements
def reverse(tensor: TensorLike, axis: TensorLike, name: str | None = None) -> Tensor:
    """Reverses the order of elements along the dimensions in `axis`.

    Args:
        tensor: a tensor of any dtype and shape.
        axis: a list of dimensions, counted from the end where negative.
        name: of the operation.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        ValueError: a dimension is out of range.

    Example:
        >>> sess.run(tf.reverse([[1, 2], [3, 4]], axis=[1]))
        array([[2, 1],
               [4, 3]], dtype=int32)
    """
    result: Tensor = raw.ReverseV2(tensor, axis, name=name)
    return result


def reverse_sequence(
    input: TensorLike,
    seq_lengths: TensorLike,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Tensor:
    """Reverses, along `seq_axis`, the first `seq_lengths[i]` elements of each slice i of `batch_axis`.

    Args:
        seq_dim, batch_dim: deprecated names of `seq_axis` and `batch_axis`.

    Raises:
        ValueError: `seq_axis` is missing, or an argument is given by both names.
    """
    steps = one_of("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch = one_of("batch_axis", batch_axis, "batch_dim", batch_dim)
    if steps is None:
        raise ValueError("reverse_sequence needs seq_axis")
    result: Tensor = raw.ReverseSequence(input, seq_lengths, seq_dim=steps, batch_dim=batch or 0, name=name)
    return result


def roll(input: TensorLike, shift: TensorLike, axis: TensorLike, name: str | None = None) -> Tensor:
    """Moves elements by `shift` places along `axis`; those that leave at one end come back at the other."""
    result: Tensor = raw.Roll(input, shift, axis, name=name)
    return result


def invert_permutation(x: TensorLike, name: str | None = None) -> Tensor:
    """The permutation y with y[x[i]] = i."""
    result: Tensor = raw.InvertPermutation(x, name=name)
    return result


def bitcast(input: TensorLike, type: DTypeLike, name: str | None = None) -> Tensor:
    """The same bytes as elements of another type.

    Args:
        input: numbers, shape [...].
        type: the dtype. Of an n times smaller size: the result has a last dimension n more; of an n times greater
            size: `input` has shape [..., n], and the result lacks that dimension.

    Raises:
        ValueError: the last dimension is not n.
    """
    result: Tensor = raw.Bitcast(input, type=type, name=name)
    return result


def repeat(input: TensorLike, repeats: TensorLike, axis: int | None = None, name: str | None = None) -> Tensor:
    """Repeats elements.

    Args:
        input: elements; a scalar counts as a vector of one.
        repeats: how often: one number for all, or one for each position of `axis`.
        axis: default: `input` is flattened first.

    Raises:
        ValueError: `axis` is out of range, or is negative where the rank is not known.
    """
    with name_scope(name, "Repeat", [input] if isinstance(input, Tensor) else None):
        data = convert_to_tensor(input, name="input")
        if axis is None:
            data, axis = reshape(data, [-1]), 0
        counts = convert_to_tensor(repeats, np.int32 if not isinstance(repeats, Tensor) else None, name="repeats")
        data = reshape(data, [1]) if data.shape.ndims == 0 else data
        rank = data.shape.ndims
        if rank is None and axis < 0:
            raise ValueError(f"axis = {axis} may be negative only where the input's rank is known; use set_shape")
        if rank is not None and not -rank <= axis < rank:
            raise ValueError(f"axis = {axis} not in [{-rank}, {rank})")
        at = axis if rank is None else axis % rank
        length = raw.StridedSlice(shape(data), [at], [at + 1], [1], shrink_axis_mask=1)
        return _repeat_rows(data, raw.Cast(counts, DstT="int32"), at, length)


def _repeat_rows(data: Tensor, counts: Tensor, axis: int, length: Tensor) -> Tensor:
    """Gathers each position of `axis` as often as `counts` says."""
    if counts.shape.ndims is None:  # one, or one for each position
        counts = raw.BroadcastTo(raw.Reshape(counts, [-1]), raw.ExpandDims(length, 0))
    known = constant_value(counts)
    if known is not None and known.size != 1:
        chosen: Any = np.repeat(np.arange(known.size, dtype=np.int32), known.reshape(-1))
    elif counts.shape.ndims == 0 or counts.shape.num_elements() == 1:
        positions = raw.ExpandDims(raw.Range(0, length, 1), 1)
        grid = raw.BroadcastTo(positions, raw.Pack([length, raw.Reshape(counts, [])]))
        chosen = raw.Reshape(grid, [-1])
    else:
        most = raw.Maximum(raw.Max(counts, [0]), 0)
        kept = raw.Less(raw.ExpandDims(raw.Range(0, most, 1), 0), raw.ExpandDims(counts, 1))
        chosen = raw.StridedSlice(raw.Where(kept), [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    result: Tensor = raw.GatherV2(data, chosen, axis)
    return result


def meshgrid(*args: PassedOn, **kwargs: str) -> list[Tensor]:
    """The coordinates of the grid that vectors span, one tensor per vector.

    Args:
        args: vectors (or scalars).
        indexing: "xy" (the first two dimensions are swapped, as images have them) or "ij".
        name: name of the scope.

    Raises:
        TypeError: another keyword argument.
        ValueError: another `indexing`.
    """
    indexing, name = kwargs.pop("indexing", "xy"), kwargs.pop("name", "meshgrid")
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    if indexing not in {"xy", "ij"}:
        raise ValueError("indexing parameter must be either 'xy' or 'ij'")
    with name_scope(name, "meshgrid", [a for a in args if isinstance(a, Tensor)]):
        count = len(args)
        order = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
        vectors = [reshape(arg, [-1]) for arg in args]
        sizes = [raw.Size(v) for v in vectors]
        grid = raw.Pack([sizes[i] for i in order]) if count else None
        columns = [reshape(v, [-1 if order[axis] == i else 1 for axis in range(count)]) for i, v in enumerate(vectors)]
        return [raw.BroadcastTo(column, grid) for column in columns]


# ---------------------------------------------------------------------- diagonals
def diag(diagonal: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of twice the rank with `diagonal` on its diagonal and zeros elsewhere.

    Args:
        diagonal: numbers of any shape, of rank 1 or more.
        name: of the operation.

    Returns:
        A tensor of shape ``diagonal.shape + diagonal.shape``.

    Raises:
        ValueError: `diagonal` is a scalar.

    Example:
        >>> sess.run(tf.diag([1, 2]))
        array([[1, 0],
               [0, 2]], dtype=int32)
    """
    result: Tensor = raw.Diag(diagonal, name=name)
    return result


def diag_part(input: TensorLike, name: str | None = None) -> Tensor:
    """The diagonal of a tensor whose shape is some shape twice."""
    result: Tensor = raw.DiagPart(input, name=name)
    return result


def matrix_diag(
    diagonal: TensorLike,
    name: str = "diag",
    k: TensorLike = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: TensorLike = 0,
) -> Tensor:
    """Matrices with the given (batch of) diagonals.

    Args:
        diagonal: [..., length], or for several diagonals [..., count, longest], the highest first, padded at the end.
        k: the diagonal, or the lowest and the highest of several: 0 is the main diagonal, 1 the one above it.
        num_rows, num_cols: the size of the matrices; default: as small as possible.
        padding_value: what stands elsewhere.
    """
    with name_scope(name, values=[diagonal] if isinstance(diagonal, Tensor) else None) as scope:
        packed = convert_to_tensor(diagonal, name="diagonal")
        result: Tensor
        if _plain(k, num_rows, num_cols, padding_value):
            result = raw.MatrixDiag(packed, name=scope)
        else:
            result = raw.MatrixDiagV2(packed, k, num_rows, num_cols, padding_value, name=scope)
        return result


def _plain(k: TensorLike, num_rows: TensorLike = -1, num_cols: TensorLike = -1, padding_value: TensorLike = 0) -> bool:
    """Whether the arguments mean the main diagonal of square matrices of zeros."""
    values = (k, num_rows, num_cols, padding_value)
    return not any(isinstance(v, Tensor | list | tuple | np.ndarray) for v in values) and values == (0, -1, -1, 0)


def matrix_diag_part(
    input: TensorLike, name: str = "diag_part", k: TensorLike = 0, padding_value: TensorLike = 0
) -> Tensor:
    """The diagonals of a batch of matrices.

    Args:
        input: [..., rows, columns].
        k: the diagonal, or the lowest and the highest of several.
        padding_value: what follows shorter diagonals where there are several.

    Returns:
        [..., length], or for several diagonals [..., count, longest], the highest first.
    """
    with name_scope(name, values=[input] if isinstance(input, Tensor) else None) as scope:
        matrices = convert_to_tensor(input, name="input")
        result: Tensor
        if _plain(k, padding_value=padding_value):
            result = raw.MatrixDiagPart(matrices, name=scope)
        else:
            result = raw.MatrixDiagPartV2(matrices, k, padding_value, name=scope)
        return result


def matrix_set_diag(input: TensorLike, diagonal: TensorLike, name: str = "set_diag", k: TensorLike = 0) -> Tensor:
    """A batch of matrices with diagonals replaced; see `matrix_diag_part` for `k` and the form of `diagonal`."""
    with name_scope(name, values=[t for t in (input, diagonal) if isinstance(t, Tensor)]) as scope:
        matrices = convert_to_tensor(input, name="input")
        result: Tensor
        if _plain(k):
            result = raw.MatrixSetDiag(matrices, diagonal, name=scope)
        else:
            result = raw.MatrixSetDiagV2(matrices, diagonal, k, name=scope)
        return result


def matrix_band_part(
    input: TensorLike, num_lower: TensorLike, num_upper: TensorLike, name: str | None = None
) -> Tensor:
    """Keeps the main diagonal and the given numbers of diagonals below and above it; negative keeps all.

    Args:
        input: matrices, shape [..., n, m], of any dtype.
        num_lower, num_upper: integer scalars; negative: all diagonals on that side.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `input`, with zeros outside the band.

    Raises:
        ValueError: `input` has less than two dimensions.

    Example:
        >>> sess.run(tf.matrix_band_part([[1, 2], [3, 4]], -1, 0))
        array([[1, 0],
               [3, 4]], dtype=int32)
    """
    result: Tensor = raw.MatrixBandPart(input, num_lower, num_upper, name=name)
    return result


# ---------------------------------------------------------------------- batch, space and depth
def space_to_batch_nd(
    input: TensorLike, block_shape: TensorLike, paddings: TensorLike, name: str | None = None
) -> Tensor:
    """Moves blocks of the (padded) spatial dimensions into the batch dimension."""
    result: Tensor = raw.SpaceToBatchND(input, block_shape, paddings, name=name)
    return result


def batch_to_space_nd(input: TensorLike, block_shape: TensorLike, crops: TensorLike, name: str | None = None) -> Tensor:
    """Undoes `space_to_batch_nd`, and crops the spatial dimensions."""
    result: Tensor = raw.BatchToSpaceND(input, block_shape, crops, name=name)
    return result


def space_to_batch(
    input: TensorLike,
    paddings: TensorLike,
    block_size: TensorLike | None = None,
    name: str | None = None,
    block_shape: TensorLike | None = None,
) -> Tensor:
    """`space_to_batch_nd` of images with square blocks; `block_shape` is another name of `block_size`."""
    size = one_of("block_shape", block_shape, "block_size", block_size)
    result = space_to_batch_nd(input, np.array([size, size]), paddings, name=name)
    result.set_shape(result.shape.with_rank(4))
    return result


def batch_to_space(
    input: TensorLike,
    crops: TensorLike,
    block_size: TensorLike,
    name: str | None = None,
    block_shape: TensorLike | None = None,
) -> Tensor:
    """`batch_to_space_nd` of images with square blocks; `block_shape` is another name of `block_size`."""
    size = one_of("block_shape", block_shape, "block_size", block_size)
    result = batch_to_space_nd(input, np.array([size, size]), crops, name=name)
    result.set_shape(result.shape.with_rank(4))
    return result


def required_space_to_batch_paddings(
    input_shape: TensorLike, block_shape: TensorLike, base_paddings: TensorLike | None = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The paddings that make sizes multiples of the blocks, and the crops that undo what they add.

    Args:
        input_shape: vector of N spatial sizes.
        block_shape: vector of N block sizes.
        base_paddings: [N, 2]: the least padding; default: none.

    Returns:
        paddings and crops, both [N, 2].
    """
    with name_scope(name, "required_space_to_batch_paddings"):
        sizes = convert_to_tensor(input_shape, np.int32 if not isinstance(input_shape, Tensor) else None, "input_shape")
        blocks = convert_to_tensor(
            block_shape, sizes.dtype if not isinstance(block_shape, Tensor) else None, "block_shape"
        )
        count = blocks.shape.with_rank(1)[0].value
        if count is None:
            raise ValueError("block_shape must have a known length")
        least = np.zeros((count, 2), np.int32) if base_paddings is None else base_paddings
        base = convert_to_tensor(least, sizes.dtype if not isinstance(least, Tensor) else None, "base_paddings")
        before, after = raw.Unpack(base, num=2, axis=1)
        extra = raw.FloorMod(raw.Sub(blocks, raw.FloorMod(raw.AddN([sizes, before, after]), blocks)), blocks)
        paddings = raw.Pack([before, raw.AddV2(after, extra)], axis=1, name="paddings")
        crops = raw.Pack([raw.ZerosLike(extra), extra], axis=1, name="crops")
        return tuple(_as_constant(t) for t in (paddings, crops))  # type: ignore[return-value]


def _as_constant(tensor: Tensor) -> Tensor:
    known = constant_value(tensor)
    return tensor if known is None else convert_to_tensor(known)


def space_to_depth(input: TensorLike, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Moves square blocks of images into the depth dimension.

    Args:
        input: any dtype, [batch, height, width, depth], or as `data_format` says ("NHWC", "NCHW", "NCHW_VECT_C").
        block_size: b, at least 2, which divides height and width.

    Returns:
        [batch, height / b, width / b, depth * b * b].

    Raises:
        ValueError: b is smaller, or does not divide them.
    """
    result: Tensor = raw.SpaceToDepth(input, block_size=block_size, data_format=data_format, name=name)
    return result


def depth_to_space(input: TensorLike, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Moves depth into square blocks of images; undoes `space_to_depth`.

    Args:
        input: any dtype, [batch, height, width, depth], or as `data_format` says ("NHWC", "NCHW", "NCHW_VECT_C").
        block_size: b, at least 2, whose square divides depth.

    Returns:
        [batch, height * b, width * b, depth / (b * b)].

    Raises:
        ValueError: b is smaller, or its square does not divide the depth.
    """
    result: Tensor = raw.DepthToSpace(input, block_size=block_size, data_format=data_format, name=name)
    return result


def extract_image_patches(
    images: TensorLike,
    ksizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    rates: Sequence[int] | None = None,
    padding: str | None = None,
    name: str | None = None,
    sizes: Sequence[int] | None = None,
) -> Tensor:
    """The patches of images, each flattened into the depth dimension.

    Args:
        images: [batch, rows, columns, depth].
        ksizes: [1, rows, columns, 1]: the size of a patch; `sizes` is another name of it.
        strides: [1, rows, columns, 1]: the distance between the centres of neighbouring patches.
        rates: [1, rows, columns, 1]: the distance between the elements of a patch.
        padding: "VALID" or "SAME".

    Returns:
        [batch, rows, columns, ksizes[1] * ksizes[2] * depth].
    """
    window = one_of("sizes", sizes, "ksizes", ksizes)
    result: Tensor = raw.ExtractImagePatches(
        images, ksizes=window, strides=strides, rates=rates, padding=padding, name=name
    )
    return result
