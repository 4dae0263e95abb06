"""Lookup tables  (WP4.6). The objects: `state.tables`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.operation import Tensor
from anabranch.io import gfile
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object
from anabranch.state import tables
from anabranch.state.tables import entries_of_lines

_NAMES = "container: string = '', shared_name: string = '', use_node_name_sharing: bool = False"
_TYPES = "key_dtype: any, value_dtype: any"


def _open(
    ctx: StepHostContext, kind: str, make: Callable[[str, DType, DType], Any], **more_facts: object
) -> ResourceHandle:
    attrs = ctx.op.attrs
    facts = {"table type": kind, "key dtype": attrs["key_dtype"], "value dtype": attrs["value_dtype"], **more_facts}

    def plan(handle: ResourceHandle) -> Plan:
        return facts, lambda: make(handle.name, attrs["key_dtype"], attrs["value_dtype"])

    return open_object(ctx, "table", plan, by_node_name=attrs["use_node_name_sharing"])


# ---------------------------------------------------------------------- making tables
HashTableV2 = define_op("HashTableV2", "-> table_handle: resource", f"{_NAMES}, {_TYPES}", stateful=True)


@HashTableV2.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return _open(ctx, "HashTable", tables.StaticTable)


MutableHashTableV2 = define_op("MutableHashTableV2", "-> table_handle: resource", f"{_NAMES}, {_TYPES}", stateful=True)


@MutableHashTableV2.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return _open(ctx, "MutableHashTable", tables.MutableTable)


MutableHashTableOfTensorsV2 = define_op(
    "MutableHashTableOfTensorsV2",
    "-> table_handle: resource",
    f"{_NAMES}, {_TYPES}, value_shape: shape = []",
    stateful=True,
)


@MutableHashTableOfTensorsV2.host_kernel
def _(*, value_shape: TensorShape, ctx: StepHostContext) -> ResourceHandle:
    def make(name: str, key_dtype: DType, value_dtype: DType) -> tables.MutableTable:
        return tables.MutableTable(name, key_dtype, value_dtype, value_shape)

    return _open(ctx, "MutableHashTableOfTensors", make, value_shape=str(value_shape))


MutableDenseHashTableV2 = define_op(
    "MutableDenseHashTableV2",
    "empty_key: key_dtype, deleted_key: key_dtype -> table_handle: resource",
    f"{_NAMES}, {_TYPES}, value_shape: shape = [], initial_num_buckets: int = 131072, max_load_factor: float = 0.8",
    stateful=True,
)


@MutableDenseHashTableV2.host_kernel
def _(
    empty_key: Array,
    deleted_key: Array,
    *,
    value_shape: TensorShape,
    initial_num_buckets: int,
    max_load_factor: float,
    ctx: StepHostContext,
) -> ResourceHandle:
    def make(name: str, key_dtype: DType, value_dtype: DType) -> tables.MutableDenseTable:
        return tables.MutableDenseTable(
            name, key_dtype, value_dtype, value_shape, empty_key, deleted_key, initial_num_buckets, max_load_factor
        )

    return _open(ctx, "MutableDenseHashTable", make, value_shape=str(value_shape))


for _op in (HashTableV2, MutableHashTableV2, MutableHashTableOfTensorsV2, MutableDenseHashTableV2):
    _op.shape(shape_rules.scalar)
    _op.not_differentiable()


# ---------------------------------------------------------------------- using tables
def _table(ctx: StepHostContext, handle: ResourceHandle) -> Any:
    return object_behind(ctx, handle, "table")


def _mutable(ctx: StepHostContext, handle: ResourceHandle) -> tables.MutableTable:
    table = _table(ctx, handle)
    if not isinstance(table, tables.MutableTable):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r}: table {table.name!r} is filled once and cannot be changed; use a mutable one",
        )
    return table


def _initializable(ctx: StepHostContext, handle: ResourceHandle) -> tables.StaticTable:
    table = _table(ctx, handle)
    if not isinstance(table, tables.StaticTable):
        raise InvalidArgumentError(
            None, ctx.op, f"{ctx.op.name!r}: table {table.name!r} is not initializable; insert into it instead"
        )
    return table


def _maker(ctx: ShapeContext) -> Any:
    """The operation that made the table, outside of the functions that look it up."""
    handle = ctx.tensor("table_handle")
    return handle.get_attribute("handle_of", handle).op if isinstance(handle, Tensor) else handle.op


LookupTableFindV2 = define_op(
    "LookupTableFindV2",
    "table_handle: resource, keys: Tin, default_value: Tout -> values: Tout",
    "Tin: any, Tout: any",
    stateful=True,
)
LookupTableFindV2.not_differentiable()


@LookupTableFindV2.shape
def _(table_handle: TensorShape, keys: TensorShape, default_value: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    maker = _maker(ctx)
    if maker.type in {"HashTableV2", "MutableHashTableV2"}:
        return keys
    value = maker.attrs.get("value_shape")
    depth = maker.inputs[0].shape.ndims if maker.type == "MutableDenseHashTableV2" else 0
    if value is None or keys.ndims is None or depth is None or keys.ndims < depth:
        return shape_rules.UNKNOWN
    return keys[: keys.ndims - depth].concatenate(value)


@LookupTableFindV2.host_kernel
def _(table_handle: ResourceHandle, keys: Array, default_value: Array, *, ctx: StepHostContext) -> Any:
    return _table(ctx, table_handle).find(keys, default_value)


def _changing(name: str, signature: str, attrs: str, method: str) -> Any:
    op = define_op(name, signature, attrs, stateful=True)
    op.shape(shape_rules.no_outputs)

    @op.host_kernel
    def _(table_handle: ResourceHandle, *arrays: Array, ctx: StepHostContext) -> None:
        getattr(_mutable(ctx, table_handle), method)(*arrays)

    return op.not_differentiable()


_PAIRS = ("table_handle: resource, keys: Tin, values: Tout ->", "Tin: any, Tout: any")
LookupTableInsertV2 = _changing("LookupTableInsertV2", *_PAIRS, "insert")
LookupTableImportV2 = define_op("LookupTableImportV2", *_PAIRS, stateful=True)
LookupTableImportV2.shape(shape_rules.no_outputs)
LookupTableImportV2.not_differentiable()


@LookupTableImportV2.host_kernel
def _(table_handle: ResourceHandle, keys: Array, values: Array, *, ctx: StepHostContext) -> None:
    if isinstance(_table(ctx, table_handle), tables.StaticTable):
        # as functions of TensorFlow 2 fill such tables
        _initializable(ctx, table_handle).initialize(keys, values)
    else:
        _mutable(ctx, table_handle).import_all(keys, values)


LookupTableRemoveV2 = _changing("LookupTableRemoveV2", "table_handle: resource, keys: Tin ->", "Tin: any", "remove")


LookupTableSizeV2 = define_op("LookupTableSizeV2", "table_handle: resource -> size: int64", stateful=True)
LookupTableSizeV2.shape(shape_rules.scalar)
LookupTableSizeV2.not_differentiable()


@LookupTableSizeV2.host_kernel
def _(table_handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    size: int = _table(ctx, table_handle).size()
    return size


LookupTableExportV2 = define_op(
    "LookupTableExportV2",
    "table_handle: resource -> keys: Tkeys, values: Tvalues",
    "Tkeys: any, Tvalues: any",
    stateful=True,
)
LookupTableExportV2.not_differentiable()


@LookupTableExportV2.shape
def _(table_handle: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
    maker = _maker(ctx)
    many = TensorShape([None])
    key = TensorShape([])
    value = maker.attrs.get("value_shape", TensorShape([]))
    if maker.type == "MutableDenseHashTableV2":  # its buckets hold vectors
        key = maker.inputs[0].shape
        key, value = (TensorShape([1]) if shape.ndims == 0 else shape for shape in (key, value))
    return [many.concatenate(key), many.concatenate(value)]


@LookupTableExportV2.host_kernel
def _(table_handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    return _table(ctx, table_handle).export()


# ---------------------------------------------------------------------- filling tables
InitializeTableV2 = define_op(
    "InitializeTableV2",
    "table_handle: resource, keys: Tkey, values: Tval ->",
    "Tkey: any, Tval: any",
    stateful=True,
)
InitializeTableV2.not_differentiable()


@InitializeTableV2.shape
def _(table_handle: TensorShape, keys: TensorShape, values: TensorShape) -> tuple[()]:
    keys.with_rank(1).assert_is_compatible_with(values)
    return ()


@InitializeTableV2.host_kernel
def _(table_handle: ResourceHandle, keys: Array, values: Array, *, ctx: StepHostContext) -> None:
    _initializable(ctx, table_handle).initialize(keys, values)


InitializeTableFromTextFileV2 = define_op(
    "InitializeTableFromTextFileV2",
    "table_handle: resource, filename: string ->",
    "key_index: int >= -2, value_index: int >= -2, vocab_size: int >= -1 = -1, delimiter: string = '\\t', "
    "offset: int = 0",
    stateful=True,
)
InitializeTableFromTextFileV2.shape(shape_rules.no_outputs)
InitializeTableFromTextFileV2.not_differentiable()


@InitializeTableFromTextFileV2.host_kernel
def _(
    table_handle: ResourceHandle,
    filename: Array,
    *,
    key_index: int,
    value_index: int,
    vocab_size: int,
    delimiter: bytes,
    offset: int,
    ctx: StepHostContext,
) -> None:
    table = _initializable(ctx, table_handle)
    if table.is_initialized:
        return  # a file may have changed since; the table keeps what it was filled with
    if filename.size != 1:
        raise InvalidArgumentError(None, ctx.op, f"filename should be a single string, but got {list(filename.shape)}")
    path = filename.item().decode(errors="surrogateescape")
    with gfile.GFile(path, "rb") as file:
        data: bytes = file.read()
    lines = data.replace(b"\r", b"").split(b"\n")
    if not lines[-1]:
        lines.pop()
    columns = (key_index, value_index)
    types = (table.key_dtype, table.value_dtype)
    _check_columns(ctx, columns, types)
    keys, values = entries_of_lines(lines, path, columns, types, vocab_size, delimiter, offset)
    table.initialize(keys, values)


def _check_columns(ctx: OperationContext, columns: tuple[int, int], types: tuple[DType, DType]) -> None:
    for column, dtype, what in zip(columns, types, ("key", "value"), strict=True):
        if column == tables.LINE_NUMBER and dtype.name != "int64":
            raise InvalidArgumentError(
                None, ctx.op, f"{what}_index = {column} (the line number) needs {what} dtype int64, got {dtype.name}"
            )
        if column == tables.WHOLE_LINE and dtype.name != "string" and dtype.is_integer is False:
            raise InvalidArgumentError(
                None, ctx.op, f"{what}_index = {column} (the whole line) needs {what} dtype string, got {dtype.name}"
            )
