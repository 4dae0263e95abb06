"""Products of matrices by oneDNN in bfloat16, where the extra `native` is installed: single, in batches, transposed.

XLA multiplies bfloat16 in float32 on processors, and converts; the library uses the instructions for it, with sums in
float32. (In float32 the library is no faster, and is in no program; see `native_float_products`.) Transposed factors
are read as they lie. A batch that has one second factor is a single product of all its rows.

In loops a second factor that stays the same is *packed* before the loop, into the layout that the library reads
soonest. Which one that is depends on the factor alone, and is asked for once in a process: the library might choose
another one for another number of threads. Where it has gaps, so that it takes more memory than the factor, the kernel
is not offered.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.onednn import Handle, NativeError, Strided
from anabranch.kernels.onednn_stages import Computation, Stages

#: what the texts of these computations begin with
_KIND: Final = "product"
#: the attributes that transpose the two factors, and those that say the types
_MATRIX: Final = ("transpose_a", "transpose_b")
_BATCH: Final = ("adj_x", "adj_y")
TYPES: Final[Mapping[str, tuple[str, ...]]] = {"BatchMatMulV3": ("Ta", "Tb", "Tout")}
OPERATIONS: Final = {"MatMul": _MATRIX, "BatchMatMul": _BATCH, "BatchMatMulV2": _BATCH, "BatchMatMulV3": _BATCH}
#: what share of XLA's time a product takes (AVX512-BF16, and AMX)
_SHARE, _TILE_SHARE = 0.45, 0.15
#: what the texts of products with a packed factor begin with, and those of packing one
_PACKED_KIND, _PACKING_KIND = "packed-product", "packing"
#: the kernels that read a packed factor, which lies along the result, or along what is summed up
PACKED, PACKED_TRANSPOSED = "onednn packed", "onednn packed, transposed"
#: what share of the time of a product with a factor that is not packed they are expected to take
_PACKED_SHARE: Final = 0.75
#: as many rows as the layout is asked for, and the most of a product that gains by it
_USUAL_ROWS, _MOST_PACKED_ROWS = 32, 128
#: a factor of fewer elements lies in a processor's caches, and is packed for nothing
_LEAST_PACKED: Final = 1 << 18
#: axes before the matrices that the library takes
_MOST_BATCH_AXES: Final = 8

Placed = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the library describes it.

    Attributes:
        first, second, result: lengths and strides (elements) of [*batch, rows, inner], [*batch, inner, columns],
            [*batch, rows, columns]; a factor that is the same along an axis of the batch has length 1 there.
    """

    first: Placed
    second: Placed
    result: Placed

    @staticmethod
    def of(shapes: Sequence[Sequence[int]], transposed: Sequence[bool]) -> Product | None:
        """The product of two arrays that lie row by row; None where the shapes do not fit, or something is empty."""
        one, other = (list(map(int, shape)) for shape in shapes)
        if min(len(one), len(other)) < 2 or 0 in (*one, *other):
            return None
        if math.prod(other[:-2]) == 1 and not transposed[0]:
            one, other = [math.prod(one[:-1]), one[-1]], other[-2:]
        rank = max(len(one), len(other))
        one, other = ([1] * (rank - len(shape)) + shape for shape in (one, other))
        if one[:-2] == other[:-2]:
            one, other = ([math.prod(shape[:-2]), *shape[-2:]] if rank > 2 else shape for shape in (one, other))
        first, second = (_array(shape, turned) for shape, turned in zip((one, other), transposed, strict=True))
        batch = [max(pair) for pair in zip(one[:-2], other[:-2], strict=True)]
        fits = all(
            {*pair} <= {1, most} for pair, most in zip(zip(one[:-2], other[:-2], strict=True), batch, strict=True)
        )
        if not fits or first[0][-1] != second[0][-2] or len(batch) > _MOST_BATCH_AXES:
            return None
        return Product(first, second, _array([*batch, first[0][-2], second[0][-1]], False))

    @property
    def text(self) -> str:
        """What `native_calls.prepared` takes; the same in every process."""
        return self.text_of(_KIND)

    def text_of(self, kind: str) -> str:
        """The same, of a computation of another kind."""
        return f"{kind} {json.dumps(asdict(self), separators=(',', ':'))}"

    @property
    def packed_text(self) -> str:
        """The same, with a packed second factor."""
        return self.text_of(_PACKED_KIND)

    @property
    def products(self) -> int:
        """Multiplications and additions."""
        return math.prod(self.result[0]) * self.first[0][-1]

    @property
    def small_enough(self) -> bool:
        return all(math.prod(one[0]) <= onednn.MOST_ELEMENTS for one in (self.first, self.second, self.result))


