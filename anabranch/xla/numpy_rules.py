"""What JAX's primitives compute, in NumPy: for programs that run too seldom to be worth compiling.

A rule takes an equation and returns a function of arrays, or None for a case that it leaves to JAX. Results have the
dtype that the equation says; they may be views of arguments, and are never written to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.xla.equations import Equation

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Rule = Callable[[Any], Function | None]


def _always(function: Function) -> Rule:
    return lambda equation: function


def _dtype(equation: Equation) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(equation.outvars[0].aval.dtype)
    return found


def _shape(equation: Equation) -> tuple[int, ...]:
    return tuple(equation.outvars[0].aval.shape)


# ---------------------------------------------------------------------- element by element
def _div(equation: Equation) -> Function | None:
    return np.divide if _dtype(equation).kind in "fc" else _truncating_division


def _truncating_division(x: Array, y: Array) -> Array:
    quotient = np.floor_divide(x, np.where(y == 0, 1, y))
    remainder = x - quotient * y
    inexact = (remainder != 0) & ((x < 0) != (y < 0))
    found: Array = np.where(y == 0, -1, quotient + inexact).astype(x.dtype)
    return found


def _rem(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def _round(equation: Equation) -> Function | None:
    return np.rint if int(equation.params["rounding_method"]) == 1 else None


def _integer_pow(equation: Equation) -> Function | None:
    y = equation.params["y"]
    if y == 2:
        return np.square
    dtype = _dtype(equation)
    return None if dtype.kind != "f" else lambda x: np.power(x, dtype.type(y))


def _convert(equation: Equation) -> Function | None:
    source, target = np.dtype(equation.invars[0].aval.dtype), np.dtype(equation.params["new_dtype"])
    if target.kind == "b":
        return lambda x: x != 0
    if source.kind in "fc" and target.kind not in "fc":
        return None if source.kind == "c" else _to_integer(target)
    return None if source.kind == "c" and target.kind == "f" else lambda x: x.astype(target)


def _to_integer(target: np.dtype[Any]) -> Function:
    """Floating numbers to integers: towards 0, the nearest that there is for those out of range, 0 for NaN."""
    limits = np.iinfo(target)

    def convert(x: Array) -> Array:
        if x.size and not (np.abs(x) < 2.0 ** min(31, limits.bits - 1)).all():
            wide = np.nan_to_num(x.astype(np.longdouble), nan=0.0, posinf=limits.max, neginf=limits.min)
            return np.clip(wide, limits.min, limits.max).astype(target)
        if limits.min == 0:
            x = np.maximum(x, 0)
        return x.astype(target)

    return convert


def _bitcast(equation: Equation) -> Function | None:
    target = _dtype(equation)
    if np.dtype(equation.invars[0].aval.dtype).itemsize != target.itemsize:
        return None
    return lambda x: np.asarray(x).view(target)


def _shift_right_logical(x: Array, y: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    found: Array = np.right_shift(x.view(unsigned), y.view(unsigned)).view(x.dtype)
    return found


def _select(equation: Equation) -> Function | None:
    if len(equation.invars) == 3 and np.dtype(equation.invars[0].aval.dtype).kind == "b":
        return lambda which, otherwise, then: np.where(which, then, otherwise)
    return None


# ---------------------------------------------------------------------- shapes
def _broadcast(equation: Equation) -> Function | None:
    if len(equation.invars) != 1:
        return None
    shape, dimensions = _shape(equation), equation.params["broadcast_dimensions"]
    between = [1] * len(shape)
    for size, dimension in zip(equation.invars[0].aval.shape, dimensions, strict=True):
        between[dimension] = size
    return lambda x: np.broadcast_to(x.reshape(between), shape)


def _reshape(equation: Equation) -> Function | None:
    shape = _shape(equation)
    return (
        None if len(equation.invars) != 1 or equation.params["dimensions"] is not None else lambda x: x.reshape(shape)
    )


def _same_elements(equation: Equation) -> Function:
    shape = _shape(equation)
    return lambda x: x.reshape(shape)


def _transpose(equation: Equation) -> Function:
    order = equation.params["permutation"]
    return lambda x: x.transpose(order)


def _slice(equation: Equation) -> Function:
    start, limit, strides = (equation.params[n] for n in ("start_indices", "limit_indices", "strides"))
    index = tuple(map(slice, start, limit, strides or [1] * len(start)))
    return lambda x: x[index]


def _rev(equation: Equation) -> Function:
    dimensions = tuple(equation.params["dimensions"])
    return lambda x: np.flip(x, dimensions)


def _concatenate(equation: Equation) -> Function:
    axis = equation.params["dimension"]
    return lambda *xs: np.concatenate(xs, axis)


def _stack(equation: Equation) -> Function:
    axis = equation.params["axis"]
    return lambda *xs: np.stack(xs, axis)


def _split(equation: Equation) -> Function:
    axis, ends = equation.params["axis"], np.cumsum(equation.params["sizes"])[:-1]
    return lambda x: np.split(x, ends, axis)


def _pad(equation: Equation) -> Function | None:
    config, shape = equation.params["padding_config"], _shape(equation)
    if any(low < 0 or high < 0 for low, high, _ in config):
        return None
    sizes = equation.invars[0].aval.shape
    index = tuple(
        slice(low, low + (size - 1) * (between + 1) + 1 if size else low, between + 1)
        for size, (low, _, between) in zip(sizes, config, strict=True)
    )

    def pad(x: Array, value: Array) -> Array:
        out = np.full(shape, value, x.dtype)
        out[index] = x
        return out

    return pad


def _dynamic_slice(equation: Equation) -> Function:
    sizes, shape = equation.params["slice_sizes"], equation.invars[0].aval.shape

    def take(x: Array, *starts: Array) -> Any:
        return x[_window(starts, sizes, shape)]

    return take


def _dynamic_update_slice(equation: Equation) -> Function:
    shape, sizes = equation.invars[0].aval.shape, equation.invars[1].aval.shape

    def update(x: Array, y: Array, *starts: Array) -> Array:
        out = x.copy()
        out[_window(starts, sizes, shape)] = y
        return out

    return update


def _window(starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    begins = [min(max(int(s), 0), n - k) for s, k, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(b, b + k) for b, k in zip(begins, sizes, strict=True))


# ---------------------------------------------------------------------- reductions
def _reduction(function: Callable[..., Any]) -> Rule:
    def rule(equation: Equation) -> Function | None:
        axes = tuple(equation.params["axes"])
        return None if 0 in equation.invars[0].aval.shape else lambda x: function(x, axis=axes)

    return rule


def _sum(equation: Equation) -> Function:
    axes, dtype = tuple(equation.params["axes"]), _dtype(equation)
    return lambda x: np.sum(x, axis=axes, dtype=dtype)


def _prod(equation: Equation) -> Function:
    axes, dtype = tuple(equation.params["axes"]), _dtype(equation)
    return lambda x: np.prod(x, axis=axes, dtype=dtype)


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(equation: Equation) -> Function | None:
        (axis,), dtype = equation.params["axes"], _dtype(equation)
        return lambda x: np.asarray(function(x, axis=axis)).astype(dtype)

    return rule


def _cumulative(function: np.ufunc) -> Rule:
    def rule(equation: Equation) -> Function:
        axis, reverse, dtype = equation.params["axis"], equation.params["reverse"], _dtype(equation)
        if reverse:
            return lambda x: np.flip(function.accumulate(np.flip(x, axis), axis, dtype=dtype), axis)
        return lambda x: function.accumulate(x, axis, dtype=dtype)

    return rule


def _top_k(equation: Equation) -> Function | None:
    k, axis, rank = equation.params["k"], equation.params["axis"], len(equation.invars[0].aval.shape)
    if axis not in (-1, rank - 1) or np.dtype(equation.invars[0].aval.dtype).kind != "f":
        return None

    def top_k(x: Array) -> tuple[Array, Array]:
        chosen = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        return np.take_along_axis(x, chosen, -1), chosen.astype(np.int32)

    return top_k


# ---------------------------------------------------------------------- products
def _dot_general(equation: Equation) -> Function:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (v.aval.shape for v in equation.invars)
    left_free = [d for d in range(len(left)) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(len(right)) if d not in (*right_sum, *right_batch)]
    batch = [left[d] for d in left_batch]
    inner = math.prod(left[d] for d in left_sum)
    left_order, right_order = [*left_batch, *left_free, *left_sum], [*right_batch, *right_sum, *right_free]
    left_shape, right_shape = [*batch, -1, inner], [*batch, inner, -1]
    if inner == 0 or 0 in left or 0 in right:
        left_shape[-2], right_shape[-1] = (
            math.prod(s[d] for d in f) for s, f in ((left, left_free), (right, right_free))
        )
    shape, dtype = _shape(equation), _dtype(equation)

    def product(x: Array, y: Array) -> Array:
        x = x.transpose(left_order).reshape(left_shape)
        y = y.transpose(right_order).reshape(right_shape)
        found: Array = np.matmul(x, y).astype(dtype, copy=False).reshape(shape)
        return found

    return product


# ---------------------------------------------------------------------- gather and scatter
class _WindowIndices:
    """Which elements of an operand the windows of a gather or scatter are.

    There is one window for each vector along the last dimension of the start indices. `index` returns, for each
    dimension of the operand, the positions in an array of shape (windows..., window dimensions...).
    """

    def __init__(
        self, shape: Sequence[int], sizes: Sequence[int], start_map: Sequence[int], dropped: Sequence[int], count: int
    ) -> None:
        self.shape, self.sizes, self.start_map = shape, sizes, list(start_map)
        kept = [d for d in range(len(shape)) if d not in dropped]
        #: the shape of one window
        self.window = [sizes[d] for d in kept]
        self._offsets = {
            d: np.arange(sizes[d]).reshape([-1 if k == d else 1 for k in kept]) if d in kept else None
            for d in range(len(shape))
        }
        self._count = count

    def index(self, starts: Array, clip: bool) -> tuple[tuple[Array, ...], Array]:
        """The positions, moved into the operand; and for each window whether it lay inside."""
        inside = np.ones(starts.shape[:-1], bool)
        positions = []
        for dimension, (size, width) in enumerate(zip(self.shape, self.sizes, strict=True)):
            offsets = self._offsets[dimension]
            at: Any = np.zeros([1] * self._count, np.int64)
            if dimension in self.start_map:
                first = starts[..., self.start_map.index(dimension)].astype(np.int64)
                at = np.clip(first, 0, size - width)
                if not clip:
                    inside &= at == first
            wide = at.reshape(at.shape + (1,) * len(self.window))
            positions.append(wide if offsets is None else wide + offsets)
        return tuple(positions), inside


def _plain(equation: Equation) -> bool:
    numbers = equation.params["dimension_numbers"]
    return not numbers.operand_batching_dims


def _gather(equation: Equation) -> Function | None:
    numbers, mode = equation.params["dimension_numbers"], equation.params["mode"]
    if not _plain(equation) or 0 in equation.invars[0].aval.shape:
        return None
    shape, count = equation.invars[0].aval.shape, len(equation.invars[1].aval.shape) - 1
    windows = _WindowIndices(
        shape, equation.params["slice_sizes"], numbers.start_index_map, numbers.collapsed_slice_dims, count
    )
    fills = "FILL" in str(mode)
    fill = _fill_value(equation)
    order = _output_order(numbers.offset_dims, count, len(_shape(equation)))
    wide = _shape(equation)

    def gather(x: Array, starts: Array) -> Array:
        index, inside = windows.index(starts, not fills)
        found = np.broadcast_to(x[index], [*starts.shape[:-1], *windows.window])
        if fills and not inside.all():
            found = np.where(inside.reshape(inside.shape + (1,) * len(windows.window)), found, fill)
        return found.transpose(order).reshape(wide)

    return gather


def _fill_value(equation: Equation) -> Any:
    """What JAX takes for elements from outside: NaN, the largest unsigned or the smallest signed integer, true."""
    given, dtype = equation.params["fill_value"], _dtype(equation)
    if given is not None:
        return dtype.type(given)
    if dtype.kind in "fc":
        return dtype.type(np.nan)
    if dtype.kind == "b":
        return np.True_
    return dtype.type(np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min)


def _output_order(offset_dims: Sequence[int], count: int, rank: int) -> list[int]:
    """The transposition that brings (windows..., window dimensions...) to a gather's output."""
    of_windows, of_offsets = iter(range(count)), iter(range(count, rank))
    return [next(of_offsets) if d in offset_dims else next(of_windows) for d in range(rank)]


