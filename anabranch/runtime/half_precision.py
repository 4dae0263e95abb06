"""Whether a session computes in half precision, and in which dtype (docs/decisions/0056)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.core import dtypes
from anabranch.core.devices import Device
from anabranch.passes.half_precision import HalfRequest
from anabranch.proto.config_pb2 import ConfigProto, RewriterConfig
from anabranch.runtime.process_settings import process_settings

#: what the kernel of Linux calls the instructions that multiply bfloat16
_BFLOAT16_INSTRUCTIONS: Final = frozenset(("avx512_bf16", "amx_bf16", "bf16"))


def half_request(config: ConfigProto | None, devices: Sequence[Device]) -> HalfRequest | None:
    """What a session is asked for when it is made: by its configuration, or else by the process's settings.

    Args:
        devices: those of the session.

    Returns:
        None where half precision is not asked for.
    """
    options = RewriterConfig() if config is None else config.graph_options.rewrite_options
    on = RewriterConfig.ON
    if on in (options.auto_mixed_precision_onednn_bfloat16, options.auto_mixed_precision_mkl):
        return HalfRequest(dtypes.bfloat16, "the session's configuration asks for bfloat16")
    if options.auto_mixed_precision_cpu == on:
        return HalfRequest(dtypes.float16, "the session's configuration asks for float16 on processors")
    if options.auto_mixed_precision == on:
        return _suggested(devices)
    enabled, dtype = process_settings.half_precision()
    if options.auto_mixed_precision == RewriterConfig.OFF or not enabled:
        return None
    return _suggested(devices) if dtype is None else HalfRequest(dtype, f"the program asks for {dtype.name}")


def _suggested(devices: Sequence[Device]) -> HalfRequest:
    if any(device.device_type == "GPU" for device in devices):
        return HalfRequest(dtypes.float16, "the session has a GPU")
    if bfloat16_instructions():
        return HalfRequest(dtypes.bfloat16, f"the processor has {', '.join(bfloat16_instructions())}")
    return HalfRequest(
        None,
        "this processor has no instructions for bfloat16 (AVX512-BF16, AMX), so that half precision would only cost "
        "time; enable_mixed_precision_graph_rewrite(opt, dtype=tf.bfloat16) asks for it all the same",
    )


@functools.cache
def bfloat16_instructions() -> tuple[str, ...]:
    """The names of this processor's instruction sets that multiply bfloat16; empty where it has none, or hides them."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ()
    flags = (line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features")))
    return tuple(sorted(_BFLOAT16_INSTRUCTIONS.intersection(next(flags, []))))
