"""Random scripts on both sides, anabranch and genuine TensorFlow, until the time is up.

A script is made from a subject, a seed and an index, so that any one can be run again::

    python -m tests.fuzz.scripts.differential --subject datasets --seconds 600 --seed 7
    python -m tests.fuzz.scripts.differential --subject datasets --seed 7 --index 1234
    python -m tests.fuzz.scripts.differential --script out/fuzz-scripts/datasets-7-1234/script.py

What the two sides show differently is made small (lines are left out) and written into a folder of its own; the exit
status is then 1.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.scripts.observed import differs
from tests.fuzz.scripts.savers import OTHERS_FOLDER
from tests.fuzz.scripts.subjects import SUBJECTS
from tests.fuzz.sides import ROOT, Side, SideDiedError

#: what TensorFlow's executor says where it, and not the script, is wrong: gradients of loops in loops, mostly
_OWN_FAILURES = re.compile(r"Retval\[\d+\] does not have value|Invalid loop structure")
#: disagreements of one signature that are made small and written down
_WRITTEN_OF_EACH = 1
#: runs, and seconds, that making a script small may take
_RUNS, _SECONDS = 150, 40.0


@dataclass(frozen=True)
class Difference:
    """The first thing that two runs of a script show differently.

    Attributes:
        name: of what was shown.
        words: how it differs.
        messages: what errors say here and there.
    """

    name: str
    words: str
    messages: tuple[str, str] = ("", "")

    @property
    def signature(self) -> str:
        """What differences of one cause have in common."""
        words = [self.words, *(message[:100] for message in self.messages)]
        return re.sub(r"[\d\"'.\[\]():, -]+", "#", " ".join([self.name, *words]))


class Fuzzer:
    """Runs scripts, and writes down those that show different things."""

    def __init__(self, out: Path, whole: bool = False) -> None:
        self.whole = whole
        module = "tests.fuzz.scripts.worker"
        self.ours, self.genuine = Side("anabranch", module), Side("tensorflow", module)
        self.out = out
        self.found: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def examine(self, script: str) -> Difference | None:
        """Runs a script on both sides, and compares what they show; once more where a side gave no answer."""
        found = self._examined(script)
        return self._examined(script) if found is not None and found.name == "script" else found

    def _examined(self, script: str) -> Difference | None:
        first, mark, second = script.partition(OTHERS_FOLDER)
        if not mark:
            return self._run(script, (None, None))
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
            found = self._run(first, (ours, theirs))
            return found or self._run(second, (theirs, ours))

    def _run(self, script: str, folders: tuple[str | None, str | None]) -> Difference | None:
        for side in (self.ours, self.genuine):
            side.be_patient()
        answers: list[dict[str, Any]] = []
        for side, folder in zip((self.ours, self.genuine), folders, strict=True):
            try:
                side.tell("run", script=script, folder=folder)
            except SideDiedError as error:
                return Difference("script", f"{side.name} died", (str(error), ""))
        for side in (self.ours, self.genuine):
            try:
                answers.append(side.hear())
            except SideDiedError as error:
                answers.append({"died": str(error)})
        for side in (self.ours, self.genuine):
            side.count_program()
        return self._compared(*answers)

    def _compared(self, ours: dict[str, Any], theirs: dict[str, Any]) -> Difference | None:
        if "died" in theirs:
            self.counts["TensorFlow died"] += 1
            return None
        if "died" in ours:
            return Difference("script", "anabranch died", (ours["died"], ""))
        for i, (a, b) in enumerate(zip(ours["seen"], theirs["seen"], strict=False)):
            self.counts["compared"] += 1
            self.counts["errors"] += isinstance(b[1], dict) and "error" in b[1]
            if _OWN_FAILURES.search(theirs["messages"][i]):
                self.counts["TensorFlow failed"] += 1
                continue
            words = differs(a[1], b[1]) if a[0] == b[0] else f"{a[0]} is shown, expected {b[0]}"
            if words is not None:
                return Difference(b[0], words, (ours["messages"][i], theirs["messages"][i]))
        return None

    def make_small(self, script: str, found: Difference) -> tuple[str, Difference]:
        """Leaves out lines while the difference stays of one kind."""
        runs, size, until = 0, max(1, script.count("\n") // 2), time.monotonic() + _SECONDS
        while size >= 1 and runs < _RUNS and time.monotonic() < until:
            shorter, at = False, 0
            while at < len(lines := script.splitlines()) and runs < _RUNS and time.monotonic() < until:
                runs += 1
                trial = "\n".join(lines[:at] + lines[at + size :]) + "\n"
                other = self.examine(trial) if _whole(trial) else None
                if other is not None and other.signature == found.signature:
                    script, found, shorter = trial, other, True
                else:
                    at += size
            size = size if shorter and size == 1 else size // 2
        return script, found

    def take(self, label: str, script: str) -> bool:
        """Examines a script, and writes down what is found; whether anything was."""
        self.counts["scripts"] += 1
        found = self.examine(script)
        if found is None:
            return False
        signature = found.signature
        self.found[signature] += 1
        if self.found[signature] > _WRITTEN_OF_EACH:
            return True
        small, found = (script, found) if self.whole else self.make_small(script, found)
        folder = self.out / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script.py").write_text(small)
        (folder / "whole.py").write_text(script)
        report = [f"{found.name}: {found.words}", *(f"{m}" for m in found.messages)]
        (folder / "report.txt").write_text("\n".join(report) + "\n")
        print(f"=== {label}\n{small}" + "\n".join(f"# {line[:600]}" for line in report), flush=True)
        return True

    def stop(self) -> None:
        """Ends both workers."""
        self.ours.stop()
        self.genuine.stop()


def _whole(script: str) -> bool:
    """Whether Python can read the script."""
    try:
        compile(script, "script.py", "exec")
    except SyntaxError:
        return False
    return True


def make_script(subject: str, seed: int, index: int) -> str:
    """The script of that subject, seed and index."""
    return SUBJECTS[subject](random.Random(f"{subject} {seed} {index}"))


def _scripts(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if options.script is not None:
        yield options.script.parent.name, options.script.read_text()
        return
    subjects = [options.subject] if options.subject else sorted(SUBJECTS)
    index = options.start if options.index is None else options.index
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        for subject in subjects:
            yield f"{subject}-{options.seed}-{index}", make_script(subject, options.seed, index)
        index += 1
        if options.index is not None:
            return


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.scripts.differential", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--subject", choices=sorted(SUBJECTS), help="what scripts are about (default: each in turn)")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on (default: ten minutes)")
    parser.add_argument("--seed", type=int, default=1, help="scripts follow from the seed and their index")
    parser.add_argument("--start", type=int, default=0, help="the first index")
    parser.add_argument("--index", type=int, help="run this one script and stop")
    parser.add_argument("--script", type=Path, help="run the script in this file and stop")
    parser.add_argument("--whole", action="store_true", help="do not make scripts small")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "fuzz-scripts", help="where differences are written")
    return parser.parse_args()


def main() -> int:
    """Runs until the time is up; 1 where the two sides showed different things."""
    options = _options()
    fuzzer = Fuzzer(options.out, options.whole)
    try:
        for label, script in _scripts(options):
            fuzzer.take(label, script)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        fuzzer.stop()
    print(", ".join(f"{count} {name}" for name, count in sorted(fuzzer.counts.items())))
    for signature, count in fuzzer.found.most_common():
        print(count, signature[:150])
    return 1 if fuzzer.found else 0


if __name__ == "__main__":
    sys.exit(main())
