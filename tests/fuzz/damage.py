"""Damages files of every format that is read, at random, and reads them: nothing that a file says may end the process.

Bytes are cut off, flipped and repeated; fields of messages get others' values, sizes that no machine has, names that
are not there; where a format has checksums, they are often made right again. What must come of it is a result, or an
error that is documented and says something; a signal, another exception, memory that was only claimed, or a case
without end is a finding.

    python -m tests.fuzz.damage --seconds 600 --seed 1
    python -m tests.fuzz.damage --subject loops --seed 1 --only 17

Cases run in child processes with little address space, so that this process survives them all. A finding is told with
the number of its case, which `--only` runs again in this process.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anabranch as tf
from tests.fuzz.damaged_files import SUBJECTS

ADDRESS_SPACE = 8 << 30
#: seconds of processor time after which a case counts as one without end
PATIENCE = 60
#: so many times these seconds after which one that waits does
WAITING = 3
#: cases that one child runs
BATCH = 100
#: errors that say that something is wrong here, not in the file
_OURS = (tf.errors.InternalError, tf.errors.UnknownError, tf.errors.AbortedError)


@dataclass
class Counts:
    """What came of the cases: how many ended how, by subject, and the findings."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def run_case(subject: str, seed: int, number: int) -> str:
    """Makes and reads one damaged thing; says how it ended.

    Raises:
        Exception: something other than a refusal.
    """
    kind = SUBJECTS[subject]
    draw = random.Random(f"{subject} {seed} {number}")
    with tempfile.TemporaryDirectory() as folder:
        damaged = kind.make(draw, Path(folder))
        try:
            kind.use(damaged, Path(folder))
        except _OURS:
            raise
        except (tf.errors.OpError, *kind.refusals) as error:
            if len(str(error).strip()) < 8 or isinstance(error, UnicodeError):
                raise
            return type(error).__name__
    return "result"


def run_batch(subjects: list[str], seed: int, first: int, count: int, seconds: float) -> None:
    """Runs cases in this process until so many seconds are over; tells on stdout how each begins and ends."""
    until = time.monotonic() + seconds
    for number in range(first, first + count):
        if time.monotonic() > until:
            return
        subject = subjects[number % len(subjects)]
        print(f"begin {subject} {number}", flush=True)
        # nobody handles them: the process ends when a case does not, be it at work or waiting
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        signal.alarm(WAITING * PATIENCE)
        try:
            outcome = run_case(subject, seed, number)
        except BaseException as error:  # any exception that is no refusal is what this looks for
            place = "; ".join(
                f"{frame.filename.rpartition('anabranch/')[2]}:{frame.lineno}"
                for frame in traceback.extract_tb(error.__traceback__)[-3:]
            )
            outcome = f"finding {type(error).__name__}: {str(error)[:300]!r} at {place}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(f"end {outcome}", flush=True)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def fuzz(subjects: list[str], seed: int, seconds: float, first: int = 0) -> Counts:
    """Runs batches of cases in child processes for so many seconds, and at least one case."""
    counts = Counts()
    until = time.monotonic() + seconds
    number = first
    while number == first or time.monotonic() < until:
        left = max(0.0, until - time.monotonic())
        command = [sys.executable, "-m", "tests.fuzz.damage", "--child", *(f"--subject={name}" for name in subjects)]
        options = {"seed": seed, "first": number, "count": BATCH, "seconds": left}
        command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        number = _count(child, number, counts)
    return counts


def _count(child: subprocess.CompletedProcess[str], number: int, counts: Counts) -> int:
    """Enters what a child told into the counts; returns the number of the next case."""
    case, subject = f"case {number}", "none"
    for line in child.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "begin":
            subject, _, text = rest.partition(" ")
            number, case = int(text), f"{subject} case {text}"
        elif word == "end":
            counts.outcomes[f"{subject}: {rest.split()[0]}"] += 1
            if rest.startswith("finding"):
                _tell(counts, f"{case}: {rest}")
    if child.returncode:
        counts.outcomes[f"{subject}: finding"] += 1
        endless = child.returncode in (-signal.SIGALRM, -signal.SIGPROF)
        how = f"no end after {PATIENCE} s of work" if endless else f"exit {child.returncode}"
        _tell(counts, f"{case}: {how}: {child.stderr[-600:]!r}")
    return number + 1


def _tell(counts: Counts, finding: str) -> None:
    counts.findings.append(finding)
    print(finding, flush=True)


def main() -> int:
    """The command line; the exit status says whether there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subject", action="append", choices=sorted(SUBJECTS), help="may be given several times")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--count", type=int, default=BATCH, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    subjects = options.subject or [name for name in SUBJECTS if name != "onnx"]
    if options.child:
        _limit()
        run_batch(subjects, options.seed, options.first, options.count, options.seconds)
        return 0
    if options.only is not None:
        _limit()
        print(run_case(subjects[options.only % len(subjects)], options.seed, options.only))
        return 0
    counts = fuzz(subjects, options.seed, options.seconds, options.first)
    print(f"seed {options.seed}: {sum(counts.outcomes.values())} cases, {len(counts.findings)} findings")
    for outcome, count in sorted(counts.outcomes.items()):
        print(f"  {count:7d} {outcome}")
    return 1 if counts.findings else 0


if __name__ == "__main__":
    sys.exit(main())
