"""The examples, each run as a process, as a reader runs them; what they print shows that they did what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(name: str, directory: Path, *arguments: str) -> str:
    """The output of an example, run in `directory`."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def percentages(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"([\d.]+)% right", output)]


def test_every_example_is_run_here() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_linear_regression(tmp_path: Path) -> None:
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", run("linear_regression", tmp_path))]
    assert losses[-1] < 0.02 < 1 < losses[0]


def test_custom_gradient(tmp_path: Path) -> None:
    output = run("custom_gradient", tmp_path)
    assert "0 of 2 variables" in output
    assert "2 of 2 variables" in output
    without, through = percentages(output)
    assert without < 75
    assert through > 95


def test_fine_tuning(tmp_path: Path) -> None:
    output = run("fine_tuning", tmp_path, "--directory", "runs")
    assert "4 of 6 tensors fit" in output
    assert "output/kernel: wanted float32 [32, 2], stored float32 [32, 4]" in output
    first, second = percentages(output)
    assert first > 95
    assert second > 95
    assert list((tmp_path / "runs").glob("clusters.index.json"))
