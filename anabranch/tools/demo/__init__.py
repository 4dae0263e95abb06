"""Train a network on 1,797 real handwritten digits, and look at what it learned."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from anabranch.tools.demo import text
from anabranch.tools.demo.digits import load_digits
from anabranch.tools.demo.finished import finished
from anabranch.tools.demo.training import TrainingResult, train

STEPS = 1500
_NEEDED = ("sklearn", "matplotlib")


def main(arguments: Sequence[str]) -> int:
    """`anabranch demo`, and `anabranch demo text`"""
    if arguments and arguments[0] == "text":
        return text.main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="anabranch demo",
        description=f"{__doc__} Interrupt it when you like: started again, it goes on from its last checkpoint.",
        epilog="Another demonstration learns to write: `anabranch demo text --help`.",
    )
    parser.add_argument("--directory", type=Path, default=Path("runs/demo"), help="where everything goes (runs/demo)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"global step to train to ({STEPS})")
    parser.add_argument("--fresh", action="store_true", help="start over: remove what an earlier run left there")
    options = parser.parse_args(arguments)
    console = Console()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        console.print(f"the demonstration needs {' and '.join(missing)}: pip install 'anabranch\\[demo]'")
        return 1
    if options.fresh:
        _remove_earlier_run(options.directory)
    digits = load_digits()
    console.print(f"{len(digits.train_images)} digits to learn from, {len(digits.test_images)} held out")
    outcome = train(digits, options.directory, options.steps, console)
    return _report(outcome, options.directory, console)


def _remove_earlier_run(directory: Path) -> None:
    """Removes only what this command writes."""
    for name in ("checkpoints", "best", "events"):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / "predictions.png").unlink(missing_ok=True)


def _report(outcome: TrainingResult, directory: Path, console: Console) -> int:
    """Lets a new process restore the best checkpoint and draw; says where everything lies."""
    steps = outcome.last_step - outcome.first_step
    done = f"{steps} steps in {outcome.seconds:.1f} s" if steps else finished(outcome.last_step, directory)
    console.print(f"{done}; best held-out accuracy {outcome.accuracy:.2%}", highlight=False, soft_wrap=True)
    picture = directory / "predictions.png"
    command = [sys.executable, "-m", "anabranch.tools.demo.report", outcome.best_checkpoint, str(picture)]
    drawn = subprocess.run(command, capture_output=True, text=True, check=False)
    if drawn.returncode != 0:
        console.print(f"drawing the predictions failed:\n{drawn.stderr}", markup=False)
        return 1
    console.print(f"a new process restored the best checkpoint: {drawn.stdout.strip()}")
    events = directory / "events"
    console.print(
        f"\n[bold]What is where[/bold]\n"
        f"  {picture}  the held-out digits with the predictions, mistakes first\n"
        f"  {outcome.best_checkpoint}  the best checkpoint\n"
        f"  {directory / 'checkpoints'}  the last checkpoints: run the command again and it goes on from there\n"
        f"  {events}  curves, histograms, images and the graph, for TensorBoard\n"
        f"\n[bold]What to try next[/bold]\n"
        f"  tensorboard --logdir {events}\n"
        f"  anabranch inspect {outcome.best_checkpoint}\n"
        f"  anabranch demo --steps {outcome.last_step * 2}   (goes on where this ended)\n"
        f"  anabranch run your_tensorflow_1_program.py",
        highlight=False,
        soft_wrap=True,
    )
    return 0
