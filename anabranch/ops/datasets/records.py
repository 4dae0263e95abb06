"""Datasets of what the records of files say: rows of CSV files, parsed examples; and files made of datasets (WP4.5)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray, boxed
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.io.csv_rows import RowFile
from anabranch.io.positioned_records import LineFile, RecordFile
from anabranch.io.records import TFRecordWriter
from anabranch.ops import shape_rules
from anabranch.ops.datasets.sources import compression_of, dataset_of, define_dataset, made_by
from anabranch.ops.storage.parsing import csv_fields, csv_value, dense_column, feature_name, features_of, sparse_column
from anabranch.state import dataset_files
from anabranch.state.dataset_batches import sparse_component
from anabranch.state.dataset_functions import MapDataset
from anabranch.state.datasets import Element, Elements

# ---------------------------------------------------------------------- comma-separated values
_CSV = (
    "filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: string, "
    "use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types"
)
_COLUMNS = "output_types: list({float, double, int32, int64, string}) >= 1, output_shapes: list(shape) >= 1"


def _csv(
    filenames: Array,
    compression_type: Array,
    buffer_size: Array,
    header: Array,
    field_delim: Array,
    use_quote_delim: Array,
    na_value: Array,
    select_cols: Array,
    record_defaults: list[Any],
    *,
    output_types: list[DType],
    ctx: OperationContext,
) -> Elements:
    delimiter, size = field_delim.item(), int(buffer_size)
    _check_csv(filenames, size, delimiter, select_cols, record_defaults, ctx)
    quoted, compression = bool(use_quote_delim), compression_of(compression_type, ctx)

    def opened(path: str) -> RecordFile:
        file = RowFile(path, delimiter, compression, size) if quoted else LineFile(path, compression, size)
        if header:
            file.read()
        return file

    rows = dataset_files.FileDataset(dataset_files.file_names(filenames), opened)
    rows.origin = ctx.op
    missing, chosen = na_value.item().decode("utf-8", "surrogateescape"), select_cols.tolist()

    def columns(row: HostArray) -> Element:
        fields = csv_fields(row.item().decode("utf-8", "surrogateescape"), delimiter, quoted, ctx) or [""]
        used = [fields[i] for i in chosen if i < len(fields)] if chosen else fields
        if len(used) != len(output_types):
            message = f"Expect {len(output_types)} fields but have {len(used)} in record: {','.join(fields)!r}"
            raise InvalidArgumentError(None, ctx.op, message)
        values = [
            csv_value(field, dtype, default, missing, i, 0, ctx)
            for i, (field, dtype, default) in enumerate(zip(used, output_types, record_defaults, strict=True))
        ]
        return tuple(
            [
                boxed(v) if isinstance(v, bytes) else np.array(v, t.as_numpy_dtype)
                for v, t in zip(values, output_types, strict=True)
            ]
        )

    return made_by(MapDataset(rows, columns), ctx)


def _check_csv(
    filenames: HostArray,
    size: int,
    delimiter: bytes,
    chosen: HostArray,
    defaults: list[HostArray],
    ctx: OperationContext,
) -> None:
    ctx.check(filenames.ndim <= 1, f"`filenames` must be a scalar or a vector, got shape {list(filenames.shape)}.")
    ctx.check(size > 0, f"buffer_size should be positive, got {size}")
    ctx.check(len(delimiter) == 1, f"field_delim should be only 1 char, got {delimiter!r}")
    ctx.check(chosen.ndim == 1, f"`select_cols` must be a vector, got shape {list(chosen.shape)}.")
    fits = chosen.size in (0, len(defaults))
    ctx.check(fits, f"select_cols should match output size: {chosen.size} columns, {len(defaults)} outputs")
    rising = bool((chosen >= 0).all() and (np.diff(chosen) > 0).all())
    ctx.check(rising, f"select_cols should be strictly increasing and non-negative indices, got {chosen.tolist()}")
    for i, default in enumerate(defaults):
        ctx.check(default.ndim <= 1, f"Each record default should be at most rank 1, got {default.ndim} for field {i}")
        ctx.check(default.size < 2, f"There should only be 1 default per field but field {i} has {default.size}")


for _name in ("CSVDataset", "ExperimentalCSVDataset"):
    define_dataset(_name, _CSV, _COLUMNS, stateful=True).host_kernel(_csv)

# ---------------------------------------------------------------------- examples
_EXAMPLES = (
    "sparse_keys: list(string) >= 0, dense_keys: list(string) >= 0, "
    "sparse_types: list({float, int64, string}) >= 0, Tdense: list({float, int64, string}) >= 0, "
    "dense_shapes: list(shape) >= 0, output_types: list(type) >= 1, output_shapes: list(shape) >= 1, "
    "sloppy: bool = False"
)
_RAGGED = (
    "ragged_keys: list(string) >= 0 = [], ragged_value_types: list({float, int64, string}) >= 0 = [], "
    "ragged_split_types: list({int32, int64}) >= 0 = []"
)


def _parsed(
    input_dataset: Array,
    num_parallel_calls: Array,
    dense_defaults: list[Any],
    *,
    sparse_keys: list[bytes],
    dense_keys: list[bytes],
    sparse_types: list[DType],
    Tdense: list[DType],
    dense_shapes: list[TensorShape],
    ctx: OperationContext,
) -> Elements:
    """Batches of serialized examples as components in the order of their features' names."""
    ragged = ctx.op.attrs.get("ragged_keys", [])
    ctx.check(not ragged, f"ragged features {ragged} are none of TensorFlow 1.15's; parse them as sparse ones")
    for key, default, shape in zip(dense_keys, dense_defaults, dense_shapes, strict=True):
        fits = default.size == 0 or not shape.is_fully_defined() or shape.is_compatible_with(default.shape)
        ctx.check(fits, f"the default of {key!r} must have shape {shape}, got {list(default.shape)}")
    order = sorted(set(sparse_keys) | set(dense_keys))

    sparse = dict(zip(map(feature_name, sparse_keys), sparse_types, strict=True))
    dense = dict(
        zip(map(feature_name, dense_keys), zip(dense_defaults, Tdense, dense_shapes, strict=True), strict=True)
    )

    def parse(serialized: HostArray) -> Element:
        labels = [f"record {i}" for i in range(serialized.size)]
        pairs = zip(serialized.reshape(-1).tolist(), labels, strict=True)
        features = [features_of(data, label, ctx) for data, label in pairs]

        def column(name: str) -> Any:
            if name in sparse:
                return sparse_component(sparse_column(features, name, sparse[name], labels, ctx))
            return dense_column(features, name, *dense[name], labels, ctx)

        return tuple([column(feature_name(key)) for key in order])

    return made_by(MapDataset(dataset_of(input_dataset, ctx), parse), ctx)


