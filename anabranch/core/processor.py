"""What the processor can do that decides which kernel is quick."""

from __future__ import annotations

import functools
import os
from pathlib import Path


@functools.cache
def core_count() -> int:
    """On how many cores the process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def has_wide_vectors() -> bool:
    """Whether its vectors have 512 bits, of numbers of any width; False where the system does not say so."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return {"avx512f", "avx512bw"} <= {*flags}
