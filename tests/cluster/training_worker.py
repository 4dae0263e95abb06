"""A worker of a training as a process: `python training_worker.py CLUSTER_AS_JSON INDEX OPTIONS_AS_JSON`.

It says "ready" when its session is open, and then does what it reads, line by line:

    run N       N steps; says "ran" and how many steps of this process have ended
    train FILE  steps until there is such a file; says the same
    hold [PART] its next step says "compute" when it has the parameters, and waits for a line before it goes on; of the
                part with that number, where it is given, which alone waits
    save        the chief's next step begins a checkpoint
    chief       says "chief" or "no chief"
    sessions    says "sessions" and how often its session was made
    leave       its training ends, and with it the process

What it learns is known exactly: a step of worker i adds 1 to all of row i of the variables `counts`, of which each
parameter server has one. (With rounds of m workers it adds 1/m, and all rows together are the number of rounds.)

Options: workers, columns: the shape of `counts`; ps: how many servers; aggregate: m of rounds, the other workers being
backups (without: asynchronous); parts: how many variables there are in all, dealt out to the servers (without: one on
each); directory: of automatic checkpoints; save_every: seconds between two of these (without:
they are saved when it is told so); lease: seconds that the chief's is good for; reissue:
seconds after which a round that stands still gets tokens once more; away: seconds after which a worker that is not
heard of is not waited for, if that is more; beat: seconds after which other
processes hear that it lives; regression: they learn that, see `Regression`, and do not count.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import anabranch as tf
from anabranch.distributed import links
from anabranch.train import chief_lease, replica_presence
from anabranch.train.save_interval import SaveInterval
from tests.cluster.processes import DEADLINE


def say(text: str) -> None:
    print(text, flush=True)


class Worker(tf.train.SessionRunHook):
    """What a worker does in a step, and what it is told."""

    def __init__(self, index: int, options: Mapping[str, Any]) -> None:
        self.shape = options["workers"], options["columns"]
        self.index, self.aggregate = index, options.get("aggregate")
        self.save_every, self.reissue = options.get("save_every"), options.get("reissue", 1.0)
        #: how many variables; None: one on each server
        self.parts: int | None = options.get("parts")
        self.is_to_hold = self.is_to_save = False
        self.held_part: int | None = None
        self.ended = self.sessions = 0

    def gradient(self, part: int, counts: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The worker is in compute while this runs."""
        if self.is_to_hold and self.held_part in (None, part):
            self.is_to_hold = False
            say("compute")
            sys.stdin.readline()
        result = np.zeros_like(counts)
        result[self.index] = -1
        return result

    def pairs(self, shards: int) -> list[tuple[Any, Any]]:
        """Gradients and variables."""
        made = []
        for part in range(self.parts or shards):
            with self.place(part % shards):
                start = np.zeros(self.shape, np.float32)
                counts = tf.get_variable(f"counts{part}", initializer=start, use_resource=True)
            gradient = tf.py_func(partial(self.gradient, part), [counts], tf.float32)
            gradient.set_shape(self.shape)
            made.append((gradient, counts))
        return made

    def place(self, shard: int) -> contextlib.AbstractContextManager[Any]:
        """Where a variable of a parameter server is made."""
        return tf.device(f"/job:ps/task:{shard}")

    def is_due(self, now: float, last: float) -> bool:
        if self.save_every is not None:
            return now - last >= self.save_every
        due, self.is_to_save = self.is_to_save, False
        return due

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions += 1

    def train(self, target: str, shards: int, directory: str | None) -> None:
        with tf.device(tf.train.replica_device_setter(shards, worker_device=f"/job:worker/task:{self.index}")):
            step = tf.train.get_or_create_global_step()
            optimizer: Any = tf.train.GradientDescentOptimizer(1.0)
            if self.aggregate is None:
                optimizer = tf.train.replicas.asynchronous(optimizer)
            else:
                backups = self.shape[0] - self.aggregate
                optimizer = tf.train.replicas.synchronous(optimizer, self.aggregate, backups, self.reissue)
            update = optimizer.apply_gradients(self.pairs(shards), step)
        with tf.train.MonitoredTrainingSession(
            target,
            self.index == 0,
            directory,
            hooks=[optimizer.make_session_run_hook(self.index == 0), self],
            save_checkpoint_secs="auto" if directory else None,
            save_summaries_steps=None,
            log_step_count_steps=None,
            # before the test gives it up: its error says what it waits for
            config=tf.ConfigProto(operation_timeout_in_ms=int(750 * DEADLINE)),
        ) as session:
            say("ready")
            for line in sys.stdin:
                if line.strip() == "leave":
                    break
                self.obey(line, session, update)

    def obey(self, line: str, session: Any, update: Any) -> None:
        match line.split():
            case ["run", times]:
                for _ in range(int(times)):
                    session.run(update)
                    self.ended += 1
                say(f"ran {self.ended}")
            case ["train", file]:
                while not Path(file).exists():
                    session.run(update)
                    self.ended += 1
                say(f"ran {self.ended}")
            case ["hold", *part]:
                self.held_part, self.is_to_hold = int(part[0]) if part else None, True
            case ["save"]:
                self.is_to_save = True
            case ["chief"]:
                say("chief" if is_chief(session) else "no chief")
            case ["sessions"]:
                say(f"sessions {self.sessions}")
            case _:
                raise ValueError(f"what is {line!r}?")


