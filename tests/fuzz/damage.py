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
import functools
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import anabranch as tf
from tests.fuzz import children
from tests.fuzz.damaged_files import SUBJECTS

#: seconds of processor time after which a case counts as one without end
PATIENCE = 60
#: errors that say that something is wrong here, not in the file
_OURS = (tf.errors.InternalError, tf.errors.UnknownError, tf.errors.AbortedError)


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
    """Runs cases in this process; see `children.run_cases`."""

    def case(number: int) -> tuple[str, int, Callable[[], str]]:
        subject = subjects[number % len(subjects)]
        return subject, number, functools.partial(_outcome, subject, seed, number)

    children.run_cases(map(case, range(first, first + count)), PATIENCE, seconds)


def _outcome(subject: str, seed: int, number: int) -> str:
    try:
        return run_case(subject, seed, number)
    except BaseException as error:  # any exception that is no refusal is what this looks for
        place = "; ".join(
            f"{frame.filename.rpartition('anabranch/')[2]}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)[-3:]
        )
        return f"finding {type(error).__name__}: {str(error)[:300]!r} at {place}"


def main() -> int:
    """The command line; the exit status says whether there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subject", action="append", choices=sorted(SUBJECTS), help="may be given several times")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--count", type=int, default=children.BATCH, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    subjects = options.subject or [name for name in SUBJECTS if name != "onnx"]
    if options.child:
        children.limit()
        run_batch(subjects, options.seed, options.first, options.count, options.seconds)
        return 0
    if options.only is not None:
        children.limit()
        print(run_case(subjects[options.only % len(subjects)], options.seed, options.only))
        return 0
    chosen = [f"--subject={name}" for name in subjects]
    counts = children.fuzz("tests.fuzz.damage", chosen, options.seed, options.seconds, options.first, PATIENCE)
    return counts.told(options.seed)


if __name__ == "__main__":
    sys.exit(main())
