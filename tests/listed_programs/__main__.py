"""Runs public programs unmodified, with TensorFlow's compat.v1 (`.venv-peers`) and with anabranch, and prints a table.

    python -m tests.listed_programs --programs FOLDER --home FOLDER [--here] [ID ...]

FOLDER of `--programs` holds the harness (`run_cases.py`) with the list; that of `--home` the checkouts (`co`). What
comes of the programs is kept there as JSON, and printed again by `--kept`. A program that does not end by itself is
stopped when its seconds are used up, and counts as one that runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
#: where each side's Python is, and what the harness calls it
SIDES = {"genuine": ROOT / ".venv-peers/bin/python", "anabranch": ROOT / ".venv/bin/python"}

#: what came of each program, by its name
Outcomes = Mapping[str, Mapping[str, Any]]


def run(side: str, programs: Path, home: Path, names: Sequence[str]) -> None:
    """Runs programs with one side; the harness tells of each as it ends, and writes what came of it."""
    command = [str(SIDES[side]), str(programs / "run_cases.py"), "--backend", side, "--python", str(SIDES[side])]
    environment = {**os.environ, "PROGRAMS_HOME": str(home), "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--out", str(kept_at(home, side)), *names], env=environment, check=True)


def kept_at(home: Path, side: str) -> Path:
    """Where the outcomes of a side are kept."""
    return home / f"outcomes_{side}.json"


def kept(home: Path, side: str) -> Outcomes:
    """The outcomes of a side; none where it did not run."""
    path = kept_at(home, side)
    outcomes: Outcomes = json.loads(path.read_text()) if path.exists() else {}
    return outcomes


def loss_of(outcome: Mapping[str, Any]) -> str:
    """The first scalar that a program fetched: its first and its last values."""
    for series in outcome.get("series", {}).values():
        return f"{series['first']:.4g} → {series['last']:.4g}"
    return "-"


def steps_of(outcome: Mapping[str, Any]) -> str:
    """How many steps a program made, and whether its budget ended it; or that it failed."""
    if not outcome["ok"]:
        return f"failed: {str(outcome['status'])[:40]}"
    return f"{outcome.get('runs', 'all tasks end')}{' (budget)' if outcome['status'] == 'cutoff' else ''}"


def table(genuine: Outcomes, here: Outcomes) -> tuple[Table, int]:
    """The outcomes side by side, and how many of the programs failed here."""
    shown = Table("program", "steps genuine / ours", "genuine loss", "our loss", "seconds genuine / ours")
    for name in dict.fromkeys((*genuine, *here)):
        sides = [side.get(name) for side in (genuine, here)]
        steps, seconds = (
            " / ".join("-" if side is None else tell(side) for side in sides)
            for tell in (steps_of, lambda side: f"{side['wall']:.1f}")
        )
        shown.add_row(name, steps, *("-" if side is None else loss_of(side) for side in sides), seconds)
    return shown, sum(not outcome["ok"] for outcome in here.values())


def main(arguments: Sequence[str]) -> int:
    """Runs the programs, prints the table; 1 if a program failed here."""
    parser = argparse.ArgumentParser(prog="python -m tests.listed_programs", description=__doc__)
    parser.add_argument("--programs", type=Path, required=True, metavar="FOLDER", help="the list and its harness")
    parser.add_argument("--home", type=Path, required=True, metavar="FOLDER", help="the checkouts, and what is kept")
    parser.add_argument("--here", action="store_true", help="run with anabranch only")
    parser.add_argument("--kept", action="store_true", help="run nothing, print what was kept")
    parser.add_argument("ids", nargs="*", metavar="ID", help="V02, or V1* for all that begin so; otherwise all")
    asked = parser.parse_args(arguments)
    home = asked.home.resolve()
    if not asked.kept:
        for side in SIDES if not asked.here else ("anabranch",):
            run(side, asked.programs.resolve(), home, asked.ids)
    shown, failed = table(kept(home, "genuine"), kept(home, "anabranch"))
    Console().print(shown)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
