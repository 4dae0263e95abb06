"""The devices of this process (§3.3): virtual CPU devices, the accelerators that JAX finds, those of other packages.

A virtual CPU device is a name with a place in the graph, not a share of the machine: all of them run their islands on
JAX's one CPU device, each island in the thread that calls it, at the same time as those of the others (decision 0016).
So there can be any number of them, whenever a session asks, and nothing is copied between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from anabranch.core.arrays import AnyArray, HostArray
from anabranch.core.devices import (
    ACCELERATOR_PRIORITY,
    CPU_PRIORITY,
    LOCAL_TASK,
    Device,
    device_types,
    register_device,
)
from anabranch.core.kernel_context import KernelOperation
from anabranch.core.registry import find_op_def
from anabranch.core.resources import ResourceHandle
from anabranch.core.thread_limits import ask_for_threads, limited_by
from anabranch.core.values import TensorValue
from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.ops.lists.values import TensorList
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.device_settings import settings
from anabranch.runtime.process_settings import process_settings
from anabranch.xla.jax_settings import configure_process, in_wide_types
from anabranch.xla.one_thread import one_thread


class XlaDevice(Device):
    """A device whose islands XLA compiles; the base class for what other packages register.

    Args:
        xla_device: the `jax.Device` that runs its islands; default: the host's processor.
    """

    def __init__(
        self,
        device_type: str,
        index: int,
        xla_device: jax.Device | None = None,
        memory_limit_bytes: int = 0,
        task: str = LOCAL_TASK,
    ) -> None:
        super().__init__(device_type, index, memory_limit_bytes, task)
        self.xla_device = host_processor() if xla_device is None else xla_device

    @property
    def is_far(self) -> bool:
        """Whether it has a memory of its own, which the host cannot read."""
        return bool(self.xla_device.platform != "cpu")

    def put(self, value: AnyArray) -> jax.Array:
        """A host array, or another device's, as an array of this device."""
        if self.xla_device.platform == "cpu" and isinstance(value, jax.Array) and value.device is not self.xla_device:
            # what has come to the host need not be copied there once more
            value = self.get(value)
        result: jax.Array = in_wide_types(jax.device_put, value, self.xla_device)
        return result

    def get(self, value: AnyArray) -> np.ndarray[Any, Any]:
        """An array of this device as a host array."""
        return np.asarray(value)


class Gpu(XlaDevice):
    """A GPU that JAX finds. It has no kernels for what TensorFlow 1.15 has none of either: functions of matrices that
    begin with a Schur decomposition, and convolutions of integers.
    """

    def __init__(self, index: int, xla_device: jax.Device) -> None:
        super().__init__("GPU", index, xla_device, _memory_limit(xla_device))

    def supports(self, op: KernelOperation) -> bool:
        """Whether XLA has the operation's kernel for a GPU."""
        op_def = find_op_def(op.type)
        without = "" if op_def is None else op_def.processors_only
        if without == "all" or (without == "integers" and op.attrs["T"].is_integer):
            return False
        return super().supports(op)


def _memory_limit(device: jax.Device) -> int:
    limit: int = (device.memory_stats() or {}).get("bytes_limit", 0)
    return limit


