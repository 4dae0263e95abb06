"""The compile cache on disk: what XLA compiled is kept between processes, within a bound.

When a process that compiled something ends, the programs that were not used for longest are removed until the rest
fits. (JAX's own bound needs one more package and a lock around every look-up.)
"""

from __future__ import annotations

import atexit
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import jax

from anabranch.io.cache_home import cache_home

#: environment variable that bounds the compile cache, in bytes
CACHE_BYTES_VARIABLE = "ANABRANCH_CACHE_BYTES"
DEFAULT_CACHE_BYTES = 2 << 30
#: what compiles faster than this (s) is not kept: reading it back would take as long. (Measured: a program of three
#: operations takes 66 ms of the processors to compile, on several threads, and 5 ms to read.)
_MIN_SECONDS = 0.01
_SUFFIX = "-cache"


def cache_directory() -> Path | None:
    """Where compiled programs are kept, or None where keeping them is turned off."""
    home = cache_home()
    return None if home is None else home / "xla"


def cache_limit() -> int:
    """How many bytes the compile cache may take.

    Raises:
        ValueError: the environment variable is not a number of bytes.
    """
    text = os.environ.get(CACHE_BYTES_VARIABLE, "")
    if not text:
        return DEFAULT_CACHE_BYTES
    if not text.isdecimal():
        raise ValueError(f"{CACHE_BYTES_VARIABLE} must be a number of bytes, got {text!r}")
    return int(text)


@dataclass(frozen=True, slots=True)
class CachedProgram:
    """One file of the compile cache: its size (bytes), and when it was last written or read (s since 1970)."""

    path: Path
    size: int
    used: float


def cached_programs(directory: Path) -> list[CachedProgram]:
    """The compile cache's files, those not used for longest first; empty where there is no such directory."""
    programs = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may be removing it
                if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    # systems that do not note every reading note one a day, which is as exact as this needs
                    programs.append(CachedProgram(Path(entry.path), stat.st_size, max(stat.st_atime, stat.st_mtime)))
    return sorted(programs, key=lambda program: program.used)


def trim_cache(directory: Path, limit: int) -> int:
    """Removes the programs that were not used for longest until `limit` bytes are left; returns the bytes removed."""
    programs = cached_programs(directory)
    excess = sum(program.size for program in programs) - limit
    removed = 0
    for program in programs:
        if removed >= excess:
            break
        with contextlib.suppress(OSError):
            program.path.unlink()
            removed += program.size
    return removed


def enable_compile_cache() -> None:
    """Makes JAX look for compiled programs on disk; without a writable directory it goes on without.

    Where the program has told JAX of a cache of its own, that one is used.
    """
    directory = cache_directory()
    if directory is None or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    settings = {
        "jax_compilation_cache_dir": str(directory),
        "jax_persistent_cache_min_compile_time_secs": _MIN_SECONDS,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    atexit.register(_trim_if_grown, directory, directory.stat().st_mtime_ns)


def _trim_if_grown(directory: Path, modified: int) -> None:
    """Trims at the end of a process during which files came or went."""
    # a directory's time changes with its entries: most processes only read, and need not look at every file
    with contextlib.suppress(OSError, ValueError):
        if directory.stat().st_mtime_ns != modified:
            trim_cache(directory, cache_limit())
