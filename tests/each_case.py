"""Many small cases in one test: for those that take less time than pytest takes for a test of its own.

    @each_case("seed", range(200))
    def test_what_is_not_in_order_is_refused(seed: int) -> None: ...

All cases run, whatever fails, and the test's failure has the error of each that did, with a note that names the case.
Fixtures are set up once. Take `pytest.mark.parametrize` for cases of which one may be asked for alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def check_each(check: Callable[[T], None], cases: Iterable[T], name: Callable[[T], str] = repr) -> None:
    """Checks all cases.

    Args:
        check: raises an error if something is wrong with a case.
        cases: there must be some.
        name: what a case is called in the failure.

    Raises:
        BaseExceptionGroup: the errors of those that failed.
    """
    failures: list[BaseException] = []
    count = 0
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"case {name(case)}")
            failures.append(error)
    assert count, "there are no cases"
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {count} cases", failures)


def each_case(
    argument: str, cases: Iterable[T], name: Callable[[T], str] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of one case a test of all of them: see `check_each`.

    Args:
        argument: which of the function's arguments the case is; the others are fixtures.
        cases: what it is given, one after the other.
        name: what a case is called in the failure.
    """
    listed = list(cases)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def test(**fixtures: Any) -> None:
            check_each(lambda case: function(**fixtures, **{argument: case}), listed, name)

        signature = inspect.signature(function)
        fixtures = [p for p in signature.parameters.values() if p.name != argument]
        test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return test

    return decorate