def host_processor() -> Any:
    """JAX's device for the host; where JAX was told to do without one, its first device."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


def _virtual_cpus(count: int | None) -> list[Device]:
    processor = host_processor()
    return [XlaDevice("CPU", index, processor) for index in range(1 if count is None else max(count, 1))]


def _found(kind: str, count: int | None) -> list[jax.Device]:
    return [device for device in jax.local_devices() if device.platform.upper() == kind][:count]


def _gpus(count: int | None) -> list[Device]:
    return [Gpu(index, device) for index, device in enumerate(_found("GPU", count))]


def _tpus(count: int | None) -> list[Device]:
    return [XlaDevice("TPU", index, one, _memory_limit(one)) for index, one in enumerate(_found("TPU", count))]


register_device("CPU", _virtual_cpus, CPU_PRIORITY)
register_device("GPU", _gpus, ACCELERATOR_PRIORITY)
register_device("TPU", _tpus, ACCELERATOR_PRIORITY)


def session_devices(config: ConfigProto | None = None, task: str = LOCAL_TASK) -> list[Device]:
    """The devices of a session, those that operations without constraints go to first.

    Args:
        config: a `ConfigProto`: `device_count` says how many devices of a type there are to be (at least one CPU),
            `gpu_options.visible_device_list` which GPUs, in which order. What it does not say, `tf.config` does. As in
            TensorFlow a type in other letters ("gpu") has no effect, nor have XLA's ("XLA_GPU"), nor a list of visible
            GPUs where there is none. `intra_op_parallelism_threads` of the process's first session that names a
            number, or else `tf.config`'s, says how many threads each operation may use on processors.
        task: the full name of the task that this process is.

    Raises:
        InvalidArgumentError: the configuration names a device type or a GPU that does not exist.
    """
    configure_process()  # before JAX looks for devices
    threads = 0 if config is None else config.intra_op_parallelism_threads
    ask_for_threads(threads or process_settings.get_intra_op_parallelism_threads())
    with limited_by("PJRT_NPROC"):
        host_processor()  # where this makes JAX's client, XLA makes its threads
    one_thread.make()
    asked: Mapping[str, int] = {} if config is None else dict(config.device_count)
    counts = {**settings.counts(), **asked}
    types = device_types()
    known = {kind.name for kind in types}
    unknown = sorted(name for name in set(asked) - known if name.upper().removeprefix("XLA_") not in known)
    if unknown:
        raise InvalidArgumentError(
            None,
            None,
            f"device_count asks for devices of type {unknown[0]!r}, which nobody registered; the types are "
            f"{', '.join(sorted(known))}",
        )
    visible = (config is not None and config.gpu_options.visible_device_list) or settings.visible_gpus()
    devices: list[Device] = []
    for kind in types:
        limited = kind.name == "GPU" and visible
        # a list of visible devices counts among all that there are, so that all are asked for first
        of_kind = kind.factory(None if limited else counts.get(kind.name))
        # where there is none, nothing can be chosen: as in TensorFlow, programs for GPUs run on processors unchanged
        chosen = _visible(of_kind, visible)[: counts.get(kind.name)] if limited and of_kind else of_kind
        devices.extend(chosen)
    return devices if task == LOCAL_TASK else [device.on_task(task) for device in devices]


def _visible(gpus: Sequence[Device], listed: str) -> list[Device]:
    """The listed GPUs, renumbered from 0."""
    chosen: list[Device] = []
    for text in listed.split(","):
        if not text.strip().isdigit() or int(text) >= len(gpus):
            raise InvalidArgumentError(
                None,
                None,
                f"visible_device_list {listed!r} names the GPU {text.strip()!r}; this process has {len(gpus)} GPUs, "
                "numbered from 0",
            )
        chosen.append(Gpu(len(chosen), gpus[int(text)].xla_device))
    return chosen


def explicit_xla_device(device: Device | None) -> Any:
    """The `jax.Device` that an island has to be compiled for, or None where JAX's default is the only one."""
    # an executable that names no device need not look, in every call, where each of its arguments is
    if device is None or (jax.default_backend() == "cpu" and jax.local_devices() == [device.xla_device]):
        return None
    return device.xla_device


def moved_to(device: Device, value: TensorValue) -> Any:
    """A value as one of a device; what lives on the host whatever the device (strings, handles) stays as it is."""
    if isinstance(value, ResourceHandle) or (isinstance(value, np.ndarray) and _is_of_the_host(value.dtype)):
        return value
    if isinstance(value, TensorList):
        return jax.tree.map(device.put, value) if not value.on_host else value
    return device.put(value)


def _is_of_the_host(dtype: np.dtype[Any]) -> bool:
    """Whether no device has arrays of a type: objects, and records, as which quantised numbers go from item to item."""
    return dtype == np.object_ or dtype.fields is not None


class RemoteDevice(Device):
    """A device of another task, as the master that places steps sees it."""

    xla_device = None

    def put(self, value: AnyArray) -> object:
        """Only the device's own task can do that."""
        raise InternalError(None, None, f"{self.name} belongs to another task; its values stay there")

    def get(self, value: AnyArray) -> HostArray:
        """Only the device's own task can do that."""
        raise InternalError(None, None, f"{self.name} belongs to another task; its values stay there")


# ---------------------------------------------------------------------- what clients see
@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """What a client sees of a device: its full name, its type, its memory in bytes (0: not known).

    The incarnation is a number that tells devices apart that had the same name one after the other.
    """

    name: str
    device_type: str
    memory_limit_bytes: int
    incarnation: int = 1

    @property
    def memory_limit(self) -> int:
        """The memory in bytes (0: not known)."""
        return self.memory_limit_bytes


def attributes_of(devices: Sequence[Device]) -> list[DeviceAttributes]:
    """Devices as clients see them, the CPUs first."""
    ordered = sorted(devices, key=lambda device: device.device_type != "CPU")
    return [DeviceAttributes(d.name, d.device_type, d.memory_limit_bytes) for d in ordered]


def local_devices(config: ConfigProto | None = None) -> list[DeviceAttributes]:
    """The devices that a session of this process has: the host's as CPU:0, and what else there is.

    Args:
        config: the session's `ConfigProto`.
    """
    return attributes_of(session_devices(config))


def default_backend() -> str:
    """What XLA compiles for: "cpu", "gpu", "tpu".

    Raises:
        RuntimeError: no backend can be started.
    """
    return jax.default_backend()
