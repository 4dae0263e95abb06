"""Products in blocks on a processor without tiles: C does what their instructions would do (`tiles.h`)."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax

from anabranch.kernels import onednn, pool_blocks, pool_handler


def use(replace: Callable[[object, str, object], None]) -> None:
    """Has programs call this handler. `replace` does what `setattr` does."""
    replace(pool_handler, "BLOCKS_TARGET", target())
    replace(pool_blocks, "can_multiply", lambda: True)


@functools.cache
def target() -> str:
    """What programs call the handler; empty: the processor has no instructions for bfloat16."""
    library = onednn.library()
    assert library is not None
    sources = [Path(__file__).with_name("tiles.h"), *pool_handler._SOURCES]
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(pool_handler._compile(b"\n".join(path.read_bytes() for path in sources)))
        file.flush()
        found = ctypes.CDLL(file.name)
    if not found.anabranch_pool_blocks_can():
        return ""
    found.anabranch_pool_products_use(*map(pool_handler.address, library.single_product_functions))
    capsule = jax.ffi.pycapsule(pool_handler.address(found.anabranch_pool_blocks).value)  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(name := "test_pool_blocks_with_tiles_in_c", capsule, platform="cpu")
    return name
