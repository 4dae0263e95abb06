"""Kills training processes at random moments and looks at their checkpoints.

    python -m tests.fuzz.kills --seconds 3600 --seed 1

A child trains, saves every few steps, and tells on its standard output of each checkpoint that is committed. It is
killed (SIGKILL) while it does so; the next one goes on from the newest checkpoint. After each, the newest checkpoint
can be restored and is whole, holds what the child last told of, and no more checkpoints are left than are to be kept,
besides the one that a kill came between.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import anabranch as tf

#: checkpoints that the children keep
_KEPT: Final = 3
#: a child is killed so long (s) after its first checkpoint, at most
_LIVES: Final = 0.5


def _graph() -> tuple[Any, Any, Any, Any]:
    first = tf.get_variable("first", initializer=tf.zeros([1000], tf.int64), use_resource=True)
    second = tf.get_variable("second", initializer=tf.zeros([], tf.int64), use_resource=True)
    return (
        first,
        second,
        tf.group(first.assign_add(tf.ones([1000], tf.int64)), second.assign_add(1)),
        tf.train.Saver(max_to_keep=_KEPT),
    )


def train(directory: str) -> None:
    """The child: trains until it is killed."""
    _, second, step, saver = _graph()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state = tf.train.get_checkpoint_state(directory)
        if state is not None:
            saver.restore(session, state.model_checkpoint_path)
            saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        while True:
            for _ in range(3):
                session.run(step)
            number = int(session.run(second))
            saver.save(session, os.path.join(directory, "model"), number)
            print(number, flush=True)


def kill_one(directory: str, seconds: float) -> int:
    """Lets a child train, kills it so long after its first checkpoint, and returns the last step it told of."""
    command = [sys.executable, "-m", "tests.fuzz.kills", "--child", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = child.stdout.readline()
        time.sleep(seconds)
        child.kill()
        lines = [told, *child.stdout.read().splitlines(keepends=True)]
    return max(int(line) for line in lines if line.endswith("\n"))


def look(directory: str, last: int) -> None:
    """Looks at what a killed child has left.

    Raises:
        AssertionError: a checkpoint is missing, cannot be restored, or is not whole, or too many are left.
    """
    newest = tf.train.latest_checkpoint(directory)
    assert newest is not None
    with tf.Graph().as_default(), tf.Session() as session:
        first, second, _, saver = _graph()
        saver.restore(session, newest)
        values, number = session.run([first, second])
    assert (values == number).all(), (values, number)
    assert number >= last, (number, last)
    state = tf.train.get_checkpoint_state(directory)
    assert len(state.all_model_checkpoint_paths) <= _KEPT, state
    steps = {path.name.split(".")[0] for path in Path(directory).glob("model-*")}
    assert len(steps) <= _KEPT + 1, sorted(steps)


def run(seconds: float, seed: int) -> int:
    """Kills children for so long, at least two; returns how many.

    Raises:
        AssertionError: what `look` found, with the number of the child.
    """
    rng, end, number = random.Random(seed), time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory(prefix="kills") as directory:
        while number < 2 or time.monotonic() < end:
            number += 1
            try:
                look(directory, kill_one(directory, rng.uniform(0, _LIVES)))
            except Exception as error:
                raise AssertionError(f"seed {seed}, child {number}") from error
    return number


def main() -> int:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(description="Kills training processes at random moments.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with contextlib.suppress(BrokenPipeError):
            train(arguments.child)
        return 0
    print(f"seed {arguments.seed}: {run(arguments.seconds, arguments.seed)} children killed, none lost anything")
    return 0


if __name__ == "__main__":
    sys.exit(main())
