"""The paper's Figures 6-8 up to 200 workers, simulated with costs measured on real runs of one worker.

`python -m benchmarks simulate` measures, says how far the simulation is from real runs of 1-8 workers, and draws.
`--costs FILE` takes costs that were measured before. See `anabranch.tools.cluster_simulation` for what is simulated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from anabranch.tools.cluster_simulation import Cluster, Costs, Model, percentile
from anabranch.tools.linked_places import MessageCosts
from benchmarks.harness import run_worker
from benchmarks.workers.simulation import COMPUTE, LARGE, ROLES, RUNS, SERVERS

#: of what a thread does for a message, the share that comes after it has handed on what others wait for: it looks for
#: more, and goes to sleep
REST = 0.5
#: the longest that it may take to wake a thread (s), and how exactly that is found
MOST_WAKE, HALVINGS = 0.0002, 10
SIMULATED = (1, 2, 5, 10, 25, 50, 100, 200)
BACKUPS = tuple(range(9))
#: of Fig. 6: bytes that a null step fetches, and pushes
NULL_STEPS = {
    "scalar": (16 * 4.0, 16 * 4.0),
    "sparse, 32 rows of 64": (32 * 256.0, 32 * 256.0),
    "dense 100 MB": (1e8, 1e8),
    "dense 1 GB": (1e9, 1e9),
}
#: Inception-v3 in float32, and a batch (Fig. 7)
MODEL_BYTES, BATCH = 95e6, 32
#: parameter servers of the figures
NULL_SERVERS, MODEL_SERVERS = 16, 17


def measured_costs(
    figures: dict[str, float], gigabits: float, kind: str = "scalar", compute: float = 0.0, servers: int = 1
) -> Costs:
    """What a step takes, by what real runs of one worker needed for it.

    Args:
        gigabits: per second, of the machines that are simulated.
        kind: of the steps.
        compute: seconds of them that are a wait.
        servers: parameter servers of such a step.
    """

    def seconds(of: str, who: str) -> float:
        return figures[f"{of}, 1 workers: {who}"]

    def per_byte(who: str) -> float:
        more = [seconds("large", f"{who} {role}") - seconds("scalar", f"{who} {role}") for role in ROLES]
        # each takes so many bytes of a step, and what it takes to send as many is in it
        return max(sum(more), 0.0) / LARGE

    def messages(who: str) -> MessageCosts:
        # what takes long at a server is done by threads beside the one that receives
        own = seconds(kind, "server program") if who == "server" else 0.0
        # of a step with one server, a worker and the server take two messages each, and send two
        return MessageCosts(
            receive=(seconds(kind, f"{who} receive") + own) / (2 * servers),
            network=seconds(kind, f"{who} network") / (4 * servers),
            rest=REST,
            receive_per_byte=per_byte(who),
            bytes_per_second=gigabits * 1e9 / 8,
        )

    # what another server costs the program; it cannot be less than nothing, whatever disturbed the measurement
    per_server = max(seconds("two", "worker program") - seconds("scalar", "worker program"), 0.0)
    program = seconds(kind, "worker program")
    worker, server = messages("worker"), messages("server")
    costs = Costs(
        program=max(program - servers * per_server, 0.0),
        program_per_server=min(per_server, program / servers),
        worker=worker,
        server=server,
        spread=figures["scalar, 1 workers: spread"] * independent(program, worker, server, servers),
    )
    return woken(costs, figures[f"{kind}, 1 workers: steps/s"], compute, servers)


def independent(program: float, worker: MessageCosts, server: MessageCosts, servers: int) -> float:
    """How much more the parts of a step differ than the step, if none knows of the others."""
    parts = [program] + servers * (2 * [worker.receive, server.receive] + 4 * [worker.network, server.network])
    return sum(parts) / math.sqrt(sum(part * part for part in parts))


def woken(costs: Costs, rate: float, compute: float, servers: int) -> Costs:
    """With the time that it takes to wake a thread: so much that one worker makes so many steps a second."""
    low, high = 0.0, MOST_WAKE
    model = Model(compute=lambda _: compute)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried = dataclasses.replace(costs, wake=middle)
        is_quick = Cluster(1, servers, tried, model, cores=2).asynchronous(300 / rate).rate > rate
        low, high = (middle, high) if is_quick else (low, middle)
    return dataclasses.replace(costs, wake=low)


def compared(figures: dict[str, float], cores: int, console: Console) -> dict[str, float]:
    """Real rates beside simulated ones, on one machine; returns how far the simulation is off, by the run's name."""
    off = {}
    table = Table("steps/s on one machine", "workers", "real", "simulated", "off by")
    for kind, counts in RUNS.items():
        if kind == "large":
            continue
        compute, servers = COMPUTE if kind == "compute" else 0.0, SERVERS if kind == "two" else 1
        costs = measured_costs(figures, 0.0, kind, compute, servers)
        model = Model(compute=lambda _, of=compute: of)
        for count in counts:
            real = figures.get(f"{kind}, {count} workers: steps/s")
            if real is None:  # of an earlier measurement, which had fewer runs
                continue
            simulated = Cluster(count, servers, costs, model, cores).asynchronous(5.0).rate
            off[f"{kind}, {count}"] = simulated / real - 1
            table.add_row(kind, str(count), f"{real:.0f}", f"{simulated:.0f}", f"{simulated / real - 1:+.0%}")
    console.print(table)
    return off


