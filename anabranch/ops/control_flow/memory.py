"""How much memory a device uses, has used at most, and has."""

from __future__ import annotations

import os
import resource
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.device import DeviceSpec
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules

#: an annotation: the device whose memory is meant. The operation itself runs on the host
MEMORY_OF: Final = "_memory_of"

BytesInUse = define_op("_BytesInUse", "-> out: int64", stateful=True)
MaxBytesInUse = define_op("_MaxBytesInUse", "-> out: int64", stateful=True)
BytesLimit = define_op("_BytesLimit", "-> out: int64", stateful=True)

for _op in (BytesInUse, MaxBytesInUse, BytesLimit):
    _op.shape(shape_rules.scalar)
    _op.not_differentiable()


@BytesInUse.host_kernel
def _(*, ctx: OperationContext) -> Any:
    return _bytes(ctx, "bytes_in_use")


@MaxBytesInUse.host_kernel
def _(*, ctx: OperationContext) -> Any:
    return _bytes(ctx, "peak_bytes_in_use")


@BytesLimit.host_kernel
def _(*, ctx: OperationContext) -> Any:
    return _bytes(ctx, "bytes_limit")


def _bytes(ctx: OperationContext, what: str) -> np.ndarray[Any, Any]:
    """What JAX says of the device; of a processor it says nothing, and the system does of this process."""
    known = _device(ctx.op.attrs.get(MEMORY_OF, "")).memory_stats() or {}
    return np.array(known.get(what, 0) if known else _of_process(what), np.int64)


def _device(name: str) -> Any:
    spec = DeviceSpec.from_string(name) if name else DeviceSpec()
    devices = jax.local_devices()
    if spec.device_type == "CPU" and devices[0].platform != "cpu":
        devices = jax.local_devices(backend="cpu")
    return devices[(spec.device_index or 0) % len(devices)]


def _of_process(what: str) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    if what == "bytes_limit":
        return page * os.sysconf("SC_PHYS_PAGES")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if not os.path.exists("/proc/self/statm"):
        return peak
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[1]) * page
    return now if what == "bytes_in_use" else max(now, peak)  # the system brings the peak up to date now and then