def _scatter(combine: np.ufunc | None) -> Rule:
    def rule(equation: Equation) -> Function | None:
        numbers = equation.params["dimension_numbers"]
        if not _plain(equation) or 0 in equation.invars[0].aval.shape:
            return None
        shape, updates = equation.invars[0].aval.shape, equation.invars[2].aval.shape
        window_dims, dropped = numbers.update_window_dims, numbers.inserted_window_dims
        sizes_of_window = iter([updates[d] for d in window_dims])
        sizes = [1 if d in dropped else next(sizes_of_window) for d in range(len(shape))]
        count = len(equation.invars[1].aval.shape) - 1
        windows = _WindowIndices(shape, sizes, numbers.scatter_dims_to_operand_dims, dropped, count)
        order = [d for d in range(len(updates)) if d not in window_dims] + list(window_dims)
        clip = "CLIP" in str(equation.params["mode"])

        def scatter(x: Array, starts: Array, values: Array) -> Array:
            out, values = x.copy(), values.transpose(order)
            index, inside = windows.index(starts, clip)
            index = tuple(np.broadcast_to(i, values.shape) for i in index)
            if not inside.all():
                index, values = tuple(i[inside] for i in index), values[inside]
            if combine is None:
                out[index] = values
            else:
                combine.at(out, index, values)
            return out

        return scatter

    return rule


