"""Products of matrices as the handlers that XLA's own threads serve take them (`pool_products.c`, `pool_blocks.c`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: the attributes that transpose the two factors
_MATRIX: Final = ("transpose_a", "transpose_b")
_BATCH: Final = ("adj_x", "adj_y")
TYPES: Final[Mapping[str, Sequence[str]]] = {"BatchMatMulV3": ("Ta", "Tb", "Tout")}
OPERATIONS: Final = {"MatMul": _MATRIX, "BatchMatMul": _BATCH, "BatchMatMulV2": _BATCH, "BatchMatMulV3": _BATCH}


@dataclass(frozen=True, slots=True)
class PoolProduct:
    """A product of float32 or bfloat16 matrices; the fields are what `pool_products.c` reads.

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
    def products(self) -> int:
        """Multiplications and additions."""
        return self.batch * self.rows * self.columns * self.inner

    @property
    def largest(self) -> int:
        """Elements of the largest of the matrices."""
        return max(self.rows * self.inner, self.inner * self.columns, self.rows * self.columns)


def product_of(op_type: str, attrs: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> PoolProduct | None:
    """What an operation among `OPERATIONS` computes; None where it is computed in another way."""
    if op_type == "MatMul" and any(len(shape) != 2 for shape in shapes):
        return None
    return PoolProduct.of(shapes, [bool(attrs[name]) for name in OPERATIONS[op_type]])


def shape_of(product: PoolProduct, one: Sequence[int], other: Sequence[int], first_turned: bool) -> tuple[int, ...]:
    """The shape of the product of arrays of these shapes; `first_turned`: whether the first is transposed."""
    batch = tuple(
        map(max, (1,) * (len(other) - len(one)) + tuple(one[:-2]), (1,) * (len(one) - len(other)) + tuple(other[:-2]))
    )
    return (*batch, one[-1 if first_turned else -2], product.columns)
