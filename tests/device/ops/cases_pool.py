"""Rows of the op table: pooling and its gradients."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anabranch.core import dtypes
from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase
from tests.oracles import windows

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(1982)
X = RNG.permutation(2 * 6 * 6 * 3).reshape(2, 6, 6, 3).astype(np.float32) / 50
ODD = RNG.permutation(2 * 5 * 7 * 3).reshape(2, 5, 7, 3).astype(np.float32) / 50
TIES = RNG.integers(0, 3, size=(2, 6, 6, 2)).astype(np.float32)
VOLUME = RNG.permutation(1 * 3 * 4 * 5 * 2).reshape(1, 3, 4, 5, 2).astype(np.float32) / 50
LARGE = RNG.permutation(7 * 8 * 2).reshape(1, 7, 8, 2).astype(np.float32) / 50

#: label -> (data, attributes, padding as the oracle takes it)
SETTINGS: dict[str, tuple[Array, dict[str, Any]]] = {
    "tiles": (X, {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}),
    "tiles, odd": (ODD, {"ksize": [1, 2, 3, 1], "strides": [1, 2, 3, 1], "padding": "VALID"}),
    "tiles, SAME": (ODD, {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}),
    "overlapping": (ODD, {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}),
    "gaps": (ODD, {"ksize": [1, 1, 2, 1], "strides": [1, 2, 3, 1], "padding": "VALID"}),
    "depth": (X, {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID"}),
    "beyond both ends": (ODD, {"ksize": [1, 23, 40, 1], "strides": [1, 2, 3, 1], "padding": "SAME"}),
    "large window": (LARGE, {"ksize": [1, 7, 8, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}),
}


def places(attrs: dict[str, Any], x: Array) -> Any:
    return windows.max_pool_places(x, attrs["ksize"], attrs["strides"], attrs["padding"])


def maximum(attrs: dict[str, Any]) -> Any:
    return lambda x, *_: windows.pool(x, attrs["ksize"], attrs["strides"], attrs["padding"], np.max)


def average(attrs: dict[str, Any]) -> Any:
    return lambda x: windows.pool(x, attrs["ksize"], attrs["strides"], attrs["padding"], np.mean)


def max_grad(attrs: dict[str, Any]) -> Any:
    def oracle(x: Array, y: Array, grad: Array, *_: Any) -> Array:
        out = np.zeros_like(x)
        for at, place in places(attrs, x):
            out[place] += grad[at]
        return out

    return oracle


def max_grad_grad(attrs: dict[str, Any]) -> Any:
    def oracle(x: Array, y: Array, grad: Array, *_: Any) -> Array:
        out = np.zeros_like(y)
        for at, place in places(attrs, x):
            out[at] = grad[place]
        return out

    return oracle


def average_grad(attrs: dict[str, Any]) -> Any:
    def oracle(shape: Array, grad: Array) -> Array:
        out = np.zeros(shape, np.float64)
        ones = [1] * len(shape)
        for at, seen in windows.positions(list(shape), attrs["ksize"], attrs["strides"], ones, attrs["padding"])[1]:
            for _, place in seen:
                out[place] += grad[at] / len(seen)
        return out.astype(grad.dtype)

    return oracle


def argmax(attrs: dict[str, Any], batch: bool, dtype: Any = np.int64) -> Any:
    def oracle(x: Array) -> list[Array]:
        y = maximum(attrs)(x)
        found = np.zeros(y.shape, dtype)
        for at, place in places(attrs, x):
            within = place if batch else (0, *place[1:])
            found[at] = np.ravel_multi_index(within, x.shape)
        return [y, found]

    return oracle


def nchw(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def first(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes for channels first."""

    def moved(values: list[int]) -> list[int]:
        return [values[0], values[-1], *values[1:-1]]

    name = "NCHW" if len(attrs["ksize"]) == 4 else "NCDHW"
    return {**attrs, "ksize": moved(attrs["ksize"]), "strides": moved(attrs["strides"]), "data_format": name}


