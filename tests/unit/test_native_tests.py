"""A run says whether oneDNN's kernels and those in C were tested (`tests/native_tests.py`, `.ci/native_kernels.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.native_tests import NativeTests

CHECK = Path(__file__).parents[2] / ".ci" / "native_kernels.py"


def report(*native: str, when: str = "call", skipped: str = "") -> SimpleNamespace:
    """As pytest makes them."""
    where = ("conftest.py", 1, f"Skipped: {skipped}") if skipped else None
    return SimpleNamespace(native=[*native], when=when, skipped=bool(skipped), longrepr=where)


def lines(*reports: SimpleNamespace) -> list[str]:
    tests = NativeTests()
    for one in reports:
        tests.pytest_runtest_logreport(one)
    return tests.lines()


def test_tests_are_counted_with_the_reasons_for_which_they_were_skipped() -> None:
    assert lines(
        *(report("native", when=when) for when in ("setup", "call", "teardown")),
        report("native", "compiled"),
        report("native", "compiled", when="setup", skipped="there is no C compiler"),
        report("native", "compiled", when="setup", skipped="no vectors"),
        report("native", "compiled", when="setup", skipped="no vectors"),
        report(when="setup", skipped="another test's reason"),
        report(),
    ) == [
        "with oneDNN: 2 run, 3 skipped",
        "of those, with the C kernels: 1 run, 3 skipped",
        "skipped 2: no vectors",
        "skipped 1: there is no C compiler",
    ]


def test_runs_without_such_tests_say_nothing() -> None:
    assert lines(report(), report(when="setup", skipped="a reason")) == []


def test_tests_say_which_kernels_they_have(request: pytest.FixtureRequest) -> None:
    """As the reports of this test: none; and with fixtures of these names, theirs."""
    made = SimpleNamespace()
    cases: list[tuple[list[str], list[str]]] = [
        ([], []),
        (["native"], ["native"]),
        (["handler", "compiled", "native"], ["native", "compiled"]),
    ]
    for names, wanted in cases:
        hook = NativeTests().pytest_runtest_makereport(SimpleNamespace(fixturenames=names))  # type: ignore[arg-type]
        next(hook)
        with pytest.raises(StopIteration):
            hook.send(made)
        assert made.native == wanted


@pytest.fixture(scope="module")
def check() -> ModuleType:
    if not CHECK.exists():
        pytest.skip("not a checkout")
    spec = importlib.util.spec_from_file_location("native_kernels", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("installable", "library", "handler", "compiler", "wrong"),
    [
        (True, "", "", True, False),
        (True, "", "", False, False),  # compiled once, when there was a compiler
        (True, "", "there is no C compiler", False, False),
        (True, "", "it does not compile the handler", True, True),
        (True, "not installed", "not installed", True, True),
        (True, "not installed", "not installed", False, True),
        (False, "not installed", "not installed", True, False),
    ],
)
def test_kernels_that_could_be_there_must_be(
    check: ModuleType, installable: bool, library: str, handler: str, compiler: bool, wrong: bool
) -> None:
    said = check.verdict(installable, library, handler, compiler)
    assert said.is_wrong == wrong
    assert (handler or library) in said.text


def test_the_platforms_are_those_of_the_extra(check: ModuleType) -> None:
    assert check.is_installable({"sys_platform": "linux", "platform_machine": "x86_64"})
    assert not check.is_installable({"sys_platform": "linux", "platform_machine": "aarch64"})
    assert not check.is_installable({"sys_platform": "darwin", "platform_machine": "x86_64"})
