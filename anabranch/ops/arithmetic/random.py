"""Random numbers: uniform, normal, truncated, gamma, Poisson, multinomial, shuffles; and their stateless forms.

The numbers are other than TensorFlow's for the same seed; their distributions are the documented ones. An operation
with a seed draws the same sequence in every session that runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ElementType, RandomSource
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic import incomplete_gamma, random_bits, random_gamma

_SEEDS = "seed: int = 0, seed2: int = 0"
#: `tf.truncated_normal` draws again what lies further than this many standard deviations from the mean
_TRUNCATED_AT = 2.0


def _shape_input(shape: TensorShape, *_: TensorShape, ctx: ShapeContext) -> TensorShape:
    """One output whose shape is the value of the input `shape`."""
    return ctx.constant_as_shape("shape")


def _dims(shape: Array) -> tuple[int, ...]:
    if np.ndim(shape) != 1:
        raise ValueError(f"shape must be a vector of {{int32,int64}}, got shape: {list(np.shape(shape))}")
    dims = tuple(int(d) for d in np.asarray(shape))
    if any(d < 0 for d in dims):
        raise ValueError(f"the shape {list(dims)} has a negative dimension")
    return dims


def stateless_key(seed: Array, ctx: OperationContext) -> Any:
    """The random key that a pair of integers stands for; all 128 bits count."""
    if np.shape(seed) != (2,):
        raise InvalidArgumentError(None, ctx.op, f"seed must have shape [2], not {list(np.shape(seed))}")
    words = jnp.asarray(seed).astype(jnp.int64)
    low, high = words[1].astype(jnp.uint32), (words[1] >> np.int64(32)).astype(jnp.uint32)
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(words[0]), low), high)


# ---------------------------------------------------------------------- uniform and normal
RandomUniform = define_op(
    "RandomUniform",
    "shape: T -> output: dtype",
    f"{_SEEDS}, dtype: floating, T: index",
    stateful=True,
    static=("shape",),
    takes_numpy=True,
)
RandomUniform.shape(_shape_input)
RandomUniform.not_differentiable()


@RandomUniform.kernel
def _(shape: Array, *, dtype: DType, rng: RandomSource) -> Any:
    return random_bits.uniform(rng, _dims(shape), dtype.as_numpy_dtype)


RandomStandardNormal = define_op(
    "RandomStandardNormal",
    "shape: T -> output: dtype",
    f"{_SEEDS}, dtype: floating, T: index",
    stateful=True,
    static=("shape",),
    takes_numpy=True,
)
RandomStandardNormal.shape(_shape_input)
RandomStandardNormal.not_differentiable()


@RandomStandardNormal.kernel
def _(shape: Array, *, dtype: DType, rng: RandomSource) -> Any:
    return random_bits.normal(rng, _dims(shape), dtype.as_numpy_dtype)


TruncatedNormal = define_op(
    "TruncatedNormal",
    "shape: T -> output: dtype",
    f"{_SEEDS}, dtype: floating, T: index",
    stateful=True,
    static=("shape",),
    takes_numpy=True,
)
TruncatedNormal.shape(_shape_input)
TruncatedNormal.not_differentiable()


@TruncatedNormal.kernel
def _(shape: Array, *, dtype: DType, rng: RandomSource) -> Any:
    return random_bits.normal(rng, _dims(shape), dtype.as_numpy_dtype, bound=_TRUNCATED_AT)


def _uniform_integers(shape: Array, low: Array, high: Array, key: RandomSource, ctx: OperationContext) -> Any:
    for name, bound in (("minval", low), ("maxval", high)):
        if np.ndim(bound) != 0:
            raise InvalidArgumentError(None, ctx.op, f"{name} must be a scalar, got shape {list(np.shape(bound))}")
    dims = _dims(shape)
    if 0 not in dims:  # as in TensorFlow, an interval that is empty suffices for no numbers
        ctx.check(low < high, "Need minval < maxval, got {0} >= {1}", low, high)
    return random_bits.integers(key, dims, low, high)


RandomUniformInt = define_op(
    "RandomUniformInt",
    "shape: T, minval: Tout, maxval: Tout -> output: Tout",
    f"{_SEEDS}, Tout: index, T: index",
    stateful=True,
    static=("shape",),
    takes_numpy=True,
)


@RandomUniformInt.shape
def _(shape: TensorShape, minval: TensorShape, maxval: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    shape_rules.with_rank(minval, 0, "argument 'minval'")
    shape_rules.with_rank(maxval, 0, "argument 'maxval'")
    return _shape_input(shape, ctx=ctx)


RandomUniformInt.not_differentiable()


@RandomUniformInt.kernel
def _(shape: Array, minval: Array, maxval: Array, *, rng: RandomSource, ctx: OperationContext) -> Any:
    return _uniform_integers(shape, minval, maxval, rng, ctx)


ParameterizedTruncatedNormal = define_op(
    "ParameterizedTruncatedNormal",
    "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype -> output: dtype",
    f"{_SEEDS}, dtype: floating, T: index",
    stateful=True,
    static=("shape",),
)
ParameterizedTruncatedNormal.shape(_shape_input)
ParameterizedTruncatedNormal.not_differentiable()


@ParameterizedTruncatedNormal.kernel
def _(
    shape: Array,
    means: Array,
    stdevs: Array,
    minvals: Array,
    maxvals: Array,
    *,
    rng: RandomSource,
    ctx: OperationContext,
) -> Any:
    dims = _dims(shape)
    mean, deviation, low, high = (_per_batch(p, dims) for p in (means, stdevs, minvals, maxvals))
    ctx.check(deviation > 0, "stdevs must be positive, got {0}", jnp.min(deviation))
    ctx.check(low < high, "Need minvals < maxvals, got intervals of width {0}", jnp.min(high - low))
    a, b = (low - mean) / deviation, (high - mean) / deviation
    # The distribution function has no precision left far above the mean: an interval there is mirrored below it.
    mirrored = a > 0
    a, b = jnp.where(mirrored, -b, a), jnp.where(mirrored, -a, b)
    at_a, at_b = jax.scipy.special.ndtr(a), jax.scipy.special.ndtr(b)
    part = random_bits.uniform(rng, dims, np.float64)
    numbers = jnp.clip(jax.scipy.special.ndtri(at_a + part * (at_b - at_a)), a, b)
    numbers = jnp.where(mirrored, -numbers, numbers) * deviation + mean
    return jnp.clip(numbers, low, high).astype(means.dtype)


def _per_batch(parameter: Array, dims: tuple[int, ...]) -> Any:
    """A scalar parameter, or one value per batch, in double precision, so that it broadcasts with the output."""
    wide = jnp.asarray(parameter).astype(jnp.float64)
    if wide.ndim == 0 or wide.shape == (1,):
        return wide.reshape(())
    if not dims or wide.shape != dims[:1]:
        raise ValueError(
            f"a parameter must be a scalar or have one value per batch, {list(dims[:1])}, got {wide.shape}"
        )
    return wide.reshape((-1, *(1,) * (len(dims) - 1)))


# ---------------------------------------------------------------------- gamma and Poisson
def _shape_and_parameter(shape: TensorShape, parameter: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    """The value of `shape`, followed by the shape of the distribution's parameter."""
    wanted: TensorShape = ctx.constant_as_shape("shape")
    return wanted.concatenate(parameter)


