"""Many cases in one test (`tests/each_case.py`): all run, and those that fail are named."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.each_case import check_each, each_case


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    seen = []

    def check(case: int) -> None:
        seen.append(case)
        if case == 2:
            pytest.fail("it is two")
        assert case != 3

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases") as caught:
        check_each(check, range(1, 5), "number {}".format)
    assert seen == [1, 2, 3, 4]
    assert [(type(e), e.__notes__) for e in caught.value.exceptions] == [
        (pytest.fail.Exception, ["case number 2"]),
        (AssertionError, ["case number 3"]),
    ]


def test_no_cases_are_a_failure() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        check_each(print, [])


@each_case("case", ["a", "b"])
def test_fixtures_are_given_beside_the_case(tmp_path: Path, case: str) -> None:
    (tmp_path / case).touch(exist_ok=False)
    assert (tmp_path / "a").exists()


def test_pytest_is_asked_for_the_fixtures_alone() -> None:
    assert list(inspect.signature(test_fixtures_are_given_beside_the_case).parameters) == ["tmp_path"]
