"""Training with a live display, checkpoints that survive a kill, and events for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import anabranch as tf
from anabranch.tools.demo.digits import Digits, batches
from anabranch.tools.demo.network import Network, build_network

BATCH = 64
EVALUATE_EVERY = 50
_SEED = 8


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended: the held-out accuracy of the best checkpoint and where that lies."""

    accuracy: float
    best_checkpoint: str
    first_step: int
    last_step: int
    seconds: float
    images_per_second: float


def train(digits: Digits, directory: Path, steps: int, console: Console) -> TrainingResult:
    """Trains up to global step `steps`, from the last checkpoint in `directory` if there is one.

    Writes `checkpoints/` (the last three, and the position in the training), `best/` (the checkpoint with the highest
    held-out accuracy) and `events/train`, `events/test` (for TensorBoard) below `directory`.
    """
    with tf.Graph().as_default():
        tf.set_random_seed(_SEED)
        network = build_network()
        saver = tf.train.Saver(max_to_keep=3)
        best = tf.train.BestCheckpoints(saver, str(directory / "best"), metric="accuracy", mode="max")
        with tf.Session() as session:
            run = _Run(session, network, digits, directory, saver, best)
            run.restore_or_initialize(console, steps)
            return run.train(steps, console)


class _Run:
    """One process's share of a training."""

    def __init__(
        self,
        session: tf.Session,
        network: Network,
        digits: Digits,
        directory: Path,
        saver: tf.train.Saver,
        best: tf.train.BestCheckpoints,
    ) -> None:
        self.session, self.network, self.digits = session, network, digits
        self.saver, self.best = saver, best
        self.prefix = str(directory / "checkpoints" / "model")
        (directory / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.events = directory / "events"
        self.first_step = 0

    def restore_or_initialize(self, console: Console, steps: int) -> None:
        latest = tf.train.latest_checkpoint(str(Path(self.prefix).parent))
        if latest is None:
            self.session.run(tf.global_variables_initializer())
        else:
            self.saver.restore(self.session, latest)
            self.first_step = int(self.session.run(self.network.global_step))
            if self.first_step < steps:
                console.print(f"goes on from step {self.first_step}: {latest}", soft_wrap=True)

    def train(self, steps: int, console: Console) -> TrainingResult:
        stream = batches(self.digits, BATCH, np.random.default_rng(_SEED + self.first_step))
        start = time.perf_counter()
        step, rate = self.first_step, 0.0
        if step >= steps:
            checkpoint, accuracy = self.best.checkpoints[0]
            return TrainingResult(accuracy, checkpoint, step, step, 0.0, 0.0)
        self.writers = {
            "train": tf.summary.FileWriter(str(self.events / "train"), self.session.graph),
            "test": tf.summary.FileWriter(str(self.events / "test")),
        }
        with tf.train.ProgressDisplay("training", steps, step, console) as display:
            display.announce("compiling")
            while step < steps:
                count = min(EVALUATE_EVERY - step % EVALUATE_EVERY, steps - step)
                loss, rate = self._train_some(stream, count)
                step += count
                accuracy = self._evaluate(step)
                shown = {"loss": loss, "held-out accuracy": f"{accuracy:.2%}", "": f"{rate:,.0f} images/s"}
                display.update(step, shown)
        for writer in self.writers.values():
            writer.close()
        checkpoint, accuracy = self.best.checkpoints[0]
        return TrainingResult(accuracy, checkpoint, self.first_step, step, time.perf_counter() - start, rate)

    def _train_some(self, stream: Iterator[Any], count: int) -> tuple[float, float]:
        """Runs `count` steps; returns the last loss and the images per second."""
        network, loss = self.network, 0.0
        start = time.perf_counter()
        for remaining in range(count, 0, -1):
            images, labels = next(stream)
            feeds = {network.images: images, network.labels: labels, network.training: True}
            if remaining > 1:
                self.session.run(network.train, feeds)
                continue
            loss, summary, step, _ = self.session.run(
                [network.loss, network.train_summaries, network.global_step, network.train], feeds
            )
            self.writers["train"].add_summary(summary, step)
        return float(loss), count * BATCH / (time.perf_counter() - start)

    def _evaluate(self, step: int) -> float:
        """Measures on the held-out digits, and saves: the position always, the best when it is."""
        network = self.network
        feeds = {network.images: self.digits.test_images, network.labels: self.digits.test_labels}
        accuracy, summary = self.session.run([network.accuracy, network.test_summaries], feeds)
        self.writers["test"].add_summary(summary, step)
        self.saver.save(self.session, self.prefix, global_step=step)
        self.best.save(self.session, {"accuracy": float(accuracy)}, global_step=step)
        return float(accuracy)
