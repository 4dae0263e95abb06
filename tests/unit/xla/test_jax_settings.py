"""What the process keeps of the memory that it frees is given back when a session ends."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

from anabranch.xla import jax_settings


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left alone")
def test_freed_memory_is_kept_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    jax_settings.configure_process()
    if not jax_settings.free_heap_bytes():
        pytest.skip("this C library does not tell")
    size = 64 << 20
    monkeypatch.setattr(jax_settings, "KEPT_BYTES", size // 4)
    block = np.ones(size, np.uint8)
    del block
    before = jax_settings.free_heap_bytes()
    assert before >= size
    jax_settings.return_freed_memory()
    assert jax_settings.free_heap_bytes() < size // 2


def test_a_c_library_that_does_not_tell_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A C library without what glibc has."""

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Other())
    assert jax_settings.free_heap_bytes() == 0
    jax_settings.return_freed_memory()
