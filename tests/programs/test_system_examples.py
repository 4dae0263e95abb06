"""The examples of systems that others built: each runs in this process, and what it prints shows what it claims."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

SYSTEMS = Path(__file__).resolve().parents[2] / "examples" / "systems"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SYSTEMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What an example prints."""
    example(name).main([*arguments])
    return capsys.readouterr().out


def numbers(pattern: str, text: str) -> list[Any]:
    return [
        [float(n) for n in found] if isinstance(found, tuple) else float(found) for found in re.findall(pattern, text)
    ]


def test_every_example_is_run_here() -> None:
    assert {f"test_{path.stem}" for path in SYSTEMS.glob("*.py")} <= set(vars(sys.modules[__name__]))


def test_backup_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    output = run("backup_tasks", capsys, "--steps", "500", "--draw", str(figure))
    assert "proactive" in figure.read_text("utf-8")
    short, long = (numbers(r"median +([\d.]+)", part) for part in output.split("stragglers take")[1:])
    # for short steps a copy that begins late is of no use; where tasks hang both help, those begun at once more
    assert min(short[7:]) > 0.97 * short[0]
    assert short[4] < short[0]
    assert min(long[7:]) < 0.6 * long[0]
    assert long[4] < min(long[7:])


def test_a_copy_that_is_started_late_ends_late() -> None:
    backups = example("backup_tasks")
    times = np.ones((1, 50))
    times[0, :2] = 10.0, 1.5
    assert backups.reactive(times, np.ones((1, 50)), 0.8)[0] == 2.0
    assert backups.proactive(np.concatenate([times, np.ones((1, 1))], axis=1))[0] == 1.5


def test_minimum_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("minimum_cut", capsys)
    rows = numbers(r"bytes/s: +([\d.]+) ms \(device ([\d.]+), server ([\d.]+)\)", output)
    assert all(least <= min(device, server) + 0.01 for least, device, server in rows)
    (slowest, device, _), (fastest, _, server) = rows[0], rows[-1]
    assert (slowest, fastest) == (device, server)
    cuts, off = numbers(r"(\d+) different cuts; largest difference to one process: (\S+)", output)[0]
    assert cuts >= 3
    assert off < 1e-5


def test_the_least_cut_is_as_large_as_the_largest_flow() -> None:
    minimum_cut = example("minimum_cut").minimum_cut
    rng = np.random.default_rng(0)
    for _ in range(20):
        capacity = rng.integers(0, 10, (7, 7)) * (rng.random((7, 7)) < 0.4)
        np.fill_diagonal(capacity, 0)
        edges = {(str(a), str(b)): float(capacity[a, b]) for a, b in np.argwhere(capacity)}
        flow, side = minimum_cut(edges, "0", "6")
        assert flow == maximum_flow(csr_array(capacity.astype(np.int32)), 0, 6).flow_value
        assert flow == sum(most for (a, b), most in edges.items() if a in side and b not in side)


def test_sandblaster_lbfgs(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("sandblaster_lbfgs", capsys, "--iterations", "4", "--features", "8", "2048")
    small, large = numbers(r"parameters: loss ([\d.]+) -> ([\d.]+); .* messages ([\d.]+) kB", output)
    assert large[1] < 0.2 * large[0]
    assert small[1] < 0.95 * small[0]
    # a vector of the large model has 65 kB
    assert large[2] < 1.3 * small[2] < 65


def test_replica_training(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("replica_training", capsys, "--steps", "60", "--ways", "averaging, τ = 20", "downpour, 5")
    ways = numbers(r"loss ([\d.]+) -> ([\d.]+); ([\d.]+) kB", output)
    assert len(ways) == 2
    assert all(last < min(first, 0.2) for first, last, _ in ways)
    # synchronous steps send 1,024 parameters and gradients, of 4 bytes each
    assert all(sent < 0.7 * 2 * 4.096 for *_, sent in ways)


def test_nested_loops(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("nested_loops", capsys)
    assert "iterations as in one process: True" in output
    assert numbers(r"largest difference to one process: (\S+)", output) == [0.0]
    assert min(numbers(r"(\d+) iterations,", output)) > 3


def test_push_pull(capsys: pytest.CaptureFixture[str]) -> None:
    output = run("push_pull", capsys, "--steps", "25")
    (first, last, off), (_, last_apart, off_apart) = numbers(r"loss (\S+) -> (\S+); largest .* process (\S+)", output)
    assert last < 0.2 * first
    assert last_apart < 0.2 * first
    assert off < 1e-5 < off_apart
