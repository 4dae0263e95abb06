"""The examples, each run as a process, as a reader runs them; what they print shows that they did what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests import quick_compilation

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(name: str, directory: Path, *arguments: str, level: int = 0) -> str:
    """The output of an example, run in `directory`; `level` is that of XLA's optimization."""
    return run_and_listen(name, directory, *arguments, level=level)[0]


def run_and_listen(name: str, directory: Path, *arguments: str, level: int = 0) -> tuple[str, str]:
    """The output of an example, and what it writes to the standard error stream."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    env = {**os.environ, **quick_compilation.environment(level)}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def percentages(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+)% right", output)]


def test_every_example_is_run_here() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_linear_regression(tmp_path: Path) -> None:
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", run("linear_regression", tmp_path))]
    assert losses[-1] < 0.02 < 1 < losses[0]


def test_quantised_digits(tmp_path: Path) -> None:
    # hundreds of steps with convolutions, which take twice as long as to compile them well
    output = run("quantised_digits", tmp_path, level=2)
    floats, integers = percentages(output)
    assert floats > 95
    assert integers > floats - 2
    large, small = (int(found) for found in re.findall(r"(\d+) bytes", output))
    assert small < large / 3


def test_custom_gradient(tmp_path: Path) -> None:
    output = run("custom_gradient", tmp_path)
    assert "0 of 2 variables" in output
    assert "2 of 2 variables" in output
    without, through = percentages(output)
    assert without < 75
    assert through > 95


def check_trace(directory: Path, name: str) -> None:
    """The trace has a row for each of two devices, and the picture a band with bars."""
    events = json.loads((directory / f"{name}.json").read_text("utf-8"))["traceEvents"]
    rows = {e["args"]["name"].split("/device:")[1] for e in events if e["name"] == "process_name"}
    assert rows == {"CPU:0 Compute", "CPU:1 Compute"}
    picture = ET.fromstring((directory / f"{name}.svg").read_text("utf-8"))
    texts = {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert {"CPU:0", "CPU:1"} <= texts
    bars = [element for element in picture.iter() if element.tag.endswith("title")]
    assert len(bars) == sum(event["ph"] == "X" for event in events)


def test_model_parallel(tmp_path: Path) -> None:
    output = run("model_parallel", tmp_path, "--steps", "40")
    assert percentages(output)[0] > 90
    (difference,) = re.findall(r"largest difference to one device: (\S+)", output)
    assert float(difference) < 1e-6
    assert re.search(r"CPU:0: \d+ islands, \d+ sent, \d+ received", output)
    check_trace(tmp_path, "model_parallel")


def test_towers(tmp_path: Path) -> None:
    output = run("towers", tmp_path, "--steps", "40")
    first, last, alone = (float(found) for found in re.findall(r"\d+\.\d{4}", output))
    assert last < 0.2 * first
    assert abs(last - alone) < 1e-3
    check_trace(tmp_path, "towers")


def test_fine_tuning(tmp_path: Path) -> None:
    output = run("fine_tuning", tmp_path, "--directory", "runs")
    assert "4 of 6 tensors fit" in output
    assert "output/kernel: wanted float32 [32, 2], stored float32 [32, 4]" in output
    first, second = percentages(output)
    assert first > 95
    assert second > 95
    assert list((tmp_path / "runs").glob("clusters.index.json"))


def test_tree_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_EXPLAIN", "1")
    output, told = run_and_listen("tree_model", tmp_path)
    assert min(percentages(output)) > 97
    (trees,) = map(int, re.findall(r"trained on (\d+) different trees", output))
    compilations = len(re.findall(r"^compiled island", told, re.MULTILINE))
    assert trees > 20 * compilations, "programs are for numbers of nodes rounded up to powers of two, not for trees"


@pytest.fixture
def clusters_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where clusters note themselves, by a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        yield Path(folder)


def test_asynchronous_digits(clusters_folder: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits")
    command = [sys.executable, "-m", "anabranch", "cluster", "run", "--workers", "2", "--ps-too"]
    command += [str(EXAMPLES / "asynchronous_digits.py"), "--steps", "200", "--job_name={job}", "--task_index={index}"]
    command += ["--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}"]
    env = {**os.environ, **quick_compilation.environment()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert {line.partition(" ")[0] for line in done.stdout.splitlines()} >= {"worker/0", "worker/1"}
    assert losses[-1] < losses[0]


def test_cluster_demo(tmp_path: Path, clusters_folder: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits")
    output = run("cluster_demo", tmp_path, "--seconds", "2", "--ps", "1", "--workers", "2")
    assert "worker/1 was killed" in output
    assert int(re.findall(r"meanwhile worker/0 made (\d+) steps", output)[0]) > 0
    assert list((clusters_folder / "anabranch" / "clusters").iterdir()) == []
