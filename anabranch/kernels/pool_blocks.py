"""Products of large matrices in blocks that stay in a processor's caches, on XLA's own threads (`pool_blocks.c`).

Both factors are packed within the call, which takes time that grows with their size, and gains time that grows with
that of the product: in float32 on processors with vectors of 512 bits, in bfloat16 where they multiply tiles (AMX).
Single products and batches; transposed factors are read as they lie. Sums are float32, of bfloat16 rounded once.

How a product is cut depends on its lengths and, in bfloat16, on the number of cores; results depend on neither, but for
the order of a sum, which follows from how long it is.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.pool_factors import OPERATIONS, TYPES, PoolProduct, product_of, shape_of
from anabranch.kernels.processor import core_count

#: its name among the kernels
NAME: Final = "blocks in parts"
#: columns that registers hold sums for; tiles are so deep
_PANEL: Final = 32
#: an array inside the memory that a call works in begins at a multiple of it (bytes)
_ALIGNMENT: Final = 64
#: the most threads that a call of bfloat16 uses: each has sums of its own
_MOST_PLACES: Final = 64
#: so many blocks for each thread, where there are as many, so that none waits long for the last
_BLOCKS_OF_A_THREAD: Final = 4


class _Sizes(NamedTuple):
    """How products of a type are cut.

    Attributes:
        rows: that registers hold sums for.
        depth: how many products are summed up at a time, at most.
        block_rows, block_columns: of what is computed at a time, at most.
        span_bytes: of a packed factor, at most.
        least: products of fewer multiplications take less time otherwise.
        least_length: likewise of fewer rows or columns.
        least_depth: likewise of shorter sums.
        share: what share of XLA's time a product takes, and in what follows, how many multiplications and additions of
            XLA's packing takes for each number.
    """

    rows: int
    depth: int
    block_rows: int
    block_columns: int
    span_bytes: int
    least: int
    least_length: int
    least_depth: int
    share: float
    packing: float


SIZES: Final[Mapping[str, _Sizes]] = {
    "float32": _Sizes(14, 512, 336, 512, 1 << 25, 1 << 35, 192, 64, 0.64, 30.0),
    "bfloat16": _Sizes(32, 256, 256, 512, 1 << 25, 1 << 27, 128, 256, 0.07, 15.0),
}


class BlockProduct(NamedTuple):
    """A product as the handler takes it.

    Attributes:
        numbers: what the handler reads.
        scratch_bytes: what it works in.
    """

    numbers: tuple[int, ...]
    scratch_bytes: int

    @staticmethod
    def of(product: PoolProduct, dtype: str) -> BlockProduct:
        """How a product is cut."""
        sizes, width = SIZES[dtype], np.dtype(np.float32).itemsize if dtype == "float32" else 2
        rows, columns, inner = product.rows, product.columns, product.inner
        depth = _whole(_even(inner, sizes.depth), _PANEL)
        filled = min(inner, depth) if width > 2 else _whole(inner, _PANEL)
        longest = max(sizes.span_bytes // (filled * width), sizes.block_rows, sizes.block_columns)
        row_span = _whole(_even(rows, longest), sizes.rows)
        column_span = _whole(_even(columns, longest), _PANEL)
        block_rows = _whole(_even(row_span, sizes.block_rows), sizes.rows)
        down, across = -(-row_span // block_rows), -(-column_span // sizes.block_columns)
        threads = min(core_count(), _MOST_PLACES)
        while down * across < _BLOCKS_OF_A_THREAD * threads and column_span // (across + 1) >= 2 * _PANEL:
            across += 1
        block_columns = _whole(-(-column_span // across), _PANEL)
        steps = (1 if product.first_turned else inner), (1 if product.second_turned else columns)
        numbers = (
            *(rows, columns, inner),
            *(steps[0], rows if product.first_turned else 1),
            *(steps[1], inner if product.second_turned else 1),
            *(product.batch, product.first_step, product.second_step, width),
            *(row_span, column_span, depth, block_rows, block_columns, threads),
        )
        packed = [
            _whole(_whole(min(span, length), size) * filled * width, _ALIGNMENT)
            for span, length, size in ((row_span, rows, sizes.rows), (column_span, columns, _PANEL))
        ]
        sums = 0 if width > 2 else threads * block_rows * block_columns * 4
        return BlockProduct(numbers, sum(packed) + sums + _ALIGNMENT)


def _whole(length: int, step: int) -> int:
    """The least multiple of a step that is not below a length."""
    return -(-length // step) * step


def _even(length: int, most: int) -> int:
    """How long the parts of a length are where they are as few, and as even, as `most` for each allows."""
    return -(-length // -(-length // most))


def is_offered(product: PoolProduct, dtype: str) -> bool:
    """Whether a product is worth packing, and can be computed so here."""
    sizes = SIZES[dtype]
    ends = min(product.rows, product.columns)
    each = product.products // product.batch
    pays = each >= sizes.least and ends >= sizes.least_length and product.inner >= sizes.least_depth
    fits = max(product.batch * product.largest, product.largest) <= onednn.MOST_ELEMENTS
    return pays and fits and can_multiply(dtype)


def can_multiply(dtype: str) -> bool:
    """Whether the handler is there, and the processor has the instructions for a type."""
    library = onednn.library()
    return library is not None and not pool_handler.missing() and _has_instructions(library, dtype)


@functools.cache
def _has_instructions(library: onednn.Library, dtype: str) -> bool:
    width = 4 if dtype == "float32" else 2
    return bool(pool_handler.loaded(library).anabranch_pool_blocks_can(width))


def _register(op_type: str, turning: tuple[str, str]) -> None:
    described = functools.partial(product_of, op_type)

    def takes(case: KernelCase) -> bool:
        product = described(case.attrs, [given.shape for given in case.inputs])
        return product is not None and is_offered(product, str(case.inputs[0].dtype))

    def estimate(case: KernelCase) -> float:
        product = described(case.attrs, [given.shape for given in case.inputs])
        assert product is not None  # `takes` has said so
        sizes = SIZES[str(case.inputs[0].dtype)]
        packed = product.inner * (product.rows + product.columns) * product.batch
        return sizes.share + sizes.packing * packed / product.products

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
        types={name: [dtypes.float32, dtypes.bfloat16] for name in TYPES.get(op_type, ("T",))},
        applies=takes,
        cost=estimate,
        settled=True,
    )(kernel)


def call(node: str, x: Array, y: Array, product: PoolProduct) -> Any:
    """A call of a product, in a program that is being traced, which gives [batch, rows, columns].

    Args:
        node: the operation that it computes, for errors.
        x, y: the factors, both of float32 or of bfloat16.
    """
    blocks = BlockProduct.of(product, str(x.dtype))
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
