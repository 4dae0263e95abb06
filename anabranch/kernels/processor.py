"""What the processor can do that decides which kernel is quick."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def has_wide_vectors() -> bool:
    """Whether its vectors have 512 bits; False where the system does not say so."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return "avx512f" in next((line for line in text.splitlines() if line.startswith("flags")), "").split()
