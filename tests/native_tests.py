"""Says at the end of a run how many tests of oneDNN's kernels were run and how many were skipped, and why.

They need the extra `native`, and some of them a C compiler or certain instructions of the processor: a run in which all
of them were skipped passes, and is not to look like one that tested them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

#: fixtures of `device/kernels/conftest.py` -> what tests have that ask for them; each brings those above it
FIXTURES = {"native": "with oneDNN", "compiled": "of those, with the C kernels"}


class NativeTests:
    """The plugin."""

    def __init__(self) -> None:
        self._run: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    # -------------------------------------------------------------- where the tests run
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        # a report takes it along from the processes of pytest-xdist
        report.native = [name for name in FIXTURES if name in getattr(item, "fixturenames", ())]
        return report

    # -------------------------------------------------------------- where reports arrive
    def pytest_runtest_logreport(self, report: Any) -> None:
        native = getattr(report, "native", ())
        if report.skipped:
            self._skipped.update(native)
            if native:
                self._reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.when == "call":
            self._run.update(native)

    def lines(self) -> list[str]:
        """What there is to say; nothing where no such test was asked for."""
        of_all = [(what, self._run[name], self._skipped[name]) for name, what in FIXTURES.items()]
        counts = [f"{what}: {run} run, {skipped} skipped" for what, run, skipped in of_all if run or skipped]
        return counts + [f"skipped {count}: {reason}" for reason, count in self._reasons.most_common()]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if said := self.lines():
            terminalreporter.section("tests of native kernels")
            for line in said:
                terminalreporter.write_line(line)
