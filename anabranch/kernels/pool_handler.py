"""The compiled handlers of `pool_*.c`: compiled once, kept in the cache directory, loaded and told of oneDNN.

They need a C compiler once, and the extra `native`. Where either is missing, or the file cannot be kept or loaded,
there are no handlers, `missing()` says why, and nothing of them is offered.

What is kept is named after the source, the compiler's options and the kind of machine, and begins with the sum of what
follows: a file that was damaged is compiled anew, not loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import jax

from anabranch.errors import OpError
from anabranch.io import durable
from anabranch.io.cache_home import cache_home
from anabranch.kernels import onednn

#: what programs call the handlers; a change of what they are given needs another name
TARGET: Final = "anabranch_pool_products_1"
STAGES_TARGET: Final = "anabranch_pool_stages_1"
BLOCKS_TARGET: Final = "anabranch_pool_blocks_1"
WINOGRAD_TARGET: Final = "anabranch_pool_winograd_3"
WINOGRAD_FILTER_TARGET: Final = "anabranch_pool_winograd_filter_3"
UPDATES_TARGET: Final = "anabranch_pool_updates_1"
CASTS_TARGET: Final = "anabranch_pool_casts_1"
FILTERS_TARGET: Final = "anabranch_pool_filters_1"
#: the source, in this order
_NAMES: Final = (
    *("common", "products", "blocks", "winograd", "winograd_filter", "filters", "normalization"),
    *("maxima", "stages", "updates"),
)
_SOURCES: Final = tuple(Path(__file__).with_name(f"pool_{name}.c") for name in _NAMES)
#: the functions of the source: the handlers, and what names the library's functions to them
_HANDLERS: Final = {
    TARGET: "anabranch_pool_products",
    STAGES_TARGET: "anabranch_pool_stages",
    BLOCKS_TARGET: "anabranch_pool_blocks",
    WINOGRAD_TARGET: "anabranch_pool_winograd",
    WINOGRAD_FILTER_TARGET: "anabranch_pool_winograd_filter",
    UPDATES_TARGET: "anabranch_pool_updates",
    CASTS_TARGET: "anabranch_pool_casts",
    FILTERS_TARGET: "anabranch_pool_filters",
}
_USE: Final = "anabranch_pool_products_use"
#: names under which a C compiler is looked for, after what the environment says, and how it is called
COMPILERS: Final = ("cc", "gcc", "clang")
_OPTIONS: Final = ("-O2", "-std=gnu11", "-shared", "-fPIC")
#: how long it may take (s); usually a fifth of one
_SECONDS: Final = 60.0


class HandlerError(Exception):
    """There is no handler here; the message says why."""


def is_usable() -> bool:
    """Whether there may be a handler: nothing is compiled or loaded to find out."""
    return sys.platform == "linux" and not onednn.is_turned_off() and onednn.is_installed()


def missing() -> str:
    """Why there is no handler, for people; empty where there is one. It is compiled and loaded to find out."""
    library = onednn.library()
    return onednn.library_state().missing if library is None else failure(library)


@functools.cache
def failure(library: onednn.Library) -> str:
    """Why the handler cannot call this library; empty where it can, and XLA knows it. (`failure.cache_clear()`.)"""
    try:
        loaded(library)
    except (OSError, AttributeError, HandlerError) as error:
        return str(error)
    return ""


def loaded(library: onednn.Library) -> ctypes.CDLL:
    """The compiled file, whose handlers XLA knows.

    Raises:
        HandlerError, OSError, AttributeError: there is none.
    """
    return _register(compiled(), library)


@functools.cache
def _register(path: Path, library: onednn.Library) -> ctypes.CDLL:
    """Loads the handlers, and makes them known to XLA."""
    found = ctypes.CDLL(str(path))
    getattr(found, _USE)(*map(address, library.single_product_functions))
    for target, name in _HANDLERS.items():
        capsule = jax.ffi.pycapsule(address(getattr(found, name)).value)  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    return found


def address(function: object) -> ctypes.c_void_p:
    """Where a function of a loaded library, or a callback, begins."""
    return ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the file
def compiled() -> Path:
    """The compiled file.

    Raises:
        HandlerError: it cannot be made, or kept.
        OSError: the source cannot be read.
    """
    home = cache_home()
    if home is None:
        raise HandlerError("nothing is kept between processes (ANABRANCH_CACHE_DIR is empty)")
    source = b"\n".join(path.read_bytes() for path in _SOURCES)
    options = " ".join((platform.machine(), *_OPTIONS)).encode()
    name = hashlib.sha256(options + b"\n" + source).hexdigest()[:32]
    path = home / "native" / f"{name}.so"
    sums = path.with_suffix(".sha256")
    if not _is_whole(path, sums):
        content = _compile(source)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # a file that somebody has loaded is replaced, never written to; its sum comes last
            durable.replace_file(str(path), content)
            durable.replace_file(str(sums), hashlib.sha256(content).hexdigest().encode())
        except (OSError, OpError) as error:
            raise HandlerError(f"the compiled handler cannot be kept: {error}") from error
    return path


def _is_whole(path: Path, sums: Path) -> bool:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest().encode() == sums.read_bytes()
    return False


def _compile(source: bytes) -> bytes:
    """The shared library of a C source."""
    names = [name for name in (os.environ.get("CC", ""), *COMPILERS) if name]
    compiler = next((found for name in names if (found := shutil.which(name)) is not None), None)
    if compiler is None:
        raise HandlerError("there is no C compiler (cc), which compiles the handler once")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.so"
        command = [compiler, *_OPTIONS, "-x", "c", "-", "-o", str(made)]
        try:
            subprocess.run(command, input=source, capture_output=True, timeout=_SECONDS, check=True)
            return made.read_bytes()
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip().splitlines()
            raise HandlerError(f"{compiler} does not compile the handler: {said[-1] if said else error}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HandlerError(f"{compiler} does not compile the handler: {error}") from error
