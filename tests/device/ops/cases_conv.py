"""Rows of the op table: convolutions and their gradients."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase
from tests.oracles import windows

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(1971)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def oracle(strides: Any = (1, 1), dilations: Any = (1, 1), padding: Any = "SAME", depthwise: bool = False) -> Any:
    how = {"strides": strides, "dilations": dilations, "padding": padding, "depthwise": depthwise}
    return lambda x, w: windows.convolve(x, w, **how)


def to_input(strides: Any = (1, 1), dilations: Any = (1, 1), padding: Any = "SAME", depthwise: bool = False) -> Any:
    how = {"strides": strides, "dilations": dilations, "padding": padding, "depthwise": depthwise}
    return lambda sizes, w, g: windows.convolve_to_input(sizes, w, g, **how)


def to_filter(strides: Any = (1, 1), dilations: Any = (1, 1), padding: Any = "SAME", depthwise: bool = False) -> Any:
    how = {"strides": strides, "dilations": dilations, "padding": padding, "depthwise": depthwise}
    return lambda x, sizes, g: windows.convolve_to_filter(x, sizes, g, **how)


def channels_first(function: Any) -> Any:
    def oracle(x: Array, w: Array) -> Array:
        return np.moveaxis(function(np.moveaxis(x, 1, -1), w), -1, 1)

    return oracle


PLAIN = {"strides": [1, 1, 1, 1], "padding": "SAME"}
STRIDED = {"strides": [1, 2, 3, 1], "padding": "VALID"}
ODD = {"strides": [1, 2, 2, 1], "padding": "SAME"}
DILATED = {"strides": [1, 1, 1, 1], "padding": "VALID", "dilations": [1, 2, 1, 1]}
EXPLICIT = {"strides": [1, 1, 2, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 0, 1, 3, 0, 0]}
PADS = ((2, 0), (1, 3))
VOLUME = {"strides": [1, 1, 2, 1, 1], "padding": "SAME"}
X, W = normal(2, 5, 6, 3), normal(3, 2, 3, 4)
GREY, GREY_W = normal(2, 5, 6, 1), normal(3, 3, 1, 2)
DW = normal(3, 2, 3, 2)
V, VW = normal(1, 3, 4, 3, 2), normal(2, 3, 2, 2, 3)
BIG, BIG_W = normal(2, 64, 66, 16), normal(5, 5, 16, 2) / 20


def big(x: Array, w: Array) -> Array:
    """A column matrix too large for the cache takes XLA's own convolution; summed here tap by tap."""
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    parts = [padded[:, i : i + x.shape[1], j : j + x.shape[2]] @ w[i, j] for i in range(5) for j in range(5)]
    return np.sum(parts, axis=0)


def sizes(*shape: int) -> Array:
    return np.array(shape, np.int32)


