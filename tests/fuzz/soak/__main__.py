"""Disturbs a training on a cluster at random, and looks at what it has learned.

    python -m tests.fuzz.soak --way synchronous --seconds 120 --seed 7

`anabranch cluster run --checkpoint` starts two parameter servers and three workers. Their processes are killed
(SIGKILL), stopped for some seconds, restarted and scaled by the command line: one, two at once, one while the training
recovers from another, all in turn. The training must go on each time, end well, leave nothing, and its last checkpoint
must hold what the steps make that ended (`ways`). Exit status 1: it does not; the folder with all output is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anabranch as tf
from tests.fuzz.soak.disturbed import Blows, Disturbed
from tests.fuzz.soak.estimators import ESTIMATORS, STEPS_OF_SECOND, Estimators
from tests.fuzz.soak.ways import PS, WAYS, End, Way

ALL_WAYS: Final[Mapping[str, type[Way]]] = {**WAYS, ESTIMATORS: Estimators}
#: seconds between two blows
_PAUSES: Final = (0.3, 1.0, 3.0, 6.0)


def soak(way_name: str, seconds: float, seed: int, hits: str, folder: Path) -> str:
    """Disturbs one training; what has happened.

    Raises:
        AssertionError: what is wrong.
    """
    rng, way = random.Random(f"{way_name} {seed}"), ALL_WAYS[way_name](0)
    model = folder / "model"
    tasks = ["--ps", str(PS), *way.options, "--restarts", "1000", *(["--checkpoint", str(model)] if way.lasts else [])]
    # where the last step has a number
    (folder / "steps").write_text(str(int(STEPS_OF_SECOND * seconds)))
    with Disturbed(folder, [*tasks, "-m", "tests.fuzz.soak.program", way_name, str(folder)]) as run:
        run.goes_on(20)
        blows = Blows(run, rng, way.tasks, hits, one_ps_at_a_time=not way.forgets)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            blow = blows.next()
            last = ", ".join(map(str, run.events[-1:]))
            print(f"{len(run.events):4} events, {run.steps():6} steps: {blow}, {last}", flush=True)
            time.sleep(rng.choice(_PAUSES))
            run.goes_on()
        run.until(lambda: all(run.process(task) for task in way.tasks), "all tasks")
        run.goes_on(20)
        (folder / "enough").touch()
        run.ends()
        way.check(_end(run, way, model))
        return f"{run.steps()} steps, {len(run.events)} events: {run.summary()}"


def _end(run: Disturbed, way: Way, model: Path) -> End:
    workers = sorted(task for task in way.tasks if task.startswith(("chief/", "worker/")))
    notes = [(run.folder / f"{task.replace('/', '-')}.notes").read_text().splitlines() for task in workers]
    results = run.folder / "results.json"
    lost = Counter(event.task.partition("/")[0] for event in run.events if "scaled" not in event.what)
    killed = sum(event.what == "killed" and event.task in workers for event in run.events)
    checkpoint = tf.train.latest_checkpoint(str(model))
    return End(
        model=tf.train.load_checkpoint(checkpoint),
        notes=dict(enumerate(notes)),
        results=json.loads(results.read_text()) if results.exists() else {},
        shocks=len(run.events),
        lost=lost,
        killed=killed,
    )


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--way", choices=[*ALL_WAYS, "all"], default="all", help="how it trains (all in turn)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a training is disturbed (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of what is done when to whom")
    parser.add_argument("--hits", choices=["all", "ps", "worker"], default="all", help="whose tasks are hit (all)")
    options = parser.parse_args()
    # what was started ends with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = 0
    for way in ALL_WAYS if options.way == "all" else [options.way]:
        # its name is short, for it is part of the path of a socket
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        print(f"{way}, seed {options.seed}, in {folder}", flush=True)
        try:
            said = soak(way, options.seconds, options.seed, options.hits, folder)
        except AssertionError as error:
            failed += 1
            print(f"{way}, seed {options.seed}: {error}\nWhat all tasks wrote is in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
            print(f"{way}, seed {options.seed}: {said}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
