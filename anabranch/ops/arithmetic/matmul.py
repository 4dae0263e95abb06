"""Matrix products, and sums of products in general (`Einsum`)."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.op_def import ASSUMED_DIMENSION, FlopsRule
from anabranch.core.shapes import TensorShape, broadcast_shape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_shape
from anabranch.ops.arithmetic.math import conj

_MATRIX_TYPES = (
    "{bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}"
)
#: of the factors of `BatchMatMulV3`
_FACTORS = "{bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}"

MatMul = define_op(
    "MatMul", "a: T, b: T -> product: T", f"transpose_a: bool = False, transpose_b: bool = False, T: {_MATRIX_TYPES}"
)


def _product_flops(turned: str) -> FlopsRule:
    """For each element of the product a row of the first matrix; `turned`: the attribute that makes it a column."""

    def rule(
        inputs: Sequence[tuple[int, ...] | None], outputs: Sequence[tuple[int, ...] | None], attrs: dict[str, Any]
    ) -> int:
        first = inputs[0]
        inner = first[-2 if attrs[turned] else -1] if first is not None and len(first) >= 2 else ASSUMED_DIMENSION
        return 2 * math.prod(outputs[0] or ()) * inner

    return rule


MatMul.flops(_product_flops("transpose_a"))


@MatMul.shape
def _(a: TensorShape, b: TensorShape, *, transpose_a: bool, transpose_b: bool) -> TensorShape:
    a, b = shape_rules.with_rank(a, 2, "argument 'a'"), shape_rules.with_rank(b, 2, "argument 'b'")
    rows, inner_a = (a[1], a[0]) if transpose_a else (a[0], a[1])
    inner_b, columns = (b[1], b[0]) if transpose_b else (b[0], b[1])
    if not inner_a.is_compatible_with(inner_b):
        raise ValueError(
            f"the inner dimensions {inner_a} and {inner_b} must be equal; transpose_a and transpose_b turn a matrix"
        )
    return TensorShape([rows, columns])


@MatMul.kernel
def _(a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    if xp is np and a.shape[1] == b.shape[0] and not _is_half(a.dtype):
        memory = ctx.memory((a.shape[0], b.shape[1]), a.dtype)
        if memory is not None:
            return np.matmul(a, b, out=memory)
    return product(xp, a, b)


@MatMul.gradient
def _(op: Operation, grad: Tensor) -> Any:
    a, b = (conj(t) for t in op.inputs)
    ta, tb = op.attrs["transpose_a"], op.attrs["transpose_b"]
    if ta:
        grad_a = MatMul(b, grad, transpose_a=tb, transpose_b=True)
    else:
        grad_a = MatMul(grad, b, transpose_b=not tb)
    if tb:
        grad_b = MatMul(grad, a, transpose_a=True, transpose_b=ta)
    else:
        grad_b = MatMul(a, grad, transpose_a=not ta)
    return grad_a, grad_b


SparseMatMul = define_op(
    "SparseMatMul",
    "a: Ta, b: Tb -> product: float32",
    "transpose_a: bool = False, transpose_b: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False, "
    "Ta: {float, bfloat16} = float32, Tb: {float, bfloat16} = float32",
)
SparseMatMul.shape(MatMul.shape_rule.function)  # type: ignore[union-attr]


@SparseMatMul.kernel
def _(a: Array, b: Array, *, transpose_a: bool, transpose_b: bool, xp: ArrayLibrary) -> Any:
    """Zeros among the factors are not skipped: a dense product is faster for matrices that are stored densely."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return xp.matmul(a.T if transpose_a else a, b.T if transpose_b else b)


@SparseMatMul.gradient
def _(op: Operation, grad: Tensor) -> Any:
    a, b = (raw.Cast(t, DstT=grad.dtype) for t in op.inputs)
    ta, tb = op.attrs["transpose_a"], op.attrs["transpose_b"]
    grad_a = MatMul(b, grad, transpose_a=tb, transpose_b=True) if ta else MatMul(grad, b, transpose_b=not tb)
    grad_b = MatMul(grad, a, transpose_a=True, transpose_b=ta) if tb else MatMul(a, grad, transpose_a=not ta)
    return raw.Cast(grad_a, DstT=op.attrs["Ta"]), raw.Cast(grad_b, DstT=op.attrs["Tb"])


