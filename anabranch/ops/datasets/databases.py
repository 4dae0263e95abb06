"""Datasets of databases (WP4.5)."""

from __future__ import annotations

import os

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction
from anabranch.ops.datasets.sources import define_dataset, made_by
from anabranch.state.dataset_files import file_names
from anabranch.state.dataset_lmdb import LmdbRecords
from anabranch.state.dataset_sql import SqlRows
from anabranch.state.datasets import Elements

_COLUMN_TYPES = ("string", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool", "float64")


def _sql(
    driver_name: Array,
    data_source_name: Array,
    query: Array,
    *,
    output_types: list[DType],
    output_shapes: list[TensorShape],
    ctx: OperationContext,
) -> Elements:
    driver = driver_name.item().decode()
    if driver != "sqlite":
        message = f"The database type, {driver}, is not supported by SqlDataset. The set of supported databases is: "
        raise InvalidArgumentError(None, ctx.op, f"{message}{{'sqlite'}}.")
    for dtype in output_types:
        fits = dtype.name in _COLUMN_TYPES
        ctx.check(fits, f"Each element of `output_types` must be one of {list(_COLUMN_TYPES)}, got {dtype.name}")
    for shape in output_shapes:
        ctx.check(shape.rank == 0, f"Each element of `output_shapes` must be a scalar, got {shape}.")
    return made_by(SqlRows(os.fsdecode(data_source_name.item()), query.item().decode(), output_types), ctx)


def _lmdb(filenames: Array, *, ctx: OperationContext) -> Elements:
    return made_by(LmdbRecords(file_names(filenames)), ctx)


def _defined(prefix: str) -> tuple[OpFunction, OpFunction]:
    sql = define_dataset(
        f"{prefix}SqlDataset", "driver_name: string, data_source_name: string, query: string", stateful=True
    )
    lmdb = define_dataset(f"{prefix}LMDBDataset", "filenames: string", stateful=True)
    sql.host_kernel(_sql)
    lmdb.host_kernel(_lmdb)
    return sql, lmdb


SqlDataset, LMDBDataset = _defined("")
ExperimentalSqlDataset, ExperimentalLMDBDataset = _defined("Experimental")
