"""How replicas learn together, by the rules of `tf.train.replicas`: real processes, one network, accuracy over time.

`python -m benchmarks strategies` trains a small convolutional network on handwritten digits by each rule, on one or two
parameter servers with one to four workers, with stragglers and without. `--draw FILE.svg` draws accuracy over time.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness import machine
from benchmarks.workers.strategies import LONG_WAIT, ONE_IN, TIMES, TRIALS, WAIT, Trial, outcome

#: of the held-out digits; who has learned that many has learned most of what there is
ENOUGH = 0.85

Outcomes = dict[Trial, dict[str, Any]]


def seconds_to(accuracy: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """When an accuracy was reached and kept for two looks, since one may be a fluke; None: never."""
    for (at, first), (_, second) in itertools.pairwise(curve):
        if min(first, second) >= accuracy:
            return at
    return None


def table_of(title: str, outcomes: Outcomes, holds: Callable[[Trial], bool], console: Console) -> None:
    table = Table(
        "rule", "PS", "workers", "gradients/s", f"s to {ENOUGH:.0%}", "accuracy at the end", "dropped", "staleness",
        title=title, caption=machine(),
    )  # fmt: skip
    for trial, row in outcomes.items():
        if holds(trial):
            reached = seconds_to(ENOUGH, row["curve"])
            table.add_row(
                trial.rule, str(trial.servers), str(trial.workers), f"{row['gradients/s']:.1f}",
                "-" if reached is None else f"{reached:.1f}", f"{row['curve'][-1][1]:.3f}", str(row["dropped"]),
                f"{row['staleness']:.2f}",
            )  # fmt: skip
    console.print(table)


def draw(outcomes: Outcomes, to: Path) -> None:
    """Writes three pictures side by side: rules, workers, stragglers."""
    import matplotlib as mpl

    mpl.use("svg")
    # the same figures make the same file
    mpl.rcParams["svg.hashsalt"] = "anabranch"
    from matplotlib import pyplot as plt

    figure, places = plt.subplots(1, 3, figsize=(13, 3.8), sharey=True)
    pictures: tuple[tuple[str, Callable[[Trial], bool], Callable[[Trial], str]], ...] = (
        ("4 workers, 2 PS", lambda t: (t.workers, t.servers) == (4, 2) and is_plain(t), lambda t: t.rule),
        (
            "asynchronous and synchronous, 2 PS",
            lambda t: t.servers == 2 and t.rule in ("asynchronous", "synchronous") and is_plain(t),
            lambda t: f"{t.rule}, {t.workers}",
        ),
        ("4 workers of which some straggle", lambda t: t.straggles, lambda t: t.rule),
    )
    for axes, (title, holds, label) in zip(places, pictures, strict=True):
        for trial, row in outcomes.items():
            if holds(trial):
                axes.plot(*zip(*row["curve"], strict=True), label=label(trial), linewidth=1.2)
        axes.set(xlabel="seconds", title=title, ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    places[0].set_ylabel("accuracy on held-out digits")
    figure.tight_layout()
    figure.savefig(to, metadata={"Date": None})


def is_plain(trial: Trial) -> bool:
    """Whether each step waits for as long as all others."""
    return trial.wait == WAIT and not trial.straggles


def main(arguments: Sequence[str]) -> int:
    """Trains by each rule, prints tables, and draws."""
    parser = argparse.ArgumentParser(prog="benchmarks strategies", description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where the outcomes are written, as JSON")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="outcomes of an earlier run, to be shown again")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="where accuracies over time are drawn")
    asked = parser.parse_args(arguments)
    console = Console()
    if asked.kept is not None:
        outcomes: Outcomes = {Trial(**trial): row for trial, row in json.loads(asked.kept.read_text())}
    else:
        outcomes = {}
        for trial in track(TRIALS, "training ...", console=console):
            outcomes[trial] = outcome(trial)
            # after each: it takes ten minutes to come here again
            if asked.keep is not None:
                asked.keep.write_text(json.dumps([(vars(one), row) for one, row in outcomes.items()]) + "\n")
    wait = f"{WAIT * 1000:.0f} ms"
    table_of(f"each step waits for {wait}, as if it computed elsewhere", outcomes, is_plain, console)
    title = f"one step in {ONE_IN} waits {TIMES} times as long"
    table_of(title, outcomes, lambda trial: trial.straggles, console)
    title = f"each step waits for {LONG_WAIT * 1000:.0f} ms"
    table_of(title, outcomes, lambda trial: trial.wait == LONG_WAIT, console)
    table_of("no waits: all compute on this machine", outcomes, lambda trial: not trial.wait, console)
    if asked.draw is not None:
        draw(outcomes, asked.draw)
    return 0
