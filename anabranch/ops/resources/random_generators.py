"""Random numbers of generators whose state is a variable: `tf.random.experimental.Generator`.

The state of the algorithm Philox is [low half of the counter, high half, key], int64; what stands behind is kept. The
numbers are TensorFlow's (`ops/arithmetic/philox.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, ElementType
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops.arithmetic import philox
from anabranch.ops.resources.rows import library_of

_PHILOX: Final = 1
_FLOATING: Final = ("float16", "bfloat16", "float32", "float64")
_BOUNDED: Final = ("int32", "int64")
_WHOLE: Final = ("int32", "int64", "uint32", "uint64")
#: of a binomial distribution, from which expectation on numbers are drawn by rejection
_REJECTION_FROM: Final = 10
#: otherwise, how far apart the blocks begin that the numbers are made of
_BLOCKS_PER_WAIT: Final = 42


def _drawn_shape(*_: TensorShape, ctx: ShapeContext) -> TensorShape:
    return ctx.constant_as_shape("shape")


def _dims(shape: Array, ctx: OperationContext) -> tuple[int, ...]:
    dims = tuple(np.asarray(shape).tolist())
    if any(d < 0 for d in dims):
        raise InvalidArgumentError(None, ctx.op, f"the shape {list(dims)} has a negative dimension")
    return dims


def _state(handle: ResourceHandle, algorithm: Array, ctx: OperationContext, skipped: int = 0) -> Any:
    """The state behind a handle, without what stands before it, once it is known to be one of Philox."""
    ctx.check(algorithm == _PHILOX, "Unsupported algorithm id: {0}; 1, Philox, is known", algorithm)
    state: Any = ctx.read(handle)
    if state.dtype != np.int64 or state.ndim != 1 or len(state) < skipped + philox.STATE_SIZE:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"RNG state must be a vector of int64 of at least {skipped + philox.STATE_SIZE} numbers, got "
            f"{state.dtype.name} of shape {list(state.shape)}",
        )
    return state[skipped:]


def _advance(handle: ResourceHandle, state: Array, numbers: int, ctx: OperationContext, before: int = 0) -> None:
    """Writes the state of when that many numbers were drawn, behind the `before` numbers that stay."""
    xp = library_of(state)
    advanced = philox.after(state, numbers, xp)
    whole: Any = ctx.read(handle)
    parts = [whole[:before], advanced, state[philox.STATE_SIZE :]]
    ctx.write(handle, xp.concatenate([xp.asarray(part) for part in parts]))


def _require(dtype: DType, allowed: tuple[str, ...], ctx: OperationContext) -> ElementType:
    if dtype.name not in allowed:
        raise InvalidArgumentError(None, ctx.op, f"dtype must be one of {', '.join(allowed)}, not {dtype.name}")
    kind: ElementType = dtype.as_numpy_dtype
    return kind


_Draw = Callable[[Array, tuple[int, ...], ElementType, ArrayLibrary], Any]


def _define(name: str, inputs: str, attributes: str) -> OpFunction:
    op = define_op(
        name,
        f"resource: resource, {inputs} -> output: dtype",
        f"{attributes}, shape_dtype: any = int64",
        stateful=True,
        static=("shape",),
        reads=("resource",),
        writes=("resource",),
        takes_numpy=True,
        ranks={"algorithm": 0} if "algorithm" in inputs else {},
    )
    op.shape(_drawn_shape)
    return op.not_differentiable()


def _drawing(name: str, dtype: str, allowed: tuple[str, ...], draw: _Draw) -> Any:
    op = _define(name, "algorithm: int64, shape: shape_dtype", f"dtype: any = {dtype}")

    @op.kernel
    def _(
        resource: ResourceHandle,
        algorithm: Array,
        shape: Array,
        *,
        dtype: DType,
        ctx: OperationContext,
    ) -> Any:
        kind, dims = _require(dtype, allowed, ctx), _dims(shape, ctx)
        state = _state(resource, algorithm, ctx)
        _advance(resource, state, math.prod(dims), ctx)
        return draw(state, dims, kind, library_of(state))

    return op


StatefulUniform = _drawing("StatefulUniform", "float32", _FLOATING, philox.uniform)
StatefulUniformFullInt = _drawing("StatefulUniformFullInt", "uint64", _WHOLE, philox.whole_numbers)
StatefulStandardNormalV2 = _drawing("StatefulStandardNormalV2", "float32", _FLOATING, philox.normal)
StatefulTruncatedNormal = _drawing("StatefulTruncatedNormal", "float32", _FLOATING, philox.truncated_normal)

StatefulUniformInt = _define(
    "StatefulUniformInt", "algorithm: int64, shape: shape_dtype, minval: dtype, maxval: dtype", "dtype: any = int64"
)


@StatefulUniformInt.kernel
def _(
    resource: ResourceHandle,
    algorithm: Array,
    shape: Array,
    minval: Array,
    maxval: Array,
    *,
    dtype: DType,
    ctx: OperationContext,
) -> Any:
    _require(dtype, _BOUNDED, ctx)
    for name, bound in (("minval", minval), ("maxval", maxval)):
        if np.ndim(bound) != 0:
            raise InvalidArgumentError(None, ctx.op, f"{name} must be 0-D, got shape {list(np.shape(bound))}")
    ctx.check(minval < maxval, "Need minval < maxval, got {0} >= {1}", minval, maxval)
    dims, state = _dims(shape, ctx), _state(resource, algorithm, ctx)
    _advance(resource, state, math.prod(dims), ctx)
    return philox.integers(state, dims, minval, maxval, library_of(state))


#: of TensorFlow's first graphs with generators: the algorithm is the first number of the state
StatefulStandardNormal = _define("StatefulStandardNormal", "shape: shape_dtype", "dtype: any = float32")


@StatefulStandardNormal.kernel
def _(resource: ResourceHandle, shape: Array, *, dtype: DType, ctx: OperationContext) -> Any:
    kind, dims, whole = _require(dtype, _FLOATING, ctx), _dims(shape, ctx), ctx.read(resource)
    state = _state(resource, whole[0] if np.size(whole) else np.int64(0), ctx, skipped=1)
    _advance(resource, state, math.prod(dims), ctx, before=1)
    return philox.normal(state, dims, kind, library_of(state))


RngSkip = define_op(
    "RngSkip",
    "resource: resource, algorithm: int64, delta: int64 ->",
    stateful=True,
    reads=("resource",),
    writes=("resource",),
    takes_numpy=True,
    ranks={"algorithm": 0, "delta": 0},
)
RngSkip.not_differentiable()


@RngSkip.shape
def _(resource: TensorShape, algorithm: TensorShape, delta: TensorShape) -> tuple[()]:
    return ()


@RngSkip.kernel
def _(resource: ResourceHandle, algorithm: Array, delta: Array, *, ctx: OperationContext) -> None:
    """As if `delta` numbers were drawn."""
    state = _state(resource, algorithm, ctx)
    xp = library_of(state)
    blocks = xp.asarray(delta).astype(np.uint64) * np.uint64(philox.BLOCKS_PER_NUMBER)
    advanced = philox.skipped(state, blocks, xp)
    ctx.write(resource, xp.concatenate([advanced, xp.asarray(state[philox.STATE_SIZE :])]))


NonDeterministicInts = define_op(
    "NonDeterministicInts",
    "shape: shape_dtype -> output: dtype",
    "dtype: any = int64, shape_dtype: any = int64",
    stateful=True,
)
NonDeterministicInts.shape(_drawn_shape)
NonDeterministicInts.not_differentiable()


@NonDeterministicInts.host_kernel
def _(shape: Array, *, dtype: DType, ctx: OperationContext) -> Any:
    """Numbers of the operating system's source."""
    kind, dims = np.dtype(_require(dtype, _WHOLE, ctx)), _dims(shape, ctx)
    return np.frombuffer(os.urandom(math.prod(dims) * kind.itemsize), kind).reshape(dims).copy()


