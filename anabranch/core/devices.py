"""What a device is to the rest of the package, and how a package adds a type of device (§2.1, §3.3).

A device runs islands and host kernels and owns the memory of its results. Which devices a session has is decided by
factories, one for each device type: those of this package ("CPU", and what JAX finds), those given to
`register_device`, and those that installed packages announce under the entry point group `ENTRY_POINTS`::

    [project.entry-points."anabranch.devices"]
    ODD = "my_package.devices:odd_devices"        # a factory, see DeviceFactory
"""

from __future__ import annotations

import abc
import copy
import functools
import importlib.metadata
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.core.arrays import AnyArray, HostArray
from anabranch.core.device import DeviceSpec
from anabranch.core.kernel_context import KernelOperation

#: the entry point group under which packages announce factories; an entry point is named after its device type
ENTRY_POINTS: Final = "anabranch.devices"
#: the task of a session that runs in this process alone
LOCAL_TASK: Final = "/job:localhost/replica:0/task:0"
#: without constraints an operation goes to the device type of highest priority that can run it
CPU_PRIORITY: Final = 70
ACCELERATOR_PRIORITY: Final = 210


class Device(abc.ABC):
    """One device of a task.

    #: `put` and `get` may be called from any thread and do not block longer than the copy takes. What they return
    #: belongs to the caller; they never change what they were given.
    #: A dead value, a string tensor (object array) or a resource handle never reaches them.

    Args:
        device_type: such as "CPU"; the type under which the factory is registered.
        index: the number among the devices of that type.
        memory_limit_bytes: 0 where it is not known.
        task: the task that the device belongs to.

    Attributes:
        name: the full name.
        xla_device: what XLA compiles this device's islands for and runs them on (a `jax.Device`; a package brings its
            own through a PJRT plugin). Devices that share one share its memory, and nothing is copied between them.
    """

    xla_device: Any

    def __init__(self, device_type: str, index: int, memory_limit_bytes: int = 0, task: str = LOCAL_TASK) -> None:
        self.device_type = device_type
        self.index = index
        self.memory_limit_bytes = memory_limit_bytes
        self.spec = DeviceSpec.from_string(f"{task}/device:{device_type}:{index}")
        self.name = self.spec.to_string()

    def on_task(self, task: str) -> Device:
        """The same device under the name that it has as one of `task`."""
        device = copy.copy(self)
        Device.__init__(device, self.device_type, self.index, self.memory_limit_bytes, task)
        return device

    def supports(self, op: KernelOperation) -> bool:
        """Whether the device has a kernel for an operation. Asked for compiled operations; host work is the CPU's."""
        return True

    @abc.abstractmethod
    def put(self, value: AnyArray) -> object:
        """A host array, or another device's, as an array of this device."""

    @abc.abstractmethod
    def get(self, value: AnyArray) -> HostArray:
        """An array of this device as a host array."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


@functools.lru_cache(maxsize=4096)
def task_of(device: str) -> str:
    """The task of a device, by its full name; "" for none."""
    if not device:
        return ""
    if device.startswith(f"{LOCAL_TASK}/"):  # by far the most frequent
        return LOCAL_TASK
    spec = DeviceSpec.from_string(device)
    return f"/job:{spec.job}/replica:{spec.replica}/task:{spec.task}"


#: how many devices of the type the session's configuration asks for (None: it does not say) -> the devices, by index
DeviceFactory = Callable[[int | None], Sequence[Device]]


@dataclass(frozen=True, slots=True)
class DeviceType:
    """A registered type of device."""

    name: str
    factory: DeviceFactory
    priority: int


_types: dict[str, DeviceType] = {}
_lock = threading.Lock()
_announced_are_known = False


def register_device(device_type: str, factory: DeviceFactory, priority: int = CPU_PRIORITY - 20) -> None:
    """Adds a type of device for the sessions that are opened from now on.

    Args:
        device_type: its name in device names, as in "/device:<device_type>:0".
        factory: makes the devices of a session from the number that `ConfigProto.device_count` asks for (None: it does
            not say).
        priority: operations without constraints go to the type of highest priority; the CPU has 70, accelerators that
            JAX finds 210.

    Raises:
        ValueError: the type is registered already, or its name is not a valid one.
    """
    DeviceSpec.from_string(f"/device:{device_type}:0")
    with _lock:
        if device_type in _types:
            raise ValueError(f"device type {device_type!r} is already registered; choose another name")
        _types[device_type] = DeviceType(device_type, factory, priority)


def unregister_device(device_type: str) -> None:
    """Removes a type of device; sessions that are open keep their devices.

    Raises:
        KeyError: no such type is registered.
    """
    with _lock:
        del _types[device_type]


def device_types() -> list[DeviceType]:
    """Every registered type, the highest priority first, after asking installed packages for theirs."""
    global _announced_are_known
    with _lock:
        if not _announced_are_known:
            _announced_are_known = True
            for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
                if entry.name not in _types:
                    _types[entry.name] = DeviceType(entry.name, entry.load(), CPU_PRIORITY - 20)
        return sorted(_types.values(), key=lambda kind: -kind.priority)
