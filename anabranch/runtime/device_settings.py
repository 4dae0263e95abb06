"""`tf.config`: which devices the sessions of this process have when their configuration does not say.

A *physical* device is the processor, or an accelerator that JAX finds; a *logical* device is what sessions see of
it. The processor is one logical device, or several virtual ones.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.devices import device_types


class PhysicalDevice(NamedTuple):
    """A device of the machine."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device as sessions see it."""

    name: str
    device_type: str


class VirtualDeviceConfiguration(NamedTuple):
    """One virtual device.

    Attributes:
        memory_limit: accepted for compatibility: virtual devices share their memory.
    """

    memory_limit: int | None = None


class DeviceSettings:
    """What this process has set; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._virtual: dict[PhysicalDevice, list[VirtualDeviceConfiguration]] = {}
        self._visible: list[PhysicalDevice] | None = None
        self._growth: dict[PhysicalDevice, bool] = {}
        self._soft = False

    # ------------------------------------------------------------------ devices
    def list_physical_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """The devices of the machine, of one type or of all, the processor first."""
        devices = [PhysicalDevice("/physical_device:CPU:0", "CPU")]
        for kind in device_types():
            if kind.name != "CPU":
                devices += [
                    PhysicalDevice(f"/physical_device:{kind.name}:{d.index}", kind.name) for d in kind.factory(None)
                ]
        return [device for device in devices if device_type in (None, device.device_type)]

    def list_logical_devices(self, device_type: str | None = None) -> list[LogicalDevice]:
        """The devices that a session has which asks for none in particular."""
        devices: list[LogicalDevice] = []
        for device in self.get_visible_devices(device_type):
            count = len(self._virtual.get(device, [None]))
            first = sum(known.device_type == device.device_type for known in devices)
            devices += [
                LogicalDevice(f"/device:{device.device_type}:{first + i}", device.device_type) for i in range(count)
            ]
        return devices

    def get_visible_devices(self, device_type: str | None = None) -> list[PhysicalDevice]:
        """The physical devices that sessions may use."""
        devices = self.list_physical_devices() if self._visible is None else self._visible
        return [device for device in devices if device_type in (None, device.device_type)]

    def set_visible_devices(
        self, devices: PhysicalDevice | Sequence[PhysicalDevice] | None, device_type: str | None = None
    ) -> None:
        """Says which physical devices, of one type or of all, the sessions opened from now on may use.

        Raises:
            ValueError: one of them does not exist, or is not of that type.
        """
        chosen = [] if devices is None else [devices] if isinstance(devices, PhysicalDevice) else list(devices)
        for device in chosen:
            self._check(device)
            if device_type not in (None, device.device_type):
                raise ValueError(f"{device.name} is not of the type {device_type!r} for which devices are set")
        kept = [d for d in self.get_visible_devices() if device_type is not None and d.device_type != device_type]
        with self._lock:
            self._visible = kept + chosen

    # ------------------------------------------------------------------ virtual devices
    def set_virtual_device_configuration(
        self, device: PhysicalDevice, virtual_devices: Sequence[VirtualDeviceConfiguration] | None
    ) -> None:
        """Makes several logical devices of the processor, for the sessions opened from now on.

        Raises:
            ValueError: the device does not exist, or is not the processor.
        """
        self._check(device)
        if device.device_type != "CPU" and virtual_devices is not None and len(virtual_devices) > 1:
            raise ValueError(f"{device.name} cannot be divided: only the processor can be several virtual devices")
        with self._lock:
            self._virtual.pop(device, None)
            if virtual_devices:
                self._virtual[device] = list(virtual_devices)

    def get_virtual_device_configuration(self, device: PhysicalDevice) -> list[VirtualDeviceConfiguration] | None:
        """The virtual devices that were set for a device, or None.

        Raises:
            ValueError: the device does not exist.
        """
        self._check(device)
        return self._virtual.get(device)

    # ------------------------------------------------------------------ other settings
    def set_memory_growth(self, device: PhysicalDevice, enable: bool) -> None:
        """Accepted for compatibility: JAX decides how memory is allocated.

        Raises:
            ValueError: the device does not exist.
        """
        self._check(device)
        self._growth[device] = bool(enable)

    def get_memory_growth(self, device: PhysicalDevice) -> bool:
        """What was set for a device.

        Raises:
            ValueError: the device does not exist.
        """
        self._check(device)
        return self._growth.get(device, False)

    def set_soft_device_placement(self, enabled: bool) -> None:
        """Says whether the sessions opened from now on give up requests that cannot be met."""
        self._soft = bool(enabled)

    def get_soft_device_placement(self) -> bool:
        """What was set."""
        return self._soft

    def reset(self) -> None:
        """Forgets everything that was set."""
        with self._lock:
            self._virtual, self._visible, self._growth, self._soft = {}, None, {}, False

    # ------------------------------------------------------------------ what sessions ask
    def counts(self) -> dict[str, int]:
        """How many devices of a type a session has that does not say; types that were never restricted are missing."""
        numbers: dict[str, int] = {}
        for device, virtual in self._virtual.items():
            numbers[device.device_type] = len(virtual)
        if self._visible is not None:
            for kind in device_types():
                if kind.name != "CPU":
                    numbers[kind.name] = sum(device.device_type == kind.name for device in self._visible)
        return numbers

    def visible_gpus(self) -> str:
        """The chosen GPUs as `gpu_options.visible_device_list` names them; empty: all."""
        chosen = [] if self._visible is None else [d for d in self._visible if d.device_type == "GPU"]
        return ",".join(device.name.rpartition(":")[2] for device in chosen)

    def _check(self, device: object) -> None:
        if device not in self.list_physical_devices():
            raise ValueError(f"there is no physical device {device!r}; take one from list_physical_devices()")


#: the settings of this process
settings = DeviceSettings()

list_physical_devices = settings.list_physical_devices
list_logical_devices = settings.list_logical_devices
get_visible_devices = settings.get_visible_devices
set_visible_devices = settings.set_visible_devices
set_virtual_device_configuration = settings.set_virtual_device_configuration
get_virtual_device_configuration = settings.get_virtual_device_configuration
set_memory_growth = settings.set_memory_growth
get_memory_growth = settings.get_memory_growth
set_soft_device_placement = settings.set_soft_device_placement
get_soft_device_placement = settings.get_soft_device_placement


def experimental_list_devices() -> list[str]:
    """The names of the devices that a session has which asks for none in particular, with those of job and task.

    Example:
        >>> tf.config.experimental_list_devices()[0]
        '/job:localhost/replica:0/task:0/device:CPU:0'
    """
    return [f"/job:localhost/replica:0/task:0{device.name}" for device in settings.list_logical_devices()]
