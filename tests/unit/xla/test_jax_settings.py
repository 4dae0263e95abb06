"""What the process keeps of the memory that it frees is given back when a session ends."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from anabranch.xla import jax_settings

#: in a process of its own, whose heap has no holes: prints what is free at the heap's end, kept and given back
_PROGRAM = """
from anabranch.xla import jax_settings
import numpy as np

jax_settings.configure_process()
block = np.ones(64 << 20, np.uint8)
del block
print(jax_settings.free_heap_bytes())
jax_settings.KEPT_BYTES = 16 << 20
jax_settings.return_freed_memory()
print(jax_settings.free_heap_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left alone")
def test_freed_memory_is_kept_and_given_back() -> None:
    if not jax_settings.free_heap_bytes():
        pytest.skip("this C library does not tell")
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    kept, left = map(int, ran.stdout.split())
    assert kept >= 64 << 20
    assert left < 32 << 20


def test_a_c_library_that_does_not_tell_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A C library without what glibc has."""

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Other())
    assert jax_settings.free_heap_bytes() == 0
    jax_settings.return_freed_memory()
