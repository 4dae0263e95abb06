"""What anabranch needs of JAX, and how the program around it is spared that (decision 0028).

A program may use JAX beside a session. Importing this package changes nothing of it. `configure_process` is called when
the devices of a session are first asked for. What is a matter of meaning, that 64-bit types are real, holds inside
`in_wide_types` only, on the thread that calls it, around our own calls of JAX.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar, TypeVarTuple

import jax

from anabranch.xla.compile_cache import enable_compile_cache

#: parameters of glibc's mallopt
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
#: while sessions are open, free memory at the end of the heap is never given back to the system
_NEVER: Final = -1
#: when one closes, what is free there beyond this is (bytes)
KEPT_BYTES: Final = 1 << 30

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

#: whether 64-bit types are real on this thread, as far as it has a setting of its own
_setting: Final[Callable[[], Any]] = jax.enable_x64.get_local
_set: Final[Callable[[Any], None]] = jax.enable_x64.set_local


def in_wide_types(work: Callable[[*Arguments], R], *args: *Arguments) -> R:
    """Calls `work(*args)`; there float64, int64 and complex128 are types of JAX like the others, on this thread only.

    Does what `with jax.enable_x64(True):` does, without its five calls of Python functions, in any of which an
    exception from outside (a signal's) would leave the setting as it is then.
    """
    before = _setting()
    try:
        _set(True)
        result = work(*args)
    finally:
        _set(before)
    return result


@functools.cache
def configure_process() -> None:
    """Prepares the process for steps, once.

    On the CPU small programs run in the thread that calls them: handing them to another thread costs more than they do.
    Concurrent steps come from concurrent callers; the interpreter lock is released while a program runs. (JAX reads
    this setting when it first looks for devices. Where the program around us made it do so before, results are the
    same.)
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    enable_compile_cache()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next step instead of returning it to the system at once.

    XLA allocates a step's temporaries anew for every run. By default each large allocation is mapped and unmapped, and
    the system clears its pages at the first touch: a quarter of the time of a convolutional network's step (measured:
    88 ms against 66). Only the main heap holds blocks of more than 64 MiB, so every thread allocates there: steps with
    calls into libraries run in threads of their own. Does nothing where the C library is not glibc.
    """
    if sys.platform != "linux" or "MALLOC_MMAP_MAX_" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


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
    if kept and free_heap_bytes() <= kept:
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(kept)