# ---------------------------------------------------------------------- batches
def _batch_matmul(name: str, merge_batches: Callable[[TensorShape, TensorShape], TensorShape]) -> OpFunction:
    """Products of the matrices in the last two dimensions; `merge_batches` is the rule for the others."""
    op = define_op(name, "x: T, y: T -> output: T", f"T: {_MATRIX_TYPES}, adj_x: bool = False, adj_y: bool = False")
    op.flops(_product_flops("adj_x"))

    @op.shape
    def _(x: TensorShape, y: TensorShape, *, adj_x: bool, adj_y: bool) -> TensorShape:
        return _batch_product_shape(x, y, adj_x, adj_y, merge_batches)

    @op.kernel
    def _(x: Array, y: Array, *, adj_x: bool, adj_y: bool, xp: ArrayLibrary) -> Any:
        return product(xp, _adjoint(xp, x) if adj_x else x, _adjoint(xp, y) if adj_y else y)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        x, y = operation.inputs
        adj_x, adj_y = operation.attrs["adj_x"], operation.attrs["adj_y"]
        grad_x = op(y, grad, adj_x=adj_y, adj_y=True) if adj_x else op(grad, y, adj_y=not adj_y)
        grad_y = op(grad, x, adj_x=True, adj_y=adj_x) if adj_y else op(x, grad, adj_x=not adj_x)
        return sum_to_batch(grad_x, x, y), sum_to_batch(grad_y, y, x)

    return op


def _batch_product_shape(
    x: TensorShape,
    y: TensorShape,
    adj_x: bool,
    adj_y: bool,
    merge_batches: Callable[[TensorShape, TensorShape], TensorShape],
) -> TensorShape:
    x, y = x.with_rank_at_least(2), y.with_rank_at_least(2)
    if x.ndims is None or y.ndims is None:
        return shape_rules.UNKNOWN
    rows, inner_x = (x[-1], x[-2]) if adj_x else (x[-2], x[-1])
    inner_y, columns = (y[-1], y[-2]) if adj_y else (y[-2], y[-1])
    if not inner_x.is_compatible_with(inner_y):
        raise ValueError(
            f"the inner dimensions {inner_x} and {inner_y} must be equal; transpose_a and transpose_b turn matrices"
        )
    return merge_batches(x[:-2], y[:-2]).concatenate([rows, columns])


def product(xp: ArrayLibrary, a: Array, b: Array) -> Any:
    """The product of matrices. NumPy's own of numbers of 16 bits is slow, and rounds each sum to them."""
    if xp is np and a.dtype == b.dtype and _is_half(a.dtype):
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return xp.matmul(a, b)


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iub"


def _adjoint(xp: ArrayLibrary, x: Array) -> Any:
    transposed = xp.swapaxes(x, -1, -2)
    return xp.conj(transposed) if np.dtype(x.dtype).kind == "c" else transposed


