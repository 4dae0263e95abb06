"""What the process keeps of the memory that it frees, and when it is given back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time

import pytest

from anabranch.xla import heap

#: in a process of its own, whose heap has no holes: prints what is free at the heap's end, kept and given back
_PROGRAM = """
from anabranch.xla import heap, jax_settings
import numpy as np

jax_settings.configure_process()
block = np.ones(64 << 20, np.uint8)
del block
print(heap.free_heap_bytes())
heap.KEPT_BYTES = 16 << 20
heap.return_freed_memory()
print(heap.free_heap_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left alone")
def test_freed_memory_is_kept_and_given_back() -> None:
    if not heap.free_heap_bytes():
        pytest.skip("this C library does not tell")
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    kept, left = map(int, ran.stdout.split())
    assert kept >= 64 << 20
    assert left < 32 << 20


def test_a_c_library_that_does_not_tell_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A C library without what glibc has."""

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Other())
    assert heap.free_heap_bytes() == 0
    heap.return_freed_memory()


@pytest.mark.parametrize(("resident", "asked"), [(1 << 20, 0), (1 << 22, 1), (0, 1)], ids=["small", "large", "untold"])
def test_a_process_that_is_small_does_not_ask_what_is_free(
    resident: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C library goes through all free blocks for the answer."""
    questions: list[str] = []

    def free() -> int:
        questions.append("how much?")
        return 0

    monkeypatch.setattr(heap, "KEPT_BYTES", 1 << 21)
    monkeypatch.setattr(heap, "resident_memory", lambda: resident)
    monkeypatch.setattr(heap, "free_heap_bytes", free)
    heap.return_freed_memory()
    assert len(questions) == asked


#: in a process of its own: by how much its memory shrinks as room is made for what fits into a hole of the heap, and
#: for what does not by a few bytes
_HOLES = """
from anabranch.core.sizes import resident_memory as resident
from anabranch.xla import heap, jax_settings
import numpy as np

jax_settings.configure_process()
size = 128 << 20
block = np.ones(size, np.uint8)
behind = np.ones(1 << 20, np.uint8)
heap.make_room(heap.LARGE_TEMPORARIES)
del block
before = resident()
heap.make_room(size - (1 << 20))
kept = resident()
heap.make_room(size + (1 << 20), [behind])
print(before - kept, before - resident(), behind.sum())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left alone")
def test_a_hole_is_given_back_when_temporaries_do_not_fit_into_it() -> None:
    if not heap.free_heap_bytes():
        pytest.skip("this C library does not tell")
    ran = subprocess.run([sys.executable, "-c", _HOLES], capture_output=True, text=True, timeout=60, check=True)
    kept, given, used = map(int, ran.stdout.split())
    assert kept < 8 << 20
    assert given > 100 << 20
    assert used == 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left alone")
def test_what_is_needed_again_at_once_is_not_given_back_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks come to lie in the room of a program's temporaries while it does not run, time after time.

    Pages are cleared in a sixteenth of the time at the most: steps that take long have no more memory than they need.
    """
    if not heap.free_heap_bytes():
        pytest.skip("this C library does not tell")
    base, block, now = 1000 << 20, 400 << 20, 0.0
    blocks = most = 0
    given: list[float] = []

    def give_back(kept: int | None = None) -> None:
        nonlocal blocks
        given.append(now)
        blocks = 0

    monkeypatch.setattr(heap, "resident_memory", lambda: base + blocks * block)
    monkeypatch.setattr(heap, "return_freed_memory", give_back)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    holes = heap._Holes()
    monkeypatch.setattr(holes, "_grows_for", lambda sizes: True)

    def run(seconds: float) -> int:
        """A hundred steps of so many seconds; the most blocks that the process has after the first of them."""
        nonlocal blocks, now, most
        given.clear()
        for _ in range(100):
            holes.make_room([block])
            blocks, now = blocks + 1, now + seconds
            most = max(most, blocks)
        return most

    assert run(10) == 1
    assert len(given) == 100
    assert run(0.1) <= 4
    # some times, as often as the time allows, and where there are four of them
    assert len(given) < 5 + 100 * 0.1 / 16 / 0.12 + 100 / 3
    # a heap that need not grow keeps what it has
    monkeypatch.setattr(holes, "_grows_for", lambda sizes: False)
    given.clear()
    for _ in range(100):
        holes.make_room([block])
    assert len(given) <= 1
