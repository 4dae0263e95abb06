"""What anabranch needs of JAX, and how the program around it is spared that (decision 0028).

A program may use JAX beside a session. Importing this package changes nothing of it. `configure_process` is called when
the devices of a session are first asked for. What is a matter of meaning, that 64-bit types are real, holds inside
`in_wide_types` only, on the thread that calls it, around our own calls of JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, TypeVarTuple

import jax

from anabranch.xla.compile_cache import enable_compile_cache
from anabranch.xla.heap import keep_freed_memory

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
    keep_freed_memory()
