"""The list of the slowest files (`tests/slowest_files.py`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.slowest_files import SlowestFiles, processor_seconds


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, line: str) -> None:
        self.lines.append(line)

    write_line = section


def report_of(test: str, duration: float, **more: Any) -> Any:
    return SimpleNamespace(nodeid=test, duration=duration, when="call", **more)


def test_files_are_listed_by_processor_time() -> None:
    plugin, terminal = SlowestFiles(), Terminal()
    plugin.pytest_runtest_logreport(report_of("waits.py::test", 50.0, processor_seconds=1.0))
    plugin.pytest_runtest_logreport(report_of("works.py::test", 4.0, processor_seconds=3.0))
    plugin.pytest_runtest_logreport(report_of("works.py::test", 7.0, processor_seconds=2.5))
    plugin.pytest_runtest_logreport(report_of("lost.py::test", 0.0))
    plugin.pytest_terminal_summary(terminal)
    title, _, *files = terminal.lines
    assert title == "slowest files of 3, which took 6 of 61 s"
    assert [line.split() for line in files] == [
        ["5.5", "s", "11.0", "s", "2", "tests", "works.py"],
        ["1.0", "s", "50.0", "s", "1", "tests", "waits.py"],
        ["0.0", "s", "0.0", "s", "1", "tests", "lost.py"],
    ]


def test_a_report_carries_what_was_used_since_the_last_one() -> None:
    plugin = SlowestFiles()
    reports = []
    for _ in range(2):
        until = processor_seconds() + 0.05
        while processor_seconds() < until:
            pass
        making = plugin.pytest_runtest_makereport()
        next(making)
        try:
            making.send(SimpleNamespace())
        except StopIteration as made:
            reports.append(made.value.processor_seconds)
    assert all(seconds > 0.04 for seconds in reports)
