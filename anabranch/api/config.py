"""`tf.config`."""

from __future__ import annotations

from anabranch.api import config_experimental as experimental
from anabranch.runtime.device_settings import (
    get_soft_device_placement,
    get_visible_devices,
    list_logical_devices,
    list_physical_devices,
    set_soft_device_placement,
    set_visible_devices,
)

__all__ = [
    "experimental",
    "get_soft_device_placement",
    "get_visible_devices",
    "list_logical_devices",
    "list_physical_devices",
    "set_soft_device_placement",
    "set_visible_devices",
]
