"""Rows of the op table: batch and local response normalization."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(2015)
X = RNG.normal(size=(3, 2, 4, 3)).astype(np.float32) * 2 + 1
#: channels that are no neighbours of what is infinite or NaN
FAR = np.float32([[[[np.inf, 1, 2, 3], [1, 2, 3, -np.inf], [np.nan, 1, 2, 3]]]])
VOLUME = RNG.normal(size=(2, 2, 3, 2, 3)).astype(np.float32)
G = RNG.normal(size=X.shape).astype(np.float32)
SCALE, OFFSET, MEAN = (RNG.normal(size=3).astype(np.float32) for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, size=3).astype(np.float32)
EMPTY = np.zeros(0, np.float32)
EPSILON = 0.001


def axes(x: Array) -> tuple[int, ...]:
    return tuple(range(x.ndim - 1))


def training(factor: float = 1.0, third: bool = False) -> Any:
    def oracle(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> list[Array]:
        own, spread = x.mean(axes(x)), x.var(axes(x))
        count = x.size / x.shape[-1]
        y = (x - own) / np.sqrt(spread + EPSILON) * scale + offset
        unbiased = spread * count / (count - 1)
        running = [own, unbiased]
        if factor != 1:
            running = [mean * (1 - factor) + own * factor, variance * (1 - factor) + unbiased * factor]
        return [y, *running, own, spread, *([np.float32(0)] if third else [])]

    return oracle


def inference(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> list[Array]:
    y = (x - mean) / np.sqrt(variance + EPSILON) * scale + offset
    return [y, mean, variance, mean, variance, np.float32(0)]


def backward(train: bool) -> Any:
    def oracle(g: Array, x: Array, scale: Array, mean: Array, variance: Array, *_: Any) -> list[Array]:
        inverse = 1 / np.sqrt(variance + EPSILON)
        normal = (x - mean) * inverse
        to_scale, to_offset = (g * normal).sum(axes(x)), g.sum(axes(x))
        if train:
            g = g - g.mean(axes(x)) - normal * (g * normal).mean(axes(x))
        return [g * scale * inverse, to_scale, to_offset, EMPTY, EMPTY]

    return oracle


def first(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def given(t: Array, m: Array, v: Array, beta: Array, gamma: Array) -> Array:
    return (t - m) / np.sqrt(v + EPSILON) * gamma + beta


def given_backward(t: Array, m: Array, v: Array, gamma: Array, g: Array) -> list[Array]:
    inverse = 1 / np.sqrt(v + EPSILON)
    centred = (g * (t - m)).sum(axes(t))
    return [
        g * inverse * gamma,
        -(g.sum(axes(t)) * inverse * gamma),
        centred * gamma * -0.5 * inverse**3,
        g.sum(axes(t)),
        centred * inverse,
    ]


def local(x: Array, radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5) -> Array:
    squares = np.zeros_like(x)
    for c in range(x.shape[-1]):
        squares[..., c] = (x[..., max(0, c - radius) : c + radius + 1] ** 2).sum(-1)
    return x / (bias + alpha * squares) ** beta


def local_grad(radius: int, bias: float, alpha: float, beta: float) -> Any:
    """By central differences in double precision."""

    def oracle(g: Array, x: Array, y: Array) -> Array:
        out = np.zeros(x.shape, np.float64)
        for at in np.ndindex(*x.shape):
            step = np.zeros(x.shape, np.float64)
            step[at] = 1e-6
            slope = local(x + step, radius, bias, alpha, beta) - local(x - step, radius, bias, alpha, beta)
            out[at] = (slope * g).sum() / 2e-6
        return out.astype(np.float32)

    return oracle


def local_grad_by_terms(radius: int, bias: float, alpha: float, beta: float) -> Any:
    """Each gradient times one factor for each channel that it goes to, as TensorFlow has it."""

    def oracle(g: Array, x: Array, y: Array) -> Array:
        out = np.zeros_like(x)
        channels = range(x.shape[-1])
        for c in channels:
            near = x[..., max(0, c - radius) : c + radius + 1]
            norm = bias + alpha * (near**2).sum(-1)
            for k in channels[max(0, c - radius) : c + radius + 1]:
                factor = -2 * alpha * beta * x[..., k] * y[..., c] / norm + (norm**-beta if k == c else 0)
                out[..., k] += factor * g[..., c]
        return out

    return oracle


def with_infinities(x: Array) -> Array:
    """One element in each seven, of both signs."""
    wild = x.copy()
    wild.flat[::7] = np.inf
    wild.flat[3::14] = -np.inf
    return wild


TRAIN = {"epsilon": EPSILON}
INFER = {"epsilon": EPSILON, "is_training": False}
VECTORS = (SCALE, OFFSET, MEAN, VARIANCE)
OWN = (X.mean((0, 1, 2)), X.var((0, 1, 2)))
LOCAL = {"depth_radius": 1, "bias": 1.5, "alpha": 0.7, "beta": 0.6}
#: The gradients of the statistics are not taken, so only y's is checked, through the frontend's tests.
ONLY_VALUE = {"gradient": False}

CASES = [
    OpCase("FusedBatchNorm", (X, *VECTORS), TRAIN, training(), **ONLY_VALUE),
    OpCase("FusedBatchNorm", (X, *VECTORS), INFER, lambda *a: inference(*a)[:5], label="inference", **ONLY_VALUE),
    OpCase("FusedBatchNormV2", (X, *VECTORS), {**TRAIN, "exponential_avg_factor": 0.25}, training(0.25), **ONLY_VALUE),
    OpCase(
        "FusedBatchNormV3",
        (X.astype(ml_dtypes.bfloat16), *VECTORS),
        TRAIN,
        training(third=True),
        label="bfloat16",
        tolerance=3e-2,
        **ONLY_VALUE,
    ),
    OpCase("FusedBatchNormV3", (X, *VECTORS), INFER, inference, **ONLY_VALUE),
    OpCase(
        "FusedBatchNormV3",
        (first(X), *VECTORS),
        {**TRAIN, "data_format": "NCHW"},
        lambda x, *v: [first(training(third=True)(np.moveaxis(x, 1, -1), *v)[0]), *training(third=True)(X, *v)[1:]],
        label="NCHW",
        **ONLY_VALUE,
    ),
    OpCase(
        "FusedBatchNormV3",
        (VOLUME, *VECTORS),
        {**TRAIN, "data_format": "NDHWC"},
        training(third=True),
        label="NDHWC",
        **ONLY_VALUE,
    ),
    OpCase("FusedBatchNormV3", (X, SCALE[:2], *VECTORS[1:]), TRAIN, error=InvalidArgumentError, label="two scales"),
    OpCase("FusedBatchNormGrad", (G, X, SCALE, *OWN), TRAIN, backward(True), **ONLY_VALUE),
    OpCase("FusedBatchNormGradV2", (G, X, SCALE, *OWN), TRAIN, backward(True), **ONLY_VALUE),
    OpCase("FusedBatchNormGradV3", (G, X, SCALE, *OWN, np.float32(0)), TRAIN, backward(True), **ONLY_VALUE),
    OpCase(
        "FusedBatchNormGradV3",
        (G, X, SCALE, MEAN, VARIANCE, np.float32(0)),
        INFER,
        backward(False),
        differentiate=[0, 1, 2],
        label="inference",
    ),
    OpCase(
        "BatchNormWithGlobalNormalization",
        (X, MEAN, VARIANCE, OFFSET, SCALE),
        {"variance_epsilon": EPSILON, "scale_after_normalization": True},
        given,
    ),
    OpCase(
        "BatchNormWithGlobalNormalization",
        (X, MEAN, VARIANCE, OFFSET, SCALE),
        {"variance_epsilon": EPSILON, "scale_after_normalization": False},
        lambda t, m, v, beta, gamma: given(t, m, v, beta, np.ones_like(gamma)),
        label="unscaled",
    ),
    OpCase(
        "BatchNormWithGlobalNormalizationGrad",
        (X, MEAN, VARIANCE, SCALE, G),
        {"variance_epsilon": EPSILON, "scale_after_normalization": True},
        given_backward,
    ),
    OpCase("LRN", (X,), oracle=local),
    OpCase("LRN", (X,), LOCAL, lambda x: local(x, 1, 1.5, 0.7, 0.6), label="narrow"),
    OpCase("LRN", (FAR,), LOCAL, lambda x: local(x, 1, 1.5, 0.7, 0.6), gradient=False, label="infinite and NaN"),
    OpCase("LRN", (X.astype(ml_dtypes.bfloat16),), oracle=local, gradient=False, label="bfloat16"),
    OpCase("LRNGrad", (G, X, local(X, 1, 1.5, 0.7, 0.6)), LOCAL, local_grad(1, 1.5, 0.7, 0.6), tolerance=1e-4),
    *(
        OpCase(
            "LRNGrad",
            (with_infinities(G), X, local(X, radius, 1.5, 0.7, 0.6)),
            {**LOCAL, "depth_radius": radius},
            local_grad_by_terms(radius, 1.5, 0.7, 0.6),
            label=f"infinities, {radius} at each side",
        )
        for radius in (0, 1, 2, 7)
    ),
]
