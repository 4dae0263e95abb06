"""All kernels of operations against each other, on random calls or on those of networks, until the time is up.

    python -m tests.fuzz.kernels --seconds 3600 --seed 1
    python -m tests.fuzz.kernels --networks
    python -m tests.fuzz.kernels --networks Inception-v3/float32 --index 7

Every kernel that is offered for a call runs, chosen or not; what is compared, `tests/fuzz/kernel_agreement.py` says.
Random calls follow from a seed and their index, those of a network from its name and theirs, so that any one can be
run again. Calls run in a child process, which may die of them. The exit status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from anabranch.xla.kernel_choice import case_key
from tests.device.kernels import tiles_in_c
from tests.fuzz.kernel_agreement import Finding, examine, library_state
from tests.fuzz.kernel_calls import MAKERS, MOST_BYTES, Call, call_of, random_call
from tests.fuzz.kernel_networks import PROGRAMS, cases_of

#: seconds of processor time, and of any, after which a call counts as one without end: someone may stop us for a while
_PATIENCE, _WAITING = 900, 3600
RANDOM: Final = "random"


def calls(options: argparse.Namespace) -> Iterator[tuple[str, int, Call]]:
    """What is asked for: the name of a program, or that of random calls, an index, and the call."""
    if options.networks is None:
        index = options.start if options.index is None else options.index
        while True:
            yield RANDOM, index, random_call(options.seed, index, options.op or (), options.most_bytes)
            if options.index is not None:
                return
            index += 1
    names = list(options.networks or PROGRAMS)
    begun = names.index(options.after) if options.after else 0
    known: set[str] = set()
    for number, name in enumerate(names):
        for index, case in enumerate(cases_of(name)):
            key = case_key(case)
            wanted = number > begun or (number == begun and index >= options.start)
            wanted = index == options.index if options.index is not None else wanted and key not in known
            known.add(key)
            if wanted and (not options.op or case.op_type in options.op):
                yield name, index, call_of(case, np.random.default_rng((options.seed, index)))


# ---------------------------------------------------------------------- in the child
def run_child(options: argparse.Namespace) -> None:
    """Examines calls until the time is up; tells on stdout, a line of JSON each, what begins and how it ended."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options.tiles_in_c:
        tiles_in_c.use(setattr)
    until = time.monotonic() + options.seconds
    for name, index, call in calls(options):
        if time.monotonic() > until:
            return
        _say({"begin": [name, index], "call": str(call)})
        # nobody handles them: the process ends
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
        signal.alarm(_WAITING)
        found = examine(call)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        _say({"off": found.off, "findings": [tuple(one) for one in found.findings]})
    _say({"over": True})


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


