"""Backup tasks against stragglers: reactive ones, as in MapReduce, and proactive ones, as in §4.4.

Fifty tasks make a step. *Reactive*: when most tasks are done, what still runs is started once more, on machines that
are free; the first copy counts. *Proactive*: a few tasks more are started at once, and the first fifty count. A task of
a step that repeats itself is short, and a copy that begins late begins from nothing; a task of a long job that hangs on
a bad disk is another matter. Both are shown.

How a task's time varies is measured here, by training steps; how often one straggles, and by how much, is assumed:
every twelfth, by a quarter of its time or by four times its time on average. Everything else is simulated.

    python examples/systems/backup_tasks.py [--draw backup_tasks.svg]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.tools.demo.curves import draw_curves

TASKS = 50
STRAGGLES = 1 / 12
#: what a straggler takes longer, on average, as a multiple of the usual time
DELAYS = {"a quarter longer": 0.25, "four times longer": 4.0}
BACKUPS = (0, 1, 2, 3, 4, 6, 8)
#: the part of the tasks after which what still runs is started again
STARTED_AGAIN_AFTER = (0.8, 0.9, 0.95)


def measured_times(steps: int) -> Any:
    """How long training steps take on this machine, as multiples of their median."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.random_normal([256, 64], seed=1)
        weights = tf.get_variable("weights", [64, 64], initializer=tf.zeros_initializer())
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(x, weights) - x)))
        session.run(tf.global_variables_initializer())
        session.run(train)
        times = []
        for _ in range(steps):
            begin = time.process_time()
            session.run(train)
            times.append(time.process_time() - begin)
    # processor time: what others do on this machine is no part of it
    return np.clip(np.array(times) / np.median(times), 0.5, 1.5)


def drawn_times(usual: Any, delay: float, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """The times of tasks."""
    straggles = rng.random(shape) < STRAGGLES
    return rng.choice(usual, shape) + straggles * rng.exponential(delay, shape)


def proactive(times: Any) -> Any:
    """When the first tasks that are needed are done: times are [steps, tasks and backups]."""
    return np.sort(times, axis=1)[:, TASKS - 1]


def reactive(times: Any, again: Any, after: float) -> Any:
    """When all are done, if what runs after that part of the tasks is started once more."""
    begin = np.sort(times, axis=1)[:, round(after * TASKS) - 1 : round(after * TASKS)]
    return np.minimum(times, begin + again).max(axis=1)


def compared(delay: float, usual: Any, steps: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """For each way the median step, the 90th percentile, and the speed-up for the machines that it takes."""
    rng = np.random.default_rng(seed)
    most = drawn_times(usual, delay, (steps, TASKS + max(BACKUPS)), rng)
    again = drawn_times(usual, delay, (steps, TASKS), rng)
    ways = {f"proactive, {b} backups": (proactive(most[:, : TASKS + b]), TASKS + b) for b in BACKUPS}
    ways |= {f"reactive after {a:.0%}": (reactive(most[:, :TASKS], again, a), TASKS) for a in STARTED_AGAIN_AFTER}
    alone = np.median(most[:, :TASKS].max(axis=1))
    return {
        name: (float(np.median(t)), float(np.quantile(t, 0.9)), float(alone / np.median(t) * TASKS / machines))
        for name, (t, machines) in ways.items()
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compares backup tasks that are started late and at once.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    parser.add_argument("--steps", type=int, default=2000)
    chosen = parser.parse_args(arguments)
    usual = measured_times(200)
    curves = {}
    for what, delay in DELAYS.items():
        print(f"stragglers take {what} on average (in units of the usual step)")
        times = compared(delay, usual, chosen.steps, seed=7)
        for name, (median, late, speed) in times.items():
            print(f"  {name:22} median {median:5.2f}  90% within {late:5.2f}  speed-up for its machines {speed:5.2f}")
        curves[f"proactive, {what}"] = [(b, times[f"proactive, {b} backups"][0]) for b in BACKUPS]
        best = min(times[f"reactive after {a:.0%}"][0] for a in STARTED_AGAIN_AFTER)
        curves[f"reactive, {what}"] = [(b, best) for b in BACKUPS]
    if chosen.draw:
        draw_curves(chosen.draw, curves, "backup tasks of 50", "median step (usual steps)", "backup tasks")


if __name__ == "__main__":
    main()
