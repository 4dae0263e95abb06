"""Lookup tables that are filled once, vocabularies, and ready-made tables  (WP4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, int64, string
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.gathering import where
from anabranch.frontend.arrays.strings import as_string, string_to_hash_bucket_fast, string_to_hash_bucket_strong
from anabranch.frontend.control_flow.grouping import no_op
from anabranch.frontend.framework import init_scope, name_scope
from anabranch.frontend.resources.lookup_tables import (
    KeyValueTensorInitializer,
    LookupInterface,
    ResourceTable,
    TableInitializerBase,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileStringTableInitializer,
)
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class InitializableLookupTableBase(ResourceTable):
    """A table that is filled once, by running `initializer` (or `tf.tables_initializer()`).

    Args:
        default_value: for keys that are not there.
        initializer: fills the table.
    """

    def __init__(self, default_value: TensorLike, initializer: TableInitializerBase) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype)
        self._initializer = initializer
        with init_scope():  # a table lives longer than the body of a loop that looks something up
            self._default_value = convert_to_tensor(default_value, self._value_dtype)
            if self._default_value.shape.ndims not in (None, 0):
                raise ValueError(f"default_value must be a scalar, got shape {self._default_value.shape}")
            self.resource_handle = self._create_resource()
            self._init_op = initializer.initialize(self)

    def _create_resource(self) -> Tensor:
        raise NotImplementedError

    @property
    def default_value(self) -> Tensor:
        """For keys that are not there."""
        return self._default_value

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        return self._init_op

    @property
    def init(self) -> Operation:
        """The older name of `initializer`."""
        return self._init_op


class StaticHashTable(InitializableLookupTableBase):
    """A table that is filled once.

    Args:
        initializer: fills the table.
        default_value: for keys that are not there.
        name: of the operation.
    """

    def __init__(self, initializer: TableInitializerBase, default_value: TensorLike, name: str | None = None) -> None:
        self._name = name or "hash_table"
        self._shared_name = initializer._shared_name
        super().__init__(default_value, initializer)

    def _create_resource(self) -> Tensor:
        handle: Tensor = raw.HashTableV2(
            shared_name=self._shared_name,
            use_node_name_sharing=not self._shared_name,
            key_dtype=self._key_dtype,
            value_dtype=self._value_dtype,
            name=self._name,
        )
        return handle


class HashTable(StaticHashTable):
    """A table that is filled once, which may be shared by name.

    Args:
        initializer: fills the table.
        default_value: for keys that are not there.
        shared_name: of the table in the task; default: one of its own, or that of its file.
        name: of the operation.
    """

    def __init__(
        self,
        initializer: TableInitializerBase,
        default_value: TensorLike,
        shared_name: str | None = None,
        name: str | None = None,
    ) -> None:
        self._given_name = shared_name
        super().__init__(initializer, default_value, name)

    def _create_resource(self) -> Tensor:
        if self._given_name is not None:
            self._shared_name = self._given_name
        return super()._create_resource()


# ---------------------------------------------------------------------- keys beyond the vocabulary
class HasherSpec(NamedTuple):
    """How keys beyond the vocabulary are distributed over buckets: "fasthash", or "stronghash" with a key."""

    hasher: str
    key: Any


FastHashSpec = HasherSpec("fasthash", None)


def StrongHashSpec(key: Sequence[int]) -> HasherSpec:
    """A hash with a key of two unsigned integers: whoever does not know it cannot choose values that collide.

    Raises:
        ValueError: there are not two.
        TypeError: they are no integers.
    """
    if len(key) != 2:
        raise ValueError(f"key must have size 2, got {key}.")
    if not all(isinstance(k, int | np.integer) for k in key):
        raise TypeError("Invalid key. Must be unsigned integer values.")
    return HasherSpec("stronghash", tuple(key))


class IdTableWithHashBuckets(LookupInterface):
    """A table to numbers, in which keys that are not there get one of some further numbers, by their hash.

    Args:
        table: from keys to int64; None: no key is known.
        num_oov_buckets: how many further numbers, which follow those of the table.
        hasher_spec: which hash.
        name: of the operations.
        key_dtype: default: that of the table, or string.

    Raises:
        TypeError: the table, the hash or the key type is of a wrong kind.
        ValueError: there is neither a table nor a bucket.
    """

    def __init__(
        self,
        table: InitializableLookupTableBase | None,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: str | None = None,
        key_dtype: DTypeLike | None = None,
    ) -> None:
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError(f"hasher_spec must be of type HasherSpec, got {hasher_spec}")
        if table is not None:
            table_dtype = table.key_dtype
            if key_dtype is None:
                key_dtype = table_dtype
            check_ids(as_dtype(key_dtype), table_dtype, table.value_dtype)
            default_name = table.name
        else:
            if num_oov_buckets <= 0:
                raise ValueError("oov_buckets must be > 0 if no table is supplied.")
            key_dtype = string if key_dtype is None else key_dtype
            default_name = "hash_bucket"
        if not as_dtype(key_dtype).is_integer and as_dtype(key_dtype) is not string:
            raise TypeError("Invalid key_dtype, expected integer or string.")
        super().__init__(key_dtype, int64)
        self._table = table
        self._num_oov_buckets = num_oov_buckets
        self._hasher_spec = hasher_spec
        self._table_name = name or default_name

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table_name

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        result: Operation = self._table.initializer if self._table is not None else no_op()
        return result

    @property
    def init(self) -> Operation:
        """The older name of `initializer`."""
        return self.initializer

    @property
    def resource_handle(self) -> Tensor | None:  # type: ignore[override]
        """The handle of the table inside; None where there is none."""
        return self._table.resource_handle if self._table is not None else None

    def size(self, name: str | None = None) -> Tensor:
        """How many numbers there are, an int64."""
        with name_scope(name, f"{self.name}_Size"):
            buckets = convert_to_tensor(self._num_oov_buckets, int64)
            result: Tensor = self._table.size() + buckets if self._table is not None else buckets
            return result

    def lookup(self, keys: TensorLike | SparseTensor, name: str | None = None) -> Tensor | SparseTensor:
        """The number of each key; sparse keys give sparse numbers.

        Raises:
            TypeError: `keys` are not of the table's type.
        """
        given = self._checked_keys(keys)
        dense = given.values if isinstance(given, SparseTensor) else given
        if self._table is not None and self._table.key_dtype is int64 and dense.dtype.is_integer:
            dense = cast(dense, int64)
        if self._num_oov_buckets == 0:
            assert self._table is not None
            ids = self._table.lookup(dense, name=name)
        else:
            with name_scope(name, f"{self.name}_Lookup", [dense]):
                ids = self._hashed(dense)
                if self._table is not None:
                    known = self._table.lookup(dense)
                    ids = where(raw.NotEqual(known, self._table.default_value), known, ids + self._table.size())
        return SparseTensor(given.indices, ids, given.dense_shape) if isinstance(given, SparseTensor) else ids

    def _hashed(self, keys: Tensor) -> Tensor:
        text = keys if keys.dtype is string else as_string(keys)
        if self._hasher_spec.hasher == "fasthash":
            return string_to_hash_bucket_fast(text, self._num_oov_buckets, name="hash_bucket")
        if self._hasher_spec.hasher == "stronghash":
            return string_to_hash_bucket_strong(
                text, self._num_oov_buckets, [int(k) for k in self._hasher_spec.key], name="hash_bucket"
            )
        raise ValueError(f"Unknown hasher {self._hasher_spec.hasher}")


def check_ids(key_dtype: DType, table_dtype: DType, value_dtype: DType) -> None:
    """Raises TypeError unless a table of these types can give numbers to keys of `key_dtype`."""
    if key_dtype.is_integer != table_dtype.is_integer:
        raise TypeError(f"Invalid key dtype, expected {table_dtype} but got {key_dtype}.")
    if value_dtype is not int64:
        raise TypeError(f"Invalid value dtype, expected {int64} but got {value_dtype}.")


class StaticVocabularyTable(IdTableWithHashBuckets):
    """A vocabulary: known keys have the numbers that an initializer gives, others one of some further numbers.

    Args:
        initializer: gives int64 values to keys.
        num_oov_buckets: how many further numbers, at least one.
        lookup_key_dtype: of the keys; default: that of the initializer.
        name: of the operation.

    Raises:
        ValueError: there is no further number.
        TypeError: the values are no int64.
    """

    def __init__(
        self,
        initializer: TableInitializerBase | None,
        num_oov_buckets: int,
        lookup_key_dtype: DTypeLike | None = None,
        name: str | None = None,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0.")
        table = None
        if initializer is not None:
            if initializer.value_dtype is not int64:
                raise TypeError(f"Invalid value dtype, expected {int64} but got {initializer.value_dtype}.")
            table = StaticHashTable(initializer, -1, name)
        super().__init__(table, num_oov_buckets, FastHashSpec, name, lookup_key_dtype)


# ---------------------------------------------------------------------- ready-made tables
def index_table_from_file(
    vocabulary_file: TensorLike | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: DTypeLike = string,
    name: str | None = None,
    key_column_index: int = TextFileIndex.WHOLE_LINE,
    value_column_index: int = TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> StaticHashTable | IdTableWithHashBuckets:
    """A table from the lines of a file to their numbers.

    Args:
        vocabulary_file: the file.
        num_oov_buckets: how many further numbers there are for other keys.
        vocab_size: how many lines to take; None: all.
        default_value: for other keys, where there are no further numbers.
        hasher_spec: which hash distributes other keys.
        key_dtype: string, or integers.
        name: of the operations.
        key_column_index, value_column_index, delimiter: as for `TextFileInitializer`.

    Raises:
        ValueError: no file is given, or a number is out of range.
    """
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    if vocab_size is not None and vocab_size < 1:
        name_of_file = vocabulary_file if not isinstance(vocabulary_file, Tensor) else vocabulary_file.op.name
        raise ValueError(f"vocab_size must be greater than 0, got {vocab_size}. vocabulary_file: {name_of_file}")
    keys = as_dtype(key_dtype)
    _check_key_type(keys, string)
    with name_scope(name, "string_to_index"):
        initializer = TextFileIdTableInitializer(
            vocabulary_file,
            key_column_index,
            value_column_index,
            vocab_size,
            delimiter,
            name="table_init",
            key_dtype=int64 if keys.is_integer else keys,
        )
        table = StaticHashTable(initializer, default_value)
        if num_oov_buckets:
            return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=keys)
        return table


def _check_key_type(dtype: DType, *others: DType) -> None:
    if not dtype.is_integer and dtype not in others:
        raise TypeError(f"Only integer and string keys are supported, got {dtype}.")


def index_table_from_tensor(
    vocabulary_list: TensorLike,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: DTypeLike = string,
    name: str | None = None,
) -> StaticHashTable | IdTableWithHashBuckets:
    """A table from the elements of a vector to their positions.

    Args:
        vocabulary_list: the vector.
        num_oov_buckets, default_value, hasher_spec, name: as for `index_table_from_file`.
        dtype: of the elements.

    Raises:
        ValueError: there is no vector, or a number is out of range.
    """
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    wanted = as_dtype(dtype)
    _check_key_type(wanted, string)
    with name_scope(name, "string_to_index"):
        keys = convert_to_tensor(vocabulary_list)
        if keys.dtype.is_integer != wanted.is_integer:
            raise ValueError(f"Expected {'integer' if wanted.is_integer else 'non-integer'}, got {keys.dtype}.")
        if not wanted.is_integer and keys.dtype.base_dtype != wanted:
            raise ValueError(f"Expected {wanted}, got {keys.dtype}.")
        count = raw.Size(keys, out_type=int64)
        values = raw.Range(np.int64(0), count, np.int64(1))
        numbers = cast(keys, int64) if keys.dtype.is_integer else keys
        with name_scope(None, "table_init"):
            initializer = KeyValueTensorInitializer(numbers, values, numbers.dtype.base_dtype, int64, name="table_init")
        table = StaticHashTable(initializer, default_value)
        if num_oov_buckets:
            return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=wanted)
        return table


def index_to_string_table_from_file(
    vocabulary_file: TensorLike,
    vocab_size: int | None = None,
    default_value: str = "UNK",
    name: str | None = None,
    key_column_index: int = TextFileIndex.LINE_NUMBER,
    value_column_index: int = TextFileIndex.WHOLE_LINE,
    delimiter: str = "\t",
) -> StaticHashTable:
    """A table from numbers to the lines of a file. Arguments: as for `index_table_from_file`.

    Raises:
        ValueError: no file is given, or `vocab_size` is less than 1.
    """
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    if vocab_size is not None and vocab_size < 1:
        raise ValueError(f"vocab_size must be greater than 0, got {vocab_size}.")
    with name_scope(name, "index_to_string"):
        initializer = TextFileStringTableInitializer(
            vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter, name="table_init"
        )
        return StaticHashTable(initializer, default_value)


def index_to_string_table_from_tensor(
    vocabulary_list: TensorLike, default_value: str = "UNK", name: str | None = None
) -> StaticHashTable:
    """A table from positions to the elements of a vector of strings.

    Raises:
        ValueError: there is no vector.
    """
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    with name_scope(name, "index_to_string"):
        values = convert_to_tensor(vocabulary_list, string)
        keys = raw.Range(np.int64(0), raw.Size(values, out_type=int64), np.int64(1))
        initializer = KeyValueTensorInitializer(keys, values, int64, string, name="table_init")
        return StaticHashTable(initializer, default_value)