def gradient_rows(label: str, x: Array, attrs: dict[str, Any]) -> list[OpCase]:
    y = maximum(attrs)(x)
    grad, second = RNG.normal(size=y.shape).astype(np.float32), RNG.normal(size=x.shape).astype(np.float32)
    only = {"differentiate": [2], "label": label}
    return [
        OpCase("MaxPoolGrad", (x, y, grad), attrs, max_grad(attrs), order=2, **only),
        OpCase("MaxPoolGradGrad", (x, y, second), attrs, max_grad_grad(attrs), order=2, **only),
        OpCase("AvgPoolGrad", (np.array(x.shape, np.int32), grad), attrs, average_grad(attrs), order=2, label=label),
    ]


TILES, SAME = SETTINGS["tiles"][1], SETTINGS["overlapping"][1]
CUBES = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 2, 2, 1], "padding": "SAME"}
TILES_Y, CUBES_Y = maximum(TILES)(X), maximum(CUBES)(VOLUME)
KSIZE, STRIDES = np.array(SAME["ksize"], np.int32), np.array(SAME["strides"], np.int32)
PLACES = argmax(SAME, False)(ODD)[1]
EXPLICIT = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "padding": ((0, 0), (1, 0), (0, 2), (0, 0))}
EXPLICIT_ATTRS = {**EXPLICIT, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 0, 2, 0, 0]}
BFLOAT16 = X.astype(ml_dtypes.bfloat16)

