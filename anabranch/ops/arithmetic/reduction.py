"""Reductions along axes, cumulative sums and products, and positions of extremes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext, constant_value
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.math import conj, truncated_quotient
from anabranch.ops.factories import attach_gradient


def _axes(rank: int, indices: Array) -> tuple[int, ...]:
    """Non-negative axes in order.

    Raises:
        ValueError: one is out of range, or named twice.
    """
    given: list[int] = np.asarray(indices).reshape(-1).tolist()
    if len(given) == 1 and 0 <= given[0] < rank:
        return (given[0],)
    for axis in given:
        if not -rank <= axis < rank:
            raise ValueError(
                f"Invalid reduction dimension {axis} for input with {rank} dimensions; it must be in [{-rank}, {rank})"
            )
    axes = sorted(axis % rank for axis in given)
    for axis, following in itertools.pairwise(axes):
        if axis == following:
            raise ValueError(f"Invalid reduction arguments: Axes contains duplicate dimension: {axis}, in {given}")
    return tuple(axes)


def _reduced_shape(shape: TensorShape, indices: Array, keep_dims: bool) -> TensorShape:
    if shape.dims_tuple is None:
        return shape_rules.UNKNOWN
    if indices is None:
        return TensorShape([None] * len(shape.dims_tuple)) if keep_dims else shape_rules.UNKNOWN
    axes = _axes(len(shape.dims_tuple), indices)
    if keep_dims:
        return TensorShape([1 if i in axes else d for i, d in enumerate(shape.dims_tuple)])
    return TensorShape([d for i, d in enumerate(shape.dims_tuple) if i not in axes])


def _reduction(
    name: str,
    function: Callable[..., Any],
    types: str | None = "numbers",
    gradient: Callable[..., Any] | None = None,
    sums: bool = False,
) -> OpFunction:
    """A reduction: `function(xp, x, axes, keep_dims)`; of booleans where `types` is None."""
    element, attr = ("T", f", T: {types}") if types is not None else ("bool", "")
    op = define_op(
        name,
        f"input: {element}, reduction_indices: Tidx -> output: {element}",
        f"keep_dims: bool = False{attr}, Tidx: index = int32",
        static=("reduction_indices",),
        sums=sums,
    )

    @op.shape
    def _(input: TensorShape, reduction_indices: TensorShape, *, keep_dims: bool, ctx: ShapeContext) -> TensorShape:
        if reduction_indices.ndims is not None and reduction_indices.ndims > 1:
            raise ValueError(f"the reduction axes must be at most rank 1, but are rank {reduction_indices.ndims}")
        return _reduced_shape(input, ctx.constant("reduction_indices"), keep_dims)

    @op.kernel
    def _(input: Array, reduction_indices: Array, *, keep_dims: bool, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        try:
            axes = _axes(input.ndim, reduction_indices)
        except ValueError as error:
            ctx.check(False, str(error))
            raise
        result = function(xp, input, axes, keep_dims)
        return result if result.dtype == input.dtype else result.astype(input.dtype)

    return attach_gradient(op, gradient)


# ---------------------------------------------------------------------- what the gradients share
def kept(op: Operation, reduced: Tensor) -> Tensor:
    """`reduced` (of the result's shape) with the reduced dimensions put back, of size 1."""
    if op.attrs["keep_dims"]:
        return reduced
    x, indices = op.inputs
    axes = constant_value(indices)
    dims = _reduced_shape(x.shape, axes, True)
    if dims.is_fully_defined():
        result: Tensor = raw.Reshape(reduced, dims.as_list())
        return result
    # only the shape of this reduction is asked for; its value is never computed
    shape = raw.Shape(getattr(raw, op.type)(x, indices, keep_dims=True))
    return raw.Reshape(reduced, shape)  # type: ignore[no-any-return]


def _spread(op: Operation, grad: Tensor) -> Tensor:
    """The gradient of the result, repeated over the input's shape."""
    x = op.inputs[0]
    shape = x.shape.as_list() if x.shape.is_fully_defined() else raw.Shape(x)
    result: Tensor = raw.BroadcastTo(kept(op, grad), shape)
    return result


def _sum_gradient(op: Operation, grad: Tensor) -> Any:
    return _spread(op, grad), None


def _mean_gradient(op: Operation, grad: Tensor) -> Any:
    x, y = op.inputs[0], op.outputs[0]
    size, reduced = x.shape.num_elements(), y.shape.num_elements()
    if size is not None and reduced is not None:
        count: Any = float(size // max(reduced, 1))
    else:
        ratio = raw.FloorDiv(_element_count(x), raw.Maximum(_element_count(y), 1))
        count = raw.Cast(ratio, DstT=grad.dtype)
    return raw.RealDiv(_spread(op, grad), count), None


def _element_count(x: Tensor) -> Tensor:
    return raw.Prod(raw.Shape(x), [0])  # type: ignore[no-any-return]


def _extreme_gradient(op: Operation, grad: Tensor) -> Any:
    """The gradient is shared evenly among the elements that equal the extreme."""
    x = op.inputs[0]
    chosen = raw.Cast(raw.Equal(kept(op, op.outputs[0]), x), DstT=grad.dtype)
    count = Sum(chosen, op.inputs[1], keep_dims=True)
    return raw.Mul(raw.RealDiv(chosen, count), kept(op, grad)), None


def _norm_gradient(op: Operation, grad: Tensor) -> Any:
    """A complex norm is a real number of complex dtype: the imaginary part of its gradient has no effect."""
    if grad.dtype.is_complex:
        grad = raw.Cast(raw.Real(grad, Tout=grad.dtype.real_dtype), DstT=grad.dtype)
    scaled = raw.DivNoNan(grad, op.outputs[0])
    return raw.Mul(op.inputs[0], kept(op, scaled)), None


def _prod_gradient(op: Operation, grad: Tensor) -> Any:
    """The gradient times the product of the *other* elements, so that elements may be zero.

    That product is the exclusive cumulative product from the left times the one from the right, with the reduced
    dimensions moved to the front and flattened.
    """
    x, indices = op.inputs
    axes, dims = constant_value(indices), x.shape.dims_tuple
    if axes is None or dims is None:
        quotient = raw.RealDiv(raw.Mul(kept(op, op.outputs[0]), kept(op, grad)), x)  # zeros need a known rank
        return quotient, None
    reduced = _axes(len(dims), axes)
    order = [*reduced, *(i for i in range(len(dims)) if i not in reduced)]
    front = raw.Transpose(conj(x), order)
    shape = raw.Shape(front)
    flat = raw.Reshape(front, _flat_front(shape, len(reduced)))
    others = raw.Mul(Cumprod(flat, 0, exclusive=True), Cumprod(flat, 0, exclusive=True, reverse=True))
    back = raw.Transpose(raw.Reshape(others, shape), [int(i) for i in np.argsort(order)])
    return raw.Mul(back, kept(op, grad)), None


def _flat_front(shape: Tensor, count: int) -> Tensor:
    """[product of the first `count` sizes, product of the others]."""
    first = raw.StridedSlice(shape, [0], [count], [1])
    rest = raw.StridedSlice(shape, [count], [0], [1], end_mask=1)
    packed: Tensor = raw.Pack([raw.Prod(first, [0]), raw.Prod(rest, [0])])
    return packed


# ---------------------------------------------------------------------- the reductions
# by the ufuncs' own: NumPy's functions `sum`, `all`, ... come to these by way of several in Python
def whole_mean(xp: ArrayLibrary, total: Array, count: Array | int) -> Any:
    """A sum of whole numbers over how many they are, rounded towards zero: exact, as quotients of floats are not."""
    wide = np.uint64 if np.dtype(total.dtype).kind == "u" else np.int64
    return truncated_quotient(xp, total.astype(wide), xp.asarray(count).astype(wide)).astype(total.dtype)


#: NumPy adds these up in their own dtype
_SUMMED_AS_THEY_ARE: Final = frozenset({np.float32, np.float64})
#: below it float32 counts exactly
_MAX_COUNT: Final = 1 << 24


def _mean(xp: ArrayLibrary, x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
    if xp is np and x.dtype.type in _SUMMED_AS_THEY_ARE and 0 < x.size < _MAX_COUNT:
        # as NumPy's function of that name does, by way of several others
        total = np.add.reduce(x, axis=axes, keepdims=keep_dims)
        return total / x.dtype.type(x.size / total.size)
    if np.dtype(x.dtype).kind not in "iu":
        return xp.mean(x, axis=axes, keepdims=keep_dims)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    wide = (
        np.uint64 if np.dtype(x.dtype).kind == "u" else np.int64
    )  # the sum may be too large for the dtype of its mean
    total = xp.sum(x, axis=axes, keepdims=keep_dims, dtype=wide)
    return whole_mean(xp, total, max(count, 1)).astype(x.dtype)


def _extreme(name: str) -> Callable[..., Any]:
    def function(xp: ArrayLibrary, x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
        empty = any(x.shape[a] == 0 for a in axes)
        if not empty:
            reduce = {"max": np.maximum, "min": np.minimum}[name].reduce if xp is np else getattr(xp, name)
            return reduce(x, axis=axes, keepdims=keep_dims)
        dtype = as_dtype(np.dtype(x.dtype))
        worst: Any = {"max": dtype.min, "min": dtype.max}[name]
        if dtype.is_floating:
            worst = -np.inf if name == "max" else np.inf
        shape = _reduced_shape(TensorShape(x.shape), axes, keep_dims).as_list()
        return xp.full(shape, worst, x.dtype)

    return function


def _norm(xp: ArrayLibrary, x: Array, axes: tuple[int, ...], keep_dims: bool) -> Any:
    if not axes and np.dtype(x.dtype).kind not in "iu":
        return xp.abs(x).astype(x.dtype)
    # whole numbers overflow as TensorFlow's do, even where there is nothing to add a square to
    squares = xp.square(xp.abs(x))
    total = xp.sum(squares, axis=axes, keepdims=keep_dims, dtype=squares.dtype)
    root = xp.sqrt(total)
    if np.dtype(total.dtype).kind != "i":
        return root
    # what becomes of a root that there is not: TensorFlow leaves it to the processor
    none = np.iinfo(total.dtype).min if total.dtype.itemsize >= 4 else 0
    return xp.where(total < 0, total.dtype.type(none), root.astype(total.dtype))


Sum = _reduction(
    "Sum",
    lambda xp, x, axes, keep: (np.add.reduce if xp is np else xp.sum)(x, axis=axes, keepdims=keep, dtype=x.dtype),
    "numbers",
    _sum_gradient,
    sums=True,
)
Prod = _reduction(
    "Prod",
    lambda xp, x, axes, keep: (np.multiply.reduce if xp is np else xp.prod)(x, axis=axes, keepdims=keep, dtype=x.dtype),
    "numbers",
    _prod_gradient,
)
Mean = _reduction("Mean", _mean, "numbers", _mean_gradient)
Max = _reduction("Max", _extreme("max"), "real", _extreme_gradient)
Min = _reduction("Min", _extreme("min"), "real", _extreme_gradient)
EuclideanNorm = _reduction("EuclideanNorm", _norm, "numbers", _norm_gradient)
All = _reduction(
    "All",
    lambda xp, x, axes, keep: (np.logical_and.reduce if xp is np else xp.all)(x, axis=axes, keepdims=keep),
    None,
)
Any_ = _reduction(
    "Any",
    lambda xp, x, axes, keep: (np.logical_or.reduce if xp is np else xp.any)(x, axis=axes, keepdims=keep),
    None,
)


# ---------------------------------------------------------------------- cumulative
def _cumulative(name: str, neutral: int, gradient: Callable[..., Any]) -> OpFunction:
    op = define_op(
        name,
        "x: T, axis: Tidx -> out: T",
        "exclusive: bool = False, reverse: bool = False, T: numbers, Tidx: index = int32",
        static=("axis",),
    )
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(x: Array, axis: Array, *, exclusive: bool, reverse: bool, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        ctx.check(np.ndim(axis) == 0, f"{name}: axis must be a scalar, not {np.shape(axis)}")
        at = int(axis)
        ctx.check(-x.ndim <= at < x.ndim, f"Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got {at}")
        x = xp.flip(x, at) if reverse else x
        if exclusive:
            first = xp.full([1 if i == at % x.ndim else n for i, n in enumerate(x.shape)], neutral, x.dtype)
            x = xp.concatenate([first, x], at)[_all_but_last(x.ndim, at % x.ndim)]
        out = getattr(xp, name.lower())(x, axis=at, dtype=x.dtype)
        return xp.flip(out, at) if reverse else out

    op.gradient(gradient)
    return op


def _all_but_last(rank: int, axis: int) -> tuple[slice, ...]:
    return tuple(slice(None, -1) if i == axis else slice(None) for i in range(rank))


def _cumsum_gradient(op: Operation, grad: Tensor) -> Any:
    exclusive, reverse = op.attrs["exclusive"], op.attrs["reverse"]
    return Cumsum(grad, op.inputs[1], exclusive=exclusive, reverse=not reverse), None


def _cumprod_gradient(op: Operation, grad: Tensor) -> Any:
    """What an element had a part in is divided by it, or computed without it where it is the first zero of its lane.

    Behind the first zero every product is zero, whatever another element is. TensorFlow divides by zeros, too.
    """
    x, axis = conj(op.inputs[0]), op.inputs[1]
    exclusive, reverse = op.attrs["exclusive"], op.attrs["reverse"]

    def share(products: Tensor) -> Tensor:
        weighted = raw.Mul(products, grad)
        return Cumsum(weighted, axis, exclusive=exclusive, reverse=not reverse)  # type: ignore[no-any-return]

    zero, one = raw.Equal(x, raw.ZerosLike(x)), raw.OnesLike(x)
    zeros_before = Cumsum(raw.Cast(zero, DstT="int32"), axis, exclusive=True, reverse=reverse)
    is_first = raw.LogicalAnd(zero, raw.Equal(zeros_before, 0))
    without = Cumprod(raw.Select(is_first, one, x), axis, exclusive=exclusive, reverse=reverse)
    divided = raw.RealDiv(share(conj(op.outputs[0])), raw.Select(zero, one, x))
    return raw.Select(is_first, share(without), divided), None


Cumsum = _cumulative("Cumsum", 0, _cumsum_gradient)
Cumprod = _cumulative("Cumprod", 1, _cumprod_gradient)


# ---------------------------------------------------------------------- positions
def _position(name: str, function: str, worst: str, outputs: str) -> OpFunction:
    """The position of the extreme element; NaN and the infinity at the other end count as the `worst` finite number."""
    op = define_op(
        name,
        "input: T, dimension: Tidx -> output: output_type",
        f"T: {{real, bool}}, Tidx: {{int16, int32, int64}} = int32, output_type: {outputs} = int64",
        static=("dimension",),
        ranks={"dimension": 0},
    )

    @op.shape
    def _(input: TensorShape, dimension: TensorShape, *, ctx: ShapeContext) -> TensorShape:
        axis = ctx.constant("dimension")
        if input.ndims is not None and input.ndims <= 1:
            return TensorShape([])  # whether there is such a dimension is for the step to say, as in TensorFlow
        if axis is None and input.ndims is not None:
            return TensorShape([None] * (input.ndims - 1))
        return _reduced_shape(input, axis, False)

    @op.kernel
    def _(input: Array, dimension: Array, *, output_type: DType, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        axis = int(dimension)
        ctx.check(-input.ndim <= axis < input.ndim, f"the dimension {axis} is not in [{-input.ndim}, {input.ndim})")
        ctx.check(input.shape[axis] > 0, f"Reduction axis {axis} is empty in shape {list(input.shape)}")
        if as_dtype(input.dtype).is_floating:
            limit = input.dtype.type(getattr(as_dtype(input.dtype), worst))
            input = xp.fmax(input, limit) if worst == "min" else xp.fmin(input, limit)
        return getattr(xp, function)(input, axis=axis).astype(output_type.as_numpy_dtype)

    op.not_differentiable()
    return op


ArgMax = _position("ArgMax", "argmax", "min", "{int16, uint16, int32, int64}")
ArgMin = _position("ArgMin", "argmin", "max", "index")
