"""Runs one measurement as processes of several systems in turn, and tabulates medians and ratios.

A worker is a script that takes the name of a system and prints one JSON object: measurement -> seconds (or bytes).
Systems take turns (A B C A B C ...), so that a machine whose speed drifts does not favour one of them.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
WORKERS = Path(__file__).resolve().parent / "workers"
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"

#: which environment runs a system: ours, or that of the peers
_PEERS = frozenset({"tensorflow", "torch"})


@dataclass
class Results:
    """system -> measurement -> the figure of each round."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, system: str, row: dict[str, float]) -> None:
        for name, value in row.items():
            self.figures.setdefault(system, {}).setdefault(name, []).append(value)

    def only(self, *beginnings: str) -> Results:
        """The measurements whose names begin so."""
        return self._where(lambda name: name.startswith(beginnings))

    def without(self, *beginnings: str) -> Results:
        """The others."""
        return self._where(lambda name: not name.startswith(beginnings))

    def _where(self, holds: Callable[[str], bool]) -> Results:
        return Results(
            {system: {name: row[name] for name in row if holds(name)} for system, row in self.figures.items()}
        )

    def median(self, system: str, name: str) -> float | None:
        values = self.figures.get(system, {}).get(name)
        return statistics.median(values) if values else None


def available(system: str) -> bool:
    """Whether the environment of a system is installed."""
    return system not in _PEERS or PEERS_PYTHON.exists()


def run_worker(worker: str, system: str, *arguments: str, timeout: float = 600) -> dict[str, float]:
    """Runs a worker in the environment of its system, on the processor.

    Raises:
        RuntimeError: the worker failed; the message ends with what it printed.
    """
    python = str(PEERS_PYTHON) if system in _PEERS else sys.executable
    row: dict[str, float] = _printed(python, worker, system, *arguments, timeout=timeout, CUDA_VISIBLE_DEVICES="")
    return row


def measure_in_turns(worker: str, *arguments: str, timeout: float = 600) -> tuple[Results, str]:
    """Runs a worker that has all systems in one process, on the device that JAX finds; and what that is called.

    Raises:
        RuntimeError: the worker failed; the message ends with what it printed.
    """
    # each system's allocator takes what it needs of the device's memory, and no more
    printed = _printed(sys.executable, worker, *arguments, timeout=timeout, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    results = Results()
    for system, row in printed["rows"].items():
        results.add(system, row)
    return results, printed["device"]


def _printed(python: str, worker: str, *arguments: str, timeout: float, **variables: str) -> Any:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **variables}
    command = [python, str(WORKERS / f"{worker}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{worker} {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(worker: str, systems: Sequence[str], rounds: int, console: Console, *arguments: str) -> Results:
    """Runs every available system `rounds` times, in turn."""
    results = Results()
    with console.status(f"{worker} ...") as status:
        for number in range(rounds):
            for system in systems:
                if not available(system):
                    continue
                status.update(f"{worker}: {system}, round {number + 1} of {rounds}")
                results.add(system, run_worker(worker, system, *arguments))
    return results


def print_table(
    title: str, results: Results, systems: Sequence[str], unit: str, scale: float, console: Console
) -> None:
    """One row per measurement, one column per system: the median, and the ratio of ours to it."""
    table = Table(title=f"{title} ({unit})", caption=machine())
    table.add_column("measurement")
    for system in systems:
        table.add_column(system, justify="right")
    names = list(dict.fromkeys(n for row in results.figures.values() for n in row))
    for name in names:
        ours = results.median("anabranch", name)
        cells = []
        for system in systems:
            value = results.median(system, name)
            if value is None:
                cells.append("-")
            elif system == "anabranch" or ours is None:
                cells.append(_figure(value * scale))
            else:
                cells.append(f"{_figure(value * scale)}  (ours: {ours / value:.2f} x)")
        table.add_row(name, *cells)
    console.print(table)


def machine() -> str:
    """One line about this machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _figure(value: float) -> str:
    """Three significant digits, and at least the whole number."""
    return f"{value:,.{max(0, 2 - len(str(int(abs(value)))) + 1)}f}"
