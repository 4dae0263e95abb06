"""Prints how far gradients of the first steps of public programs are from genuine TensorFlow's, from the same state.

The programs run unmodified, first with TensorFlow's compat.v1 (`.venv-peers`). At the first step of each optimizer, and
at the first use of each call of `tf.gradients`, the values of all variables, the feeds, the gradients, and what random
operations, queues and iterators gave are kept. Then they run with anabranch: at the same step the variables are loaded,
and the feeds, random numbers and elements are those that were kept.

    python -m tests.first_steps --programs FOLDER --home FOLDER [ID ...]
    python -m tests.first_steps --programs FOLDER --home FOLDER --scripts PATH ...

FOLDER of `--programs` holds `cases.py` and `shim/tf1run.py`; that of `--home` the checkouts (`co`) and the made data.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.first_steps.moments import Moment, difference, read

ROOT = Path(__file__).resolve().parents[2]
_SIDES = {"genuine": ROOT / ".venv-peers/bin/python", "anabranch": ROOT / ".venv/bin/python"}
#: repositories that are too large to be copied for each run
_SHARED = {"models", "tensorflow@r1.4"}


@dataclass
class Case:
    """A program: its name, where it lies and runs, and what it is told."""

    name: str
    words: str
    script: str
    arguments: list[str]
    repository: Path | None = None
    folder: str = ""
    path: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    after: str | None = None
    #: how many processes of each job, where there are several
    tasks: dict[str, int] = field(default_factory=dict)


@dataclass
class Row:
    """What came of a program."""

    case: Case
    moments: int = 0
    gradients: int = 0
    worst: float = 0.0
    where: str = ""
    drawn: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def line(self) -> str:
        """A line of the table."""
        worst = f"{self.worst:.0e}" if self.gradients else "-"
        drawn = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.drawn.items()))
        return f"| {self.case.name} | {self.case.words} | {self.moments} | {self.gradients} | {worst} | {drawn} |"


class Runner:
    """Runs cases on both sides."""

    def __init__(self, programs: Path, home: Path, seconds: float, patience: float) -> None:
        self.programs, self.home, self.seconds, self.patience = programs, home, seconds, patience
        self.kept = home / "first_steps"
        self.kept.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "PROGRAMS_HOME": str(home),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "CUDA_VISIBLE_DEVICES": "",
            "H2_MAPHOSTS": "21000",
            "H2_DATA": str(home / "data"),
        }
        if not (home / "data").is_dir():
            made = [sys.executable, str(programs / "shim/data_synth.py")]
            subprocess.run(made, check=True, env=self.environment)
        for folder in ("shim", "drv"):
            if not (home / folder).is_dir():
                shutil.copytree(programs / folder, home / folder)

    def compare(self, case: Case) -> Row:
        """Runs a case on both sides, and compares the gradients."""
        row = Row(case)
        theirs = self._run(case, "genuine", row)
        if not theirs:
            return row
        ours = self._run(case, "anabranch", row)
        for number, moment in ours.items():
            self._compare(row, number, moment, theirs)
        matched = {moment.made_from for moment in ours.values()}
        row.notes += [f"only in TensorFlow: {moment.label[:100]}" for i, moment in theirs.items() if i not in matched]
        return row

    def _compare(self, row: Row, number: int, ours: Moment, kept: dict[int, Moment]) -> None:
        row.notes += [f"step {number}: {words}" for words in ours.unknown]
        row.notes += [f"step {number}: {kind} in a loop or conditional" for kind in ours.within]
        theirs = kept.get(ours.made_from)
        if theirs is None or not ours.gradients:
            return
        row.notes += [f"step {number}: {kind} in a loop or conditional there" for kind in theirs.within]
        worst, where = difference(ours, theirs)
        row.moments += 1
        row.gradients += len(theirs.gradients)
        row.drawn.update(theirs.kinds.values())
        if worst > row.worst or np.isnan(worst):
            row.worst, row.where = worst, f"step {number}: {where}"

    def _run(self, case: Case, side: str, row: Row) -> dict[int, Moment]:
        written = self.kept / f"{case.name}-{side}.npz"
        written.unlink(missing_ok=True)
        root, folder = self._laid_out(case, side)
        command = [str(_SIDES[side]), "-m", "tests.first_steps.one_side", "--shim", str(self.home / "shim")]
        command += ["--write", str(written), "--patience", str(self.patience)]
        if side == "anabranch":
            command += ["--from", str(self.kept / f"{case.name}-genuine.npz")]
        command += ["--"]
        program = ["--backend", side, "--max-sec", str(self.seconds), "--cwd", str(folder)]
        program += ["--path", str(root / case.path)] if case.path else []
        program += [str(root / case.script), *case.arguments]
        log = self.kept / f"{case.name}-{side}.log"
        environment = self.environment | case.environment
        with log.open("wb") as out, self._others(case, side, program, environment):
            program += ["--job_name=worker", "--task_index=0"] if case.tasks else []
            command += program
            try:
                ended = subprocess.run(
                    command,
                    env=environment,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=self.seconds + 90,
                    check=False,
                )
                status = ended.returncode
            except subprocess.TimeoutExpired:
                status = -1
        if status:
            row.notes.append(f"{side}: exit {status}, {_last_line(log)}")
        return read(written)

    @contextlib.contextmanager
    def _others(self, case: Case, side: str, program: list[str], environment: dict[str, str]) -> Iterator[None]:
        """The other tasks of a program's cluster run meanwhile; the first worker is the one that is watched."""
        plain = [str(_SIDES[side]), str(self.home / "shim/tf1run.py"), *program]
        started = []
        try:
            for job, count in case.tasks.items():
                for index in range(job == "worker", count):
                    task = [*plain, f"--job_name={job}", f"--task_index={index}"]
                    started.append(
                        subprocess.Popen(
                            task,
                            env=environment,
                            cwd=ROOT,
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                        )
                    )
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()

    def _laid_out(self, case: Case, side: str) -> tuple[Path, Path]:
        """A fresh copy of the repository, and the folder that the program runs in."""
        own = self.home / "work" / f"{side}_{case.after or case.name}"
        if case.repository is None or case.repository.name in _SHARED:
            folder = own / "run"
            folder.mkdir(parents=True, exist_ok=True)
            return case.repository or Path("/"), folder
        if not case.after:
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(case.repository, own, symlinks=True)
        return own, own / (case.folder or Path(case.script).parent)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and "@@{" not in line]
    return lines[-1][:300] if lines else ""


