"""`tf.RaggedTensor`: a tensor whose rows have different lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.fetches import register_session_run_conversion_functions
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.arguments import cast, check_fills, check_flag, check_list, check_row_count, longest
from anabranch.frontend.ragged.dense import rows_of_dense
from anabranch.frontend.ragged.operators import RaggedOperators
from anabranch.frontend.ragged.partitions import after, count_rows
from anabranch.frontend.ragged.values import RaggedTensorValue, ragged_value
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import load_versions, register_type
from anabranch.graph.graph import Graph
from anabranch.graph.operation import FeedDict, Operation, StepRunner, Tensor
from anabranch.ops import raw

#: what may stand in brackets behind a ragged tensor
RaggedIndex = Any


class RaggedTensor(RaggedOperators):
    """A tensor with one or more dimensions of which the slices have different lengths.

    Row i holds `values[row_splits[i]:row_splits[i + 1]]`. The values are a tensor, or a ragged tensor themselves, whose
    rows are then cut in turn. Make one with a `from_` method or with `tf.ragged.constant`.

    Args:
        values: of shape [n, ...].
        row_splits: int32 or int64, shape [rows + 1]: from 0 to n, never decreasing.
        cached_row_lengths, cached_value_rowids, cached_nrows: the same partition in other forms, where they are known.
        internal: must be True: the `from_` methods are the way to make one.

    Raises:
        ValueError: `internal` is not set, or a shape or dtype does not fit.
        TypeError: something is no tensor.

    Example:
        >>> ragged = tf.RaggedTensor.from_row_splits([3, 1, 4, 1, 5], [0, 2, 2, 5])
        >>> sess.run(ragged).to_list()
        [[3, 1], [], [4, 1, 5]]
    """

    def __init__(
        self,
        values: Tensor | RaggedTensor,
        row_splits: Tensor,
        cached_row_lengths: Tensor | None = None,
        cached_value_rowids: Tensor | None = None,
        cached_nrows: Tensor | None = None,
        internal: bool = False,
    ) -> None:
        if not internal:
            raise ValueError(
                "RaggedTensor constructor is private; please use one of the factory methods instead "
                "(e.g., RaggedTensor.from_row_lengths())"
            )
        if not isinstance(row_splits, Tensor):
            raise TypeError(f"Row-partitioning argument must be a Tensor, got {row_splits!r}")
        if not isinstance(values, RaggedTensor | Tensor):
            raise TypeError(f"values must be a Tensor or RaggedTensor, got {values!r}")
        for cached in (cached_row_lengths, cached_value_rowids, cached_nrows):
            if cached is not None and not isinstance(cached, Tensor):
                raise TypeError(f"Cached value must be a Tensor or None, got {cached!r}")
        if row_splits.dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"Row-partitioning argument must be int32 or int64, got {row_splits.dtype.name}")
        row_splits.shape.assert_has_rank(1)
        values.shape.with_rank_at_least(1)
        row_splits.set_shape([None])
        self._values = values
        self._row_splits = row_splits
        self._row_lengths = cached_row_lengths
        self._value_rowids = cached_value_rowids
        self._nrows = cached_nrows

    # ------------------------------------------------------------------ one dimension
    @classmethod
    def from_value_rowids(
        cls,
        values: TensorLike,
        value_rowids: TensorLike,
        nrows: TensorLike | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:
        """From the number of its row for each value; the numbers do not decrease.

        Args:
            values: a tensor or ragged tensor of shape [n, ...].
            value_rowids: integers, shape [n].
            nrows: the number of rows; default: the last row number and one.
            validate: whether the step checks that the arguments go together.

        Raises:
            ValueError: the number of rows is negative, or known to be too small.
        """
        check_flag(validate)
        with name_scope(name, "RaggedFromValueRowIds", [values, value_rowids, nrows]):
            values, rowids = _with_partition(values, value_rowids, "value_rowids")
            rowids.shape.assert_has_rank(1)
            if nrows is None:
                rows = partitions.last_plus_one(rowids)
            else:
                rows = convert_to_tensor(nrows, rowids.dtype, name="nrows")
                check_row_count(rows, rowids)
            rows.shape.assert_has_rank(0)
            values.shape[:1].assert_is_compatible_with(rowids.shape)
            if validate:
                rowids = after(partitions.check_row_numbers(rowids, rows, _size(values, rowids.dtype)), rowids)
            splits = partitions.splits_of_row_numbers(rowids, rows)
            return cls(values, splits, cached_value_rowids=rowids, cached_nrows=rows, internal=True)

    @classmethod
    def from_row_splits(
        cls, values: TensorLike, row_splits: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """From the places that cut the values: row i is `values[row_splits[i]:row_splits[i + 1]]`.

        Raises:
            ValueError: `row_splits` is empty, or of another dtype than the splits of the values.
        """
        check_flag(validate)
        if isinstance(row_splits, list | tuple) and not row_splits:
            raise ValueError("row_splits tensor may not be empty.")
        with name_scope(name, "RaggedFromRowSplits", [values, row_splits]):
            values, splits = _with_partition(values, row_splits, "row_splits")
            splits.shape.assert_has_rank(1)
            if validate:
                splits = after(partitions.check_splits(splits, _size(values, splits.dtype)), splits)
            return cls(values, splits, internal=True)

    @classmethod
    def from_row_lengths(
        cls, values: TensorLike, row_lengths: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """From the length of each row."""
        check_flag(validate)
        with name_scope(name, "RaggedFromRowLengths", [values, row_lengths]):
            values, lengths = _with_partition(values, row_lengths, "row_lengths")
            lengths.shape.assert_has_rank(1)
            if validate:
                lengths = after(partitions.check_lengths(lengths, _size(values, lengths.dtype)), lengths)
            return cls(values, partitions.splits_of_lengths(lengths), cached_row_lengths=lengths, internal=True)

    @classmethod
    def from_row_starts(
        cls, values: TensorLike, row_starts: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """From the place where each row begins; the last one goes to the end of the values."""
        check_flag(validate)
        with name_scope(name, "RaggedFromRowStarts", [values, row_starts]):
            values, starts = _with_partition(values, row_starts, "row_starts")
            starts.shape.assert_has_rank(1)
            count = _size(values, starts.dtype)
            if validate:
                starts = after(partitions.check_starts(starts, count), starts)
            return cls(values, raw.ConcatV2([starts, raw.Reshape(count, [1])], 0), internal=True)

    @classmethod
    def from_row_limits(
        cls, values: TensorLike, row_limits: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """From the place where each row ends."""
        check_flag(validate)
        with name_scope(name, "RaggedFromRowLimits", [values, row_limits]):
            values, limits = _with_partition(values, row_limits, "row_limits")
            limits.shape.assert_has_rank(1)
            if validate:
                limits = after(partitions.check_limits(limits, _size(values, limits.dtype)), limits)
            return cls(values, partitions.zero_and(limits), internal=True)

    # ------------------------------------------------------------------ several dimensions
    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: TensorLike,
        nested_value_rowids: Sequence[TensorLike],
        nested_nrows: Sequence[TensorLike | None] | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> TensorOrRagged:
        """From row numbers for each ragged dimension, the outermost first; no dimension gives the values themselves."""
        check_flag(validate)
        check_list(nested_value_rowids, "nested_value_rowids")
        if nested_nrows is None:
            nested_nrows = [None] * len(nested_value_rowids)
        check_list(nested_nrows, "nested_nrows")
        if len(nested_nrows) != len(nested_value_rowids):
            raise ValueError("nested_nrows must have the same length as nested_value_rowids")
        with name_scope(name, "RaggedFromNestedValueRowIds"):
            result: Any = flat_values
            for rowids, nrows in reversed(list(zip(nested_value_rowids, nested_nrows, strict=True))):
                result = cls.from_value_rowids(result, rowids, nrows, validate=validate)
            return result

    @classmethod
    def from_nested_row_splits(
        cls,
        flat_values: TensorLike,
        nested_row_splits: Sequence[TensorLike],
        name: str | None = None,
        validate: bool = True,
    ) -> TensorOrRagged:
        """From the splits of each ragged dimension, the outermost first; no dimension gives the values themselves."""
        check_flag(validate)
        check_list(nested_row_splits, "nested_row_splits")
        with name_scope(name, "RaggedFromNestedRowSplits"):
            result: Any = flat_values
            for splits in reversed(nested_row_splits):
                result = cls.from_row_splits(result, splits, validate=validate)
            return result

    @classmethod
    def from_nested_row_lengths(
        cls,
        flat_values: TensorLike,
        nested_row_lengths: Sequence[TensorLike],
        name: str | None = None,
        validate: bool = True,
    ) -> TensorOrRagged:
        """From the lengths of the rows of each ragged dimension, the outermost first."""
        check_flag(validate)
        check_list(nested_row_lengths, "nested_row_lengths")
        with name_scope(name, "RaggedFromNestedRowlengths"):
            result: Any = flat_values
            for lengths in reversed(nested_row_lengths):
                result = cls.from_row_lengths(result, lengths, validate=validate)
            return result

    # ------------------------------------------------------------------ what it is made of
    @property
    def dtype(self) -> DType:
        """The dtype of the innermost values."""
        return self._values.dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape; ragged dimensions are unknown."""
        dims = self._row_splits.shape.dims_tuple
        rows = None if dims is None or dims[0] is None else dims[0] - 1
        return TensorShape([rows, None]).concatenate(self._values.shape[1:])

    def get_shape(self) -> TensorShape:
        """The static shape, as `shape`."""
        return self.shape

    @property
    def ragged_rank(self) -> int:
        """How many of the dimensions are partitioned; the first of all is not counted."""
        return len(self.nested_row_splits)

    @property
    def values(self) -> TensorOrRagged:
        """The rows, one after another: a tensor, or a ragged tensor of one dimension less."""
        return self._values

    @property
    def row_splits(self) -> Tensor:
        return self._row_splits

    @property
    def flat_values(self) -> Tensor:
        """The innermost values."""
        values: Tensor = self._levels()[-1]._values
        return values

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        """The splits of all ragged dimensions, the outermost first."""
        return tuple(level._row_splits for level in self._levels())

    @property
    def graph(self) -> Graph:
        return self._row_splits.graph

    @property
    def name(self) -> str:
        return self.flat_values.name

    @property
    def op(self) -> Operation:
        return self.flat_values.op

    def _levels(self) -> list[Any]:
        """This tensor, its values, their values, as far as they are ragged."""
        levels: list[Any] = [self]
        while isinstance(levels[-1]._values, RaggedTensor):
            levels.append(levels[-1]._values)
        return levels

    def value_rowids(self, name: str | None = None) -> Tensor:
        """For each value the number of its row; int32 or int64, shape [n]."""
        if self._value_rowids is not None:
            return self._value_rowids
        with name_scope(name, "RaggedValueRowIds"):
            return partitions.row_numbers(self._row_splits)

    def nested_value_rowids(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The row numbers of all ragged dimensions, the outermost first."""
        with name_scope(name, "RaggedNestedValueRowIds"):
            return tuple(level.value_rowids() for level in self._levels())

    def nrows(self, out_type: DTypeLike | None = None, name: str | None = None) -> Tensor:
        """The number of rows, a scalar; of the dtype of the splits where `out_type` does not say otherwise."""
        wanted = self._row_splits.dtype if out_type is None else as_dtype(out_type)
        with name_scope(name, "RaggedNRows"):
            if self._nrows is not None:
                return cast(self._nrows, wanted)
            rows: Tensor = raw.Sub(count_rows(self._row_splits, wanted), np.ones((), wanted.as_numpy_dtype))
            return rows

    def row_starts(self, name: str | None = None) -> Tensor:
        """Where each row begins among the values."""
        with name_scope(name, "RaggedRowStarts"):
            return self._row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """Where each row ends among the values."""
        with name_scope(name, "RaggedRowLimits"):
            return self._row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> TensorOrRagged:
        """The lengths of the slices of dimension `axis`: of shape `self.shape[:axis]`, ragged where that is.

        Raises:
            ValueError: `axis` is out of range.
        """
        if axis == 1 and self._row_lengths is not None:
            return self._row_lengths
        with name_scope(name, "RaggedRowLengths"):
            axis = partitions.positive_axis(axis, self.shape.ndims)
            if axis == 0:
                return self.nrows()
            if axis == 1:
                return raw.Sub(self._row_splits[1:], self._row_splits[:-1])
            if isinstance(self._values, RaggedTensor):
                return self.with_values(self._values.row_lengths(axis - 1))
            shape = raw.Shape(self._values, out_type=self._row_splits.dtype)
            return self.with_values(raw.Fill(shape[: axis - 1], shape[axis - 1]))

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The lengths of the rows of all ragged dimensions, the outermost first."""
        with name_scope(name, "RaggedNestedRowLengths"):
            return tuple(level.row_lengths() for level in self._levels())

    def bounding_shape(
        self, axis: TensorLike | None = None, name: str | None = None, out_type: DTypeLike | None = None
    ) -> Tensor:
        """The smallest dense shape that has room for the tensor, a vector; with `axis` that of these dimensions."""
        wanted = self._row_splits.dtype if out_type is None else as_dtype(out_type)
        with name_scope(name, "RaggedBoundingBox"):
            lengths = [longest(level.row_lengths(), wanted) for level in self._levels()]
            outer = raw.Pack([self.nrows(wanted), *lengths])
            inner = raw.Shape(self.flat_values, out_type=wanted)[1:]
            box: Tensor = raw.ConcatV2([outer, inner], 0)
            if axis is not None:
                box = raw.GatherV2(box, axis, 0)
            return box

    # ------------------------------------------------------------------ other values, other splits
    def with_values(self, new_values: Tensor | RaggedTensor) -> RaggedTensor:
        """The same partition of other values.

        Raises:
            ValueError: there are more or fewer of them, or their splits have another dtype.
        """
        new_values.shape.with_rank_at_least(1)
        self._values.shape[:1].assert_is_compatible_with(new_values.shape[:1])
        if isinstance(new_values, RaggedTensor) and new_values.row_splits.dtype is not self._row_splits.dtype:
            raise ValueError(
                "self and new_values have mismatched row_splits dtypes; use RaggedTensor.with_row_splits_dtype() to "
                "convert them to compatible dtypes."
            )
        cached = self._row_lengths, self._value_rowids, self._nrows
        return RaggedTensor(new_values, self._row_splits, *cached, internal=True)

    def with_flat_values(self, new_values: Tensor | RaggedTensor) -> RaggedTensor:
        """The same partitions of other innermost values."""
        if isinstance(self._values, RaggedTensor):
            return self.with_values(self._values.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: DTypeLike) -> RaggedTensor:
        """The same tensor with splits of dtype int32 or int64 in all dimensions.

        Raises:
            ValueError: another dtype.
        """
        wanted = partitions.splits_dtype(dtype)
        if self._row_splits.dtype is wanted:
            return self
        values = self._values.with_row_splits_dtype(wanted) if isinstance(self._values, RaggedTensor) else self._values
        lengths, rowids, rows = (
            None if t is None else cast(t, wanted) for t in (self._row_lengths, self._value_rowids, self._nrows)
        )
        return RaggedTensor(values, cast(self._row_splits, wanted), lengths, rowids, rows, internal=True)

    # ------------------------------------------------------------------ other forms
    @classmethod
    def from_tensor(
        cls,
        tensor: TensorLike,
        lengths: TensorLike | None = None,
        padding: TensorLike | None = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: DTypeLike = dtypes.int64,
    ) -> RaggedTensor:
        """From a dense tensor, whole, or of each row what comes before its padding.

        Args:
            tensor: of rank `ragged_rank + 1` or more.
            lengths: how much of each row to take, a vector; or a list of nested row lengths.
            padding: the element that ends each row, where only this one follows.
            ragged_rank: how many dimensions are to be ragged.

        Raises:
            ValueError: `lengths` and `padding` are both given, or `ragged_rank` is not positive.
            TypeError: `ragged_rank` is no integer.
        """
        dtype = partitions.splits_dtype(row_splits_dtype)
        if lengths is not None and padding is not None:
            raise ValueError("Specify lengths or padding, but not both")
        if not isinstance(ragged_rank, int):
            raise TypeError(f"ragged_rank expected int, got {ragged_rank!r}")
        if ragged_rank <= 0:
            raise ValueError(f"ragged_rank must be greater than 0; got {ragged_rank}")
        with name_scope(name, "RaggedFromTensor"):
            dense = convert_to_tensor(tensor, name="tensor")
            dense.shape.with_rank_at_least(ragged_rank + 1)
            values, nested = rows_of_dense(dense, lengths, padding, ragged_rank, dtype)
            result: RaggedTensor = cls.from_nested_row_splits(values, nested, validate=False)
            return result

    def to_tensor(self, default_value: TensorLike | None = None, name: str | None = None) -> Tensor:
        """The dense tensor, in which `default_value` (default: zero, or "") fills up shorter rows.

        Args:
            default_value: an element, of the dtype of the values; its shape broadcasts to that of an inner value.

        Raises:
            ValueError: `default_value` has too many dimensions.
            TypeError: it has another dtype.
        """
        with name_scope(name, "RaggedToTensor"):
            flat = self.flat_values
            if default_value is None:
                default = convert_to_tensor(np.array("" if flat.dtype is dtypes.string else 0), name="default")
                default = default if flat.dtype is dtypes.string else cast(default, flat.dtype)
            else:
                default = convert_to_tensor(default_value, self.dtype, name="default_value")
            if flat.shape.ndims is not None:
                default.shape.with_rank_at_most(flat.shape.ndims - 1)
                check_fills(default.shape, flat.shape[1:])
            dense: Tensor = raw.RaggedTensorToTensor(
                np.array(-1, np.int64),
                flat,
                default,
                list(self.nested_row_splits),
                row_partition_types=["ROW_SPLITS"] * self.ragged_rank,
            )
            dense.set_shape(self.shape)
            return dense

    @classmethod
    def from_sparse(
        cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: DTypeLike = dtypes.int64
    ) -> RaggedTensor:
        """From a sparse matrix whose rows have no gaps; the step fails where one has.

        Raises:
            TypeError: no sparse tensor.
            ValueError: its rank is not known to be 2.
        """
        dtype = partitions.splits_dtype(row_splits_dtype)
        if not isinstance(st_input, SparseTensor):
            raise TypeError(f"Expected SparseTensor, got {type(st_input).__name__}")
        with name_scope(name, "RaggedFromSparse"):
            indices, shape = st_input.indices, st_input.dense_shape
            ranks = [s.dims_tuple[-1] for s in (indices.shape, shape.shape) if s.dims_tuple is not None]
            if 2 not in ranks:
                raise ValueError(f"rank(st_input) must be 2, got {ranks}")
            indices = after(
                [partitions.require(partitions.ragged_right(indices), "SparseTensor is not right-ragged")], indices
            )
            rows = cast(indices[:, 0], dtype)
            return cls.from_value_rowids(st_input.values, rows, cast(shape[0], dtype), validate=False)

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """The sparse tensor of the same values, all of them."""
        with name_scope(name, "RaggedToSparse"):
            parts = raw.RaggedTensorToSparse(list(self.nested_row_splits), self.flat_values)
            return SparseTensor(*parts)

    def to_list(self) -> list[Any]:
        """Raises ValueError: a graph has no values; run a step, and call `to_list` of what it gives."""
        raise ValueError(
            "RaggedTensor.to_list() is only supported in eager mode; in graph mode, evaluate the RaggedTensor first "
            "and then use RaggedTensorValue.to_list()."
        )

    def eval(self, feed_dict: FeedDict | None = None, session: StepRunner | None = None) -> RaggedTensorValue:
        """Runs a step that fetches this tensor; see `Tensor.eval`."""
        value: RaggedTensorValue = Tensor.EVALUATE["eval"](self, feed_dict, session)
        return value

    def consumers(self) -> list[Operation]:
        """The operations that take the values or the splits."""
        parts = (self.flat_values, *self.nested_row_splits)
        return list(dict.fromkeys(consumer for part in parts for consumer in part.consumers()))

    def _as_graph_element(self) -> Tensor:
        return self.flat_values

    def __repr__(self) -> str:
        return f"tf.RaggedTensor(values={self._values}, row_splits={self._row_splits})"

    __str__ = __repr__

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a RaggedTensor cannot be iterated while a graph is built; run a step, or use tf.map_fn")

    def __getitem__(self, key: RaggedIndex) -> TensorOrRagged:
        load_versions()
        return self.OPERATORS["getitem"](self, key)

    def __bool__(self) -> bool:
        raise TypeError("RaggedTensor may not be used as a boolean.")


register_type(RaggedTensor, "anabranch.frontend.ragged.versions")
register_type(RaggedTensorValue, "anabranch.frontend.ragged.versions")


# ---------------------------------------------------------------------- arguments
def _with_partition(values: TensorLike, partition: TensorLike, name: str) -> tuple[Any, Tensor]:
    """The arguments of a `from_` method, as tensors.

    Raises:
        ValueError: the partition has neither dtype of splits, or another one than the values' splits.
    """
    if isinstance(values, RaggedTensorValue):
        values = RaggedTensor.from_nested_row_splits(values.flat_values, values.nested_row_splits, validate=False)
    if not isinstance(values, RaggedTensor):
        values = convert_to_tensor(values, name="values")
        typed = isinstance(partition, np.ndarray) and partition.dtype == np.int32
        cuts = convert_to_tensor(partition, name=name, preferred_dtype=None if typed else dtypes.int64)
    elif isinstance(partition, Tensor):
        cuts = partition
    else:
        cuts = convert_to_tensor(partition, values.row_splits.dtype, name=name)
    if cuts.dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"{name} must have dtype int32 or int64, got {cuts.dtype.name}")
    if isinstance(values, RaggedTensor) and values.row_splits.dtype is not cuts.dtype:
        raise ValueError(
            f"dtype mismatch: {name} ({cuts.dtype.name}) vs values.row_splits ({values.row_splits.dtype.name}); use "
            "RaggedTensor.with_row_splits_dtype"
        )
    return values, cuts


def _size(values: Tensor | RaggedTensor, dtype: DType) -> Tensor:
    return values.nrows(dtype) if isinstance(values, RaggedTensor) else count_rows(values, dtype)


# ---------------------------------------------------------------------- fetches and feeds
def _fetch(value: RaggedTensor) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    return [value.flat_values, *value.nested_row_splits], ragged_value


def _feed(key: RaggedTensor, value: RaggedTensorValue | None) -> list[tuple[Any, Any]]:
    if value is None:  # what a partial run will be fed is not known yet
        return [(key.flat_values, None), *((splits, None) for splits in key.nested_row_splits)]
    if not isinstance(value, RaggedTensorValue) or value.ragged_rank != key.ragged_rank:
        raise TypeError(
            f"a RaggedTensor of ragged_rank {key.ragged_rank} is fed a RaggedTensorValue of that rank (see "
            f"tf.ragged.constant_value), got {value!r}"
        )
    splits = zip(key.nested_row_splits, value.nested_row_splits, strict=True)
    return [(key.flat_values, value.flat_values), *splits]


register_session_run_conversion_functions(RaggedTensor, _fetch, _feed)
