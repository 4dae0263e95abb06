"""The devices of this process, as `tensorflow.python.client.device_lib` lists them."""

from __future__ import annotations

from dataclasses import replace

from anabranch.core.devices import LOCAL_TASK
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.devices import DeviceAttributes, local_devices


def list_local_devices(session_config: ConfigProto | None = None) -> list[DeviceAttributes]:
    """The devices that a session of this process has, by names without a task: "/device:CPU:0".

    Args:
        session_config: the session's `ConfigProto`.

    Raises:
        InvalidArgumentError: it asks for devices that do not exist.
    """
    devices = local_devices(session_config)
    return [replace(device, name=device.name.removeprefix(LOCAL_TASK)) for device in devices]