def is_chief(session: Any) -> bool:
    """Whether the worker of a monitored session is chief, for sure."""
    leases = [hook for hook in session._hooks if isinstance(hook, chief_lease.LeaseHook)]
    return any(hook._lease.is_held for hook in leases)


class Regression(Worker):
    """Every worker computes the gradient of all examples, so that the model after so many rounds is known."""

    def pairs(self, shards: int) -> list[tuple[Any, Any]]:
        made = []
        for shard in range(shards):
            x, y = examples(shard)
            with tf.device(f"/job:ps/task:{shard}"):
                start = np.zeros(FEATURES, np.float32)
                weights = tf.get_variable(f"weights{shard}", initializer=start, use_resource=True)
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, weights) - y)) / 2
            made.append((tf.gradients(loss, weights)[0], weights))
        return made


FEATURES, EXAMPLES = 5, 50


def examples(shard: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """What the weights of a parameter server are to learn, in some thousand steps: one too many would be seen."""
    random = np.random.default_rng(shard)
    x = random.normal(size=(EXAMPLES, FEATURES)) / 60
    return x.astype(np.float32), (x @ random.normal(scale=3, size=FEATURES)).astype(np.float32)


def undisturbed(shard: int, steps: int) -> Any:
    """The weights after so many steps that nothing disturbs."""
    x, y = (values.astype(np.float64) for values in examples(shard))
    weights = np.zeros(FEATURES)
    for _ in range(steps):
        weights -= x.T @ (x @ weights - y) / len(y)
    return weights


def loss(shard: int, weights: Any) -> float:
    x, y = (values.astype(np.float64) for values in examples(shard))
    return float(np.mean(np.square(x @ weights - y)) / 2)


def main(cluster: Mapping[str, list[str]], index: int, options: Mapping[str, Any]) -> None:
    vars(links)["BEAT_EVERY"] = options.get("beat", links.BEAT_EVERY)
    vars(chief_lease)["LEASE_SECONDS"] = options.get("lease", chief_lease.LEASE_SECONDS)
    vars(replica_presence)["AWAY_AFTER"] = options.get("away", replica_presence.AWAY_AFTER)
    worker = Regression(index, options) if options.get("regression") else Worker(index, options)
    SaveInterval.is_due = lambda self, now: worker.is_due(now, self._last_end)  # type: ignore[method-assign]
    server = tf.train.Server(dict(cluster), "worker", index)
    worker.train(server.target, options.get("ps", 1), options.get("directory"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