def straggling(median: float) -> Any:
    """Seconds of computing, as of machines that others use as well: a narrow middle and a long tail."""

    def seconds(dice: random.Random) -> float:
        usual = median * math.exp(dice.gauss(0.0, 0.05))
        return usual * (1 + dice.expovariate(1 / 0.25)) if dice.random() < 0.08 else usual

    return seconds


def null_steps(costs: Costs) -> dict[str, list[float]]:
    """Fig. 6: synchronous null steps per second, by workers."""
    rates: dict[str, list[float]] = {}
    for label, (fetched, pushed) in NULL_STEPS.items():
        model = Model(fetched, pushed)
        rates[label] = [
            Cluster(count, NULL_SERVERS, costs, model).synchronous(count, steps=5).rate for count in SIMULATED
        ]
    return rates


def throughput(costs: Costs, compute: float) -> dict[str, list[float]]:
    """Fig. 7: images per second, by workers, asynchronous and synchronous."""
    model = Model(MODEL_BYTES, MODEL_BYTES, straggling(compute))
    asynchronous = [BATCH * Cluster(n, MODEL_SERVERS, costs, model).asynchronous(6 * compute).rate for n in SIMULATED]
    synchronous = [BATCH * n * Cluster(n, MODEL_SERVERS, costs, model).synchronous(n, 6).rate for n in SIMULATED]
    return {"asynchronous": asynchronous, "synchronous": synchronous}


def backup_workers(costs: Costs, compute: float) -> dict[str, list[float]]:
    """Fig. 8: a step of 50 workers and backups: median, 90th percentile, speed-up for the machines that it takes."""
    model = Model(MODEL_BYTES, MODEL_BYTES, straggling(compute))
    durations_by_backups: dict[str, list[float]] = {"median": [], "90th percentile": [], "speed-up": []}
    for backups in BACKUPS:
        durations = Cluster(50 + backups, MODEL_SERVERS, costs, model, seed=1).synchronous(50, 40).durations
        durations_by_backups["median"].append(percentile(durations, 0.5))
        durations_by_backups["90th percentile"].append(percentile(durations, 0.9))
        # the paper's t(b) / t(0) * 50 / (50 + b), turned round
        durations_by_backups["speed-up"].append(
            durations_by_backups["median"][0] / durations_by_backups["median"][-1] * 50 / (50 + backups)
        )
    return durations_by_backups


def table_of(title: str, first: str, rows: Sequence[int], columns: dict[str, list[float]], console: Console) -> None:
    table = Table(first, *columns, title=title)
    for position, row in enumerate(rows):
        table.add_row(str(row), *(f"{values[position]:.3g}" for values in columns.values()))
    console.print(table)


def draw(
    null: dict[str, list[float]], images: dict[str, list[float]], backups: dict[str, list[float]], to: Path
) -> None:
    """Writes the three figures as one picture."""
    import matplotlib as mpl

    mpl.use("svg")
    # the same figures make the same file
    mpl.rcParams["svg.hashsalt"] = "anabranch"
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    for label, values in null.items():
        left.plot(SIMULATED, values, marker="o", markersize=3, label=label)
    left.set(xlabel="workers", ylabel="null steps per second", yscale="log", title="Fig. 6: synchronous null steps")
    for label, values in images.items():
        middle.plot(SIMULATED, values, marker="o", markersize=3, label=label)
    middle.set(xlabel="workers", ylabel="images per second", title="Fig. 7: Inception-v3")
    for label in ("median", "90th percentile"):
        right.plot(BACKUPS, backups[label], marker="o", markersize=3, label=f"{label} step time")
    right.set(xlabel="backup workers of 50", ylabel="seconds", title="Fig. 8: backup workers")
    beside = right.twinx()
    beside.plot(BACKUPS, backups["speed-up"], color="tab:green", linestyle="--", label="normalized speed-up")
    beside.legend(loc="lower right", fontsize=8)
    for axes in (left, middle, right):
        axes.legend(fontsize=8, loc="upper right" if axes is right else "best")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(to, metadata={"Date": None})


def main(arguments: Sequence[str]) -> int:
    """Measures, simulates and draws."""
    parser = argparse.ArgumentParser(prog="benchmarks simulate", description=__doc__)
    parser.add_argument("--costs", type=Path, metavar="FILE", help="figures of an earlier measurement, as JSON")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where what is measured is written")
    parser.add_argument("--gigabits", type=float, default=16.0, help="per second and machine (default: 16)")
    parser.add_argument("--compute", type=float, default=1.8, help="seconds that a worker computes (default: 1.8)")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="where the figures are drawn")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the machine that was measured")
    asked = parser.parse_args(arguments)
    console = Console()
    if asked.costs is not None:
        figures: dict[str, float] = json.loads(asked.costs.read_text())
    else:
        console.print("running 1-8 real workers ...")
        figures = run_worker("simulation", "anabranch")
    if asked.keep is not None:
        asked.keep.write_text(json.dumps(figures, indent=1) + "\n")
    costs = measured_costs(figures, asked.gigabits)
    console.print(costs)
    off = compared(figures, asked.cores, console)
    worst = max(off, key=lambda name: abs(off[name]))
    console.print(f"the simulation is within {abs(off[worst]):.0%} of the real runs ({worst} workers is the farthest)")
    null, images, backups = null_steps(costs), throughput(costs, asked.compute), backup_workers(costs, asked.compute)
    table_of("synchronous null steps per second, 16 PS", "workers", SIMULATED, null, console)
    table_of("images per second, 17 PS", "workers", SIMULATED, images, console)
    table_of("50 workers and backups (s)", "backups", BACKUPS, backups, console)
    if asked.draw is not None:
        draw(null, images, backups, asked.draw)
    return 0