_PARSED = "input_dataset: variant, num_parallel_calls: int64, dense_defaults: Tdense"
define_dataset("ParseExampleDataset", _PARSED, f"{_EXAMPLES}, {_RAGGED}").host_kernel(_parsed)
define_dataset("ExperimentalParseExampleDataset", _PARSED, _EXAMPLES).host_kernel(_parsed)


# ---------------------------------------------------------------------- files made of datasets
def _to_records(input_dataset: Array, filename: Array, compression_type: Array, *, ctx: OperationContext) -> None:
    iterator = dataset_of(input_dataset, ctx).iterator()
    writer = TFRecordWriter(os.fsdecode(filename.item()), compression_of(compression_type, ctx))
    try:
        while (element := iterator.next()) is not None:
            record = element[0].item() if len(element) == 1 and element[0].ndim == 0 else None
            if not isinstance(record, bytes):
                message = f"A record is a scalar string, got an element of {len(element)} components"
                raise InvalidArgumentError(None, ctx.op, f"{message}; serialize it first")
            writer.write(record)
    finally:
        writer.close()
        iterator.close()


for _name in ("DatasetToTFRecord", "ExperimentalDatasetToTFRecord"):
    _op = define_op(
        _name,
        "input_dataset: variant, filename: string, compression_type: string ->",
        stateful=True,
        blocking=True,
        ranks={"filename": 0, "compression_type": 0},
    )
    _op.shape(shape_rules.no_outputs)
    _op.host_kernel(_to_records)
    _op.not_differentiable()
