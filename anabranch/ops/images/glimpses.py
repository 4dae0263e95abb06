"""Windows of one size cut out of images, with noise where a window reaches beyond its image."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, RandomSource
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.arithmetic import random_bits

_NOISES = (b"uniform", b"gaussian", b"zero")

# TensorFlow does not say that it is stateful; it is here, where what is not is computed once for all steps.
ExtractGlimpse = define_op(
    "ExtractGlimpse",
    "input: float32, size: int32, offsets: float32 -> glimpse: float32",
    "centered: bool = True, normalized: bool = True, uniform_noise: bool = True, noise: string = 'uniform'",
    stateful=True,
    static=("size",),
    ranks={"size": 1},
)
ExtractGlimpse.not_differentiable()


@ExtractGlimpse.shape
def _(
    input: TensorShape,
    size: TensorShape,
    offsets: TensorShape,
    *,
    uniform_noise: bool,
    noise: bytes,
    ctx: ShapeContext,
) -> TensorShape:
    if noise and noise not in _NOISES:
        raise ValueError(f"noise must be 'uniform', 'gaussian', 'zero' or empty, not {noise.decode()!r}")
    if uniform_noise and noise not in (b"", b"uniform"):
        raise ValueError(f"uniform_noise and noise={noise.decode()!r} exclude each other; set uniform_noise to False")
    input, offsets = shape_rules.with_rank(input, 4, "input"), shape_rules.with_rank(offsets, 2, "offsets")
    offsets = shape_rules.merged(offsets, TensorShape([input[0], 2]))
    shape_rules.merged(size, TensorShape([2]))
    wanted = ctx.constant("size")
    sizes = (None, None) if wanted is None else _sizes(wanted)
    return TensorShape([offsets[0], *sizes, input[3]])


def _sizes(size: Array) -> tuple[int, int]:
    if np.shape(size) != (2,) or min(size) < 0:
        raise ValueError(f"size must be two numbers, height and width; got {np.asarray(size).tolist()}")
    return int(size[0]), int(size[1])


@ExtractGlimpse.kernel
def _(
    input: Array,
    size: Array,
    offsets: Array,
    *,
    centered: bool,
    normalized: bool,
    uniform_noise: bool,
    noise: bytes,
    rng: RandomSource,
) -> Any:
    batch, *lengths, depth = input.shape
    window = _sizes(size)
    shape = (batch, *window, depth)
    if 0 in shape:
        return jnp.zeros(shape, np.float32)
    kind = noise or (b"uniform" if uniform_noise else b"gaussian")
    if 0 in lengths:
        return jnp.zeros(shape, np.float32)
    rows, columns = (_places(offsets[:, axis], lengths[axis], window[axis], centered, normalized) for axis in range(2))
    inside = ((rows >= 0) & (rows < lengths[0]))[:, :, None] & ((columns >= 0) & (columns < lengths[1]))[:, None, :]
    found = jnp.asarray(input)[
        jnp.arange(batch)[:, None, None],
        jnp.clip(rows, 0, lengths[0] - 1)[:, :, None],
        jnp.clip(columns, 0, lengths[1] - 1)[:, None, :],
    ]
    return jnp.where(inside[..., None], found, _noise(kind, jnp.asarray(input), shape, rng))


def _places(offsets: Array, length: int, window: int, centered: bool, normalized: bool) -> Any:
    """Which row or column each of the window's is, [batch, window]; the first is cut off to a whole number."""
    middle = jnp.asarray(offsets)
    if normalized:
        middle = middle * np.float32(length)
    if centered:
        middle = middle / np.float32(2) + np.float32(length / 2)
    first = jnp.trunc(middle - np.float32(window / 2)).astype(np.int32)
    return first[:, None] + np.arange(window, dtype=np.int32)


def _noise(kind: bytes, images: Array, shape: tuple[int, ...], rng: RandomSource) -> Any:
    """Between the least and the greatest value of an image; or, of each channel, about its mean within its values."""
    if kind == b"zero":
        return np.float32(0)
    axes = (1, 2, 3) if kind == b"uniform" else (1, 2)
    low, high = (bound(images, axes, keepdims=True) for bound in (jnp.min, jnp.max))
    if kind == b"uniform":
        return low + random_bits.uniform(rng, shape, np.float32) * (high - low)
    mean, spread = (statistic(images, axes, keepdims=True) for statistic in (jnp.mean, jnp.std))
    return jnp.clip(mean + random_bits.normal(rng, shape, np.float32) * spread, low, high)
