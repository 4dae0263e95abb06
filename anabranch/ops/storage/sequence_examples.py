"""From serialized tf.train.SequenceExample messages to tensors (WP4.5).

Such a message has features of its own, its context, which are parsed as those of a tf.train.Example are; and lists of
features, one for each step of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.storage.parsing import (
    array_of,
    check_defaults,
    check_size,
    dense_column,
    feature_name,
    holds,
    place_of,
    sparse_column,
    values_of,
)
from anabranch.proto.example_pb2 import SequenceExample

_TYPES = "list({float, int64, string}) >= 0 = []"
_COUNTS = ", ".join(
    f"N{part}: int >= 0 = 0"
    for part in ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
)
_ATTRS = (
    f"{_COUNTS}, context_sparse_types: {_TYPES}, Tcontext_dense: {_TYPES}, feature_list_dense_types: {_TYPES}, "
    f"context_dense_shapes: list(shape) >= 0 = [], feature_list_sparse_types: {_TYPES}, "
    "feature_list_dense_shapes: list(shape) >= 0 = []"
)
_OUTPUTS = (
    "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: Tcontext_dense, "
    "feature_list_sparse_indices: Nfeature_list_sparse * int64, feature_list_sparse_values: feature_list_sparse_types, "
    "feature_list_sparse_shapes: Nfeature_list_sparse * int64, feature_list_dense_values: feature_list_dense_types"
)

ParseSingleSequenceExample = define_op(
    "ParseSingleSequenceExample",
    "serialized: string, feature_list_dense_missing_assumed_empty: string, "
    "context_sparse_keys: Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string, "
    "feature_list_sparse_keys: Nfeature_list_sparse * string, feature_list_dense_keys: Nfeature_list_dense * string, "
    f"context_dense_defaults: Tcontext_dense, debug_name: string -> {_OUTPUTS}",
    _ATTRS,
    late_ranks={
        "context_sparse_keys": 0,
        "context_dense_keys": 0,
        "feature_list_sparse_keys": 0,
        "feature_list_dense_keys": 0,
        "debug_name": 0,
    },
    ranks={"serialized": 0, "feature_list_dense_missing_assumed_empty": 1},
)
ParseSingleSequenceExample.not_differentiable()

ParseSequenceExample = define_op(
    "ParseSequenceExample",
    f"serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense -> {_OUTPUTS}, "
    "feature_list_dense_lengths: Nfeature_list_dense * int64",
    "feature_list_dense_missing_assumed_empty: list(string) >= 0, context_sparse_keys: list(string) >= 0, "
    "context_dense_keys: list(string) >= 0, feature_list_sparse_keys: list(string) >= 0, "
    f"feature_list_dense_keys: list(string) >= 0, {_ATTRS}",
    ranks={"serialized": 1, "debug_name": 1},
)
ParseSequenceExample.not_differentiable()


# ---------------------------------------------------------------------- shapes
def _sparse_shapes(count: int, rank: int) -> list[Any]:
    return [[TensorShape([None, rank])] * count, [TensorShape([None])] * count, [TensorShape([rank])] * count]


@ParseSingleSequenceExample.late_shape
def _(
    serialized: TensorShape,
    *others: TensorShape | list[TensorShape],
    Ncontext_sparse: int,
    Nfeature_list_sparse: int,
    context_dense_shapes: list[TensorShape],
    feature_list_dense_shapes: list[TensorShape],
) -> list[Any]:
    shape_rules.with_rank(serialized, 0, "argument 'serialized'")
    defaults = others[-2]
    assert isinstance(defaults, list)
    check_defaults(defaults, context_dense_shapes)
    lists = [TensorShape([None]).concatenate(s) for s in feature_list_dense_shapes]
    context = [*_sparse_shapes(Ncontext_sparse, 1), list(context_dense_shapes)]
    return [*context, *_sparse_shapes(Nfeature_list_sparse, 2), lists]


@ParseSequenceExample.shape
def _(
    serialized: TensorShape,
    *_: TensorShape | list[TensorShape],
    Ncontext_sparse: int,
    Nfeature_list_sparse: int,
    context_dense_shapes: list[TensorShape],
    feature_list_dense_shapes: list[TensorShape],
) -> list[Any]:
    batch = shape_rules.with_rank(serialized, 1, "argument 'serialized'")
    steps = batch.concatenate(TensorShape([None]))
    context = [*_sparse_shapes(Ncontext_sparse, 2), [batch.concatenate(s) for s in context_dense_shapes]]
    lists = [steps.concatenate(s) for s in feature_list_dense_shapes]
    return [*context, *_sparse_shapes(Nfeature_list_sparse, 3), lists, [batch] * len(lists)]


# ---------------------------------------------------------------------- kernels
@dataclass(frozen=True)
class _Records:
    """Parsed messages, and what errors call them."""

    messages: list[Any]
    labels: list[Any]
    #: names of the lists that a record may lack
    optional: frozenset[str]
    ctx: OperationContext

    def context(
        self,
        sparse: list[Any],
        sparse_types: list[DType],
        dense: list[Any],
        kinds: list[DType],
        defaults: Sequence[Array],
        shapes: Sequence[Array],
    ) -> list[Any]:
        """Indices, values, shapes and dense values of the features of the context, all with a batch."""
        features = [m.context.feature for m in self.messages]
        columns = [
            sparse_column(features, key, dtype, self.labels, self.ctx)
            for key, dtype in zip(sparse, sparse_types, strict=True)
        ]
        values = [
            dense_column(features, key, default, dtype, shape, self.labels, self.ctx)
            for key, default, dtype, shape in zip(dense, defaults, kinds, shapes, strict=True)
        ]
        return [*([c[i] for c in columns] for i in range(3)), values]

    def _rows(self, key: str, dtype: DType) -> list[list[Any]]:
        """For each record the values of each step; no steps where it lacks the list."""
        values_of_rows = []
        for message, label in zip(self.messages, self.labels, strict=True):
            lists = message.feature_lists.feature_list
            steps = lists[key].feature if holds(lists, key) else ()
            place = f"Name: {label}, Feature list: {key}, Index: "
            rows = (values_of({key: f}, key, dtype, f"{place}{i}.", self.ctx) for i, f in enumerate(steps))
            values_of_rows.append([() if row is None else row for row in rows])
        return values_of_rows

    def sparse_list(self, key: str, dtype: DType) -> tuple[Any, Any, Any]:
        """(indices, values, shape) of a sparse tensor [records, most steps, most values]."""
        rows = self._rows(key, dtype)
        flat = [(i, j, k, v) for i, steps in enumerate(rows) for j, row in enumerate(steps) for k, v in enumerate(row)]
        indices = np.array([entry[:3] for entry in flat], np.int64).reshape(-1, 3)
        widest = max((len(row) for steps in rows for row in steps), default=0)
        shape = np.array([len(rows), max(map(len, rows), default=0), widest], np.int64)
        return indices, array_of([entry[3] for entry in flat], dtype), shape

    def dense_list(self, key: str, dtype: DType, shape: TensorShape) -> tuple[Any, Any]:
        """([records, most steps, ...] with zeros beyond the ends, steps of each record).

        Raises:
            InvalidArgumentError: a record lacks the list, or a step has another number of values.
        """
        self._check_found(key)
        rows, dims = self._rows(key, dtype), tuple(shape.sizes())
        lengths = np.array([len(steps) for steps in rows], np.int64)
        fill: Any = b"" if dtype.as_numpy_dtype is np.object_ else 0
        out = np.full((len(rows), max(lengths, default=0), *dims), fill, dtype.as_numpy_dtype)
        for i, steps in enumerate(rows):
            for j, row in enumerate(steps):
                check_size(len(row), dims, dtype, place_of(self.labels[i], key, j), self.ctx)
                # "..." for a text is not to become an array in an array
                out[i, j, ...] = array_of(row, dtype).reshape(dims)
        return out, lengths

    def _check_found(self, key: str) -> None:
        for message, label in zip(self.messages, self.labels, strict=True):
            if not holds(message.feature_lists.feature_list, key) and key not in self.optional:
                message = (
                    f"Name: {label}, Feature list '{key}' is required but could not be found.  Did you mean to "
                    "include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
                )
                raise InvalidArgumentError(None, self.ctx.op, message)


def _parsed(serialized: list[bytes], names: list[bytes], optional: list[Any], ctx: OperationContext) -> _Records:
    labels = [n.decode("utf-8", "replace") for n in names] or [f"record {i}" for i in range(len(serialized))]
    examples = []
    for data, label in zip(serialized, labels, strict=True):
        try:
            examples.append(SequenceExample.FromString(data))
        except DecodeError as error:
            message = f"could not parse {label} as a tf.train.SequenceExample: {error}"
            raise InvalidArgumentError(None, ctx.op, message) from None
    return _Records(examples, labels, frozenset(_texts(optional)), ctx)


def _texts(keys: Array) -> list[str]:
    return [feature_name(key if isinstance(key, bytes) else key.item()) for key in keys]


@ParseSequenceExample.host_kernel
def _(
    serialized: Array,
    debug_name: Array,
    context_dense_defaults: list[Any],
    *,
    feature_list_dense_missing_assumed_empty: list[bytes],
    context_sparse_keys: list[bytes],
    context_dense_keys: list[bytes],
    feature_list_sparse_keys: list[bytes],
    feature_list_dense_keys: list[bytes],
    context_sparse_types: list[DType],
    Tcontext_dense: list[DType],
    context_dense_shapes: list[TensorShape],
    feature_list_sparse_types: list[DType],
    feature_list_dense_types: list[DType],
    feature_list_dense_shapes: list[TensorShape],
    ctx: OperationContext,
) -> Any:
    if debug_name.size not in (0, serialized.size):
        message = f"there are {serialized.size} records, but {debug_name.size} names of them"
        raise InvalidArgumentError(None, ctx.op, message)
    records = _parsed(
        serialized.tolist(), debug_name.reshape(-1).tolist(), feature_list_dense_missing_assumed_empty, ctx
    )
    context = records.context(
        _texts(context_sparse_keys),
        context_sparse_types,
        _texts(context_dense_keys),
        Tcontext_dense,
        context_dense_defaults,
        context_dense_shapes,
    )
    sparse = [
        records.sparse_list(key, dtype)
        for key, dtype in zip(_texts(feature_list_sparse_keys), feature_list_sparse_types, strict=True)
    ]
    dense_facts = zip(_texts(feature_list_dense_keys), feature_list_dense_types, feature_list_dense_shapes, strict=True)
    dense = [records.dense_list(*facts) for facts in dense_facts]
    return (*context, *([s[i] for s in sparse] for i in range(3)), [d[0] for d in dense], [d[1] for d in dense])


@ParseSingleSequenceExample.host_kernel
def _(
    serialized: Array,
    feature_list_dense_missing_assumed_empty: Array,
    context_sparse_keys: list[Any],
    context_dense_keys: list[Any],
    feature_list_sparse_keys: list[Any],
    feature_list_dense_keys: list[Any],
    context_dense_defaults: list[Any],
    debug_name: Array,
    *,
    context_sparse_types: list[DType],
    Tcontext_dense: list[DType],
    context_dense_shapes: list[TensorShape],
    feature_list_sparse_types: list[DType],
    feature_list_dense_types: list[DType],
    feature_list_dense_shapes: list[TensorShape],
    ctx: OperationContext,
) -> Any:
    optional = feature_list_dense_missing_assumed_empty.reshape(-1).tolist()
    name = debug_name.item() if debug_name.size else b""
    records = _parsed([serialized.item()], [name or b"the record"], optional, ctx)
    indices, values, shapes, dense = records.context(
        _texts(context_sparse_keys),
        context_sparse_types,
        _texts(context_dense_keys),
        Tcontext_dense,
        context_dense_defaults,
        context_dense_shapes,
    )
    sparse = [
        records.sparse_list(key, dtype)
        for key, dtype in zip(_texts(feature_list_sparse_keys), feature_list_sparse_types, strict=True)
    ]
    dense_facts = zip(_texts(feature_list_dense_keys), feature_list_dense_types, feature_list_dense_shapes, strict=True)
    context = [[i[:, 1:] for i in indices], values, [s[1:] for s in shapes], [d[0] for d in dense]]
    lists = [[s[0][:, 1:] for s in sparse], [s[1] for s in sparse], [s[2][1:] for s in sparse]]
    return (*context, *lists, [records.dense_list(*facts)[0][0] for facts in dense_facts])
