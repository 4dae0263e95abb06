"""A row that fails does not fail the others of its group, and a group that fails by itself is told of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anabranch.testing.op_cases import OpCase
from tests.device.ops.table_groups import Groups

ROWS = [OpCase("Neg", (float(i),), label=str(i)) for i in range(5)]


def test_a_group_is_run_when_its_first_row_is_asked_for() -> None:
    runs: list[list[OpCase]] = []

    def run(rows: Sequence[OpCase]) -> list[str]:
        runs.append(list(rows))
        return [row.label for row in rows]

    groups = Groups(ROWS, run, size=3)
    assert [groups.result(row) for row in reversed(ROWS)] == ["4", "3", "2", "1", "0"]
    assert runs == [ROWS[3:], ROWS[:3]]


def test_only_the_row_that_fails_alone_raises_its_error() -> None:
    def run(rows: Sequence[OpCase]) -> list[str]:
        if ROWS[1] in rows:
            raise ValueError("wrong")
        return [row.label for row in rows]

    groups = Groups(ROWS, run, size=3)
    with pytest.raises(ValueError, match="wrong"):
        groups.result(ROWS[1])
    with pytest.raises(AssertionError, match=r"Neg\[0\] gives a result alone, but not in one step .* wrong"):
        groups.result(ROWS[0])
    assert groups.result(ROWS[3]) == "3"
