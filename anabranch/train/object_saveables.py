"""What objects of a checkpoint are saved as: variables, tables and iterators, and states of Python's  (§4.3)."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn
from anabranch.frontend.control_flow.grouping import no_op
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.resources.mutable_tables import MutableLookupInterface
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.train.iterator_saveables import IteratorSaveable
from anabranch.train.saveables import SaveableObject, SaveSpec, TableSaveable, VariableSaveable


class NoRestoreSaveable(SaveableObject):
    """A tensor that is saved, and that nothing is done with when it is restored.

    Args:
        tensor: it, or a function that makes it.
        name: in the checkpoint.
        dtype, device: of the tensor, where a function makes it.
    """

    def __init__(
        self,
        tensor: Tensor | Callable[[], Tensor],
        name: str,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__(tensor, [SaveSpec(tensor, "", name, dtype, device)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        return no_op()


class PythonStateSaveable(SaveableObject, abc.ABC):
    """State that Python's objects hold, and no session: its tensors are fed when it is saved."""

    @abc.abstractmethod
    def feed_dict_additions(self) -> dict[Tensor, Any]:
        """What to feed for a checkpoint of the state now."""

    @abc.abstractmethod
    def freeze(self) -> SaveableObject:
        """The state now, as what needs no feeding."""

    def python_restore(self, restored_strings: list[Any]) -> None:
        """Takes over a state, given as the values of the checkpoint."""


class PythonStringStateSaveable(PythonStateSaveable):
    """State that is saved as one string.

    Args:
        name: in the checkpoint.
        state_callback: gives the state, each time that a checkpoint is written.
        restore_callback: takes a state; None: nothing happens to it.
    """

    def __init__(
        self,
        name: str,
        state_callback: Callable[[], str | bytes],
        restore_callback: Callable[[bytes], object] | None = None,
    ) -> None:
        self._state_callback, self._restore_callback = state_callback, restore_callback
        with get_default_graph().device("/device:CPU:0"):
            self._fed = convert_to_tensor("", dtypes.string)
        super().__init__(self._fed, [SaveSpec(self._fed, "", name)], name)

    @property
    def optional_restore(self) -> bool:
        """Whether nothing is lost where it is not restored."""
        return self._restore_callback is None

    def feed_dict_additions(self) -> dict[Tensor, Any]:
        return {self._fed: self._state_callback()}

    def freeze(self) -> SaveableObject:
        return NoRestoreSaveable(
            lambda: convert_to_tensor(self._state_callback(), dtypes.string), self.name, dtypes.string, "/device:CPU:0"
        )

    def python_restore(self, restored_strings: list[Any]) -> None:
        if self._restore_callback is not None:
            (restored,) = restored_strings
            self._restore_callback(restored)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        return no_op()


def saveables_of_value(value: PassedOn, key: str) -> list[SaveableObject]:
    """What a stored value of an object is saved as under a key of a checkpoint.

    Args:
        value: as `_gather_saveables_for_checkpoint` gives it: a variable, a table, an iterator, a `SaveableObject`, or
            a function that makes one of these of a `name`.
        key: in the checkpoint; the names of all tensors of the value begin with it.

    Raises:
        TypeError: it is nothing of the kind.
        ValueError: what the function made has another name.
    """
    if isinstance(value, PartitionedVariable):
        return [VariableSaveable(part, key) for part in value]
    if isinstance(value, Variable):
        return [VariableSaveable(value, key)]
    if isinstance(value, MutableLookupInterface):
        return [TableSaveable(value, key)]
    if isinstance(value, Iterator):
        return [IteratorSaveable(value, f"{key}_STATE")]
    if isinstance(value, SaveableObject):
        saveables = [value]
    elif callable(value):
        return saveables_of_value(value(name=key), key)
    else:
        raise TypeError(f"the value {key!r} of an object cannot be saved: {value!r} is neither a variable nor a table")
    if not all(key in saveable.name for saveable in saveables):
        names = [saveable.name for saveable in saveables]
        raise ValueError(f"the value {key!r} of an object gives itself another name, {names}, in which that is not")
    return saveables


def full_name_of(value: PassedOn) -> str:
    """The name under which `tf.train.Saver` saves a value; "" for what it does not save."""
    if isinstance(value, PartitionedVariable):
        return str(value.name)
    return VariableSaveable(value, "").full_name if isinstance(value, Variable) else ""
