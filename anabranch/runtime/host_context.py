"""The context of host kernels: values are NumPy arrays, resources are at hand."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from anabranch.core.device import DeviceSpec
from anabranch.core.kernel_context import KernelContext, RandomStream
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.runtime import row_changes
from anabranch.runtime.containers import VariableState
from anabranch.runtime.devices import XlaDevice, moved_to
from anabranch.runtime.random_counters import CountedStream
from anabranch.runtime.session_environment import SessionEnvironment


class HostContext(KernelContext):
    """The kernel context of an operation that runs on the host.

    Attributes:
        opened: for operations that make shared objects: the handle, and a weak reference to what it meant last time.
    """

    __slots__ = ("_environment", "_looked_at", "containers", "opened")
    op: StepNode

    def __init__(self, op: StepNode, environment: SessionEnvironment) -> None:
        super().__init__(op)
        self._environment = environment
        self.containers = environment.containers
        self.opened: tuple[ResourceHandle, weakref.ref[Any]] | None = None
        #: a variable's handle, and its state
        self._looked_at: tuple[ResourceHandle, VariableState] | None = None

    def for_operation(self, op: StepNode) -> HostContext:
        """The context of another operation of the same session."""
        return HostContext(op, self._environment)

    @property
    def private_name(self) -> str:
        """Names what belongs to this operation of this session alone."""
        return f"{self._environment.private_prefix}{self.op.origin}"

    @property
    def task(self) -> str:
        return self._environment.task

    def mover(self, device: str) -> Callable[[TensorValue], TensorValue] | None:
        """What takes values into the memory of the task's device of that name; None where the host's serves."""
        wanted = DeviceSpec.from_string(device)
        for name, found in self._environment.devices.items():
            if wanted.covers(DeviceSpec.from_string(name)):
                return partial(moved_to, found) if isinstance(found, XlaDevice) and found.is_far else None
        return None

    def is_initialized(self, handle: ResourceHandle) -> bool:
        """Whether the variable has a value."""
        return self.containers.variable(handle).value is not None

    def destroy(self, handle: ResourceHandle) -> bool:
        """Makes a variable uninitialised, or removes another resource; False where there was nothing."""
        if handle.kind != "variable":
            return self.containers.remove_object(handle)
        state = self.containers.variable(handle)
        with state.lock:
            existed = state.value is not None
            state.change(None)
        return existed

    def read(self, handle: ResourceHandle) -> np.ndarray[Any, Any]:
        """A copy of a variable's value on the host."""
        state = self.containers.variable(handle)
        # a writing island would take the buffer away in the midst of copying
        with state.lock:
            if state.value is None:
                raise row_changes.uninitialized(self.op, handle)
            return np.array(state.value)

    def look(self, handle: ResourceHandle, find: Callable[[TensorValue], TensorValue]) -> TensorValue:
        """What a function computes from a variable's value, while nobody changes it: a few rows of a table, mostly."""
        # the state of a handle is the same for ever, and mostly the same handle is asked for again
        if self._looked_at is None or self._looked_at[0] is not handle:
            self._looked_at = handle, self.containers.variable(handle)
        state = self._looked_at[1]
        with state.lock:
            value = state.value
            if value is None:
                raise row_changes.uninitialized(self.op, handle)
            return find(state.on_host(value))

    def write(self, handle: ResourceHandle, value: TensorValue, guarded: bool = False) -> None:
        """Replaces a variable's value by a host array."""
        self.containers.write(handle, value)

    def extend(self, rows: int, fresh: Mapping[ResourceHandle, Callable[[int], TensorValue]]) -> None:
        """Appends rows to variables that have fewer; see `row_changes`."""
        row_changes.extend(self.op, {self.containers.variable(h): make for h, make in fresh.items()}, rows)

    def replace_rows(self, at: TensorValue, fresh: Mapping[ResourceHandle, Callable[[int], TensorValue]]) -> None:
        """Gives rows of variables new values; see `row_changes`."""
        row_changes.replace(self.op, {self.containers.variable(h): make for h, make in fresh.items()}, at)

    @property
    def guard(self) -> None:
        """Host kernels check before they write, so nothing guards them."""
        return None

    def call(
        self, body: StepFunction, inputs: list[TensorValue], *, stream: RandomStream | None = None
    ) -> list[TensorValue]:
        """Runs a function as a step of its own; `stream` is what `new_stream` gave, if it has its own."""
        assert stream is None or isinstance(stream, CountedStream)
        return self._environment.run_function(body, inputs, stream)

    @staticmethod
    def new_stream() -> CountedStream:
        """Random operations that count there begin their sequences anew."""
        return CountedStream()
