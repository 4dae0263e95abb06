"""The runner of TensorFlow's own unit tests: it counts, goes on after a process that ends, takes up what is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.core.registry import all_op_defs
from tests.tensorflow_tests.__main__ import main
from tests.tensorflow_tests.forks import Forks
from tests.tensorflow_tests.registered_for_tests import declarations, register
from tests.tensorflow_tests.running import FileResult, Runner, _take, genuine_counts, read
from tests.tensorflow_tests.table import reasons, share, tables

#: A module of TensorFlow's of which the tests here use one name.
MODULE = """
@tf_export("math.add", "add")
def add(x, y): ...
"""
TESTS = """
import os, unittest
from tensorflow.python.ops import helper

TWO = helper.add(1, 1)

class Some(unittest.TestCase):
    def test_a_passes(self): self.assertEqual(TWO.shape, ())
    def test_b_ends(self): os._exit(3)
    def test_c_fails(self): self.assertEqual(2, 3, "not three")
    def test_d_skips(self): self.skipTest("why not")
    def test_e_raises(self):
        for i in range(2):
            with self.subTest(i=i):
                raise ValueError("no")
    def test_session(self): raise AssertionError("a method of TestCase")

if __name__ == "__main__":
    Some.test_f_made = lambda self: None
"""
WAITS = """
import threading, unittest

