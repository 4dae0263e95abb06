"""Products of large bfloat16 matrices in blocks that stay in a processor's caches, on XLA's threads (`pool_blocks.c`).

Both factors are packed within the call, which takes time that grows with their size, and gains time that grows with
that of the product, on processors that multiply tiles (AMX). Single products and batches; transposed factors are read
as they lie. Sums are float32, rounded once.

How a product is cut depends on its lengths and on the number of cores; results depend on neither, but for
the order of a sum, which follows from how long it is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import core_count
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.pool_factors import OPERATIONS, TYPES, PoolProduct, product_of, shape_of

#: its name among the kernels
NAME: Final = "blocks in parts"
#: rows and columns that tiles hold sums for; tiles are so deep, too
_PANEL: Final = 32
#: bytes of a number, and of a sum
_NUMBER_BYTES, _SUM_BYTES = 2, 4
#: an array inside the memory that a call works in begins at a multiple of it (bytes)
_ALIGNMENT: Final = 64
#: the most threads that a call uses: each has sums of its own
_MOST_PLACES: Final = 64
#: so many blocks for each thread, where there are as many, so that none waits long for the last
_BLOCKS_OF_A_THREAD: Final = 4
#: what share of XLA's time a product takes; packing takes so many of XLA's multiplications for each number
_SHARE, _PACKING_PRODUCTS = 0.07, 15.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How products are cut, and which.

    Attributes:
        depth: how many products are summed up at a time, at most.
        block_rows, block_columns: of what is computed at a time, at most.
        span_bytes: of a packed factor, at most, unless one block needs more.
        least: products of fewer multiplications take less time otherwise.
        least_length: likewise of fewer rows or columns.
        least_depth: likewise of shorter sums.
    """

    depth: int = 256
    block_rows: int = 256
    block_columns: int = 512
    span_bytes: int = 1 << 25
    least: int = 1 << 27
    least_length: int = 128
    least_depth: int = 256


SIZES = Sizes()


class BlockProduct(NamedTuple):
    """A product as the handler takes it.

    Attributes:
        numbers: what the handler reads.
        scratch_bytes: what it works in.
    """

    numbers: tuple[int, ...]
    scratch_bytes: int

    @staticmethod
    def of(product: PoolProduct) -> BlockProduct:
        """How a product is cut."""
        rows, columns, inner, sizes = product.rows, product.columns, product.inner, SIZES
        filled = _whole(inner, _PANEL)
        longest = max(sizes.span_bytes // (filled * _NUMBER_BYTES), sizes.block_rows, sizes.block_columns)
        row_span, column_span = (_whole(_even(length, longest), _PANEL) for length in (rows, columns))
        block_rows = _whole(_even(row_span, sizes.block_rows), _PANEL)
        down, across = -(-row_span // block_rows), -(-column_span // sizes.block_columns)
        threads = min(core_count(), _MOST_PLACES)
        while down * across < _BLOCKS_OF_A_THREAD * threads and column_span // (across + 1) >= 2 * _PANEL:
            across += 1
        block_columns = _whole(-(-column_span // across), _PANEL)
        numbers = (
            *(rows, columns, inner),
            *((1, rows) if product.first_turned else (inner, 1)),
            *((1, inner) if product.second_turned else (columns, 1)),
            *(product.batch, product.first_step, product.second_step),
            *(row_span, column_span, _whole(_even(inner, sizes.depth), _PANEL), block_rows, block_columns, threads),
        )
        ends = (min(span, _whole(length, _PANEL)) for span, length in ((row_span, rows), (column_span, columns)))
        sums = threads * block_rows * block_columns * _SUM_BYTES
        return BlockProduct(numbers, sum(ends) * filled * _NUMBER_BYTES + sums + _ALIGNMENT)


def _whole(length: int, step: int) -> int:
    """The least multiple of a step that is not below a length."""
    return -(-length // step) * step


def _even(length: int, most: int) -> int:
    """How long the parts of a length are where they are as few, and as even, as `most` for each allows."""
    return -(-length // -(-length // most))


def pays(product: PoolProduct) -> bool:
    """Whether a product is worth packing, and its arrays are not too large."""
    sizes = SIZES
    enough = product.products // product.batch >= sizes.least and product.inner >= sizes.least_depth
    fits = product.batch * product.largest <= onednn.MOST_ELEMENTS
    return enough and min(product.rows, product.columns) >= sizes.least_length and fits


def can_multiply() -> bool:
    """Whether the handler is there, and the processor has the instructions."""
    library = onednn.library()
    return library is not None and not pool_handler.missing() and _has_instructions(library)


@functools.cache
def _has_instructions(library: onednn.Library) -> bool:
    return bool(pool_handler.loaded(library).anabranch_pool_blocks_can())


def _register(op_type: str, turning: tuple[str, str]) -> None:
    described = functools.partial(product_of, op_type)

    def takes(case: KernelCase) -> bool:
        product = described(case.attrs, [given.shape for given in case.inputs])
        return product is not None and pays(product) and can_multiply()

    def estimate(case: KernelCase) -> float:
        product = described(case.attrs, [given.shape for given in case.inputs])
        assert product is not None  # `takes` has said so
        packed = product.inner * (product.rows + product.columns) * product.batch
        return _SHARE + _PACKING_PRODUCTS * packed / product.products

    def kernel(x: Array, y: Array, *, ctx: OperationContext) -> Any:
        product = described(ctx.op.attrs, (x.shape, y.shape))
        assert product is not None  # `takes` has said so
        return call(ctx.op.name, x, y, product).reshape(
            shape_of(product, x.shape, y.shape, bool(ctx.op.attrs[turning[0]]))
        )

    register_kernel(
        op_type,
        NAME,
        device_type="CPU",
        types={name: [dtypes.bfloat16] for name in TYPES.get(op_type, ("T",))},
        applies=takes,
        cost=estimate,
    )(kernel)


def call(node: str, x: Array, y: Array, product: PoolProduct) -> Any:
    """A call of a product, in a program that is being traced, which gives [batch, rows, columns].

    Args:
        node: the operation that it computes, for errors.
        x, y: the factors, of bfloat16.
    """
    blocks = BlockProduct.of(product)
    struct = jax.ShapeDtypeStruct
    results = (
        struct((product.batch, product.rows, product.columns), x.dtype),  # type: ignore[no-untyped-call]
        struct((blocks.scratch_bytes,), np.uint8),  # type: ignore[no-untyped-call]
    )
    found, _ = jax.ffi.ffi_call(pool_handler.BLOCKS_TARGET, results)(
        x, y, node=node, numbers=np.array(blocks.numbers, np.int64)
    )
    return found


for _op_type, _turning in OPERATIONS.items():
    _register(_op_type, _turning)
