"""Rows of the random operations: dtypes, shapes, ranges and errors. Distributions are tested in test_random.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]
DIMS = np.array([40, 5], np.int32)


def between(low: float, high: float, distinct: int = 100) -> Callable[[list[Array]], None]:
    """Verifies that all numbers lie in [low, high], and that they are not all the same."""

    def verify(outputs: list[Array]) -> None:
        values = outputs[0].astype(np.float64)
        assert values.min() >= low
        assert values.max() <= high
        assert len(np.unique(values)) >= min(distinct, high - low)

    return verify


def no_numbers(outputs: list[Array]) -> None:
    assert outputs[0].shape == (3, 0)


def permutes(rows: Array) -> Callable[[list[Array]], None]:
    """Verifies that the output has the same rows in some order."""

    def verify(outputs: list[Array]) -> None:
        assert sorted(outputs[0].tolist()) == sorted(rows.tolist())

    return verify


def _floats() -> list[OpCase]:
    found = []
    for dtype, distinct in (("float32", 150), ("float64", 150), ("float16", 100), ("bfloat16", 50)):
        for op, bound in (("RandomUniform", 1.0), ("RandomStandardNormal", 6.0), ("TruncatedNormal", 2.0)):
            low = 0.0 if op == "RandomUniform" else -bound
            attrs = {"dtype": dtype, "seed": 3, "seed2": 5}
            found.append(OpCase(op, (DIMS,), attrs, verify=between(low, bound, distinct), label=dtype))
        for op, bound in (
            ("StatelessRandomUniform", 1.0),
            ("StatelessRandomNormal", 6.0),
            ("StatelessTruncatedNormal", 2.0),
        ):
            low = 0.0 if op == "StatelessRandomUniform" else -bound
            given = (DIMS, np.array([7, 11], np.int64))
            found.append(OpCase(op, given, {"dtype": dtype}, verify=between(low, bound, distinct), label=dtype))
    return found


def _integers() -> list[OpCase]:
    found = []
    for dtype in (np.int32, np.int64):
        bounds = (dtype(-3), dtype(4))
        name = np.dtype(dtype).name
        seed = np.array([1, 2], np.int32)
        found.append(OpCase("RandomUniformInt", (DIMS, *bounds), verify=between(-3, 3), label=name))
        found.append(OpCase("StatelessRandomUniformInt", (DIMS, seed, *bounds), verify=between(-3, 3), label=name))
        limits = np.iinfo(dtype)
        verify = between(limits.min, limits.max)
        found.append(OpCase("StatelessRandomUniformFullInt", (DIMS, seed), {"dtype": name}, verify=verify, label=name))
    found.append(OpCase("RandomUniformInt", (DIMS, 4, 4), error=InvalidArgumentError, label="empty range"))
    nothing = np.array([3, 0], np.int32)
    found.append(OpCase("RandomUniformInt", (nothing, 4, 4), verify=no_numbers, label="no numbers of an empty range"))
    found.append(OpCase("RandomUniformInt", (DIMS, [1], [4]), error=InvalidArgumentError, label="vector bounds"))
    return found


LOGITS = np.log(np.array([[1.0, 2.0, 3.0], [1.0, 0.0, 1.0]], np.float32).clip(1e-30))
PICKS = np.array([[-np.inf, 0.0, -np.inf]], np.float32)


def _distributions() -> list[OpCase]:
    alpha = np.array([0.5, 3.0], np.float32)
    rate = np.array([0.5, 30.0])
    found = [
        OpCase("RandomGamma", ([50], alpha), verify=between(0, 40), gradient=False),
        OpCase("RandomGamma", ([50], alpha.astype(np.float64)), verify=between(0, 40), gradient=False, label="float64"),
        OpCase("RandomPoisson", ([50], rate), verify=between(0, 80, 10)),
        OpCase("RandomPoissonV2", ([50], rate), {"dtype": "int64"}, verify=between(0, 80, 10), label="int64"),
        OpCase("RandomPoissonV2", ([50], rate), {"dtype": "float16"}, verify=between(0, 80, 10), label="float16"),
        OpCase("RandomPoissonV2", ([3], np.zeros([0])), verify=no_numbers, label="no rates"),
        OpCase("RandomPoissonV2", ([50], np.array([-1.0])), error=InvalidArgumentError, label="negative rate"),
        OpCase("Multinomial", (LOGITS, 200), verify=between(0, 2, 3)),
        OpCase("Multinomial", (PICKS, 9), {"output_dtype": "int32"}, expected=np.ones((1, 9), np.int32), label="sure"),
        OpCase("Multinomial", (np.full((1, 2), -np.inf), 9), error=InvalidArgumentError, label="no class"),
        OpCase("Multinomial", (np.zeros((0, 2)), 3), expected=np.zeros((0, 3), np.int64), label="empty batch"),
        OpCase("StatelessMultinomial", (LOGITS, 200, [1, 2]), verify=between(0, 2, 3)),
        OpCase("StatelessMultinomial", (PICKS, 4, [3, 4]), expected=np.ones((1, 4), np.int64), label="sure"),
        OpCase("StatelessRandomUniform", ([3], [1, 2, 3]), error=InvalidArgumentError, label="bad seed"),
        OpCase("ParameterizedTruncatedNormal", (DIMS, 0.0, 1.0, -1.0, 3.0), verify=between(-1, 3)),
        OpCase("ParameterizedTruncatedNormal", (DIMS, 0.0, 1.0, 20.0, 21.0), verify=between(20, 21), label="far tail"),
        OpCase(
            "ParameterizedTruncatedNormal",
            ([2, 50], [0.0, 10.0], [1.0, 1.0], [-1.0, 9.0], [1.0, np.inf]),
            verify=between(-1, 16),
            label="batches",
        ),
        OpCase(
            "ParameterizedTruncatedNormal", (DIMS, 0.0, 1.0, 1.0, 1.0), error=InvalidArgumentError, label="no interval"
        ),
        OpCase(
            "RandomGammaGrad",
            (np.array([0.5, 2.0, 5.0]), np.array([0.3, 2.5, 4.0])),
            oracle=_gamma_gradient,
            tolerance=1e-6,
        ),
    ]
    rows = np.arange(60.0).reshape(20, 3)
    found.append(OpCase("RandomShuffle", (rows,), verify=permutes(rows)))
    words = np.array([b"a", b"b", b"c"], np.object_)
    found.append(OpCase("RandomShuffle", (words,), verify=permutes(words), label="strings"))
    empty = np.zeros((0, 3), np.float32)
    found.append(OpCase("RandomShuffle", (empty,), expected=empty, label="empty"))
    found.append(OpCase("RandomShuffle", (np.float32(3),), expected=np.float32(3), label="scalar"))
    return found


def _gamma_gradient(alpha: Array, sample: Array) -> Array:
    """Implicit differentiation of gammainc(alpha, sample) = constant."""
    step = 1e-5
    change = (scipy.special.gammainc(alpha + step, sample) - scipy.special.gammainc(alpha - step, sample)) / (2 * step)
    density = sample ** (alpha - 1) * np.exp(-sample) / scipy.special.gamma(alpha)
    return -change / density  # type: ignore[no-any-return]


CASES = [*_floats(), *_integers(), *_distributions()]
