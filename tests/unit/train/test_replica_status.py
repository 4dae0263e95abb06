"""What is measured of replicas, as users see it."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.train.replica_status import SECONDS_SUM, STEPS, statuses


@pytest.mark.parametrize(
    ("seconds", "stragglers"),
    [
        ([1.0], set()),
        ([1.0, 1.4], set()),
        ([1.0, 1.6], {1}),
        ([1.0, 1.1, 5.0, 0.9], {2}),
        ([2.0, 2.0, 1.0, 1.0, 1.0, 1.0], {0, 1}),
        ([1.0] * 5, set()),
        ([0.0, 0.0], set()),
    ],
)
def test_stragglers_are_named(seconds: list[float], stragglers: set[int]) -> None:
    steps, table = 4, np.zeros((8, 7))
    table[: len(seconds), STEPS] = steps
    table[: len(seconds), SECONDS_SUM] = np.multiply(seconds, steps)
    rows = statuses(table)
    assert {row.worker for row in rows if row.is_straggler} == stragglers
    assert [row.mean_step_seconds for row in rows] == sorted(seconds, reverse=True), "the slowest first"
