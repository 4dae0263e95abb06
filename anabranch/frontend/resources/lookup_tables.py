"""What lookup tables are to users, and what fills them  (WP4.6)."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, int64, string
from anabranch.core.nest import Structure
from anabranch.core.trackables import Trackable
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import init_scope, name_scope
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class LookupInterface(Trackable):
    """A table from keys to values.

    Args:
        key_dtype, value_dtype: of keys and values.
    """

    resource_handle: Tensor

    def __init__(self, key_dtype: DTypeLike, value_dtype: DTypeLike) -> None:
        self._key_dtype = as_dtype(key_dtype)
        self._value_dtype = as_dtype(value_dtype)

    @property
    def key_dtype(self) -> DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """The dtype of the values."""
        return self._value_dtype

    @property
    def name(self) -> str:
        """The name of the operation that makes the table, without scopes."""
        return self.resource_handle.op.name.split("/")[-1]

    def size(self, name: str | None = None) -> Tensor:
        """How many keys there are, an int64."""
        raise NotImplementedError

    def lookup(self, keys: TensorLike | SparseTensor, name: str | None = None) -> Tensor | SparseTensor:
        """The value of each key; sparse keys give sparse values."""
        raise NotImplementedError

    def _checked_keys(self, keys: TensorLike | SparseTensor) -> Any:
        """The keys, sparse or dense, of the table's type.

        Raises:
            TypeError: they are of another.
        """
        given = keys if isinstance(keys, SparseTensor | Tensor) else convert_to_tensor(keys, self._key_dtype)
        if given.dtype.base_dtype != self._key_dtype:
            raise TypeError(
                f"Signature mismatch. Keys must be dtype {self._key_dtype!r}, got {given.dtype!r} (table {self.name!r})"
            )
        return given

    def _looked_up(self, keys: TensorLike | SparseTensor, default: Tensor, name: str | None) -> Any:
        given = self._checked_keys(keys)
        with name_scope(name, f"{self.name}_Lookup", [default]) as scope:
            dense = given.values if isinstance(given, SparseTensor) else given
            values: Tensor = raw.LookupTableFindV2(self.resource_handle, dense, default, name=scope)
        return SparseTensor(given.indices, values, given.dense_shape) if isinstance(given, SparseTensor) else values


class ResourceTable(LookupInterface):
    """What tables share that are objects of a task, behind `resource_handle`."""

    _default_value: Tensor

    def size(self, name: str | None = None) -> Tensor:
        """How many keys there are, an int64."""
        with name_scope(name, f"{self.name}_Size", [self.resource_handle]):
            result: Tensor = raw.LookupTableSizeV2(self.resource_handle)
            return result

    def lookup(self, keys: TensorLike | SparseTensor, name: str | None = None) -> Tensor | SparseTensor:
        """The value of each key, the default for those not there; sparse keys give sparse values.

        When it runs: `FailedPreconditionError` if the table is one that is filled once, and was not.

        Raises:
            TypeError: `keys` are not of the table's type.
        """
        result: Tensor | SparseTensor = self._looked_up(keys, self._default_value, name)
        return result

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and their values."""
        with name_scope(name, f"{self.name}_lookup_table_export_values", [self.resource_handle]):
            keys, values = raw.LookupTableExportV2(
                self.resource_handle, Tkeys=self._key_dtype, Tvalues=self._value_dtype
            )
        return keys, values


def check_table_dtypes(table: LookupInterface, key_dtype: DTypeLike, value_dtype: DTypeLike) -> None:
    """Raises TypeError unless a table has these types."""
    if as_dtype(key_dtype) != table.key_dtype:
        raise TypeError(f"Invalid key dtype, expected {table.key_dtype} but got {key_dtype}.")
    if as_dtype(value_dtype) != table.value_dtype:
        raise TypeError(f"Invalid value dtype, expected {table.value_dtype} but got {value_dtype}.")


class TableInitializerBase(Trackable):
    """Fills a table.

    Args:
        key_dtype, value_dtype: of the keys and values that it gives.
    """

    def __init__(self, key_dtype: DTypeLike, value_dtype: DTypeLike) -> None:
        self._key_dtype = as_dtype(key_dtype)
        self._value_dtype = as_dtype(value_dtype)

    @property
    def key_dtype(self) -> DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """The dtype of the values."""
        return self._value_dtype

    def initialize(self, table: LookupInterface) -> Operation:
        """The operation that fills a table."""
        raise NotImplementedError

    @property
    def _shared_name(self) -> str:
        """The name of the table in the task where it may be shared because it is filled from one file; else ""."""
        return ""


