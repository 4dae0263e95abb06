"""Training on texts with a live display, samples, and checkpoints that survive a kill."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import anabranch as tf
from anabranch.tools.demo.text_files import Array, Texts, decode, held_out_windows, pipeline
from anabranch.tools.demo.text_network import TextNetwork, build_network

BATCH, STEPS_OF_TIME = 64, 64
EVALUATE_EVERY = 50
SAMPLE_EVERY = 150
_SEED = 8


@dataclass(frozen=True)
class TextOutcome:
    """How a training ended: bits per held-out character, and a text that the network wrote."""

    bits: float
    sample: str
    first_step: int
    last_step: int
    seconds: float
    characters_per_second: float


def train(texts: Texts, directory: Path, steps: int, units: int, console: Console) -> TextOutcome:
    """Trains up to global step `steps`, from the last checkpoint in `directory` if there is one.

    Writes `checkpoints/` (the last three, with the position in the data) and `events/` below `directory`.
    """
    with tf.Graph().as_default():
        tf.set_random_seed(_SEED)
        iterator = pipeline(texts.train, BATCH, STEPS_OF_TIME, _SEED).make_initializable_iterator()
        network = build_network(iterator.get_next(), units)
        position = tf.data.experimental.make_saveable_from_iterator(iterator)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, position)
        saver = tf.train.Saver(max_to_keep=3)
        held_out = held_out_windows(texts.held_out, 4 * BATCH, STEPS_OF_TIME)
        with tf.Session() as session:
            run = _TextRun(session, network, held_out, directory, saver)
            session.run(iterator.initializer)
            run.restore_or_initialize(console, steps)
            return run.train(steps, console)


class _TextRun:
    """One process's share of a training."""

    def __init__(
        self, session: tf.Session, network: TextNetwork, held_out: Array, directory: Path, saver: tf.train.Saver
    ) -> None:
        self.session, self.network, self.held_out, self.saver = session, network, held_out, saver
        self.prefix = str(directory / "checkpoints" / "model")
        (directory / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.events = str(directory / "events")
        self.first_step = 0

    def restore_or_initialize(self, console: Console, steps: int) -> None:
        latest = tf.train.latest_checkpoint(str(Path(self.prefix).parent))
        if latest is None:
            self.session.run(tf.global_variables_initializer())
            return
        self.saver.restore(self.session, latest)
        self.first_step = int(self.session.run(self.network.global_step))
        if self.first_step < steps:
            console.print(f"goes on from step {self.first_step}: {latest}", soft_wrap=True)

    def train(self, steps: int, console: Console) -> TextOutcome:
        start = time.perf_counter()
        step, rate = self.first_step, 0.0
        if step >= steps:
            return TextOutcome(self._evaluate(), self._sample(600), step, step, 0.0, 0.0)
        self.writer = tf.summary.FileWriter(self.events, self.session.graph)
        with tf.train.ProgressDisplay("training", steps, step, console) as display:
            display.announce("compiling")
            bits = self._evaluate()
            while step < steps:
                count = min(EVALUATE_EVERY - step % EVALUATE_EVERY, steps - step)
                loss, rate = self._train_some(count, step, display)
                step += count
                bits = self._evaluate()
                # the graph is in the events; what holds the position in the data cannot be written into a graph file
                self.saver.save(self.session, self.prefix, global_step=step, write_meta_graph=False)
                display.update(step, {"loss": loss, "bits/character": bits, "": f"{rate:,.0f} characters/s"})
                if step % SAMPLE_EVERY == 0 and step < steps:
                    sample = self._sample(120)
                    console.print(f"[dim]{_escaped(sample)}[/dim]", highlight=False, soft_wrap=True)
                    self._write_sample(sample, step)
        sample = self._sample(600)
        self._write_sample(sample, step)
        self.writer.close()
        return TextOutcome(bits, sample, self.first_step, step, time.perf_counter() - start, rate)

    def _train_some(self, count: int, before: int, display: tf.train.ProgressDisplay) -> tuple[float, float]:
        """Runs `count` steps after step `before`; returns the last loss and the characters per second."""
        network, start = self.network, time.perf_counter()
        for done in range(1, count):
            self.session.run(network.train)
            display.advance(before + done)
        fetches = [network.loss, network.summary, network.global_step, network.train]
        loss, summary, step, _ = self.session.run(fetches)
        self.writer.add_summary(summary, step)
        return float(loss), count * BATCH * STEPS_OF_TIME / (time.perf_counter() - start)

    def _evaluate(self) -> float:
        """Bits per character of the held-out windows."""
        return float(self.session.run(self.network.bits, {self.network.windows: self.held_out}))

    def _sample(self, length: int) -> str:
        return decode(self.session.run(self.network.sample, {self.network.length: length}))

    def _write_sample(self, text: str, step: int) -> None:
        """Adds a text to the events, as the block of code that keeps TensorBoard from folding its lines."""
        block = "".join(f"    {line}\n" for line in text.splitlines())
        network = self.network
        self.writer.add_summary(self.session.run(network.text_summary, {network.text: block}), step)


def _escaped(text: str) -> str:
    """The text with its brackets shown, which would be markup otherwise."""
    return text.replace("[", r"\[")
