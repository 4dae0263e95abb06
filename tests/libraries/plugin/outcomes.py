"""A plugin of pytest: writes what became of each test to the file OUTCOMES, a line of JSON each, as they end.

Loaded by name in a process of its own, in which `tensorflow` means anabranch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from absl import flags


def _write(kind: str, what: object, why: str = "") -> None:
    with Path(os.environ["OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps([kind, what, why]) + "\n")


def pytest_configure() -> None:
    """Reads absl's flags, of which tests ask for `test_tmpdir`; as `absltest.main` does."""
    from absl.testing import absltest  # it defines them

    assert absltest is not None
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(sys.argv[:1])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Writes how many tests there are, so that those count which an ended process never came to."""
    _write("collected", len(session.items))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported counts as one test that fails."""
    if report.failed:
        _write("failed", report.nodeid, _last_line(report))


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no end in {os.environ['SECONDS_EACH']} s of processor time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Ends a test that takes more processor time than SECONDS_EACH, as soon as it is in Python again."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, float(os.environ.get("SECONDS_EACH", "0")))
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each test: by its call, or by what kept it from being called."""
    if report.when == "call" or report.outcome != "passed":
        if report.when == "teardown":
            return
        _write(report.outcome, report.nodeid, "" if report.passed else _last_line(report))


def _last_line(report: pytest.CollectReport | pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.split())[:400]