RULES: dict[str, Rule] = {
    **{name: _always(getattr(np, name)) for name in ("exp", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan")},
    **{name: _always(getattr(np, name)) for name in ("sqrt", "cbrt", "square", "abs", "sign", "floor", "ceil")},
    "neg": _always(np.negative),
    "rsqrt": _always(lambda x: (1 / np.sqrt(x)).astype(x.dtype, copy=False)),
    "logistic": _always(lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype, copy=False)),
    "is_finite": _always(np.isfinite),
    "not": _always(np.invert),
    "add": _always(np.add),
    "add_any": _always(np.add),
    "sub": _always(np.subtract),
    "mul": _always(np.multiply),
    "div": _div,
    "rem": _always(_rem),
    "max": _always(np.maximum),
    "min": _always(np.minimum),
    "pow": _always(lambda x, y: np.power(x, y).astype(x.dtype, copy=False)),
    "integer_pow": _integer_pow,
    "atan2": _always(np.arctan2),
    "nextafter": _always(np.nextafter),
    "round": _round,
    "clamp": _always(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "and": _always(np.bitwise_and),
    "or": _always(np.bitwise_or),
    "xor": _always(np.bitwise_xor),
    "shift_left": _always(np.left_shift),
    "shift_right_logical": _always(_shift_right_logical),
    "shift_right_arithmetic": _always(np.right_shift),
    "eq": _always(np.equal),
    "ne": _always(np.not_equal),
    "lt": _always(np.less),
    "le": _always(np.less_equal),
    "gt": _always(np.greater),
    "ge": _always(np.greater_equal),
    "select_n": _select,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "copy": _always(np.array),
    "copy_p": _always(np.array),
    "optimization_barrier": _always(lambda *xs: xs),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _same_elements,
    "expand_dims": _same_elements,
    "transpose": _transpose,
    "slice": _slice,
    "rev": _rev,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "reduce_sum": _sum,
    "reduce_prod": _prod,
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "top_k": _top_k,
    "dot_general": _dot_general,
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter(np.add),
    "scatter-min": _scatter(np.minimum),
    "scatter-max": _scatter(np.maximum),
}
