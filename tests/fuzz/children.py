"""Runs numbered cases in child processes with little address space and without core dumps, which may die of them.

A child prints a line when a case begins, "begin LABEL NUMBER", and one when it ends, "end OUTCOME". An outcome that
begins with "finding", a signal, another exit and a case without end are findings.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

ADDRESS_SPACE = 8 << 30
#: so many times the seconds of a case's patience after which one that waits counts as one without end
WAITING = 3
#: cases that one child runs
BATCH = 100


@dataclass
class Counts:
    """What came of the cases: how many ended how, by label, and the findings."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def told(self, seed: int) -> int:
        """Prints what came of the cases; 1 if there was a finding."""
        print(f"seed {seed}: {sum(self.outcomes.values())} cases, {len(self.findings)} findings")
        for outcome, count in sorted(self.outcomes.items()):
            print(f"  {count:7d} {outcome}")
        return 1 if self.findings else 0


def limit() -> None:
    """Gives this process little address space, and lets it leave no core."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_cases(cases: Iterable[tuple[str, int, Callable[[], str]]], patience: int, seconds: float) -> None:
    """Runs cases in this process until so many seconds are over; tells on stdout how each begins and ends.

    Args:
        cases: label, number, and what runs it and says how it ended: it raises nothing.
        patience: seconds of processor time after which a case counts as one without end.
        seconds: when no further case begins.
    """
    until = time.monotonic() + seconds
    for label, number, run in cases:
        if time.monotonic() > until:
            return
        print(f"begin {label} {number}", flush=True)
        # nobody handles them: the process ends when a case does not, be it at work or waiting
        signal.setitimer(signal.ITIMER_PROF, patience)
        signal.alarm(WAITING * patience)
        outcome = run()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(f"end {outcome}", flush=True)


def fuzz(module: str, further: Sequence[str], seed: int, seconds: float, first: int, patience: int) -> Counts:
    """Runs batches of cases in child processes for so many seconds, and at least one case.

    Args:
        module: what a child runs, with `--child`, `--seed`, `--first`, `--count` and `--seconds`.
        further: arguments of its own.
        first: the number of the first case.
        patience: as of `run_cases`.
    """
    counts = Counts()
    until = time.monotonic() + seconds
    number = first
    while number == first or time.monotonic() < until:
        left = max(0.0, until - time.monotonic())
        options = {"seed": seed, "first": number, "count": BATCH, "seconds": left}
        command = [sys.executable, "-m", module, "--child", *further]
        command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        number = _count(child, number, patience, counts)
    return counts


def _count(child: subprocess.CompletedProcess[str], number: int, patience: int, counts: Counts) -> int:
    """Enters what a child told into the counts; returns the number of the next case."""
    label = "none"
    for line in child.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "begin":
            label, text = rest.split()
            number = int(text)
        elif word == "end":
            counts.outcomes[f"{label}: {'finding' if rest.startswith('finding') else rest}"] += 1
            if rest.startswith("finding"):
                _tell(counts, f"{label} case {number}: {rest}")
    if child.returncode:
        counts.outcomes[f"{label}: finding"] += 1
        endless = child.returncode in (-signal.SIGALRM, -signal.SIGPROF)
        how = f"no end after {patience} s of work" if endless else f"exit {child.returncode}"
        _tell(counts, f"{label} case {number}: {how}: {child.stderr[-600:]!r}")
    return number + 1


def _tell(counts: Counts, finding: str) -> None:
    counts.findings.append(finding)
    print(finding, flush=True)
