"""Embeddings: rows of large tables looked up by id, from one variable or from several parts  (§4.2, figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core.device import DeviceSpec
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import colocate_with, name_scope
from anabranch.frontend.sparse.form import as_sparse_tensor, sparse_fill_empty_rows, sparse_reshape, sparse_retain
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_COMBINERS = ("mean", "sqrtn", "sum")


def embedding_lookup(
    params: TensorLike | Sequence[TensorLike],
    ids: TensorLike,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Tensor:
    """The rows `ids` of a table.

    Args:
        params: a tensor or variable of shape [rows, ...]; or the parts of one table: a list of tensors or variables, or
            a partitioned variable.
        ids: integers of any shape.
        partition_strategy: with "mod" row i is in part i % n, with "div" the parts hold consecutive rows.
        name: of the operation.
        validate_indices: has no effect: ids out of range are an error.
        max_norm: rows that are longer (in l2 norm) are scaled down to this length.

    Returns:
        A tensor of the dtype of `params` and of shape ``ids.shape + params.shape[1:]``.

    Raises:
        ValueError: no parameters, or an unknown strategy.

    Raises (in the step):
        InvalidArgumentError: an id is out of range.

    Example:
        >>> table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> sess.run(tf.nn.embedding_lookup(table, [2, 0]))
        array([[5., 6.],
               [1., 2.]], dtype=float32)
    """
    parts = _parts(params)
    with name_scope(name, "embedding_lookup", _tensors(*parts, ids)) as scope:
        wanted = convert_to_tensor(ids, name="ids")
        elsewhere = is_elsewhere(parts, wanted)
        if len(parts) == 1 and not elsewhere:
            with colocate_with(parts[0]):
                rows = _clipped(_gather(parts[0], wanted, scope), wanted, max_norm)
                result: Tensor = raw.Identity(rows)
                return result
        if elsewhere:
            # each distinct row travels once
            rows = _distinct_rows(wanted, lambda distinct: _from_parts(parts, distinct, partition_strategy), scope)
        else:
            rows = _from_parts(parts, wanted, partition_strategy, scope)
        return _clipped(rows, wanted, max_norm)


def _distinct_rows(ids: Tensor, look_up: Callable[[Tensor], Tensor], name: str | None = None) -> Tensor:
    """The rows of ids that may repeat, each of which is looked up once.

    Args:
        ids: of any shape.
        look_up: gives the rows of a vector of ids, of which none repeats.
        name: of the result.

    Returns:
        ids.shape + the shape of a row.
    """
    distinct = raw.Unique(_flat(ids))
    positions = distinct.idx if ids.shape.ndims == 1 else raw.Reshape(distinct.idx, raw.Shape(ids))
    rows = raw.GatherV2(look_up(distinct.y), positions, 0, name=name)
    rows.set_shape(ids.shape.concatenate(rows.shape[ids.shape.ndims :] if ids.shape.ndims is not None else None))
    return rows  # type: ignore[no-any-return]


def _flat(ids: Tensor) -> Any:
    """The ids as a vector; what is one needs no operation, which would run in every step."""
    return ids if ids.shape.ndims == 1 else raw.Reshape(ids, [-1])


def is_elsewhere(parts: Sequence[TensorLike], ids: Tensor) -> bool:
    """Whether a part of a table asks for another task than what looks its rows up here."""
    asked = [DeviceSpec.from_string(getattr(part, "device", "") or "") for part in parts]
    if all(spec.job is None for spec in asked):
        return False
    current = DeviceSpec.from_string(raw.Shape(ids).op.device or "")
    return any((spec.job, spec.task) != (current.job, current.task) for spec in asked)


def _tensors(*values: TensorLike) -> list[Any]:
    return [v for v in values if hasattr(v, "graph")]


def _parts(params: TensorLike | Sequence[TensorLike]) -> list[Any]:
    """The parts of a table: a partitioned variable gives its variables."""
    listed = getattr(params, "_get_variable_list", None)
    parts = listed() if listed is not None else list(params) if isinstance(params, list | tuple) else [params]
    if not parts or params is None:
        raise ValueError("Need at least one param")
    return [p if hasattr(p, "sparse_read") else convert_to_tensor(p, name="params") for p in parts]


def _gather(params: TensorLike | Sequence[TensorLike], ids: Tensor, name: str | None = None) -> Tensor:
    """Rows of one tensor or variable; a variable is not read whole."""
    read = getattr(params, "sparse_read", None)
    result: Tensor = read(ids, name=name) if read is not None else raw.GatherV2(params, ids, 0, name=name)
    return result


def _from_parts(parts: list[Any], ids: Tensor, strategy: str, name: str | None = None) -> Tensor:
    """Partition the ids, gather from each part where it lies, and stitch the rows together."""
    if len(parts) == 1:
        with colocate_with(parts[0]):
            return _gather(parts[0], ids)
    flat = _flat(ids)
    part, local = _assignment(parts, flat, strategy)
    part = raw.Cast(part, DstT="int32")
    positions = raw.DynamicPartition(raw.Range(0, raw.Size(flat), 1), part, num_partitions=len(parts))
    gathered = []
    for table, wanted in zip(parts, raw.DynamicPartition(local, part, num_partitions=len(parts)), strict=True):
        with colocate_with(table):
            gathered.append(_gather(table, wanted))
    rows = raw.ParallelDynamicStitch(positions, gathered, name=name)
    row_shape = _row_shape(parts)
    if ids.shape.ndims == 1:
        rows.set_shape(ids.shape.concatenate(row_shape))
        return rows  # type: ignore[no-any-return]
    if row_shape.is_fully_defined():
        tail: Any = np.array(row_shape.as_list(), np.int32)
    else:
        tail = raw.StridedSlice(raw.Shape(parts[0]), [1], [0], [1], end_mask=1)
    result: Tensor = raw.Reshape(rows, raw.ConcatV2([raw.Shape(ids), tail], 0))
    result.set_shape(ids.shape.concatenate(row_shape))
    return result


def _row_shape(parts: list[Any]) -> TensorShape:
    shape = TensorShape(parts[0].shape)[1:]
    for table in parts[1:]:
        shape = shape.merge_with(TensorShape(table.shape)[1:])
    return shape


def _assignment(parts: list[Any], ids: Tensor, strategy: str) -> tuple[Tensor, Tensor]:
    """For each id the part that holds it, and the row inside that part."""
    count = np.array(len(parts), ids.dtype.as_numpy_dtype)
    if strategy == "mod":
        return raw.FloorMod(ids, count), raw.FloorDiv(ids, count)
    if strategy != "div":
        raise ValueError(f"Unrecognized partition strategy: {strategy}; it must be 'mod' or 'div'")
    total = _row_count(parts, ids)
    small, extra = raw.FloorDiv(total, count), raw.FloorMod(total, count)
    one = np.ones((), ids.dtype.as_numpy_dtype)
    # the first `extra` parts have one row more than the others
    beyond = raw.Sub(ids, extra)
    large = raw.AddV2(small, one)
    part = raw.Maximum(raw.FloorDiv(ids, large), raw.FloorDiv(beyond, small))
    local = raw.Select(raw.Less(part, extra), raw.FloorMod(ids, large), raw.FloorMod(beyond, small))
    return part, local


def _row_count(parts: list[Any], ids: Tensor) -> Any:
    shapes = [TensorShape(table.shape).dims_tuple or () for table in parts]
    sizes = [dims[0] for dims in shapes if dims and dims[0] is not None]
    if len(sizes) == len(parts):
        return np.array(sum(sizes), ids.dtype.as_numpy_dtype)
    rows = [raw.StridedSlice(raw.Shape(t), [0], [1], [1], shrink_axis_mask=1) for t in parts]
    return raw.Cast(raw.AddN(rows), DstT=ids.dtype)


def _clipped(rows: Tensor, ids: Tensor, max_norm: float | None) -> Tensor:
    """Rows scaled down to an l2 norm of at most `max_norm`."""
    if max_norm is None:
        return rows
    limit = convert_to_tensor(max_norm, rows.dtype)
    if ids.shape.ndims is not None and rows.shape.ndims is not None:
        axes: Any = np.arange(ids.shape.ndims, rows.shape.ndims, dtype=np.int32)
    else:
        axes = raw.Range(raw.Rank(ids), raw.Rank(rows), 1)
    squares = raw.Sum(raw.Mul(rows, rows), axes, keep_dims=True)
    # the square root has no derivative at zero: rows of zeros go around it
    present = raw.Greater(squares, np.zeros((), rows.dtype.as_numpy_dtype))
    norm = raw.Sqrt(raw.Select(present, squares, raw.OnesLike(squares)))
    longest = raw.Maximum(raw.Select(present, norm, squares), limit)
    result: Tensor = raw.RealDiv(raw.Mul(rows, limit), longest)
    return result


# ---------------------------------------------------------------------- several ids per row
def embedding_lookup_sparse(
    params: TensorLike | Sequence[TensorLike],
    sp_ids: SparseTensor,
    sp_weights: SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
) -> Tensor:
    """For each row of `sp_ids` the embeddings of its ids, combined.

    Args:
        params: see `embedding_lookup`.
        sp_ids: sparse ids, [rows, n].
        sp_weights: sparse weights with the same indices, or None for weights of 1.
        combiner: "sum", "mean" (default; divided by the sum of the weights), or "sqrtn" (divided by the square root of
            the sum of the squared weights).
        max_norm: see `embedding_lookup`; applied before combining.

    Returns:
        [rows] + params.shape[1:]; zero for rows without ids.

    Raises:
        ValueError: an unknown combiner, or no parameters.
        TypeError: `sp_ids` or `sp_weights` is not sparse.
    """
    how = "mean" if combiner is None else combiner
    if how not in _COMBINERS:
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {how!r}")
    parts = _parts(params)
    ids = as_sparse_tensor(sp_ids)
    weights = None if sp_weights is None else as_sparse_tensor(sp_weights)
    if weights is not None:
        ids.values.shape.assert_is_compatible_with(weights.values.shape)
        ids.indices.shape.assert_is_compatible_with(weights.indices.shape)
    with name_scope(name, "embedding_lookup_sparse", _tensors(*parts, ids)) as scope:
        segments = _column(ids.indices, 0)
        rows = raw.StridedSlice(ids.dense_shape, [0], [1], [1], shrink_axis_mask=1)
        embeddings = embedding_lookup(parts, ids.values, partition_strategy, max_norm=max_norm)
        if weights is None:
            factors = raw.Fill(raw.Shape(ids.values), np.ones((), embeddings.dtype.as_numpy_dtype))
        else:
            factors = raw.Cast(weights.values, DstT=embeddings.dtype)
            embeddings = raw.Mul(embeddings, _like_rows(factors, embeddings))
        total = raw.UnsortedSegmentSum(embeddings, segments, rows)
        return _normalized(how, total, factors, segments, rows, scope)


def _column(indices: Tensor, at: int) -> Any:
    return raw.StridedSlice(indices, [0, at], [0, at + 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)


def _like_rows(vector: Tensor, rows: Tensor) -> Any:
    """A vector as [n, 1, ..., 1], so that it broadcasts with rows of any shape."""
    if rows.shape.ndims is not None:
        for _ in range(rows.shape.ndims - 1):
            vector = raw.ExpandDims(vector, -1)
        return vector
    ones = raw.Fill(raw.Reshape(raw.Sub(raw.Rank(rows), 1), [1]), 1)
    return raw.Reshape(vector, raw.ConcatV2([raw.Shape(vector), ones], 0))


def _normalized(how: str, total: Tensor, factors: Tensor, segments: Tensor, rows: Tensor, name: str) -> Tensor:
    result: Tensor
    if how == "sum":
        result = raw.Identity(total, name=name)
        return result
    if how == "mean":
        weight = raw.UnsortedSegmentSum(factors, segments, rows)
    else:
        weight = raw.Sqrt(raw.UnsortedSegmentSum(raw.Mul(factors, factors), segments, rows))
    zero = raw.ZerosLike(weight)
    present = raw.NotEqual(weight, zero)
    divisor = raw.Select(present, weight, raw.OnesLike(weight))
    result = raw.RealDiv(total, _like_rows(divisor, total), name=name)
    return result


def safe_embedding_lookup_sparse(
    embedding_weights: TensorLike | Sequence[TensorLike],
    sparse_ids: SparseTensor,
    sparse_weights: SparseTensor | None = None,
    combiner: str = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
) -> Tensor:
    """Like `embedding_lookup_sparse`, for ids of any rank, some of which may be invalid or missing.

    Ids below 0 are left out, and so are those with weights that are not positive unless the combiner is "sum". A row
    without ids gets the embedding of `default_id`, or zeros.

    Returns:
        sparse_ids.dense_shape[:-1] + embedding_weights.shape[1:]

    Raises:
        ValueError: no parameters, or an unknown combiner.
    """
    parts = _parts(embedding_weights)
    ids = as_sparse_tensor(sparse_ids)
    weights = None if sparse_weights is None else as_sparse_tensor(sparse_weights)
    for part in parts:
        if weights is not None and convert_to_tensor(part).dtype.base_dtype is not weights.dtype:
            raise ValueError(
                f"Tensor conversion requested dtype {weights.dtype.name} for embedding_weights of dtype "
                f"{part.dtype.base_dtype.name}: they must have the dtype of sparse_weights; use tf.cast"
            )
    with name_scope(name, "embedding_lookup", _tensors(*parts, ids)) as scope:
        original_shape, flat = ids.dense_shape, _as_matrix(ids)
        if weights is not None:
            weights = SparseTensor(flat.indices, weights.values, flat.dense_shape)
        flat, weights = _valid(flat, weights, drop_weights=combiner != "sum")
        flat, empty = sparse_fill_empty_rows(flat, 0 if default_id is None else default_id)
        if weights is not None:
            weights, _ = sparse_fill_empty_rows(weights, 1.0)
        rows = embedding_lookup_sparse(
            parts, flat, weights, partition_strategy, combiner=combiner, max_norm=max_norm, name=None
        )
        if default_id is None:
            rows = raw.Select(empty, raw.ZerosLike(rows), rows)
        leading = raw.Cast(raw.StridedSlice(original_shape, [0], [-1], [1], begin_mask=1), DstT="int32")
        tail = raw.StridedSlice(raw.Shape(rows), [1], [0], [1], end_mask=1)
        result: Tensor = raw.Reshape(rows, raw.ConcatV2([leading, tail], 0), name=scope)
        rank = original_shape.shape.as_list()[0]
        if rank is not None and rows.shape.ndims is not None:
            result.set_shape(TensorShape([None] * (rank - 1)).concatenate(rows.shape[1:]))
        return result


def _as_matrix(ids: SparseTensor) -> SparseTensor:
    """All dimensions but the last merged into one."""
    shape = ids.dense_shape
    if shape.shape.as_list() == [2]:
        return ids
    rows = raw.Prod(raw.StridedSlice(shape, [0], [-1], [1], begin_mask=1), [0])
    last = raw.StridedSlice(shape, [-1], [0], [1], shrink_axis_mask=1)
    return sparse_reshape(ids, raw.Pack([rows, last]))


def _valid(
    ids: SparseTensor, weights: SparseTensor | None, drop_weights: bool
) -> tuple[SparseTensor, SparseTensor | None]:
    chosen = raw.GreaterEqual(ids.values, np.zeros((), ids.dtype.as_numpy_dtype))
    if weights is None:
        return sparse_retain(ids, chosen), None
    if drop_weights:
        positive = raw.Greater(weights.values, np.zeros((), weights.dtype.as_numpy_dtype))
        chosen = raw.LogicalAnd(chosen, positive)
    return sparse_retain(ids, chosen), sparse_retain(weights, chosen)