CASES = [
    OpCase("Conv2D", (X, W), PLAIN, oracle(), order=2),
    OpCase("Conv2D", (X, W), STRIDED, oracle((2, 3), padding="VALID"), order=2, label="strided"),
    OpCase("Conv2D", (X, W), ODD, oracle((2, 2)), label="strided, SAME"),
    OpCase("Conv2D", (X, W), DILATED, oracle(dilations=(2, 1), padding="VALID"), order=2, label="dilated"),
    OpCase("Conv2D", (X, W), EXPLICIT, oracle((1, 2), padding=PADS), order=2, label="explicit"),
    OpCase("Conv2D", (GREY, GREY_W), PLAIN, oracle(), order=2, label="one channel"),
    OpCase("Conv2D", (X, W[:1, :1]), {"strides": [1, 2, 2, 1], "padding": "VALID"}, oracle((2, 2)), label="1x1"),
    OpCase("Conv2D", (BIG, BIG_W), PLAIN, big, tolerance=1e-4, gradient=False, label="large"),
    OpCase(
        "Conv2D",
        (np.moveaxis(X, -1, 1), W),
        {**PLAIN, "data_format": "NCHW", "strides": [1, 1, 2, 1]},
        channels_first(oracle((2, 1))),
        label="NCHW",
    ),
    OpCase(
        "Conv2D",
        (normal(2, 4, 4, 4), normal(3, 3, 2, 6)),
        PLAIN,
        lambda x, w: np.concatenate(
            [oracle()(x[..., 2 * g : 2 * g + 2], w[..., 3 * g : 3 * g + 3]) for g in range(2)], axis=-1
        ),
        label="groups",
    ),
    OpCase("Conv2D", (X.astype(np.float64), W.astype(np.float64)), PLAIN, oracle(), label="double"),
    OpCase("Conv2D", (X.astype(np.float16), W.astype(np.float16)), PLAIN, oracle(), gradient=False, label="half"),
    OpCase(
        "Conv2D",
        (X.astype(ml_dtypes.bfloat16), W.astype(ml_dtypes.bfloat16)),
        PLAIN,
        oracle(),
        tolerance=6e-2,
        gradient=False,
        label="bfloat16",
    ),
    OpCase("Conv2D", (np.int32(3 * X), np.int32(3 * W)), PLAIN, oracle(), label="int32"),
    OpCase("Conv2D", (X[:0], W), PLAIN, lambda x, w: np.zeros((0, 5, 6, 4), np.float32), label="empty batch"),
    OpCase("Conv2D", (X, W[:, :, :2]), PLAIN, error=InvalidArgumentError, label="channels"),
    OpCase("Conv2D", (X[:, :2], W), {**PLAIN, "padding": "VALID"}, error=InvalidArgumentError, label="too small"),
    OpCase("Conv2D", (X, W), {**PLAIN, "strides": [1, 1, 1, 2]}, error=InvalidArgumentError, label="channel stride"),
    OpCase("Conv2DBackpropInput", (sizes(2, 5, 6, 3), W, normal(2, 5, 6, 4)), PLAIN, to_input(), order=2),
    OpCase(
        "Conv2DBackpropInput",
        (sizes(2, 5, 6, 3), W, normal(2, 2, 2, 4)),
        STRIDED,
        to_input((2, 3), padding="VALID"),
        order=2,
        label="strided",
    ),
    OpCase(
        "Conv2DBackpropInput",
        (sizes(5, 6), W, normal(2, 1, 5, 4)),
        DILATED,
        lambda s, w, g: to_input(dilations=(2, 1), padding="VALID")((2, 5, 6, 3), w, g),
        label="two sizes",
    ),
    OpCase(
        "Conv2DBackpropInput",
        (sizes(2, 3, 5, 6), W, normal(2, 4, 5, 6)),
        {**PLAIN, "data_format": "NCHW"},
        lambda s, w, g: np.moveaxis(to_input()((2, 5, 6, 3), w, np.moveaxis(g, 1, -1)), -1, 1),
        label="NCHW",
    ),
    OpCase(
        "Conv2DBackpropInput",
        (sizes(2, 12, 11, 8), normal(5, 4, 8, 40), normal(2, 8, 8, 40)),
        {"strides": [1, 1, 1, 1], "padding": "VALID"},
        to_input(padding="VALID"),
        tolerance=1e-4,
        gradient=False,
        label="much smaller than the data",
    ),
    OpCase("Conv2DBackpropInput", (sizes(2, 5, 6, 3), W, X), PLAIN, error=InvalidArgumentError, label="depth"),
    OpCase("Conv2DBackpropFilter", (X, sizes(3, 2, 3, 4), normal(2, 5, 6, 4)), PLAIN, to_filter(), order=2),
    OpCase(
        "Conv2DBackpropFilter",
        (X, sizes(3, 2, 3, 4), normal(2, 5, 5, 4)),
        EXPLICIT,
        to_filter((1, 2), padding=PADS),
        order=2,
        label="explicit",
    ),
    OpCase("DepthwiseConv2dNative", (X, DW), PLAIN, oracle(depthwise=True), order=2),
    OpCase(
        "DepthwiseConv2dNative",
        (X, DW[..., :1]),
        {"strides": [1, 2, 2, 1], "padding": "VALID", "dilations": [1, 2, 2, 1]},
        oracle((2, 2), (2, 2), "VALID", depthwise=True),
        order=2,
        label="strided and dilated",
    ),
    OpCase(
        "DepthwiseConv2dNative",
        (np.moveaxis(X, -1, 1), DW),
        {**PLAIN, "data_format": "NCHW"},
        channels_first(oracle(depthwise=True)),
        label="NCHW",
    ),
    OpCase(
        "DepthwiseConv2dNativeBackpropInput",
        (sizes(2, 5, 6, 3), DW, normal(2, 5, 6, 6)),
        PLAIN,
        to_input(depthwise=True),
        order=2,
    ),
    OpCase(
        "DepthwiseConv2dNativeBackpropFilter",
        (X, sizes(3, 2, 3, 2), normal(2, 5, 6, 6)),
        PLAIN,
        to_filter(depthwise=True),
        order=2,
    ),
    OpCase("Conv3D", (V, VW), VOLUME, oracle((1, 2, 1), (1, 1, 1)), order=2),
    OpCase(
        "Conv3D",
        (np.moveaxis(V, -1, 1), VW),
        {"strides": [1] * 5, "padding": "VALID", "data_format": "NCDHW"},
        channels_first(oracle((1, 1, 1), (1, 1, 1), "VALID")),
        label="NCDHW",
    ),
    OpCase(
        "Conv3DBackpropInputV2",
        (sizes(1, 3, 4, 3, 2), VW, normal(1, 3, 2, 3, 3)),
        VOLUME,
        to_input((1, 2, 1), (1, 1, 1)),
        order=2,
    ),
    OpCase(
        "Conv3DBackpropFilterV2",
        (V, sizes(2, 3, 2, 2, 3), normal(1, 3, 2, 3, 3)),
        VOLUME,
        to_filter((1, 2, 1), (1, 1, 1)),
        order=2,
    ),
]
