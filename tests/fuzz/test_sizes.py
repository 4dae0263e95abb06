"""A short run of the size fuzzer."""

from __future__ import annotations

from tests.fuzz.sizes import fuzz


def test_a_few_cases() -> None:
    counts = fuzz(seed=1, seconds=3.0)
    assert not counts.findings
    assert counts.outcomes.total() > 0