RandomGamma = define_op(
    "RandomGamma",
    "shape: S, alpha: T -> output: T",
    f"{_SEEDS}, S: index, T: {{half, float, double}}",
    stateful=True,
    static=("shape",),
    takes_numpy=True,
)
RandomGamma.shape(_shape_and_parameter)


@RandomGamma.kernel
def _(shape: Array, alpha: Array, *, rng: RandomSource) -> Any:
    wide = np.float64 if alpha.dtype == np.float64 else np.float32
    return random_gamma.gamma(rng, alpha.astype(wide), (*_dims(shape), *alpha.shape)).astype(alpha.dtype)


@RandomGamma.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """Implicit reparameterization: d sample / d alpha, summed over the samples of each alpha."""
    alpha = op.inputs[1]
    leading = raw.Range(0, raw.Size(op.inputs[0]), 1)
    return None, raw.Sum(raw.Mul(grad, _sample_gradient(alpha, op.outputs[0])), leading)


def _sample_gradient(alpha: Tensor, sample: Tensor) -> Any:
    if alpha.dtype.name == "float16":
        wide = RandomGammaGrad(raw.Cast(alpha, DstT="float32"), raw.Cast(sample, DstT="float32"))
        return raw.Cast(wide, DstT="float16")
    return RandomGammaGrad(alpha, sample)


RandomGammaGrad = define_op("RandomGammaGrad", "alpha: T, sample: T -> output: T", "T: {float, double}")
RandomGammaGrad.shape(shape_rules.broadcast)
RandomGammaGrad.not_differentiable()