def _array(shape: Sequence[int], transposed: bool) -> Placed:
    strides = onednn.row_strides(shape)
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2] if transposed else range(len(shape))
    return tuple(shape[axis] for axis in axes), tuple(strides[axis] for axis in axes)


# ---------------------------------------------------------------------- computations
def make(text: str, type: int = onednn.BFLOAT16) -> native_calls.Prepared:
    """Makes what `native_calls` runs, of the text of a product without its kind.

    Args:
        type: of all arrays.
    """
    library, values = _library(), json.loads(text)
    placed = (values[name] for name in ("first", "second", "result"))
    arrays = [_strided(lengths, strides, type) for lengths, strides in placed]
    one, other, result = arrays
    primitive = library.product(*(library.described(array) for array in arrays))
    given = {onednn.SOURCE: one, onednn.WEIGHTS: other}
    computation = Computation(library, primitive, given, {onednn.DESTINATION: result})
    return native_calls.Prepared(computation, tuple(math.prod(array.lengths) for array in arrays))


def _strided(lengths: Sequence[int], strides: Sequence[int], type: int = onednn.BFLOAT16) -> Strided:
    return Strided(tuple(lengths), tuple(strides), type)


native_calls.register_maker(_KIND, make)


def _library() -> onednn.Library:
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    return library


@functools.lru_cache(256)
def _layout(library: onednn.Library, inner: int, columns: int) -> Handle:
    """How the library would have a second factor lie.

    Raises:
        NativeError: with gaps, so that it takes more memory.
    """
    shapes = (_USUAL_ROWS, inner), (inner, columns), (_USUAL_ROWS, columns)
    arrays = [library.described(_strided(*_array(shape, False)), free=at == 1) for at, shape in enumerate(shapes)]
    layout = library.layout(library.product(*arrays), onednn.WEIGHTS)
    if library.size(layout.value) != inner * columns * dtypes.bfloat16.size:
        raise NativeError(f"a packed matrix of {inner} x {columns} has gaps")
    return layout


def _make_packed(text: str) -> native_calls.Prepared:
    library, values = _library(), json.loads(text)
    first, second, result = (_strided(*values[name]) for name in ("first", "second", "result"))
    layout = _layout(library, *second.lengths)
    outer = [library.described(first), layout, library.described(result)]
    arguments = {onednn.SOURCE: 0, onednn.WEIGHTS: 1, onednn.DESTINATION: 2}
    stages = Stages(library, outer, [], [(library.product(*outer), arguments)])
    return native_calls.Prepared(stages, tuple(math.prod(array.lengths) for array in (first, second, result)))


def _make_packing(text: str) -> native_calls.Prepared:
    library, factor = _library(), _strided(*json.loads(text))
    described, layout = library.described(factor), _layout(library, *factor.lengths)
    copy = library.reorder(described.value, layout.value), {onednn.SOURCE: 0, onednn.DESTINATION: 1}
    size = math.prod(factor.lengths)
    return native_calls.Prepared(Stages(library, [described, layout], [], [copy]), (size, size))


native_calls.register_maker(_PACKED_KIND, _make_packed)
native_calls.register_maker(_PACKING_KIND, _make_packing)


def _pack(matrix: Array, transposed: bool) -> Any:
    """A matrix as the library reads it soonest, in an array of its shape; as it is where that cannot be."""
    factor = _array(matrix.shape, transposed)
    text = f"{_PACKING_KIND} {json.dumps(factor, separators=(',', ':'))}"
    if math.prod(matrix.shape) < _LEAST_PACKED or not native_calls.can_prepare(text):
        return matrix
    return native_calls.call("packing", text, (matrix,), matrix.shape, matrix.dtype)


@functools.lru_cache(1024)
def _usable(product: Product) -> bool:
    """Whether the library has an implementation that is worth while."""
    return product.small_enough and native_calls.can_prepare(product.text)