def listed_cases(programs: Path, home: Path) -> list[Case]:
    """The cases of `cases.py`."""
    spec = importlib.util.spec_from_file_location("cases", programs / "cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def led(text: str) -> str:
        return text.replace("@HOME@", str(home))

    cases = []
    for given in module.C:
        options: dict[str, Any] = given
        if options.get("dist"):
            cases.append(_cluster_case(options, home))
            continue
        cases.append(
            Case(
                options["id"],
                f"{options['cat']}: `{Path(options['script']).name}`",
                led(options["script"]),
                led(options["args"]).split(),
                home / "co" / options["repo"] if options["repo"] else None,
                options.get("cwd", ""),
                options.get("path"),
                {key: led(value) for key, value in options.get("env", {}).items()},
                options.get("after"),
            )
        )
    return cases


def _cluster_case(options: dict[str, Any], home: Path) -> Case:
    """A program of several processes: `--workers N --ps N co/REPOSITORY/SCRIPT ...`."""
    words = options["args"].split()
    at = next(i for i, word in enumerate(words) if word.startswith("co/"))
    counts = {words[i].strip("-"): int(words[i + 1]) for i in range(0, at, 2)}
    inside = Path(words[at])
    repository, script = home / Path(*inside.parts[:2]), str(Path(*inside.parts[2:]))
    case = Case(options["id"], f"{options['cat']}: `{inside.name}`", script, words[at + 1 :], repository)
    case.environment = {key: str(value) for key, value in options.get("env", {}).items()}
    case.tasks = {"ps": counts["ps"], "worker": counts["workers"]}
    return case


def main(arguments: Sequence[str]) -> int:
    """Prints the table; the exit status is 1 where a difference is over 1e-3."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_steps", description=__doc__.split("\n")[0])
    parser.add_argument("ids", nargs="*", help="programs of cases.py (default: all)")
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each program and side")
    parser.add_argument("--patience", type=float, default=4.0, help="seconds that more optimizers are waited for")
    parser.add_argument("--scripts", type=Path, nargs="*", help="scripts in checkouts, instead of cases.py's")
    options = parser.parse_args(arguments)
    home = options.home.resolve()
    runner = Runner(options.programs.resolve(), home, options.seconds, options.patience)
    if options.scripts is not None:
        cases = [_script_case(path.resolve(), home) for path in options.scripts]
    else:
        cases = [case for case in listed_cases(options.programs, home) if not options.ids or case.name in options.ids]
    print("| | program | steps | gradients | largest difference | made equal |\n|---|---|---|---|---|---|", flush=True)
    started, rows = time.monotonic(), []
    for case in cases:
        row = runner.compare(case)
        rows.append(row)
        print(row.line(), flush=True)
        for note in [row.where, *dict.fromkeys(row.notes)] if row.worst > 1e-5 or row.notes else []:
            print(f"    {case.name}: {note}", file=sys.stderr, flush=True)
    compared = [row for row in rows if row.gradients]
    over = [row.case.name for row in compared if not row.worst <= 1e-3]
    print(f"{len(compared)} of {len(rows)} programs have gradients that were compared: {sum(r.moments for r in rows)} ")
    print(f"steps, {sum(r.gradients for r in rows)} gradients; over 1e-3: {' '.join(over) or 'none'}")
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return 1 if over else 0


def _script_case(path: Path, home: Path) -> Case:
    inside = path.relative_to(home / "co")
    repository = home / "co" / inside.parts[0]
    script = str(Path(*inside.parts[1:]))
    name = "_".join(inside.with_suffix("").parts).replace(" ", "_")
    return Case(name, f"{inside.parts[0].replace('+', '/')}: `{script}`", script, [], repository)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