# ---------------------------------------------------------------------- in the parent
class Tally:
    """What came of the calls."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.calls = 0
        #: operation and kernel -> how often it ran, and the furthest it was off, as a share of what is allowed
        self.ran: Counter[str] = Counter()
        self.off: defaultdict[str, float] = defaultdict(float)
        self.found: Counter[tuple[str, str, str]] = Counter()
        self.first: dict[tuple[str, str, str], str] = {}
        self.started = time.monotonic()

    def add(self, label: str, call: str, answer: dict[str, Any]) -> None:
        self.calls += 1
        for name, share in answer["off"].items():
            self.ran[name] += 1
            self.off[name] = max(self.off[name], share)
        for one in answer["findings"]:
            self.tell(label, call, Finding(*one))

    def tell(self, label: str, call: str, finding: Finding) -> None:
        """Keeps a finding, and prints it."""
        signature = finding[:3]
        self.found[signature] += 1
        self.first.setdefault(signature, label)
        text = f"{label}: {finding.kernel!r} of {call}: {finding.kind}: {finding.message}"
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def progress(self, now: str, seconds: float) -> Table:
        """One line for each count."""
        passed = time.monotonic() - self.started
        table = Table(show_header=False, box=None)
        table.add_row("time", f"{passed:.0f} of {seconds:.0f} s, {self.calls / max(passed, 1e-9):.2f} calls/s")
        for name, count in (("calls", self.calls), ("kernels", len(self.ran)), ("findings", self.found.total())):
            table.add_row(name, str(count))
        table.add_row("now", now)
        return table

    def summary(self) -> Iterator[Table]:
        """The tables for the end: kernels, and what was found."""
        kernels = Table("operation", "kernel", "runs", "off by (1: all that is allowed)", title="Kernels", box=None)
        for name, count in sorted(self.ran.items()):
            kernels.add_row(*name.split(" ", 1), str(count), f"{self.off[name]:.2f}")
        yield kernels
        if self.found:
            found = Table("times", "operation", "kernel", "kind", "first", title="Findings", box=None)
            for signature, count in self.found.most_common():
                found.add_row(str(count), *signature, self.first[signature])
            yield found


def fuzz(options: argparse.Namespace, console: Console) -> Tally:
    """Has calls examined in child processes until the time is up."""
    tally = Tally(console)
    until = tally.started + options.seconds
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while (left := until - time.monotonic()) > 0 and _run_child(options, left, tally, live):
                pass
    except KeyboardInterrupt:
        console.print("interrupted")
    return tally


def _run_child(options: argparse.Namespace, seconds: float, tally: Tally, live: Live) -> bool:
    """One child; whether there is something left to do, which is noted in the options."""
    command = [sys.executable, "-m", "tests.fuzz.kernels", "--child", "--seconds", str(seconds)]
    command += ["--seed", str(options.seed), "--start", str(options.start), "--most-bytes", str(options.most_bytes)]
    command += [text for op_type in options.op or () for text in ("--op", op_type)]
    command += [] if options.index is None else ["--index", str(options.index)]
    command += [] if options.networks is None else ["--networks", *options.networks]
    command += ["--tiles-in-c"] if options.tiles_in_c else []
    command += [] if options.after is None else ["--after", options.after]
    name, index, call, running = RANDOM, options.start, "", False
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        for line in child.stdout:
            told = json.loads(line)
            if "begin" in told:
                (name, index), call, running = told["begin"], told["call"], True
            elif "over" not in told:
                tally.add(f"{name}:{index}", call, told)
                running = False
            if not options.quiet:
                now = f"{name}:{index} {call}"[:150]
                live.update(tally.progress(now, options.seconds), refresh=tally.console.is_terminal)
        status = child.wait()
    finally:
        child.kill()
    if status == 0:
        return False
    endless = status in (-signal.SIGALRM, -signal.SIGPROF)
    how = f"no end after {_PATIENCE} s of work" if endless else f"the process ended with {status}"
    tally.tell(f"{name}:{index}", call, Finding(call.partition("(")[0], "any", "crash", how))
    options.start, options.after = index + 1, None if options.networks is None else name
    return running and options.index is None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kernels", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to go on (default: an hour)")
    parser.add_argument("--seed", type=int, default=1, help="calls, and the values of all, follow from it")
    parser.add_argument("--start", type=int, default=0, help="the first index")
    parser.add_argument("--index", type=int, help="run this one call and stop; of a network, where one is named")
    parser.add_argument(
        *("--networks",), nargs="*", choices=list(PROGRAMS), metavar="NAME/TYPE",
        help=f"the calls of these programs, or of all, each once: {', '.join(PROGRAMS)}",
    )  # fmt: skip
    parser.add_argument("--op", action="append", choices=list(MAKERS), metavar="TYPE", help="operations of this type")
    parser.add_argument("--most-bytes", type=int, default=MOST_BYTES, help="of an array of a random call")
    tiles = "products in blocks although the processor has no tiles (AMX): C does what they would do"
    parser.add_argument("--tiles-in-c", action="store_true", help=tiles)
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--after", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Runs until the time is up; 1 where there was a finding."""
    options = _options()
    if options.child:
        run_child(options)
        return 0
    console = Console()
    console.print(library_state(), highlight=False)
    tally = fuzz(options, console)
    for table in tally.summary():
        console.print(table)
    console.print(tally.progress("", options.seconds))
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
