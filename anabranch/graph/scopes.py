"""The scopes of a graph: name, device, control dependencies, colocation, attributes, gradient overrides.

Each thread that builds a graph has scopes of its own (`ScopeState`); the names themselves are shared.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.core import device as device_names
from anabranch.core.device import DeviceSpec
from anabranch.graph.operation import Operation, Tensor

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/>]*")
_VALID_SCOPE = re.compile(r"[A-Za-z0-9_.\-/>]*")

DeviceFunction = Callable[[Operation], Any]


class ControlScope:
    """One `control_dependencies` block: what it waits for, and the operations created inside it."""

    __slots__ = ("operations", "seen")

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.seen: set[Operation] = set()


class ScopeState(threading.local):
    """The scopes that are open in one thread."""

    def __init__(self) -> None:
        self.name = ""
        self.devices: list[DeviceFunction] = []
        self.controls: list[ControlScope] = []
        self.colocation: list[Operation] = []
        self.attrs: dict[str, Any] = {}
        self.gradient_overrides: dict[str, str] = {}
        self.kernel_labels: dict[str, str] = {}
        self.container = ""


class GraphScopes:
    """The scope part of `Graph`; mixed into it."""

    _scopes: ScopeState
    _names: dict[str, int]
    building_function: bool

    # ------------------------------------------------------------------ names
    @contextlib.contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefixes the names of operations created inside; yields the full scope name, which ends in a slash.

        A name that ends in a slash re-enters that scope; None or "" returns to the root.

        Raises:
            ValueError: the name has characters that names cannot have.
        """
        if name:
            name = str(name)
            # TensorFlow builds branches in a scope, in which "/" is a name: that of the root
            valid = _VALID_SCOPE if self._scopes.name or self.building_function else _VALID_NAME
            if not valid.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid scope name; use letters, digits and any of '_.-/'")
        old = self._scopes.name
        if not name:
            new = ""
        elif name.endswith("/"):
            new = name[:-1]
        else:
            new = self.unique_name(name)
        self._scopes.name = new
        try:
            yield new + "/" if new else ""
        finally:
            self._scopes.name = old

    def get_name_scope(self) -> str:
        """The current scope's name, without the trailing slash."""
        return self._scopes.name

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` in the current scope, with `_1`, `_2`, ... appended where it is taken (ignoring case)."""
        if self._scopes.name:
            name = f"{self._scopes.name}/{name}"
        key = name.lower()
        count = self._names.get(key, 0)
        if mark_as_used:
            self._names[key] = count + 1
        if count == 0:
            return name
        while True:
            candidate = f"{name}_{count}"
            if candidate.lower() not in self._names:
                break
            count += 1
        if mark_as_used:
            self._names[key] = count + 1
            self._names[candidate.lower()] = 1
        return candidate

    def _mark_name(self, name: str) -> None:
        """Takes an absolute name (one that an import or a re-entered scope gave)."""
        self._names[name.lower()] = max(1, self._names.get(name.lower(), 0))

    def _operation_name(self, name: str) -> str:
        """The full name of a new operation: a trailing slash means that the name is absolute already."""
        if name.endswith("/"):
            absolute = name[:-1]
            if absolute.lower() in self._names and self._operation_exists(absolute):
                raise ValueError(f"an operation named {absolute!r} already exists in this graph; choose another name")
            self._mark_name(absolute)
            return absolute
        if not (_VALID_SCOPE if self._scopes.name else _VALID_NAME).fullmatch(name):
            raise ValueError(f"{name!r} is not a valid operation name; use letters, digits and any of '_.-/'")
        return self.unique_name(name)

    def _operation_exists(self, name: str) -> bool:
        raise NotImplementedError

    # ------------------------------------------------------------------ devices
    @contextlib.contextmanager
    def device(self, device_name_or_function: DeviceSpec | DeviceFunction | str | None) -> Iterator[None]:
        """Asks for a device for the operations created inside (§3.3).

        Args:
            device_name_or_function: a (partial) device name such as ``"/job:ps/task:1"`` or ``"/cpu:0"``, a
                `DeviceSpec`, a function from an operation to one of these, or None to leave the enclosing scopes.

        Raises:
            ValueError: the name is not a device name.
        """
        old = self._scopes.devices
        if device_name_or_function is None:
            self._scopes.devices = []
        elif callable(device_name_or_function):
            self._scopes.devices = [*old, device_name_or_function]
        else:
            self._scopes.devices = [*old, device_names.merge_device(device_name_or_function)]
        try:
            yield
        finally:
            self._scopes.devices = old

    @contextlib.contextmanager
    def _devices_of(self, bodies: Iterable[GraphScopes]) -> Iterator[None]:
        """Opens the device scopes that are open in the graphs of bodies, the outermost body first."""
        old = self._scopes.devices
        self._scopes.devices = [*old, *(scope for body in bodies for scope in body._scopes.devices)]
        try:
            yield
        finally:
            self._scopes.devices = old

    def _apply_device_functions(self, op: Operation) -> None:
        """Inner scopes are asked first; an outer scope fills in only what is still open.

        What an operation is colocated with decides before all scopes.
        """
        for function in reversed(self._scopes.devices):
            asked = function(op)
            name = device_names.canonical_name(asked) if asked is not None else ""
            # a name that a program's own function gave stays as it wrote it ("cpu:1"); TensorFlow's graphs have it so
            op.device = asked if isinstance(asked, str) else name
        for leader in self._scopes.colocation:
            op.device = leader.device or op.device

    # ------------------------------------------------------------------ control dependencies
    @contextlib.contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        """Operations created inside run after all of `control_inputs` (operations, tensors, variables, slices).

        None leaves the enclosing control dependencies.

        Raises:
            TypeError: something given is neither an operation nor a tensor.
            ValueError: something given belongs to another graph.
        """
        old = self._scopes.controls
        if control_inputs is None:
            self._scopes.controls = []
        else:
            self._scopes.controls = [*old, self._control_scope(self._control_operations(control_inputs))]
        try:
            yield
        finally:
            self._scopes.controls = old

    def _control_scope(self, operations: list[Operation]) -> ControlScope:
        return ControlScope(operations)

    def _control_operations(self, control_inputs: Iterable[Any]) -> list[Operation]:
        operations = list(dict.fromkeys(self._control_operation(c) for c in control_inputs))
        for op in operations:
            if op.graph is not self and not self.building_function:
                raise ValueError(
                    f"operation {op.name!r} (created at {op.site}) is not an element of this graph and cannot be "
                    "waited for here; build both in one `with graph.as_default()` block"
                )
        return operations

    def _control_operation(self, value: object) -> Operation:
        if isinstance(value, Tensor):
            update = value.get_attribute("updated_by")
            return update if isinstance(update, Operation) else value.op
        if isinstance(value, Operation):
            return value
        element = getattr(value, "_as_graph_element", None)
        if element is not None:
            return self._control_operation(element())
        op = getattr(value, "op", None)
        if isinstance(op, Operation):
            return op
        raise TypeError(
            f"a control input must be an operation or a tensor, got {value!r} of type {type(value).__name__}"
        )

    def _current_control_inputs(self, inputs: list[Tensor]) -> list[Operation]:
        """The control inputs of a new operation; those implied by an input made in the same scope are left out."""
        if not self._scopes.controls:
            return []
        operations: dict[Operation, None] = {}
        producers = [t.op for t in inputs]
        for scope in self._scopes.controls:
            if any(op in scope.seen for op in producers):
                continue
            operations.update((op, None) for op in scope.operations if op not in producers)
        return list(operations)

    def _record_in_control_scopes(self, op: Operation) -> None:
        for scope in self._scopes.controls:
            scope.seen.add(op)

    # ------------------------------------------------------------------ colocation, attributes, containers
    @contextlib.contextmanager
    def colocate_with(self, op: object, ignore_existing: bool = False) -> Iterator[None]:
        """Operations created inside share the device of `op` (an operation, tensor or variable); None clears.

        What `op` asks for counts, whatever device scopes are open. A variable is where its handle is.
        """
        old = self._scopes.colocation
        old_devices = self._scopes.devices
        if op is None:
            self._scopes.colocation = []
        else:
            operation = self._operation_to_join(op)
            self._scopes.colocation = [operation] if ignore_existing else [*old, operation]
            self._scopes.devices = []
        try:
            yield
        finally:
            self._scopes.colocation = old
            self._scopes.devices = old_devices

    def _operation_to_join(self, value: object) -> Operation:
        """The operation that says where a value is: of a variable the one that makes its handle, not a reading."""
        op = None if isinstance(value, Operation) else getattr(value, "op", None)
        return op if isinstance(op, Operation) else self._control_operation(value)

    @contextlib.contextmanager
    def _attr_scope(self, attrs: dict[str, Any]) -> Iterator[None]:
        """Sets annotations (names that begin with an underscore) on the operations created inside; None removes."""
        old = self._scopes.attrs
        merged = {**old, **attrs}
        self._scopes.attrs = {k: v for k, v in merged.items() if v is not None}
        try:
            yield
        finally:
            self._scopes.attrs = old

    @contextlib.contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Variables and queues created inside live in the named container (WP4.7)."""
        old = self._scopes.container
        self._scopes.container = container_name
        try:
            yield container_name
        finally:
            self._scopes.container = old

    @property
    def _container(self) -> str:
        """TensorFlow's name for `current_container`."""
        return self.current_container

    @property
    def current_container(self) -> str:
        return self._scopes.container

    @contextlib.contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Operations created inside use the gradient registered under another name (§4.1).

        Raises:
            TypeError: the map is not a dictionary from operation types to names.
        """
        if not isinstance(op_type_map, dict) or not all(
            isinstance(k, str) and isinstance(v, str) for k, v in op_type_map.items()
        ):
            raise TypeError("op_type_map must be a dictionary from operation type names to registered gradient names")
        old = self._scopes.gradient_overrides
        self._scopes.gradient_overrides = {**old, **op_type_map}
        try:
            yield
        finally:
            self._scopes.gradient_overrides = old

    @contextlib.contextmanager
    def _kernel_label_map(self, op_to_kernel_label_map: dict[str, str]) -> Iterator[None]:
        """Operations created inside carry the label by which TensorFlow chooses one of several kernels for a type.

        It is written into GraphDefs. Kernels here have no labels.

        Raises:
            TypeError: the map is not a dictionary from operation types to labels.
        """
        if not isinstance(op_to_kernel_label_map, dict) or not all(
            isinstance(k, str) and isinstance(v, str) for k, v in op_to_kernel_label_map.items()
        ):
            raise TypeError("op_to_kernel_label_map must be a dictionary from operation type names to labels")
        old = self._scopes.kernel_labels
        self._scopes.kernel_labels = {**old, **op_to_kernel_label_map}
        try:
            yield
        finally:
            self._scopes.kernel_labels = old

    def _scope_annotations(self, op_type: str, attrs: dict[str, Any]) -> None:
        """Adds to a new operation's attributes what the open scopes say."""
        scopes = self._scopes
        if scopes.attrs:
            for key, value in scopes.attrs.items():
                attrs.setdefault(key, value)
        override = scopes.gradient_overrides.get(op_type)
        if override is not None:
            attrs.setdefault("_gradient_op_type", override.encode())
        label = scopes.kernel_labels.get(op_type)
        if label is not None:
            attrs.setdefault("_kernel", label.encode())
        if scopes.colocation:
            attrs["_class"] = sorted({group for op in scopes.colocation for group in op.colocation_groups()})
