"""Several objects of a checkpoint that are saved and restored by one operation  (§4.3)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.dtypes import DTypeLike
from anabranch.core.trackables import VARIABLE_VALUE_KEY, Trackable
from anabranch.frontend.control_flow.grouping import no_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.train.saveables import SaveableObject, SaveSpec

Buffer = dict[str, Any]


class _Component(Trackable):
    """One of them: it looks like a variable."""

    def __init__(self, name: str, dtype: DTypeLike, shared: _Shared) -> None:
        self._name, self._dtype, self._shared = name, dtype, shared

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        return {VARIABLE_VALUE_KEY: functools.partial(_ComponentSaveable, self._name, self._dtype, self._shared)}


class _Shared:
    """What they have in common: tensors that are there for those that still ask, or of those that gave theirs."""

    def __init__(
        self,
        count: int,
        fill_save_buffer_fn: Callable[[Buffer], object],
        consume_restore_buffer_fn: Callable[[Buffer], Any],
        device: str,
    ) -> None:
        self._count, self._fill, self._consume, self.device = (
            count,
            fill_save_buffer_fn,
            consume_restore_buffer_fn,
            device,
        )
        self._to_save: Buffer = {}
        self._restored: Buffer = {}

    def saved(self, name: str) -> Tensor:
        """The tensor to save of one."""
        if name not in self._to_save:
            if self._to_save:
                raise AssertionError(
                    f"Split dependency {name} unsynchronized. Split dependencies must be saved together."
                )
            self._fill(self._to_save)
        tensor: Tensor = self._to_save.pop(name)
        return tensor

    def restore(self, name: str, tensor: Tensor) -> Operation:
        """Takes the tensor of one; the operation that restores all, for the last of them."""
        if name in self._restored:
            raise AssertionError(
                f"Split dependency {name} unsynchronized. Split dependencies must be restored together."
            )
        self._restored[name] = tensor
        if len(self._restored) < self._count:
            return no_op()
        complete, self._restored = self._restored, {}
        made = self._consume(complete)
        operation: Operation = made if isinstance(made, Operation) else made.op
        return operation


class _ComponentSaveable(SaveableObject):
    def __init__(self, component: str, dtype: DTypeLike, shared: _Shared, name: str) -> None:
        self._component, self._shared = component, shared
        save = functools.partial(shared.saved, component)
        super().__init__(save, [SaveSpec(save, "", name, dtype, shared.device)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        return self._shared.restore(self._component, restored_tensors[0])


def split_dependency(
    component_names: Sequence[str],
    component_dtypes: Sequence[DTypeLike],
    fill_save_buffer_fn: Callable[[Buffer], object],
    consume_restore_buffer_fn: Callable[[Buffer], Any],
    device: str,
) -> dict[str, Any]:
    """Objects that look like variables in checkpoints, and are saved and restored together.

    Args:
        component_names, component_dtypes: of the objects.
        fill_save_buffer_fn: is given an empty dictionary, to which it adds a tensor to save for each name.
        consume_restore_buffer_fn: is given a dictionary with a restored tensor for each name, and returns an operation.
        device: where the tensors are.

    Returns:
        The objects by their names. Whoever holds one in a checkpoint must hold all.
    """
    shared = _Shared(len(component_names), fill_save_buffer_fn, consume_restore_buffer_fn, device)
    pairs = zip(component_names, component_dtypes, strict=True)
    return {name: _Component(name, dtype, shared) for name, dtype in pairs}