@RandomGammaGrad.kernel
def _(alpha: Array, sample: Array) -> Any:
    return incomplete_gamma.sample_by_a(alpha, sample)


def _poisson(shape: Array, rate: Array, key: RandomSource, dtype: ElementType, ctx: OperationContext) -> Any:
    rate = jnp.asarray(rate)
    least = jnp.min(rate, initial=0)
    ctx.check(rate >= 0, "the rate of a Poisson distribution must not be negative, got {0}", least)
    wide = rate.astype(jnp.float64 if rate.dtype.itemsize == 8 else jnp.float32)
    numbers = jax.random.poisson(key, wide, (*_dims(shape), *np.shape(rate)), dtype=jnp.int64)
    return numbers.astype(dtype)


RandomPoisson = define_op(
    "RandomPoisson",
    "shape: S, rate: dtype -> output: dtype",
    f"{_SEEDS}, S: index, dtype: {{half, float, double}}",
    stateful=True,
    static=("shape",),
)
RandomPoisson.shape(_shape_and_parameter)
RandomPoisson.not_differentiable()


@RandomPoisson.kernel
def _(shape: Array, rate: Array, *, dtype: DType, rng: RandomSource, ctx: OperationContext) -> Any:
    return _poisson(shape, rate, rng, dtype.as_numpy_dtype, ctx)


RandomPoissonV2 = define_op(
    "RandomPoissonV2",
    "shape: S, rate: R -> output: dtype",
    f"{_SEEDS}, S: index, R: {{half, float, double, int32, int64}} = double, "
    "dtype: {half, float, double, int32, int64} = int64",
    stateful=True,
    static=("shape",),
)
RandomPoissonV2.shape(_shape_and_parameter)
RandomPoissonV2.not_differentiable()


@RandomPoissonV2.kernel
def _(shape: Array, rate: Array, *, dtype: DType, rng: RandomSource, ctx: OperationContext) -> Any:
    return _poisson(shape, rate, rng, dtype.as_numpy_dtype, ctx)


# ---------------------------------------------------------------------- choices
def _multinomial_shape(
    logits: TensorShape, num_samples: TensorShape, *_: TensorShape, ctx: ShapeContext
) -> TensorShape:
    logits = shape_rules.with_rank(logits, 2, "argument 'logits'")
    count = ctx.constant("num_samples")
    return TensorShape([logits[0], None if count is None else int(count)])


def _multinomial(
    logits: Array, num_samples: Array, key: RandomSource, dtype: ElementType, ctx: OperationContext
) -> Any:
    """Samples by inverting the cumulative distribution: O(log classes) per sample."""
    batch, classes = logits.shape
    count = int(num_samples)
    if count < 0:
        raise ValueError(f"num_samples must not be negative, got {count}")
    if classes == 0 and batch and count:
        raise InvalidArgumentError(None, ctx.op, f"num_classes should be positive, got logits of shape {logits.shape}")
    if not batch or not count:
        return jnp.zeros((batch, count), dtype)
    wide = jnp.asarray(logits).astype(jnp.float64)
    finite = jnp.isfinite(wide)
    top = jnp.max(jnp.where(finite, wide, -jnp.inf), axis=1, keepdims=True)
    ctx.check(
        jnp.isfinite(top), "every row of logits needs a finite value; row {0} has none", jnp.argmin(jnp.isfinite(top))
    )
    weights = jnp.cumsum(jnp.where(finite, jnp.exp(wide - top), 0.0), axis=1)
    total = weights[:, -1:]
    # rounding may take the product up to the total itself, which no class covers
    drawn = jnp.minimum(random_bits.uniform(key, (batch, count), np.float64) * total, jnp.nextafter(total, 0.0))
    return jax.vmap(lambda row, u: jnp.searchsorted(row, u, side="right"))(weights, drawn).astype(dtype)


Multinomial = define_op(
    "Multinomial",
    "logits: T, num_samples: int32 -> output: output_dtype",
    f"{_SEEDS}, T: real, output_dtype: index = int64",
    stateful=True,
    static=("num_samples",),
)
Multinomial.shape(_multinomial_shape)
Multinomial.not_differentiable()


@Multinomial.kernel
def _(logits: Array, num_samples: Array, *, output_dtype: DType, rng: RandomSource, ctx: OperationContext) -> Any:
    return _multinomial(logits, num_samples, rng, output_dtype.as_numpy_dtype, ctx)


