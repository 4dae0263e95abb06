"""`tf.test.Benchmark`: what is timed, reported and chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.proto.test_log_pb2 import BenchmarkEntries
from anabranch.testing.benchmark import run_benchmarks

#: what TensorFlow 2.21 writes of `REPORT`, but for the class's name
RECORDED = bytes.fromhex(
    "0a7e0a10537175617265732e776f726b2f6f6e65100319000000000000d03f21000000000000e03f290000000000001c4032"
    "0b0a01621206120474657874320e0a016112090900000000000000403a0c0a016d11000000000000f83f3a220a016e110000"
    "0000000000401a0909000000000000f03f2209090000000000000840"
)
REPORT: dict[str, Any] = {
    "iters": 3,
    "cpu_time": 0.25,
    "wall_time": 0.5,
    "throughput": 7.0,
    "extras": {"a": 2, "b": "text"},
    "name": "work/one",
    "metrics": [{"name": "m", "value": 1.5}, {"name": "n", "value": 2.0, "min_value": 1.0, "max_value": 3.0}],
}


class Squares(tf.test.Benchmark):
    ran: list[str] = []

    def benchmark_one(self) -> None:
        self.ran.append("one")
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32)
            found = self.run_op_benchmark(
                session, tf.square(x), {x: 3.0}, burn_iters=1, min_iters=3, store_trace=True, extras={"k": 1}, mbs=2
            )
        assert found["iters"] == 3
        assert found["throughput"] == 2 / found["wall_time"]
        assert json.loads(found["extras"]["full_trace_chrome_format"])["traceEvents"]

    def benchmark_two(self) -> None:
        self.ran.append("two")
        assert self.evaluate([tf.constant(2.0), tf.constant([1, 2])])[0] == 2.0

    def other(self) -> None:
        self.ran.append("other")


def test_a_report_is_written_as_tensorflow_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REPORT_FILE_PREFIX", f"{tmp_path}/report_")
    Squares().report_benchmark(**REPORT)
    entries = BenchmarkEntries.FromString((tmp_path / "report_Squares.work__one").read_bytes())
    assert entries == BenchmarkEntries.FromString(RECORDED)
    with pytest.raises(FileExistsError):
        Squares().report_benchmark(**REPORT)


def test_a_report_is_printed_where_no_file_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TEST_REPORT_FILE_PREFIX", raising=False)
    Squares.ran.clear()
    run_benchmarks(r"Squares\.benchmark_one$")
    assert Squares.ran == ["one"]
    out = capsys.readouterr().out
    assert 'name: "Squares.benchmark_one"' in out
    assert 'key: "k"' in out
    assert "chrome" not in out


def test_the_program_runs_them_in_place_of_its_tests() -> None:
    Squares.ran.clear()
    with pytest.raises(SystemExit) as exit_of:
        tf.test.main(["program", "--benchmarks=Squares.benchmark_two"])
    assert exit_of.value.code == 0
    assert Squares.ran == ["two"]


_WITH_FLAGS = """
from absl import flags
import anabranch as tf

flags.DEFINE_string("folder_of_tests", "nowhere", "of tests")

class Flags(tf.test.TestCase):
    def test_flags(self):
        self.assertEqual(flags.FLAGS.folder_of_tests, "here")

    def test_other(self):
        self.fail("was not asked for")

tf.test.main()
"""


def test_the_programs_flags_are_parsed_and_unittest_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_WITH_FLAGS)
    line = [sys.executable, str(tmp_path / "program.py"), "--folder_of_tests=here", "-v", "Flags.test_flags"]
    env = {**os.environ, "PYTHONPATH": str(Path(tf.__file__).parents[1])}
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr


@pytest.mark.parametrize(
    "wrong", [{"extras": [1]}, {"metrics": {}}, {"metrics": [{"name": "m"}]}, {"metrics": [{"value": 1}]}]
)
def test_what_a_report_does_not_take(wrong: Any) -> None:
    with pytest.raises(TypeError):
        Squares().report_benchmark(name="n", **wrong)


def test_which_class_has_none() -> None:
    assert tf.test.Benchmark.is_abstract()
    assert not Squares.is_abstract()
    options = tf.test.benchmark_config().graph_options.rewrite_options
    assert options.dependency_optimization == options.OFF
    with tf.Session(config=tf.test.benchmark_config()) as session:
        np.testing.assert_equal(session.run(tf.constant(1)), 1)
