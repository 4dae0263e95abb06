"""How JAX is set up: 64-bit types are real, and compiled programs are kept on disk between processes.

On the CPU small programs run in the thread that calls them: handing them to another thread costs more than they do.
Concurrent steps come from concurrent callers; the interpreter lock is released while a program runs.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax

#: environment variable that names the directory of the compile cache; empty turns the cache off
CACHE_DIR_VARIABLE = "ANABRANCH_CACHE_DIR"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_enable_async_dispatch", False)


def cache_directory() -> Path | None:
    """Where compiled programs are kept, or None where keeping them is turned off."""
    value = os.environ.get(CACHE_DIR_VARIABLE)
    if value is not None:
        return Path(value) / "xla" if value else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "anabranch" / "xla"


def enable_persistent_cache() -> None:
    """Makes XLA look for compiled programs on disk; without a writable directory it goes on without."""
    directory = cache_directory()
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


enable_persistent_cache()
