"""Lists the files of tests that took longest at the end of a long run: where to look when the suite gets slow.

By processor time, which other programs on the machine do not change much: that of the process that ran the test, of its
children that have ended, and of what was forked for it (`cluster/forks.py`). Processes that go on, as those of Ray do,
are not in it.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Any

import pytest

#: runs shorter than this (s, of all processes together) list nothing
_LONG = 60.0
_LISTED = 20


#: of processes that ended for a test, and are no children of this one
_of_others: list[float] = []


def count_other(seconds: float) -> None:
    """Counts the processor time of a process that worked for the test, and is no child of its process."""
    _of_others.append(seconds)


def processor_seconds() -> float:
    """What this process has used, with its children that have ended, and others that were counted."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + sum(_of_others)


class SlowestFiles:
    """The plugin."""

    def __init__(self) -> None:
        self._before = processor_seconds()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._processor: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()

    # -------------------------------------------------------------- where the tests run
    def pytest_collection_finish(self) -> None:
        self._before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now = processor_seconds()
        # a report takes it along from the processes of pytest-xdist
        report.processor_seconds, self._before = now - self._before, now
        return report

    # -------------------------------------------------------------- where reports arrive
    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.split("::")[0]
        self._seconds[file] += report.duration
        self._processor[file] += getattr(report, "processor_seconds", 0.0)
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self._seconds.values())
        if total < _LONG:
            return
        used = sum(self._processor.values())
        terminalreporter.section(f"slowest files of {len(self._seconds)}, which took {used:.0f} of {total:.0f} s")
        terminalreporter.write_line("processor     all")
        for file, seconds in sorted(self._processor.items(), key=lambda item: -item[1])[:_LISTED]:
            line = f"{seconds:7.1f} s {self._seconds[file]:6.1f} s  {self._tests[file]:5} tests  {file}"
            terminalreporter.write_line(line)
