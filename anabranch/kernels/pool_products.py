"""Products of float32 matrices by oneDNN on XLA's own threads: single, in batches, transposed (`pool_products.c`).

On processors with vectors of 512 bits a product of the library on one thread takes 0.55 to 0.95 of the time of XLA's.
Called with the library's own threads, most of that is lost while these wait for the cores. So each of XLA's threads
calls the library for a part of the product. Transposed factors are read as they lie.

Calls cost 2 to 4 µs, and need no lock of Python's.
"""

from __future__ import annotations

import functools
from dataclasses import astuple
from typing import Any, Final

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import has_wide_vectors
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.pool_factors import OPERATIONS, TYPES, PoolProduct, product_of, shape_of

#: its name among the kernels
NAME: Final = "onednn in parts"
#: smaller ones, in multiplications, take less alone, and steps of them more on quiet cores (docs/decisions/0087)
LEAST_PRODUCTS: Final = 1 << 26
#: fewer rows or columns are left to XLA
_LEAST_LENGTH: Final = 8
#: what share of XLA's time a product takes with AMX, and where that is not known: there it is measured
_SHARE, _UNKNOWN_SHARE = 0.72, 1.1
#: likewise where factors and results have more elements: it depends, but is never much more (docs/decisions/0116)
_MANY_ELEMENTS, _LARGE_SHARE = 1 << 22, 0.79
#: what a call takes, in multiplications and additions of XLA's
_CALL_PRODUCTS: Final = 2e4


def numbers_of(product: PoolProduct) -> np.ndarray[Any, np.dtype[np.int64]]:
    """What the handler reads."""
    return np.array(astuple(product), np.int64)


def pays(product: PoolProduct) -> bool:
    """Whether a product is worth a call."""
    enough = product.products >= LEAST_PRODUCTS and min(product.rows, product.columns, product.inner) >= _LEAST_LENGTH
    return enough and product.batch * product.largest <= onednn.MOST_ELEMENTS


def _register(op_type: str, turning: tuple[str, str]) -> None:
    described = functools.partial(product_of, op_type)

    def takes(case: KernelCase) -> bool:
        product = described(case.attrs, [given.shape for given in case.inputs])
        return product is not None and pays(product) and has_wide_vectors() and not pool_handler.missing()

    def estimate(case: KernelCase) -> float:
        product, library = described(case.attrs, [given.shape for given in case.inputs]), onednn.library()
        assert product is not None  # `takes` has said so
        if library is None or not library.has_tiles:
            share = _UNKNOWN_SHARE
        else:
            share = _LARGE_SHARE if product.largest > _MANY_ELEMENTS else _SHARE
        return share + _CALL_PRODUCTS / product.products

    def kernel(x: Array, y: Array, *, ctx: OperationContext) -> Any:
        product = described(ctx.op.attrs, (x.shape, y.shape))
        assert product is not None  # `takes` has said so
        shape = shape_of(product, x.shape, y.shape, bool(ctx.op.attrs[turning[0]]))
        described_result = jax.ShapeDtypeStruct(shape, np.float32)  # type: ignore[no-untyped-call]
        call = jax.ffi.ffi_call(pool_handler.TARGET, described_result)
        return call(x, y, node=ctx.op.name, numbers=numbers_of(product))

    register_kernel(
        op_type,
        NAME,
        device_type="CPU",
        types={name: [dtypes.float32] for name in TYPES.get(op_type, ("T",))},
        applies=takes,
        cost=estimate,
        settled=True,
    )(kernel)


for _op_type, _turning in OPERATIONS.items():
    _register(_op_type, _turning)
