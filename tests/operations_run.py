"""Holds files of tests to the operations that `tested_elsewhere` says they run: mentioning one does not count.

While a test runs, the kernels of these operations note that they are called; of what the executor runs without a kernel
it is noted that it stands in a plan. Each report of a test carries the notes, so that they arrive from the processes of
pytest-xdist too. A run fails when all tests of a file were run and an operation was in none of those that passed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.device.ops.tested_elsewhere import TESTED_ELSEWHERE

_PROPERTY = "operations_run"


def file_of(test: str) -> str:
    return test.split("::")[0]


class Tally:
    """What the tests of files ran, as far as they were reported."""

    def __init__(self) -> None:
        self._collected: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._ran: defaultdict[str, set[str]] = defaultdict(set)

    def collect(self, tests: Iterable[str]) -> None:
        """The tests that are to be run. Called again for each process: all have the same."""
        self._collected = Counter(map(file_of, tests))

    def report(self, test: str, operations: Iterable[str] = ()) -> None:
        """A test was passed, with these operations, or passed over."""
        self._reported[file_of(test)] += 1
        self._ran[file_of(test)].update(operations)

    def missing(self, claims: Mapping[str, str], partly: Callable[[str], bool]) -> list[str]:
        """What is wrong with the claims (operation -> file) on the files that were run whole.

        Args:
            partly: whether only some of a file's tests were asked for.
        """
        whole = {f for f, count in self._collected.items() if self._reported[f] == count and not partly(f)}
        return [
            f"{path} is said to run {operation}, and no test of it does"
            for operation, path in claims.items()
            if path in whole and operation not in self._ran[path]
        ]


class Notes:
    """Notes which operations are run in this process."""

    def __init__(self) -> None:
        self.operations: set[str] = set()
        self._watched: set[str] = set()

    def watch(self, names: Iterable[str]) -> None:
        """Makes the kernels of these operations tell, from now on."""
        from anabranch.core.registry import all_op_defs
        from anabranch.pipeline import plan_listeners

        new = set(names) - self._watched
        self._watched |= new
        primitives = {name for name in new if all_op_defs()[name].is_primitive}
        for name in new - primitives:
            self._watch_kernels(name)
        if primitives:
            plan_listeners.append(
                lambda plan: self.operations.update(primitives & {op.type for op in plan.step.operations})
            )

    def _watch_kernels(self, name: str) -> None:
        from anabranch.core.op_def import Rule
        from anabranch.core.registry import all_op_defs

        op = all_op_defs()[name]

        def telling(rule: Rule) -> Rule:
            def kernel(*args: Any, **keywords: Any) -> Any:
                self.operations.add(name)
                return rule.function(*args, **keywords)

            return Rule(kernel, rule.keywords)

        op.compiled_rule = op.compiled_rule and telling(op.compiled_rule)
        op.host_rule = op.host_rule and telling(op.host_rule)


class OperationsRun:
    """The plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._notes = Notes()
        self._tally = Tally()
        self._missing: list[str] = []

    # -------------------------------------------------------------- where the tests run
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tests = [item.nodeid for item in session.items]
        self._tally.collect(tests)
        files = set(map(file_of, tests))
        self._notes.watch(name for name, path in TESTED_ELSEWHERE.items() if path in files)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._notes.operations.clear()
        yield
        item.user_properties.append((_PROPERTY, sorted(self._notes.operations)))

    # -------------------------------------------------------------- where reports arrive: here, or from pytest-xdist
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._tally.collect(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._tally.report(report.nodeid)
        elif report.when == "call" and report.passed:
            self._tally.report(report.nodeid, *(value for key, value in report.user_properties if key == _PROPERTY))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workerinput"):  # its reports are judged where they arrive
            return
        option = self._config.option
        if option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False):
            return
        chosen = {file_of(arg) for arg in self._config.args if "::" in arg}
        self._missing = self._tally.missing(TESTED_ELSEWHERE, lambda path: any(c.endswith(path) for c in chosen))
        if self._missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._missing:
            terminalreporter.section("operations that no test runs", red=True, bold=True)
            for line in self._missing:
                terminalreporter.write_line(line)
