"""The C library's heap, from which XLA's programs and NumPy take memory: what stays there, and what is given back."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.sizes import resident_memory

#: parameters of glibc's mallopt
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
#: while sessions are open, free memory at the end of the heap is never given back to the system
_NEVER: Final = -1
#: when one closes, what is free there beyond this is (bytes)
KEPT_BYTES: Final = 1 << 30
#: from so many bytes of temporaries on it is worth asking whether the heap has room for them
LARGE_TEMPORARIES: Final = 1 << 25
#: how long the system takes to clear pages that are touched anew (s for each byte), what share of the time it may, and
#: how often besides
_SECONDS_TO_TOUCH: Final = 3e-10
_SHARE_TO_TOUCH: Final = 1 / 16
_TIMES_BEFORE: Final = 4
#: what the C library wants beside a block that is to be aligned, at the most (bytes)
_BESIDE: Final = 256
#: where arrays of the host have to begin that XLA does not copy (bytes)
_ALIGNED: Final = 64


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next step instead of returning it to the system at once.

    XLA allocates a step's temporaries anew for every run. By default each large allocation is mapped and unmapped, and
    the system clears its pages at the first touch: a quarter of the time of a convolutional network's step (measured:
    88 ms against 66). Only the main heap holds blocks of more than 64 MiB, so every thread allocates there: steps with
    calls into libraries run in threads of their own. Does nothing where the C library is not glibc, or where the user
    has set `MALLOC_MMAP_MAX_`.
    """
    if sys.platform != "linux" or "MALLOC_MMAP_MAX_" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        _holes.append(_Holes())


def make_room(temporaries: int, args: Sequence[Any] = ()) -> bool:
    """Gives back what is free in the heap where a program's temporaries would need new memory all the same.

    A program's temporaries are one block, and what it left free is often too small for it the next time, if only by the
    few bytes that something else has taken of it: the process would keep one such hole after the other.

    Args:
        temporaries: bytes; below `LARGE_TEMPORARIES` nothing is done.
        args: the program's arguments; those that are NumPy's are copied before it runs.

    Returns:
        whether the system gives the process so much memory, as far as it is asked. XLA asks when the variables that a
        program writes are given away already.
    """
    if temporaries < LARGE_TEMPORARIES:
        return True
    arrays = [value for value in args if type(value) is np.ndarray]
    for holes in _holes:
        holes.make_room([*(value.nbytes + _BESIDE for value in arrays), temporaries + _BESIDE])
        # XLA reads arrays where they lie, if they are aligned
        copied = [value.nbytes for value in arrays if value.ctypes.data % _ALIGNED]
        if not holes.can_take([*copied, temporaries + _BESIDE]):
            return False
    return True


class _Holes:
    """What is free in glibc's heap, and is given back where it is of no use.

    Raises:
        AttributeError: the C library is another one.
    """

    def __init__(self) -> None:
        # the interpreter's lock is kept: the calls are shorter than handing it over
        library = ctypes.PyDLL(None)
        self._allocate, self._free, self._end = library.malloc, library.free, library.sbrk
        self._allocate.argtypes, self._allocate.restype = [ctypes.c_size_t], ctypes.c_void_p
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        self._end.argtypes, self._end.restype = [ctypes.c_ssize_t], ctypes.c_void_p
        #: the most that a program has needed, and what the process had when holes were given back last
        self._most = self._floor = 0
        #: how many programs have run since
        self._programs = 0
        #: how long pages were cleared beyond their share of the time (s), and when that was found
        self._beyond_share, self._at = 0.0, time.monotonic()

    def make_room(self, sizes: Sequence[int]) -> None:
        """Gives all holes back where blocks of these sizes (bytes), one after the other, find no room in them.

        So it does where what ran last has needed more all the same: the process has half as much again, beyond what it
        had without holes, as any program needs. What would be given back and needed again so often that clearing its
        pages took more than a sixteenth of the time is taken to be needed twice: small blocks come to lie in it time
        after time.
        """
        needed, beyond = sum(sizes), resident_memory() - self._floor
        # what one program has touched of memory without holes: its results, too, which may be half as much
        touched = min(beyond, 3 * needed // 2) if self._programs == 1 else 0
        self._most = max(self._most, needed, touched)
        grows, seconds = self._grows_for(sizes), needed * _SECONDS_TO_TOUCH
        if self._may_clear(seconds):
            gives = grows or 2 * beyond > 3 * self._most
        else:
            if grows:
                self._most = max(self._most, min(beyond + needed, 2 * needed))
            gives = 2 * (beyond + needed * grows) > 3 * self._most
        self._programs += 1
        if gives:
            return_freed_memory(kept=0)
            self._floor, self._programs = resident_memory(), 1
            self._beyond_share += seconds

    def _may_clear(self, seconds: float) -> bool:
        """Whether pages may be cleared for so long (s)."""
        now = time.monotonic()
        self._beyond_share = max(0.0, self._beyond_share - (now - self._at) * _SHARE_TO_TOUCH)
        self._at = now
        return self._beyond_share + seconds <= _TIMES_BEFORE * seconds

    def _grows_for(self, sizes: Sequence[int]) -> bool:
        """Whether the heap has to grow for such blocks."""
        end = self._end(0)
        self.can_take(sizes)
        return bool(self._end(0) != end)

    def can_take(self, sizes: Sequence[int]) -> bool:
        """Whether there are such blocks at a time; they are taken and freed untouched."""
        blocks = list(map(self._allocate, sizes))
        for block in blocks:
            self._free(block)
        return None not in blocks


#: the process's, where the heap keeps what is freed
_holes: Final[list[_Holes]] = []


class _MallocState(ctypes.Structure):
    """`struct mallinfo2` of glibc; bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
            "keepcost",
        )
    )


def free_heap_bytes() -> int:
    """How much memory at the end of the heap is free (bytes); 0 where the C library does not tell."""
    try:
        state = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    state.restype = _MallocState
    return int(state().keepcost)


def return_freed_memory(kept: int | None = None) -> None:
    """Gives the system back what is free in the heap; a session that ends calls it.

    Args:
        kept: so many bytes at the heap's end stay, and nothing is given back where no more are free there; 0: all that
            is free goes, in whatever place; None: `KEPT_BYTES`.
    """
    kept = KEPT_BYTES if kept is None else kept
    # the C library looks at each free block to tell, which takes milliseconds in a heap with many small ones
    if kept and (0 < resident_memory() <= kept or free_heap_bytes() <= kept):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(kept)
