"""The devices of this process (§3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import jax


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """What a client sees of a device: its full name, its type, and its memory in bytes (0: not known)."""

    name: str
    device_type: str
    memory_limit_bytes: int


def local_devices() -> list[DeviceAttributes]:
    """The host as CPU:0, and the accelerators that JAX finds."""
    found = [DeviceAttributes("/job:localhost/replica:0/task:0/device:CPU:0", "CPU", 0)]
    accelerators = [d for d in jax.local_devices() if d.platform != "cpu"]
    for device in accelerators:
        kind = device.platform.upper()
        limit = (device.memory_stats() or {}).get("bytes_limit", 0)
        found.append(DeviceAttributes(f"/job:localhost/replica:0/task:0/device:{kind}:{device.id}", kind, limit))
    return found


def default_backend() -> str:
    """What XLA compiles for: "cpu", "gpu", "tpu".

    Raises:
        RuntimeError: no backend can be started.
    """
    return jax.default_backend()
