"""Train a character-level LSTM on the sources and documents of Python's standard library, and let it write."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from anabranch.tools.demo.finished import finished
from anabranch.tools.demo.text_files import find_texts
from anabranch.tools.demo.text_training import TextOutcome, train

STEPS = 700


def main(arguments: Sequence[str]) -> int:
    """`anabranch demo text`"""
    parser = argparse.ArgumentParser(
        prog="anabranch demo text",
        description=f"{__doc__} Interrupt it when you like: started again, it goes on from its last checkpoint.",
    )
    parser.add_argument(
        "--directory", type=Path, default=Path("runs/demo-text"), help="where everything goes (runs/demo-text)"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"global step to train to ({STEPS})")
    parser.add_argument("--units", type=int, default=256, help="units of the LSTM (256)")
    parser.add_argument("--texts", type=Path, help="a folder of .py, .txt, .md and .rst files to learn instead")
    parser.add_argument("--fresh", action="store_true", help="start over: remove what an earlier run left there")
    options = parser.parse_args(arguments)
    console = Console()
    if options.fresh:
        for name in ("checkpoints", "events"):
            shutil.rmtree(options.directory / name, ignore_errors=True)
    texts = find_texts(options.texts)
    if not texts.train:
        console.print("there is too little text to learn from: two files of at least 1 kB are needed")
        return 1
    console.print(
        f"{len(texts.train)} files with {texts.characters:,} characters to learn from, {len(texts.held_out)} held out"
    )
    outcome = train(texts, options.directory, options.steps, options.units, console)
    _report(outcome, options.directory, console)
    return 0


def _report(outcome: TextOutcome, directory: Path, console: Console) -> None:
    steps = outcome.last_step - outcome.first_step
    speed = f"{steps} steps in {outcome.seconds:.1f} s, {outcome.characters_per_second:,.0f} characters/s"
    console.print(
        f"{speed if steps else finished(outcome.last_step, directory)}; "
        f"{outcome.bits:.2f} bits per character of held-out text (8 as stored)",
        highlight=False,
        soft_wrap=True,
    )
    console.print("\n[bold]What it writes[/bold]")
    console.print(outcome.sample, markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"\n[bold]What is where[/bold]\n"
        f"  {directory / 'checkpoints'}  the last checkpoints: run the command again and it goes on from there\n"
        f"  {directory / 'events'}  curves and samples, for TensorBoard\n"
        f"\n[bold]What to try next[/bold]\n"
        f"  anabranch demo text --steps {outcome.last_step * 4}   (goes on where this ended; it learns to indent)\n"
        f"  anabranch demo text --texts FOLDER --directory runs/mine   (learns your own texts)\n"
        f"  tensorboard --logdir {directory / 'events'}",
        highlight=False,
        soft_wrap=True,
    )