RandomShuffle = define_op(
    "RandomShuffle", "value: T -> output: T", f"{_SEEDS}, T: any", stateful=True, takes_numpy=True
)
RandomShuffle.shape(shape_rules.same_as_first)
RandomShuffle.not_differentiable()


@RandomShuffle.kernel
def _(value: Array, *, rng: RandomSource) -> Any:
    if not np.ndim(value):
        return value
    return random_bits.library_for(rng).take(value, _permutation(value.shape[0], rng), axis=0, mode="clip")


def _permutation(count: int, key: RandomSource) -> Any:
    """The numbers below `count` in random order: sorted by random bits, each packed with its bits into one word.

    Sorting words is several times faster than an argsort. Equal bits, which keep the order of their numbers, are rare
    enough: below 2**20 numbers an expected 1/32 pairs at most.
    """
    width = np.uint64(count.bit_length())
    xp = random_bits.library_for(key)
    numbers = xp.arange(count, dtype=np.uint64)
    words = xp.sort((random_bits.bits64(key, (count,)) << width) | numbers)
    return (words & ((np.uint64(1) << width) - np.uint64(1))).astype(jnp.int64)


@RandomShuffle.host_kernel
def _(value: Array, *, rng: RandomSource) -> Any:
    return rng.permutation(value, axis=0) if np.ndim(value) else value


# ---------------------------------------------------------------------- stateless
def _stateless(name: str, draw: Callable[..., Array]) -> Any:
    op = define_op(
        name,
        "shape: T, seed: Tseed -> output: dtype",
        "dtype: floating = float, T: index = int32, Tseed: index = int64",
        static=("shape",),
    )
    op.shape(_shape_input)

    @op.kernel
    def _(shape: Array, seed: Array, *, dtype: DType, ctx: OperationContext) -> Any:
        return draw(stateless_key(seed, ctx), _dims(shape), dtype.as_numpy_dtype)

    return op.not_differentiable()


StatelessRandomUniform = _stateless("StatelessRandomUniform", random_bits.uniform)
StatelessRandomNormal = _stateless("StatelessRandomNormal", lambda k, s, t: random_bits.normal(k, s, t, math.inf))
StatelessTruncatedNormal = _stateless(
    "StatelessTruncatedNormal", lambda k, s, t: random_bits.normal(k, s, t, _TRUNCATED_AT)
)

StatelessRandomUniformInt = define_op(
    "StatelessRandomUniformInt",
    "shape: T, seed: Tseed, minval: dtype, maxval: dtype -> output: dtype",
    "dtype: index, T: index, Tseed: index = int64",
    static=("shape",),
)
StatelessRandomUniformInt.shape(_shape_input)
StatelessRandomUniformInt.not_differentiable()


@StatelessRandomUniformInt.kernel
def _(shape: Array, seed: Array, minval: Array, maxval: Array, *, ctx: OperationContext) -> Any:
    return _uniform_integers(shape, minval, maxval, stateless_key(seed, ctx), ctx)


StatelessRandomUniformFullInt = define_op(
    "StatelessRandomUniformFullInt",
    "shape: T, seed: Tseed -> output: dtype",
    "dtype: {int32, int64, uint32, uint64} = uint64, T: index = int32, Tseed: {int32, int64, uint32, uint64} = int64",
    static=("shape",),
)
StatelessRandomUniformFullInt.shape(_shape_input)
StatelessRandomUniformFullInt.not_differentiable()


@StatelessRandomUniformFullInt.kernel
def _(shape: Array, seed: Array, *, dtype: DType, ctx: OperationContext) -> Any:
    draw = random_bits.bits64 if dtype.size == 8 else random_bits.bits32
    return jax.lax.bitcast_convert_type(draw(stateless_key(seed, ctx), _dims(shape)), dtype.as_numpy_dtype)


StatelessMultinomial = define_op(
    "StatelessMultinomial",
    "logits: T, num_samples: int32, seed: Tseed -> output: output_dtype",
    "T: real, Tseed: index = int64, output_dtype: index = int64",
    static=("num_samples",),
)
StatelessMultinomial.shape(_multinomial_shape)
StatelessMultinomial.not_differentiable()


@StatelessMultinomial.kernel
def _(logits: Array, num_samples: Array, seed: Array, *, output_dtype: DType, ctx: OperationContext) -> Any:
    return _multinomial(logits, num_samples, stateless_key(seed, ctx), output_dtype.as_numpy_dtype, ctx)