def sum_to_batch(grad: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Undoes the broadcasting of the dimensions of `x` before the last two."""
    dims, others = x.shape.dims_tuple, other.shape.dims_tuple
    if dims is not None and others is not None and dims[:-2] == others[:-2] and None not in dims[:-2]:
        return grad
    shape = raw.Shape(x)
    axes, _ = raw.BroadcastGradientArgs(_batch(shape), _batch(raw.Shape(other)))
    summed: Tensor = raw.Reshape(raw.Sum(grad, axes), shape)
    return summed


def _batch(shape: Tensor) -> Tensor:
    return raw.StridedSlice(shape, [0], [-2], [1], begin_mask=1)  # type: ignore[no-any-return]


BatchMatMul = _batch_matmul("BatchMatMul", lambda a, b: a.merge_with(b))
BatchMatMulV2 = _batch_matmul("BatchMatMulV2", broadcast_shape)
# What TensorFlow 2 writes: the factors may have dtypes of their own, and are converted to that of the product.
BatchMatMulV3 = define_op(
    "BatchMatMulV3",
    "x: Ta, y: Tb -> output: Tout",
    f"Ta: {_FACTORS}, Tb: {_FACTORS}, "
    "Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}, "
    "adj_x: bool = False, adj_y: bool = False",
)
BatchMatMulV3.flops(_product_flops("adj_x"))


@BatchMatMulV3.shape
def _(x: TensorShape, y: TensorShape, *, Ta: DType, Tb: DType, Tout: DType, adj_x: bool, adj_y: bool) -> TensorShape:
    for dtype in (Ta, Tb):
        if not np.can_cast(dtype.as_numpy_dtype, Tout.as_numpy_dtype, "same_kind"):
            raise ValueError(f"factors of dtypes {Ta.name} and {Tb.name} have no product of dtype {Tout.name}")
    return _batch_product_shape(x, y, adj_x, adj_y, broadcast_shape)


@BatchMatMulV3.kernel
def _(x: Array, y: Array, *, Tout: DType, adj_x: bool, adj_y: bool, xp: ArrayLibrary) -> Any:
    x, y = x.astype(Tout.as_numpy_dtype), y.astype(Tout.as_numpy_dtype)
    return product(xp, _adjoint(xp, x) if adj_x else x, _adjoint(xp, y) if adj_y else y)


@BatchMatMulV3.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, y = op.inputs
    adj_x, adj_y = op.attrs["adj_x"], op.attrs["adj_y"]

    def product(a: Tensor, b: Tensor, adj_a: bool, adj_b: bool) -> Tensor:
        gradient: Tensor = BatchMatMulV3(a, b, Tout=grad.dtype, adj_x=adj_a, adj_y=adj_b)
        return gradient

    grad_x = product(y, grad, adj_y, True) if adj_x else product(grad, y, False, not adj_y)
    grad_y = product(grad, x, True, adj_x) if adj_y else product(x, grad, not adj_x, False)
    return raw.Cast(sum_to_batch(grad_x, x, y), DstT=x.dtype), raw.Cast(sum_to_batch(grad_y, y, x), DstT=y.dtype)


Cross = define_op("Cross", "a: T, b: T -> product: T", "T: real")


@Cross.shape
def _(a: TensorShape, b: TensorShape) -> TensorShape:
    shape = a.merge_with(b).with_rank_at_least(1)
    if shape.ndims is not None and not shape[-1].is_compatible_with(3):
        raise ValueError(f"the last dimension must be 3, got shape {shape}")
    return shape


@Cross.kernel
def _(a: Array, b: Array, *, xp: ArrayLibrary) -> Any:
    return xp.cross(a, b)


@Cross.gradient
def _(op: Operation, grad: Tensor) -> Any:
    a, b = op.inputs
    return Cross(b, grad), Cross(grad, a)


# ---------------------------------------------------------------------- Einsum
Einsum = define_op("Einsum", "inputs: N * T -> output: T", "equation: string, N: int >= 1, T: any")


def _terms(equation: bytes | str) -> tuple[list[str], str]:
    """The subscripts of each operand, and of the result."""
    text = equation.decode() if isinstance(equation, bytes) else equation
    left, arrow, right = text.replace(" ", "").partition("->")
    if not arrow:
        raise ValueError(f"the equation {text!r} must contain '->'")
    return left.split(","), right


@Einsum.shape
def _(inputs: list[TensorShape], *, equation: bytes) -> TensorShape:
    terms, result = _terms(equation)
    if len(terms) != len(inputs):
        raise ValueError(f"the equation {equation.decode()!r} has {len(terms)} operands, got {len(inputs)}")
    sizes: dict[str, Any] = {}
    batch = TensorShape([])
    for term, shape in zip(terms, inputs, strict=True):
        if shape.ndims is None:
            if "..." in term:
                batch = shape_rules.UNKNOWN
            continue
        batch = broadcast_shape(batch, _read_term(term, shape, sizes))
    before, dots, after = result.partition("...")
    dims = [TensorShape([sizes.get(label) for label in part]) for part in (before, after)]
    if not dots:
        return dims[0]
    return dims[0].concatenate(batch).concatenate(dims[1])


def _read_term(term: str, shape: TensorShape, sizes: dict[str, Any]) -> TensorShape:
    """Enters the sizes of a term's labels; returns the shape that its ellipsis stands for."""
    dims = shape.dims_tuple or ()
    before, dots, after = term.partition("...")
    labels = len(before) + len(after)
    if len(dims) < labels or (not dots and len(dims) != labels):
        raise ValueError(f"the subscripts {term!r} do not fit an operand of shape {shape}")
    ends = [*zip(before, dims, strict=False), *zip(after, dims[len(dims) - len(after) :], strict=True)]
    for label, size in ends:
        known = sizes.setdefault(label, size)
        if None not in (known, size) and known != size:
            raise ValueError(f"the label {label!r} stands for a dimension of size {known} and for one of size {size}")
        sizes[label] = size if known is None else known
    return TensorShape(dims[len(before) : len(dims) - len(after)])


@Einsum.kernel
def _(inputs: list[Any], *, equation: bytes, xp: ArrayLibrary) -> Any:
    terms, result = _terms(equation)
    dtype = inputs[0].dtype
    # NumPy does not know bfloat16, and sums 16 bits in 16 bits
    narrow = xp is np and _is_half(dtype)
    operands = [x.astype(np.float32) for x in inputs] if narrow else inputs
    once = "".join(label for at, label in enumerate(result) if label == "." or label not in result[:at])
    summed = xp.einsum(f"{','.join(terms)}->{once}", *operands)
    diagonal = _on_diagonals(summed, result, xp)
    return diagonal.astype(dtype) if narrow else diagonal


def _on_diagonals(summed: Array, result: str, xp: ArrayLibrary) -> Any:
    """A result in which labels come more than once, from that in which each comes once: zeros but on the diagonals."""
    before, _, after = result.partition("...")
    # counted from the end behind an ellipsis, which stands for any number of dimensions
    places = [*((at, label) for at, label in enumerate(before)), *((at - len(after), c) for at, c in enumerate(after))]
    first: dict[str, int] = {}
    again = [(at, label) for at, label in places if first.setdefault(label, at) != at]
    for at, _ in sorted(again, key=lambda place: place[0] if place[0] >= 0 else -place[0]):
        summed = xp.expand_dims(summed, at)
    for at, label in again:
        axes = sorted(axis % summed.ndim for axis in (at, first[label]))
        size = max(summed.shape[axis] for axis in axes)
        mask = xp.eye(size, dtype=bool).reshape([size if axis in axes else 1 for axis in range(summed.ndim)])
        summed = xp.where(mask, summed, xp.zeros((), summed.dtype))
    return summed


@Einsum.gradient
def _(op: Operation, grad: Tensor) -> Any:
    terms, result = _terms(op.attrs["equation"])
    return [_einsum_gradient(op.inputs, terms, result, i, grad) for i in range(len(terms))]


def _einsum_gradient(inputs: list[Tensor], terms: list[str], result: str, which: int, grad: Tensor) -> Tensor:
    """The gradient for one operand is itself a sum of products: of the other operands and the result's gradient.

    A label that only this operand has is a vector of ones there; one that it has twice stands for a diagonal, and is an
    identity matrix. An ellipsis is moved to the front, where broadcasting is undone.
    """
    x, term = inputs[which], terms[which]
    operands = [conj(t) for i, t in enumerate(inputs) if i != which] + [grad]
    subscripts = [t for i, t in enumerate(terms) if i != which] + [result]
    wanted = ""
    free = [c for c in string.ascii_letters if c not in "".join([*terms, result])]
    for at, label in enumerate(term.replace("...", "")):
        axis = at if "..." not in term or at < term.index(".") else at - len(term.replace("...", ""))
        if label in wanted:
            other = free.pop()
            operands.append(_identity(x, axis))
            subscripts.append(label + other)
            label = other
        elif label not in "".join(subscripts):
            operands.append(raw.Fill(_size(x, axis), raw.Cast(1, DstT=x.dtype)))
            subscripts.append(label)
        wanted += label
    dots = "..." if any("..." in s for s in subscripts) else ""
    if len(inputs) <= 2:
        _pair(operands, subscripts, wanted)
    if not dots:
        return Einsum(operands, equation=f"{','.join(subscripts)}->{wanted}")  # type: ignore[no-any-return]
    full = Einsum(operands, equation=f"{','.join(subscripts)}->...{wanted}")
    if "..." not in term:
        return sum_to_shape(full, x)
    plain = term.replace("...", "")
    moved = sum_to_shape(full, Einsum([x], equation=f"{_distinct(term, wanted, plain)}->...{wanted}"))
    return Einsum([moved], equation=f"...{wanted}->{_distinct(term, wanted, plain)}")  # type: ignore[no-any-return]


def _pair(operands: list[Tensor], subscripts: list[str], wanted: str) -> None:
    """Multiplies the first two while there are more: TensorFlow, which is to read gradients, has no such Einsum."""
    while len(operands) > 2:
        first, second, *rest = subscripts
        used = "".join([*rest, wanted])
        labels = [c for c in dict.fromkeys(first + second) if c in used and c != "."]
        product = ("..." if "..." in first + second else "") + "".join(labels)
        operands[:2] = [Einsum(operands[:2], equation=f"{first},{second}->{product}")]
        subscripts[:2] = [product]


def _distinct(term: str, wanted: str, plain: str) -> str:
    """`term` with each repeated label renamed as in `wanted`."""
    before = len(term.partition("...")[0])
    return f"{wanted[:before]}...{wanted[before:]}" if plain else "..."


def _size(x: Tensor, axis: int) -> Tensor:
    end = [axis + 1] if axis != -1 else [0]
    size: Tensor = raw.StridedSlice(raw.Shape(x), [axis], end, [1], end_mask=int(axis == -1))
    return size


def _identity(x: Tensor, axis: int) -> Tensor:
    ones = raw.Fill(_size(x, axis), raw.Cast(1, DstT=x.dtype))
    diagonal: Tensor = raw.MatrixDiag(ones)
    return diagonal
