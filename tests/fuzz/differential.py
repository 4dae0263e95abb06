"""Random programs on both sides, anabranch and genuine TensorFlow, until the time is up: `make fuzz`.

A program is made from a seed and an index, so that any one can be run again::

    python -m tests.fuzz.differential --seed 7 --index 1234
    python -m tests.fuzz.differential --program out/fuzz/7-1234-0/program.json

What the two sides disagree about, and docs/differences.md does not know, is made small and written into a folder of
its own; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.fuzz.differences import Disagreement, KnownDifference, known_differences
from tests.fuzz.examination import Examination
from tests.fuzz.graphs import make_program
from tests.fuzz.minimise import Minimiser, size
from tests.fuzz.programs import blocks, needed
from tests.fuzz.shadows import Kernels
from tests.fuzz.sides import ROOT, Side

#: disagreements of one signature that are made small and written down; the others are counted
_WRITTEN_OF_EACH = 1
#: in a program of one operation type
_OPERATIONS_OF_EACH = 4
#: kinds of disagreements that follow from a wrong static shape
_FOLLOWING = {"static shape", "refused there only", "graph not read"}


class Fuzzer:
    """Runs programs, and keeps count of them."""

    def __init__(self, out: Path, known: list[KnownDifference]) -> None:
        self.ours, self.genuine = Side("anabranch"), Side("tensorflow")
        self.out = out
        self.known = known
        self.counts: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.disagreements: Counter[tuple[str, ...]] = Counter()
        self.covered: Counter[KnownDifference] = Counter()
        self.started = time.monotonic()

    def kernels(self) -> Kernels:
        """The kernels that TensorFlow has."""
        found: Kernels = self.genuine.ask("operations")["operations"]
        return found

    def examine(self, program: dict[str, Any]) -> list[Disagreement]:
        """Runs a program on both sides; gives, and writes down, what is not known."""
        for side in (self.ours, self.genuine):
            side.be_patient()
        found = Examination(program, self.ours, self.genuine).run()
        self.counts += found.counts
        self.counts["graphs"] += 1
        self.operations.update(_operations(program["nodes"]))
        unknown = unexplained(program, found.disagreements, self._is_known)
        for i, disagreement in enumerate(unknown):
            self.disagreements[disagreement.signature] += 1
            if self.disagreements[disagreement.signature] <= _WRITTEN_OF_EACH:
                self._write(program, disagreement, i)
        return unknown

    def _is_known(self, found: Disagreement) -> bool:
        row = next((row for row in self.known if row.covers(found)), None)
        if row is not None:
            self.covered[row] += 1
        return row is not None

    def _write(self, program: dict[str, Any], found: Disagreement, number: int) -> None:
        small = Minimiser(program, found, self.ours, self.genuine).run()
        folder = self.out / f"{program['seed']}-{program['index']}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.json").write_text(json.dumps(small, indent=1))
        again = Examination(small, self.ours, self.genuine).run().disagreements or [found]
        lines = [f"{d.kind} at {d.node} ({d.operation}, {d.dtype}), {d.where}:\n    {d.message}" for d in again]
        head = f"seed {program['seed']}, index {program['index']}; made small: {size(small)} nodes\n"
        (folder / "report.txt").write_text(head + "\n".join(lines) + "\n")

    def stop(self) -> None:
        """Ends both workers."""
        self.ours.stop()
        self.genuine.stop()

    # ------------------------------------------------------------------ telling
    def progress(self, seconds: float) -> Table:
        """One line for each count."""
        table = Table(show_header=False, box=None)
        passed = time.monotonic() - self.started
        table.add_row(
            "time", f"{passed:.0f} of {seconds:.0f} s, {self.counts['graphs'] / max(passed, 1e-9):.2f} graphs/s"
        )
        table.add_row("operation types", str(len(self.operations)))
        table.add_row("operations", str(self.operations.total()))
        for name, count in sorted(self.counts.items()):
            table.add_row(name, str(count))
        table.add_row("known differences", str(self.covered.total()))
        table.add_row("disagreements", str(self.disagreements.total()))
        return table

    def summary(self) -> Iterator[Table]:
        """The tables for the end: operations by type, known differences met, disagreements."""
        operations = Table("operation", "times", title="Operations by type", box=None)
        for name, count in sorted(self.operations.items()):
            operations.add_row(name, str(count))
        yield operations
        met = Table("times", "kind", "operation", "why", title="Known differences met", box=None)
        for row, count in self.covered.most_common():
            met.add_row(str(count), row.kind, row.operation, row.why)
        yield met
        if self.disagreements:
            wrong = Table("times", "kind", "operation", "dtype", "message", title="Disagreements", box=None)
            for signature, count in self.disagreements.most_common():
                wrong.add_row(str(count), *signature)
            yield wrong


def unexplained(
    program: dict[str, Any], found: list[Disagreement], is_known: Callable[[Disagreement], bool]
) -> list[Disagreement]:
    """Those that are not known, nor follow from a shape or a value that is known to be another one.

    Where TensorFlow infers a shape that the value will not have, it infers wrong ones behind it, and refuses values.
    Where it computes another value, gradients are another's.
    """
    known = [d for d in found if is_known(d)]
    shapes = {d.node for d in known if d.kind == "static shape"}
    values = {d.node for d in known if d.kind == "value" and d.operation != "GRADIENTS"}
    return [
        d
        for d in found
        if d not in known
        and not (d.kind in _FOLLOWING and shapes & needed(program, {f"{d.node}:0"}))
        and not (d.operation == "GRADIENTS" and values & needed(program, {f"{d.node}:0"}))
    ]


def _operations(nodes: list[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield node["op"] if node["kind"] == "op" else node["kind"].upper()
        for block in blocks(node):
            yield from _operations(block["nodes"])


def _programs(options: argparse.Namespace, kernels: Kernels, until: float) -> Iterator[dict[str, Any]]:
    if options.program is not None:
        yield json.loads(options.program.read_text())
        return
    count = options.operations or (_OPERATIONS_OF_EACH if options.each else None)
    index = options.start if options.index is None else options.index
    while time.monotonic() < until:
        yield make_program(options.seed, index, kernels, count, options.loops, options.each)
        if options.index is not None:
            return
        index += 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.differential", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to go on (default: an hour)")
    parser.add_argument("--seed", type=int, default=1, help="programs follow from the seed and their index")
    parser.add_argument("--start", type=int, default=0, help="the first index")
    parser.add_argument("--index", type=int, help="run this one program and stop")
    parser.add_argument("--program", type=Path, help="run the program in this file and stop")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "fuzz", help="where disagreements are written")
    parser.add_argument("--loops", action="store_true", help="programs of control flow and gradients above all")
    parser.add_argument("--each", action="store_true", help="small programs of one operation type after the other")
    parser.add_argument("--operations", type=int, help="how many in each program, or a few more (default: 20 to 60)")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    return parser.parse_args()


def main() -> int:
    """Runs until the time is up; 1 where there was a disagreement that is not known."""
    options = _options()
    console = Console()
    fuzzer = Fuzzer(options.out, known_differences())
    try:
        kernels = fuzzer.kernels()
        fuzzer.started = time.monotonic()
        until = fuzzer.started + options.seconds
        with Live(console=console, auto_refresh=False, transient=True) as live:
            for program in _programs(options, kernels, until):
                for found in fuzzer.examine(program):
                    label = f"{program['seed']}-{program['index']}"
                    console.print(
                        f"{label}: {found.kind} at {found.node} ({found.operation}, {found.dtype}), {found.where}: "
                        f"{found.message[:300]}",
                        markup=False,
                        highlight=False,
                    )
                if not options.quiet:
                    live.update(fuzzer.progress(options.seconds), refresh=console.is_terminal)
    except KeyboardInterrupt:
        console.print("interrupted")
    finally:
        fuzzer.stop()
    for table in [*fuzzer.summary(), fuzzer.progress(options.seconds)]:
        console.print(table)
    return 1 if fuzzer.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