class Slow(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): threading.Event().wait(60)
"""


def checkout(folder: Path) -> Path:
    files = {
        "python/ops/helper.py": MODULE,
        "python/framework/test_ops.cc": 'REGISTER_OP("None");',
        "python/ops/some_test.py": TESTS,
        "python/ops/slow_test.py": WAITS,
        "python/ops/broken_test.py": "import tensorflow.python.nowhere",
    }
    for name, text in files.items():
        path = folder / "tensorflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """The process that forks, which the tests share."""
    folder = tmp_path_factory.mktemp("tensorflow_tests")
    with contextlib.closing(Runner(checkout(folder / "co"), folder / "results")) as runner:
        yield runner._forks


@pytest.fixture
def runner(tmp_path: Path, forks: Forks) -> Runner:
    runner = Runner(checkout(tmp_path / "co"), tmp_path / "results", seconds=60)
    vars(runner)["_forks"] = forks
    return runner


def test_a_file_is_counted_although_a_test_ends_the_process(runner: Runner) -> None:
    result = runner.run("ops/some_test.py")
    assert {name.removeprefix("Some.test_"): outcome for name, (outcome, _) in result.outcomes.items()} == {
        "a_passes": "ok",
        "b_ends": "died",
        "c_fails": "fail",
        "d_skips": "skip",
        "e_raises": "error",
        "f_made": "ok",
    }
    assert result.outcomes["Some.test_b_ends"][1] == "exit status 3"
    assert result.outcomes["Some.test_c_fails"][1] == "AssertionError (line 10): 2 != 3 : not three"
    assert result.wanting == ["Some.test_b_ends"]
    assert read("ops/some_test.py", runner.results) == result
    # what failed is run again
    path = runner.checkout / "tensorflow/python/ops/some_test.py"
    path.write_text(TESTS.replace("os._exit(3)", "pass").replace("2, 3", "2, 2"), encoding="utf-8")
    again = runner.run("ops/some_test.py", names=result.failed)
    assert (again.passed, again.failed) == (4, ["Some.test_e_raises"])


def test_the_limit_of_time(runner: Runner) -> None:
    runner.seconds = 1
    result = runner.run("ops/slow_test.py")  # which may come before the file is imported
    assert "no end in 1 s" in (result.refused, *(why for _, why in result.outcomes.values()))


def test_the_process_that_forks_ends(tmp_path: Path) -> None:
    with contextlib.closing(Runner(checkout(tmp_path), tmp_path / "results")) as runner:
        runner._forks._process.kill()
        with pytest.raises(RuntimeError, match=r"no test file can be run: the process that forks ended with -9"):
            runner.run("ops/some_test.py")


def test_what_the_limit_of_time_leaves() -> None:
    result = FileResult("ops/slow_test.py")
    over = ["over", "time", "no end in 8 s"]
    _take(result, [["collected", ["a", "b", "c"]], ["begin", "a"], ["ok", "a"], ["begin", "b"], over])
    assert result.outcomes == {"a": ("ok", ""), "b": ("time", "no end in 8 s")}
    assert result.wanting == ["b", "c"]
    assert result.partial


def test_a_file_that_cannot_be_imported(runner: Runner) -> None:
    result = runner.run("ops/broken_test.py")
    assert result.refused.startswith("ModuleNotFoundError")
    assert result.failed == []


def test_a_sample(runner: Runner) -> None:
    result = runner.run("ops/some_test.py", sample=2, seed=1)
    assert len(result.outcomes) == result.sample == 2
    assert len(result.collected) == 6


def test_tables() -> None:
    results = {
        "ops/a_test.py": FileResult("ops/a_test.py", ["x"], {"x": ("ok", "")}),
        "ops/b_test.py": FileResult("ops/b_test.py", ["x", "y"], {"x": ("ok", ""), "y": ("fail", "not raised")}),
        "ops/c_test.py": FileResult("ops/c_test.py", refused="ImportError: no"),
        "ops/d_test.py": FileResult("ops/d_test.py", ["x"] * 9, {"x": ("ok", ""), "y": ("skip", "")}, sample=2),
    }
    genuine = {"ops/a_test.py": 1, "ops/b_test.py": 2, "ops/c_test.py": 3, "ops/d_test.py": 9, "ops/e_test.py": 5}
    text = "\n".join(tables(results, genuine))
    assert "| `ops` | 2: `a`, `d` (1 of 9 run) | 2 |" in text
    assert "| `ops/b` | 1 | 2 | no error where TensorFlow raises one (1) |" in text
    assert "| no error where TensorFlow raises one | 1 |" in text
    assert "| `ops/c` | 0 | 3 | is not imported: ImportError: no |" in text
    assert "run whole: 2 of 6 in 3 files (33.3 %)" in text
    assert "run in part: 1 of 1 in 1 files (100.0 %)" in text
    assert "not run: 1 files with 5 tests: `ops/e`" in text
    assert share(results["ops/d_test.py"], 9) == (1, 1)
    assert list(reasons(results.values())) == ["ops/b_test.py: y: fail: not raised", "ops/c_test.py: ImportError: no"]


def test_the_counts_of_genuine_tensorflow() -> None:
    counts = genuine_counts()
    assert (len(counts), sum(counts.values())) == (425, 21622)


def test_the_command(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["framework/versions_test.py", "--run", "none", "--results", str(runner.results)]) == 0
    assert "not run: 1 files with 1 tests: `framework/versions`" in capsys.readouterr().out
    for arguments in (["nowhere/*"], ["framework/versions_test.py"]):
        with pytest.raises(SystemExit):
            main(arguments)


DECLARED = """
REGISTER_OP("TestOpThatAddsUp")
    .Input("a: Ref(float)").Input("b: N * T")
    .Output("c: T")
    .Attr("T: {int32, double} = DT_DOUBLE").Attr("N: int >= 1").Attr("flag: bool = true")
    .SetIsStateful().SetShapeFn(shape_inference::UnknownShape);
REGISTER_OP("None").SetShapeFn(shape_inference::UnknownShape);
"""


def test_declarations_are_read() -> None:
    added, none = declarations(DECLARED)
    assert added == (
        "TestOpThatAddsUp",
        "a: float, b: N * T -> c: T",
        "T: {int32, double} = double, N: int >= 1, flag: bool = True",
        True,
    )
    assert none == ("None", " -> ", "", False)


def test_declared_types_are_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.core.registry._op_defs", all_op_defs())
    source = tmp_path / "python" / "framework" / "test_ops.cc"
    source.parent.mkdir(parents=True)
    source.write_text(DECLARED + 'REGISTER_OP("Odd").Attr("x: nonsense");', encoding="utf-8")
    assert register(tmp_path) == ["Odd"]
    assert {"TestOpThatAddsUp", "None"} <= all_op_defs().keys()
