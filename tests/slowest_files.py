"""Lists the files of tests that took longest at the end of a long run: where to look when the suite gets slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

#: runs shorter than this (s, of all processes together) list nothing
_LONG = 60.0
_LISTED = 20


class SlowestFiles:
    """The plugin."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.split("::")[0]
        self._seconds[file] += report.duration
        self._tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self._seconds.values())
        if total < _LONG:
            return
        terminalreporter.section(f"slowest files of {len(self._seconds)}, which took {total:.0f} s in all processes")
        for file, seconds in sorted(self._seconds.items(), key=lambda item: -item[1])[:_LISTED]:
            terminalreporter.write_line(f"{seconds:8.1f} s  {self._tests[file]:5} tests  {file}")
