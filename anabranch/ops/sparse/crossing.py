"""Crosses: every combination of the values of several columns, row by row, as a string or as a hash of the parts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType, string
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.sparse.form import sparse_shapes
from anabranch.ops.strings.hashing_many import fingerprints64, joined_fingerprints

#: between the parts of a crossed string
_SEPARATOR = b"_X_"

SparseCross = define_op(
    "SparseCross",
    "indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types -> "
    "output_indices: int64, output_values: out_type, output_shape: int64",
    "N: int >= 0, hashed_output: bool, num_buckets: int >= 0, hash_key: int, "
    "sparse_types: list({int64, string}) >= 0, dense_types: list({int64, string}) >= 0, "
    "out_type: {int64, string}, internal_type: {int64, string}",
    shape_outputs={"output_shape": ()},  # the number of rows, and the most crosses of one
)
SparseCross.not_differentiable()


@SparseCross.shape
def _(
    indices: list[TensorShape],
    values: list[TensorShape],
    shapes: list[TensorShape],
    dense_inputs: list[TensorShape],
) -> Any:
    for parts in zip(indices, values, shapes, strict=True):
        shape_rules.late(sparse_shapes, *parts)
    for dense in dense_inputs:
        shape_rules.late(shape_rules.with_rank, dense, 2, "argument 'dense_inputs'")
    return TensorShape([None, 2]), TensorShape([None]), TensorShape([2])


@SparseCross.host_kernel
def _(
    indices: list[Array],
    values: list[Array],
    shapes: list[Array],
    dense_inputs: list[Array],
    *,
    num_buckets: int,
    hash_key: int,
    out_type: DType,
    internal_type: DType,
    ctx: OperationContext,
) -> Any:
    if internal_type is string and any(part.dtype != np.object_ for part in (*values, *dense_inputs)):
        raise InvalidArgumentError(
            None, ctx.op, "integers are crossed as they are: internal_type must be int64, and is string"
        )
    # by the type of the output, as TensorFlow's kernels do: `hashed_output` says nothing that they look at
    hashed_output = out_type is not string
    batch = _batch_size(shapes, dense_inputs, ctx)
    if hashed_output:
        parts = [
            *(_sparse_column(index, value, batch) for index, value in zip(indices, values, strict=True)),
            *(_Column(dense.ravel(), np.full(batch, dense.shape[1], np.int64)) for dense in dense_inputs),
        ]
        return _hashed(parts, batch, hash_key, num_buckets)
    columns = [
        *(_sparse_rows(index, value, batch) for index, value in zip(indices, values, strict=True)),
        *([list(row) for row in dense] for dense in dense_inputs),
    ]
    crossed = [
        [_SEPARATOR.join(map(_text, combination)) for combination in itertools.product(*row)]
        for row in zip(*columns, strict=True)
    ]
    places = [(at, i) for at, row in enumerate(crossed) for i in range(len(row))]
    flat = np.empty(len(places), np.object_)
    flat[:] = [value for row in crossed for value in row]
    shape = np.array([batch, max(map(len, crossed), default=0)], np.int64)
    return np.array(places, np.int64).reshape(-1, 2), flat, shape


def _batch_size(shapes: list[Array], dense_inputs: list[Array], ctx: OperationContext) -> int:
    """The number of rows, which all columns share."""
    sizes = [*(int(shape[0]) for shape in shapes), *(len(dense) for dense in dense_inputs)]
    for at, shape in enumerate(shapes):
        if len(shape) != 2:
            raise InvalidArgumentError(None, ctx.op, f"shapes[{at}] = {shape.tolist()}: columns of a cross have rank 2")
    if len(set(sizes)) > 1:
        raise InvalidArgumentError(None, ctx.op, f"the columns of a cross have as many rows as each other, got {sizes}")
    return sizes[0] if sizes else 0


def _sparse_rows(indices: Array, values: Array, batch: int) -> list[list[Any]]:
    rows: list[list[Any]] = [[] for _ in range(batch)]
    for row, value in zip(indices[:, 0].tolist(), values, strict=True):
        rows[row].append(value)
    return rows


@dataclass(frozen=True, slots=True)
class _Column:
    """The values of a column, row after row, and how many each row has."""

    values: Array
    counts: Array

    def has_one_each(self, batch: int) -> bool:
        """Whether each of so many rows, of which there are some, has one value."""
        return len(self.values) == batch and bool(np.maximum.reduce(self.counts) == 1)


def _sparse_column(indices: Array, values: Array, batch: int) -> _Column:
    rows = indices[:, 0]
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
    return _Column(values, np.bincount(rows, minlength=batch))


def _hashed(columns: list[_Column], batch: int, key: int, buckets: int) -> tuple[Array, Array, Array]:
    """Each row's combinations, of which the last column's value changes first, as hashes in [0, buckets).

    Of 63 bits where there is no number of buckets. A cross of no columns has one combination in each row.
    """
    if batch and all(column.has_one_each(batch) for column in columns):  # most features have one value
        alone = np.zeros((batch, 2), np.int64)
        alone[:, 0] = np.arange(batch)
        parts = [_fingerprints(column.values) for column in columns]
        return alone, _joined(parts, batch, key, buckets), np.array([batch, 1], np.int64)
    counts = np.ones(batch, np.int64)
    for column in columns:
        counts = counts * column.counts
    total, rows = int(counts.sum()), np.repeat(np.arange(batch), counts)
    ends = np.cumsum(counts)
    within = np.arange(total) - (ends - counts)[rows]
    left, chosen = within, []
    for column in reversed(columns):
        # the place in its row: the number of the combination, written in a system whose digits the columns are
        count = column.counts[rows]
        begins = np.cumsum(column.counts) - column.counts
        chosen.append(_fingerprints(column.values)[begins[rows] + left % count])
        left = left // count
    places = np.stack([rows, within], axis=1)
    hashes = _joined(chosen[::-1], total, key, buckets)
    return places, hashes, np.array([batch, counts.max(initial=0)], np.int64)


def _joined(parts: list[Array], count: int, key: int, buckets: int) -> Array:
    """One hash of each of the combinations, whose parts stand at the same places of several vectors."""
    first = np.full(count, key % (1 << 64), np.uint64)
    return (joined_fingerprints(first, parts) % np.uint64(buckets or (1 << 63) - 1)).astype(np.int64)


def _fingerprints(values: Array) -> Array:
    """64 bits of each value: the hash of a string, an integer itself."""
    if values.dtype == np.object_:
        return fingerprints64(values.tolist())
    return values.astype(np.int64, copy=False).view(np.uint64)


def _text(value: bytes | np.int64) -> bytes:
    return value if isinstance(value, bytes) else str(int(value)).encode()
