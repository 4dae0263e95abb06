"""Large constants on devices: all executables that use one share its copy."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np


class ResidentConstant:
    """A large constant on a device; all executables that use it share one copy, for as long as one of them lives."""

    __slots__ = ("__weakref__", "on_device", "on_host")

    def __init__(self, on_host: np.ndarray[Any, Any], device: jax.Device | None = None) -> None:
        self.on_host = on_host
        self.on_device = jax.device_put(on_host, device)


_resident: WeakValueDictionary[tuple[int, Any], ResidentConstant] = WeakValueDictionary()


def resident(array: np.ndarray[Any, Any], device: jax.Device | None = None) -> ResidentConstant:
    """A device's copy of a constant, which never changes (default: of JAX's default device)."""
    key = id(array), device
    constant = _resident.get(key)
    # an array that is gone may have had the same id
    if constant is None or constant.on_host is not array:
        constant = _resident[key] = ResidentConstant(array, device)
    return constant