def product_of(op_type: str, attrs: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> Product | None:
    """What an operation among `OPERATIONS` computes; None where the library cannot take it."""
    if op_type == "MatMul" and any(len(shape) != 2 for shape in shapes):
        return None
    return Product.of(shapes, [bool(attrs[name]) for name in OPERATIONS[op_type]])


# ---------------------------------------------------------------------- the kernels
def _register(op_type: str, turning: tuple[str, str]) -> None:
    described = functools.partial(product_of, op_type)

    def takes(case: KernelCase) -> bool:
        library = onednn.library()
        if library is None or not library.computes("bfloat16"):
            return False
        product = described(case.attrs, [given.shape for given in case.inputs])
        return product is not None and _usable(product)

    def estimate(case: KernelCase) -> float:
        product = described(case.attrs, [given.shape for given in case.inputs])
        assert product is not None  # `takes` has said so
        library = onednn.library()
        share = _TILE_SHARE if library is not None and library.has_tiles else _SHARE
        return share + native_calls.call_cost(product.products)

    def kernel(x: Array, y: Array, *, ctx: OperationContext) -> Any:
        product = described(ctx.op.attrs, (x.shape, y.shape))
        assert product is not None  # `takes` has said so
        found = native_calls.call(ctx.op.name, product.text, (x, y), product.result[0], x.dtype)
        return found.reshape(shape_of(x, y, *(bool(ctx.op.attrs[name]) for name in turning)))

    register_kernel(
        op_type,
        "onednn",
        device_type="CPU",
        types={name: [dtypes.bfloat16] for name in TYPES.get(op_type, ("T",))},
        applies=takes,
        cost=estimate,
        rough=native_calls.is_rough,
        calls_back=True,
        takes_numpy=True,
    )(kernel)


def shape_of(x: Array, y: Array, x_turned: bool, y_turned: bool) -> tuple[int, ...]:
    """The shape of the product."""
    rank = max(len(x.shape), len(y.shape)) - 2
    one, other = ((1,) * (rank + 2 - len(shape)) + tuple(shape) for shape in (x.shape, y.shape))
    batch = map(max, one[:rank], other[:rank])
    return (*batch, one[-1 if x_turned else -2], other[-2 if y_turned else -1])


for _op_type, _turning in OPERATIONS.items():
    _register(_op_type, _turning)


# ---------------------------------------------------------------------- the kernels for loops
@functools.lru_cache(1024)
def _usable_packed(product: Product) -> bool:
    return product.small_enough and native_calls.can_prepare(product.packed_text)


def _register_packed(name: str, transposed: bool) -> None:
    def takes(case: KernelCase) -> bool:
        library = onednn.library()
        if library is None or not library.computes("bfloat16") or case.attrs["transpose_a"]:
            return False
        (rows, *_), matrix = (described.shape for described in case.inputs)
        if case.attrs["transpose_b"] is not transposed or rows > _MOST_PACKED_ROWS or math.prod(matrix) < _LEAST_PACKED:
            return False
        product = Product.of([described.shape for described in case.inputs], [False, transposed])
        return product is not None and _usable_packed(product)

    def estimate(case: KernelCase) -> float:
        library = onednn.library()
        share = _TILE_SHARE if library is not None and library.has_tiles else _SHARE
        rows, inner = case.inputs[0].shape
        columns = case.inputs[1].shape[0 if transposed else 1]
        return _PACKED_SHARE * share + native_calls.call_cost(rows * inner * columns)

    def kernel(a: Array, b: Array, *, ctx: OperationContext) -> Any:
        product = Product.of([a.shape, b.shape], [False, transposed])
        assert product is not None  # `takes` has said so
        return native_calls.call(ctx.op.name, product.packed_text, (a, b), product.result[0], a.dtype)

    register_kernel(
        "MatMul",
        name,
        device_type="CPU",
        types={"T": [dtypes.bfloat16]},
        applies=takes,
        cost=estimate,
        rough=True,
        calls_back=True,
        prepares={1: lambda matrix: _pack(matrix, transposed)},
    )(kernel)


_register_packed(PACKED, transposed=False)
_register_packed(PACKED_TRANSPOSED, transposed=True)