CASES = [
    *(OpCase("MaxPool", (x,), a, maximum(a), order=2, label=label) for label, (x, a) in SETTINGS.items()),
    OpCase("MaxPool", (nchw(X),), first(TILES), lambda x: nchw(maximum(TILES)(np.moveaxis(x, 1, -1))), label="NCHW"),
    OpCase("MaxPool", (ODD,), EXPLICIT_ATTRS, maximum(EXPLICIT), label="explicit"),
    OpCase("MaxPool", (BFLOAT16,), TILES, maximum(TILES), gradient=False, label="bfloat16"),
    OpCase("MaxPool", ((ODD * 50).astype(np.int32) - 80,), SAME, maximum(SAME), label="int32"),
    OpCase("MaxPool", (-ODD.astype(np.float64),), SAME, maximum(SAME), label="double"),
    OpCase("MaxPool", (X[:, :1],), TILES, error=InvalidArgumentError, label="too small"),
    OpCase("MaxPoolV2", (ODD, KSIZE, STRIDES), {"padding": "SAME"}, lambda x, k, s: maximum(SAME)(x), order=2),
    *(OpCase("AvgPool", (x,), a, average(a), order=2, label=label) for label, (x, a) in SETTINGS.items()),
    OpCase("AvgPool", (nchw(X),), first(TILES), lambda x: nchw(average(TILES)(np.moveaxis(x, 1, -1))), label="NCHW"),
    OpCase("AvgPool", (BFLOAT16,), TILES, average(TILES), gradient=False, label="bfloat16"),
    *(row for label, (x, attrs) in SETTINGS.items() for row in gradient_rows(label, x, attrs)),
    OpCase(
        "MaxPoolGrad",
        (TIES, maximum(TILES)(TIES), RNG.normal(size=(2, 3, 3, 2)).astype(np.float32)),
        TILES,
        max_grad(TILES),
        gradient=False,
        label="ties",
    ),
    OpCase(
        "MaxPoolGrad",
        (TIES, maximum(SAME)(TIES), RNG.normal(size=(2, 3, 3, 2)).astype(np.float32)),
        SAME,
        max_grad(SAME),
        gradient=False,
        label="ties, overlapping",
    ),
    OpCase("MaxPoolGrad", (X, ODD, ODD), TILES, error=InvalidArgumentError, label="another output"),
    OpCase(
        "MaxPoolGradV2",
        (ODD, maximum(SAME)(ODD), RNG.normal(size=(2, 3, 4, 3)).astype(np.float32), KSIZE, STRIDES),
        {"padding": "SAME"},
        max_grad(SAME),
        differentiate=[2],
        order=2,
    ),
    OpCase(
        "MaxPoolGradV2",
        (
            ODD,
            maximum(SAME)(ODD),
            maximum(SAME)(ODD),
            np.array([-1, 2**31 - 1, 2**31 - 1, -(2**31)], np.int32),
            STRIDES,
        ),
        {"padding": "SAME"},
        error=(ValueError, InvalidArgumentError),
        label="lengths below zero, whose product is not",
    ),
    OpCase(
        "MaxPoolGradGradV2",
        (ODD, maximum(SAME)(ODD), RNG.normal(size=ODD.shape).astype(np.float32), KSIZE, STRIDES),
        {"padding": "SAME"},
        max_grad_grad(SAME),
        differentiate=[2],
        order=2,
    ),
    OpCase("MaxPoolWithArgmax", (ODD,), SAME, argmax(SAME, False), gradient=False),
    OpCase("MaxPoolWithArgmax", (TIES,), TILES, argmax(TILES, False), gradient=False, label="ties"),
    OpCase(
        "MaxPoolWithArgmax",
        (ODD,),
        {**SAME, "include_batch_in_index": True, "Targmax": dtypes.int32},
        argmax(SAME, True, np.int32),
        gradient=False,
        label="with the batch",
    ),
    OpCase(
        "MaxPoolGradWithArgmax",
        (ODD, RNG.normal(size=PLACES.shape).astype(np.float32), PLACES),
        SAME,
        lambda x, g, p: max_grad(SAME)(x, None, g),
        differentiate=[1],
        order=2,
    ),
    OpCase(
        "MaxPoolGradWithArgmax",
        (ODD, RNG.normal(size=PLACES.shape).astype(np.float32), PLACES + 1000),
        SAME,
        error=InvalidArgumentError,
        label="out of range",
    ),
    OpCase(
        "MaxPoolGradGradWithArgmax",
        (ODD, RNG.normal(size=ODD.shape).astype(np.float32), PLACES),
        SAME,
        lambda x, g, p: max_grad_grad(SAME)(x, maximum(SAME)(x), g),
        differentiate=[1],
        order=2,
    ),
    OpCase("MaxPool3D", (VOLUME,), CUBES, maximum(CUBES), gradient=False),
    OpCase(
        "MaxPool3D",
        (nchw(VOLUME),),
        first(CUBES),
        lambda x: nchw(maximum(CUBES)(np.moveaxis(x, 1, -1))),
        gradient=False,
        label="NCDHW",
    ),
    OpCase("MaxPool3DGrad", (VOLUME, CUBES_Y, CUBES_Y), CUBES, max_grad(CUBES), gradient=False),
    OpCase(
        "MaxPool3DGrad",
        (np.ones((1, 1, 1, 3, 1), np.float32), np.ones((1, 1, 1, 2, 1), np.float32), np.float32([[[[[2], [5]]]]])),
        {"ksize": [1, 1, 1, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "VALID"},
        expected=np.float32([[[[[2], [7], [5]]]]]),
        gradient=False,
        label="ties",
    ),
    OpCase(
        "MaxPool3DGrad",
        (
            np.float32([[[[[1], [1 + 5e-6], [np.inf]]]]]),
            np.float32([[[[[1 + 5e-6], [np.inf]]]]]),
            np.float32([[[[[2], [5]]]]]),
        ),
        {"ksize": [1, 1, 1, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "VALID"},
        expected=np.float32([[[[[2], [2], [0]]]]]),
        gradient=False,
        label="close to each other, infinite",
    ),
    OpCase("MaxPool3DGradGrad", (VOLUME, CUBES_Y, VOLUME), CUBES, max_grad_grad(CUBES), gradient=False),
    OpCase("AvgPool3D", (VOLUME,), CUBES, average(CUBES), order=2),
    OpCase("AvgPool3DGrad", (np.array(VOLUME.shape, np.int32), CUBES_Y), CUBES, average_grad(CUBES), order=2),
]
