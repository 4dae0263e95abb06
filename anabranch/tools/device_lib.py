"""The devices of this process, as `tensorflow.python.client.device_lib` lists them."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.devices import DeviceAttributes, local_devices


def list_local_devices(session_config: Any = None) -> list[DeviceAttributes]:
    """The devices that sessions of this process can use.

    Args:
        session_config: accepted for compatibility.
    """
    return local_devices()
