"""Products of float32 matrices by oneDNN on XLA's own threads: single, in batches, transposed (`pool_products.c`).

On processors with vectors of 512 bits a product of the library on one thread takes 0.55 to 0.95 of the time of XLA's.
Called with the library's own threads, most of that is lost while these wait for the cores. So each of XLA's threads
calls the library for a part of the product. Transposed factors are read as they lie.

Calls cost 2 to 4 µs, and need no lock of Python's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.processor import has_wide_vectors

#: its name among the kernels
NAME: Final = "onednn in parts"
#: the attributes that transpose the two factors
_MATRIX: Final = ("transpose_a", "transpose_b")
_BATCH: Final = ("adj_x", "adj_y")
_TYPES: Final[Mapping[str, Sequence[str]]] = {"BatchMatMulV3": ("Ta", "Tb", "Tout")}
OPERATIONS: Final = {"MatMul": _MATRIX, "BatchMatMul": _BATCH, "BatchMatMulV2": _BATCH, "BatchMatMulV3": _BATCH}
#: smaller ones, in multiplications, take less alone, and steps of them more on quiet cores (docs/decisions/0087)
LEAST_PRODUCTS: Final = 1 << 26
#: fewer rows or columns are left to XLA
_LEAST_LENGTH: Final = 8
#: what share of XLA's time a product takes with AMX, and where that is not known: there it is measured
_SHARE, _UNKNOWN_SHARE = 0.72, 1.1
#: factors and results of more elements lie on many pages, where it depends: measured as well
_MANY_ELEMENTS, _LARGE_SHARE = 1 << 22, 0.95
#: what a call takes, in multiplications and additions of XLA's
_CALL_PRODUCTS: Final = 2e4


@dataclass(frozen=True, slots=True)
class PoolProduct:
    """A product as the handler takes it; the fields are its numbers.

    Attributes:
        first_turned, second_turned: whether a factor is transposed.
        batch: how many products.
        first_step, second_step: elements from a factor to the next one's; 0: all products have the same.
    """

    rows: int
    columns: int
    inner: int
    first_turned: bool
    second_turned: bool
    batch: int = 1
    first_step: int = 0
    second_step: int = 0

    @staticmethod
    def of(shapes: Sequence[Sequence[int]], turned: Sequence[bool]) -> PoolProduct | None:
        """The product of two arrays that lie row by row; None where they are multiplied in another way, or empty."""
        one, other = (list(map(int, shape)) for shape in shapes)
        if min(len(one), len(other)) < 2 or 0 in (*one, *other):
            return None
        before, after = math.prod(one[:-2]), math.prod(other[:-2])
        if after == 1 and not turned[0]:
            one, before = [before * one[-2], one[-1]], 1
        rows, inner = one[:-3:-1] if turned[0] else one[-2:]
        other_inner, columns = other[:-3:-1] if turned[1] else other[-2:]
        if inner != other_inner or (before > 1 and after > 1 and one[:-2] != other[:-2]):
            return None
        steps = rows * inner if before > 1 else 0, inner * columns if after > 1 else 0
        return PoolProduct(rows, columns, inner, turned[0], turned[1], max(before, after), *steps)

    @property
    def numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """What the handler reads."""
        return np.array(astuple(self), np.int64)

    @property
    def products(self) -> int:
        """Multiplications and additions."""
        return self.batch * self.rows * self.columns * self.inner

    @property
    def largest(self) -> int:
        """Elements of the largest of the matrices."""
        return max(self.rows * self.inner, self.inner * self.columns, self.rows * self.columns)

    @property
    def pays(self) -> bool:
        """Whether it is worth a call."""
        enough = self.products >= LEAST_PRODUCTS and min(self.rows, self.columns, self.inner) >= _LEAST_LENGTH
        return enough and self.batch * self.largest <= onednn.MOST_ELEMENTS


def _register(op_type: str, turning: tuple[str, str]) -> None:
    def described(attrs: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> PoolProduct | None:
        if op_type == "MatMul" and any(len(shape) != 2 for shape in shapes):
            return None
        return PoolProduct.of(shapes, [bool(attrs[name]) for name in turning])

    def takes(case: KernelCase) -> bool:
        product = described(case.attrs, [given.shape for given in case.inputs])
        return product is not None and product.pays and has_wide_vectors() and not pool_handler.missing()

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
        one, other = x.shape[:-2], y.shape[:-2]
        batch = tuple(map(max, (1,) * (len(other) - len(one)) + one, (1,) * (len(one) - len(other)) + other))
        ends = x.shape[-1 if bool(ctx.op.attrs[turning[0]]) else -2], product.columns
        described_result = jax.ShapeDtypeStruct((*batch, *ends), np.float32)  # type: ignore[no-untyped-call]
        call = jax.ffi.ffi_call(pool_handler.TARGET, described_result)
        return call(x, y, node=ctx.op.name, numbers=product.numbers)

    register_kernel(
        op_type,
        NAME,
        device_type="CPU",
        types={name: [dtypes.float32] for name in _TYPES.get(op_type, ("T",))},
        applies=takes,
        cost=estimate,
        settled=True,
    )(kernel)


for _op_type, _turning in OPERATIONS.items():
    _register(_op_type, _turning)
