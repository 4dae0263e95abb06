"""Rows of the candidate samplers: ranges, distinctness, expected counts, errors, accidental hits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]
TRUE = np.array([[0, 3], [7, 9]])
WEIGHTS = [1.0, 2.0, 3.0, 4.0]


def drawn(probabilities: Array, unique: bool, first: int = 0) -> Callable[[list[Array]], None]:
    """Verifies samples of a distribution over classes, and the expected counts of true and sampled classes."""

    def verify(outputs: list[Array]) -> None:
        sampled, true_count, sampled_count = outputs
        assert sampled.min() >= first
        assert sampled.max() < len(probabilities)
        assert np.all(probabilities[sampled] > 0)
        assert not unique or len(np.unique(sampled)) == len(sampled)
        true = TRUE if len(probabilities) > TRUE.max() else TRUE % len(probabilities)
        if not unique:
            np.testing.assert_allclose(sampled_count, probabilities[sampled] * len(sampled), rtol=1e-5)
            np.testing.assert_allclose(true_count, probabilities[true] * len(sampled), rtol=1e-5)
            return
        # expected count = 1 - (1 - p) ** tries, for one number of tries: all samples must agree on it
        p, common = probabilities[sampled], sampled_count < 0.99
        tries = np.log1p(-sampled_count[common]) / np.log1p(-p[common])
        np.testing.assert_allclose(tries, np.round(tries[0]), rtol=2e-2)
        assert round(float(tries[0])) >= len(sampled)

    return verify


def _case(name: str, classes: int, count: int, unique: bool, probabilities: Any, **attrs: Any) -> OpCase:
    given = {"num_true": 2, "num_sampled": count, "unique": unique, "range_max": classes, **attrs}
    true = TRUE if classes > TRUE.max() else TRUE % classes
    verify = drawn(np.asarray(probabilities, np.float64), unique)
    return OpCase(name, (true,), given, verify=verify, static_shape=True, label=f"{count} of {classes}, {unique}")


def _log_uniform(classes: int) -> Array:
    ids = np.arange(classes)
    return (np.log(ids + 2) - np.log(ids + 1)) / np.log(classes + 1)  # type: ignore[no-any-return]


def _samplers() -> list[OpCase]:
    found = []
    for unique, count in ((True, 6), (False, 30)):
        found += [
            _case("UniformCandidateSampler", 20, count, unique, np.full(20, 0.05)),
            _case("LogUniformCandidateSampler", 20, count, unique, _log_uniform(20)),
        ]
    weights = np.array(WEIGHTS)
    found += [
        _case("FixedUnigramCandidateSampler", 4, 3, True, weights / 10, unigrams=WEIGHTS),
        _case(
            "FixedUnigramCandidateSampler",
            4,
            9,
            False,
            weights**2 / 30,
            unigrams=WEIGHTS,
            distortion=2.0,
            seed=1,
            seed2=1,
        ),
        _case(
            "FixedUnigramCandidateSampler",
            6,
            9,
            False,
            [0, 0, 0.1, 0.2, 0.3, 0.4],
            unigrams=WEIGHTS,
            num_reserved_ids=2,
        ),
    ]
    return found


def _errors() -> list[OpCase]:
    counts = {"num_true": 2, "unique": True, "range_max": 10}
    bad, name = InvalidArgumentError, "UniformCandidateSampler"
    fixed = {**counts, "num_sampled": 2, "range_max": 4}
    return [
        OpCase(name, (TRUE,), {**counts, "num_sampled": 11}, error=bad, label="too many"),
        OpCase(name, (TRUE * 2,), {**counts, "num_sampled": 2}, error=bad, label="true class out of range"),
        OpCase("FixedUnigramCandidateSampler", (TRUE % 4,), fixed, error=bad, label="no distribution"),
        OpCase("FixedUnigramCandidateSampler", (TRUE % 4,), {**fixed, "unigrams": [1.0]}, error=bad, label="too short"),
    ]


def _hits() -> list[OpCase]:
    lowest = np.finfo(np.float32).min
    return [
        OpCase(
            "AllCandidateSampler",
            (TRUE,),
            {"num_true": 2, "num_sampled": 3, "unique": True},
            expected=(np.arange(3), np.ones((2, 2), np.float32), np.ones(3, np.float32)),
            static_shape=True,
        ),
        OpCase(
            "ComputeAccidentalHits",
            (TRUE, np.array([9, 3, 5, 3, 0])),
            {"num_true": 2},
            expected=(
                np.array([0, 0, 1], np.int32),
                np.array(
                    [4, 3, 0]
                ),  # in the order of the true classes; not 1: what was drawn twice counts at its last place
                np.full(3, lowest, np.float32),
            ),
        ),
        OpCase(
            "ComputeAccidentalHits", (TRUE, np.array([1])), {"num_true": 3}, error=InvalidArgumentError, label="count"
        ),
    ]


CASES = [*_samplers(), *_errors(), *_hits()]