class KeyValueTensorInitializer(TableInitializerBase):
    """Fills a table from two vectors.

    Args:
        keys, values: of one length.
        key_dtype, value_dtype: default: those of the tensors.
        name: of the operation.
    """

    def __init__(
        self,
        keys: TensorLike | SparseTensor,
        values: Structure,
        key_dtype: DTypeLike | None = None,
        value_dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        with init_scope(), name_scope(name, "key_value_init", [keys, values]):
            self._keys = convert_to_tensor(keys, key_dtype, name="keys")
            self._values = convert_to_tensor(values, value_dtype, name="values")
        self._name = name if name is not None else "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: LookupInterface) -> Operation:
        """The operation that fills a table; it joins the table initializers of the graph.

        Raises:
            TypeError: the table is of other types.
        """
        check_table_dtypes(table, self._keys.dtype, self._values.dtype)
        with name_scope(self._name, None, [table.resource_handle]):
            filled: Operation = raw.InitializeTableV2(table.resource_handle, self._keys, self._values)
        get_default_graph().add_to_collection(GraphKeys.TABLE_INITIALIZERS, filled)
        return filled


class TextFileIndex:
    """The place of a key or a value in a line of a text file: `WHOLE_LINE`, `LINE_NUMBER`, or the column (from 0)."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TextFileInitializer(TableInitializerBase):
    """Fills a table from the lines of a text file.

    Args:
        filename: a string (perhaps a tensor).
        key_dtype, value_dtype: of keys and values.
        key_index, value_index: where they stand: see `TextFileIndex`.
        vocab_size: how many lines to take; None: all.
        delimiter: between columns, one character.
        name: of the operation.

    Raises:
        ValueError: the types do not fit the places.
    """

    def __init__(
        self,
        filename: TensorLike,
        key_dtype: DTypeLike,
        key_index: int,
        value_dtype: DTypeLike,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
    ) -> None:
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError("Filename required")
        if isinstance(filename, Tensor) and filename.shape.ndims not in (None, 0):
            raise ValueError(f"The name of a file is a scalar, got shape {filename.shape}")
        keys, values = as_dtype(key_dtype), as_dtype(value_dtype)
        for what, index, dtype in (("key", key_index, keys), ("value", value_index, values)):
            if index < -2:
                raise ValueError(f"Invalid {what} index {index}.")
            if index == TextFileIndex.LINE_NUMBER and dtype is not int64:
                raise ValueError(f"Signature mismatch. {what.capitalize()}s must be dtype {int64}, got {dtype}.")
            wanted_text = dtype is not string and (what == "value" or not dtype.is_integer)
            if index == TextFileIndex.WHOLE_LINE and wanted_text:
                raise ValueError(
                    f"Signature mismatch. {what.capitalize()}s must be "
                    f"{'string' if what == 'value' else 'integer or string'}, got {dtype}."
                )
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"Invalid vocab_size {vocab_size}.")
        self._filename_arg = filename
        self._key_index, self._value_index = key_index, value_index
        self._vocab_size = vocab_size
        self._delimiter = delimiter
        self._name = name
        super().__init__(keys, values)

    def initialize(self, table: LookupInterface) -> Operation:
        """The operation that fills a table; it joins the table initializers of the graph, and the file its assets.

        Raises:
            TypeError: the table is of other types.
        """
        check_table_dtypes(table, self.key_dtype, self.value_dtype)
        graph = get_default_graph()
        with name_scope(self._name, "text_file_init", [table.resource_handle]):
            path = convert_to_tensor(self._filename_arg, string, name="asset_filepath")
            filled: Operation = raw.InitializeTableFromTextFileV2(
                table.resource_handle,
                path,
                key_index=self._key_index,
                value_index=self._value_index,
                vocab_size=-1 if self._vocab_size is None else self._vocab_size,
                delimiter=self._delimiter,
            )
        graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, filled)
        if path.op.type == "Const":
            graph.add_to_collection(GraphKeys.ASSET_FILEPATHS, path)
        return filled

    @property
    def _shared_name(self) -> str:
        if isinstance(self._filename_arg, Tensor):
            return ""
        size = "" if self._vocab_size is None else f"_{self._vocab_size}"
        return f"hash_table_{self._filename_arg}{size}_{self._key_index}_{self._value_index}"


class TextFileStringTableInitializer(TextFileInitializer):
    """For tables from numbers (by default of lines) to strings (by default the lines)."""

    def __init__(
        self,
        filename: TensorLike,
        key_column_index: int = TextFileIndex.LINE_NUMBER,
        value_column_index: int = TextFileIndex.WHOLE_LINE,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str = "text_file_string_table_init",
    ) -> None:
        super().__init__(filename, int64, key_column_index, string, value_column_index, vocab_size, delimiter, name)


class TextFileIdTableInitializer(TextFileInitializer):
    """For tables from strings (by default the lines) to numbers (by default of lines)."""

    def __init__(
        self,
        filename: TensorLike,
        key_column_index: int = TextFileIndex.WHOLE_LINE,
        value_column_index: int = TextFileIndex.LINE_NUMBER,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str = "text_file_id_table_init",
        key_dtype: DTypeLike = string,
    ) -> None:
        super().__init__(filename, key_dtype, key_column_index, int64, value_column_index, vocab_size, delimiter, name)