# ---------------------------------------------------------------------- binomial
StatefulRandomBinomial = define_op(
    "StatefulRandomBinomial",
    "resource: resource, algorithm: int64, shape: S, counts: T, probs: T -> output: dtype",
    "S: index, T: {half, float, double, int32, int64} = double, dtype: {half, float, double, int32, int64} = int64",
    stateful=True,
    reads=("resource",),
    writes=("resource",),
    ranks={"algorithm": 0},
)
StatefulRandomBinomial.not_differentiable()


@StatefulRandomBinomial.shape
def _(
    resource: TensorShape,
    algorithm: TensorShape,
    shape: TensorShape,
    counts: TensorShape,
    probs: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    for name, parameter in (("counts", counts), ("probs", probs)):
        if parameter.ndims is not None and parameter.ndims > 1:
            raise ValueError(f"{name} must be a scalar or a vector, got shape {parameter}")
    return ctx.constant_as_shape("shape")


@StatefulRandomBinomial.host_kernel
def _(
    resource: ResourceHandle,
    algorithm: Array,
    shape: Array,
    counts: Array,
    probs: Array,
    *,
    dtype: DType,
    ctx: OperationContext,
) -> Any:
    dims = _dims(shape, ctx)
    state = np.asarray(_state(resource, algorithm, ctx))
    if not dims:
        raise InvalidArgumentError(None, ctx.op, "the shape must have a dimension: that of counts and probs")
    for name, parameter in (("counts", counts), ("probs", probs)):
        if parameter.size not in (1, dims[0]):
            raise InvalidArgumentError(
                None, ctx.op, f"{name} must be one number or {dims[0]}, as shape[0], got shape {list(parameter.shape)}"
            )
    batches, size = dims[0], math.prod(dims[1:])
    batch = 1 if counts.size == probs.size == 1 else batches
    _advance(resource, state, 2 * 100 * batch * (math.prod(dims) // max(batch, 1) + 3) // 4, ctx)
    count_of, prob_of = (np.broadcast_to(p.reshape(-1), [batches]).tolist() for p in (counts, probs))
    numbers = [_binomial(count_of[i // size], prob_of[i // size], state, i) for i in range(batches * size)]
    return np.array(numbers, np.float64).reshape(dims).astype(dtype.as_numpy_dtype)


def _binomial(count: float, prob: float, state: Array, index: int) -> float:
    """The number at an index: how many of `count` trials succeed; NaN where the probability is."""
    if count <= 0 or prob <= 0:
        return 0.0
    if prob >= 1:
        return count
    if math.isnan(prob):
        return math.nan
    rare = min(prob, 1 - prob)
    if count * rare >= _REJECTION_FROM:
        number = _by_rejection(count, rare, philox.pairs_of_doubles(state, index * philox.BLOCKS_PER_NUMBER))
    else:
        number = _by_waiting(count, rare, philox.pairs_of_doubles(state, index * _BLOCKS_PER_WAIT))
    return number if prob <= 0.5 else count - number


def _by_waiting(count: float, prob: float, blocks: Iterator[tuple[float, float]]) -> float:
    """Adds up the trials between successes, which are geometrically distributed, until there are more than `count`."""
    passed, successes, scale = 0.0, -1, math.log1p(-prob)
    numbers = (number for block in blocks for number in reversed(block))
    while passed <= count:
        number = next(numbers)
        passed += math.ceil(math.log(number) / scale) if number else math.inf
        successes += 1
    return float(successes)


def _by_rejection(count: float, prob: float, blocks: Iterator[tuple[float, float]]) -> float:
    """Hörmann's transformed rejection with squeeze, BTRS (J. Stat. Comput. Simul. 46, 1993)."""
    spread = math.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    odds, alpha, mode = prob / (1 - prob), (2.83 + 5.1 / b) * spread, math.floor((count + 1) * prob)
    for v, u in blocks:
        u -= 0.5
        inside = 0.5 - abs(u)
        if inside == 0:
            continue
        k = math.floor((2 * a / inside + b) * u + count * prob + 0.5)
        if inside >= 0.07 and v <= 0.92 - 4.2 / b:
            return float(k)
        if not 0 <= k <= count or v == 0:
            continue
        bound = (
            (mode + 0.5) * math.log((mode + 1) / (odds * (count - mode + 1)))
            + (count + 1) * math.log((count - mode + 1) / (count - k + 1))
            + (k + 0.5) * math.log(odds * (count - k + 1) / (k + 1))
            + sum(_stirling_tail(n) for n in (mode, count - mode))
            - sum(_stirling_tail(n) for n in (k, count - k))
        )
        if math.log(v * alpha / (a / (inside * inside) + b)) <= bound:
            return float(k)
    raise AssertionError("there are blocks without end")


def _stirling_tail(k: float) -> float:
    """log(k!) less Stirling's formula for it."""
    if k <= 9:
        return math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
    square = (k + 1) ** 2
    return (1 / 12 - (1 / 360 + 1 / 1260 / square) / square) / (k + 1)
