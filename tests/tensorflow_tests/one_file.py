"""Runs one of TensorFlow 1.15's test files in this process, and appends what becomes of each test as it ends.

`prepare` makes a process ready, `run` runs a file in it. Each line of what `run` writes is a list of JSON:
`["collected", [names]]`, `["begin", name]`, `[outcome, name, why]`, `["end"]`, or `["file", why]` where it cannot be
imported. Tests are run in the order of the file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import traceback
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from anabranch.tools import old_names, tensorflow_alias
from tests.tensorflow_tests import led_modules, old_calls, registered_for_tests
from tests.tensorflow_tests.exported_names import cached_table

#: the module that the file's classes say they are of, which their names in the outcomes leave out
_MODULE: Final = "__main__"
_LONGEST_REASON: Final = 600


class _Outcomes(unittest.TestResult):
    """Writes a line for each test."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file
        self._failed = False

    def line(self, *what: object) -> None:
        self._file.write(json.dumps(what) + "\n")
        self._file.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._failed = False
        self.line("begin", name_of(test))

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.line("ok", name_of(test))

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self._fails("error", test, err)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._fails("fail", test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        if not self._failed:
            self.line("skip", name_of(test), reason)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        if err is not None:
            self._fails("error", test, err)

    def _fails(self, outcome: str, test: unittest.TestCase, err: object) -> None:
        self._failed = True
        assert isinstance(err, tuple)
        self.line(outcome, name_of(test), reason_of(err[1]))


def name_of(test: unittest.TestCase) -> str:
    return test.id().removeprefix(f"{_MODULE}.")


def reason_of(error: BaseException) -> str:
    """The class and the words of an error, and the last line of the test file that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("_test.py")]
    where = f" (line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{where}: {' '.join(str(error).split())}"[:_LONGEST_REASON]


def load(file: Path) -> types.ModuleType:
    """The test file as the main module, as files expect that make their tests when they are run."""
    loader = led_modules.RewritingLoader(_MODULE, str(file))
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    loader.exec_module(module)
    return module


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        elif not one.id().endswith("test_session"):  # a method of TestCase, not a test
            yield one


def prepare(tensorflow: Path, table: Path) -> None:
    """Makes this process ready for any test file.

    Args:
        tensorflow: the checkout's folder of that name.
        table: the file in which the table of its exports is kept.
    """
    old_names.restore()
    old_calls.restore()
    tensorflow_alias.install()
    led_modules.install(importlib.import_module(tensorflow_alias.ROOT), cached_table(tensorflow, table), tensorflow)
    registered_for_tests.register(tensorflow)


def run(file: Path, outcomes: Path, chosen: Path | None = None) -> None:
    """Runs a file as the main module, and appends to `outcomes`; of its tests those that `chosen` names a line each."""
    sys.argv = [str(file)]
    sys.path.insert(0, str(file.parent))
    with contextlib.suppress(ImportError):
        flags = importlib.import_module("absl.flags")
        flags.FLAGS([str(file)])
    with outcomes.open("a", encoding="utf-8") as lines:
        result = _Outcomes(lines)
        try:
            module = load(file)
        except BaseException as error:  # whatever a file does when it is imported, its line is written
            result.line("file", reason_of(error))
            return
        tests = {name_of(test): test for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module))}
        result.line("collected", list(tests))
        names = chosen.read_text(encoding="utf-8").splitlines() if chosen else list(tests)
        for name in names:
            try:
                tests[name](result)
            except BaseException as error:  # unittest lets those through that end the process
                result.line("error", name, reason_of(error))
        result.line("end")
