"""Lookup tables that steps change  (WP4.6)."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.frontend.resources.lookup_tables import ResourceTable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class MutableLookupInterface(ResourceTable):
    """What the tables share that steps change."""

    _value_shape: TensorShape

    def insert(self, keys: TensorLike | SparseTensor, values: Structure, name: str | None = None) -> Operation:
        """An operation that gives keys their values.

        Raises:
            TypeError: keys or values are not of the table's types.
        """
        with name_scope(name, f"{self.name}_lookup_table_insert", [self.resource_handle, keys, values]):
            given = self._checked_keys(keys)
            new = convert_to_tensor(values, self._value_dtype, name="values")
            result: Operation = raw.LookupTableInsertV2(self.resource_handle, given, new)
            return result

    def remove(self, keys: TensorLike | SparseTensor, name: str | None = None) -> Operation:
        """An operation that forgets keys; those not there are no mistake.

        Raises:
            TypeError: `keys` are not of the table's type.
        """
        given = self._checked_keys(keys)
        with name_scope(name, f"{self.name}_lookup_table_remove", [self.resource_handle, given]):
            result: Operation = raw.LookupTableRemoveV2(self.resource_handle, given)
            return result

    def restore_from(self, keys: Tensor, values: Tensor) -> Operation:
        """An operation that replaces all that is in the table: what a saver restores with."""
        result: Operation = raw.LookupTableImportV2(self.resource_handle, keys, values)
        return result

    #: whether savers save it
    is_saved = False

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """Its keys and values."""
        return {"table": self} if self.is_saved else {}

    def _offer_to_savers(self, checkpoint: bool) -> None:
        self.is_saved = checkpoint
        if checkpoint:
            get_default_graph().add_to_collection(GraphKeys.SAVEABLE_OBJECTS, self)


class MutableHashTable(MutableLookupInterface):
    """A table that steps change; savers save it.

    Args:
        key_dtype, value_dtype: of keys and values.
        default_value: for keys that are not there; its shape is that of a value.
        name: of the operation.
        checkpoint: whether savers save it.
    """

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        default_value: TensorLike,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(default_value, self._value_dtype)
        self._value_shape = self._default_value.shape
        attrs: dict[str, Any] = {
            "use_node_name_sharing": checkpoint,
            "key_dtype": self._key_dtype,
            "value_dtype": self._value_dtype,
            "name": name,
        }
        if self._value_shape.ndims == 0:
            self.resource_handle = raw.MutableHashTableV2(**attrs)
        else:
            self.resource_handle = raw.MutableHashTableOfTensorsV2(value_shape=self._value_shape, **attrs)
        self._offer_to_savers(checkpoint)


class DenseHashTable(MutableLookupInterface):
    """A table that steps change, whose keys may be vectors; savers save it.

    Args:
        key_dtype, value_dtype: of keys and values.
        default_value: for keys that are not there; its shape is that of a value.
        empty_key, deleted_key: two keys that are never used; their shape is that of a key.
        initial_num_buckets: a power of two.
        name: of the operation.
        checkpoint: whether savers save it.
    """

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        default_value: TensorLike,
        empty_key: TensorLike,
        deleted_key: TensorLike,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
    ) -> None:
        super().__init__(key_dtype, value_dtype)
        self._default_value = convert_to_tensor(default_value, self._value_dtype, name="default_value")
        self._value_shape = self._default_value.shape
        self._empty_key = convert_to_tensor(empty_key, self._key_dtype, name="empty_key")
        self._deleted_key = convert_to_tensor(deleted_key, self._key_dtype, name="deleted_key")
        self.resource_handle = raw.MutableDenseHashTableV2(
            self._empty_key,
            self._deleted_key,
            use_node_name_sharing=checkpoint,
            value_dtype=self._value_dtype,
            value_shape=self._value_shape,
            initial_num_buckets=initial_num_buckets,
            name=name,
        )
        self._offer_to_savers(checkpoint)

    insert_or_assign = MutableLookupInterface.insert
    erase = MutableLookupInterface.remove
