"""The ways of training that are soaked: what a worker does in each, and what has to be true of it in the end.

A worker notes each step when it has ended, in a file of its own that outlives it (`Notes`). What is learned is known
exactly, so that a checkpoint says which steps are in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

import anabranch as tf
from tests.cluster.training_worker import Regression, Worker, loss, undisturbed
from tests.cluster.trainings import of_rows

#: tasks; of the workers one may be a chief
PS, WORKERS = 2, 3
COLUMNS: Final = 4
#: of averages, of pushes and of fetches
EVERY: Final = 4
EXAMPLES, RANGE, RANGE_SECONDS = 210, 8, 10.0
KEYS, KEYS_OF_STEP = 300, 8
#: of the mean of three gradients in float32, over some ten thousand rounds
ROUNDING: Final = 0.4


class Notes:
    """What a task notes: a line for each step that has ended."""

    def __init__(self, folder: Path, job: str, index: int) -> None:
        self._file = os.open(folder / f"{job}-{index}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, line: object) -> None:
        # one call, so that a line is there whole or not at all when the process is killed
        os.write(self._file, f"{line}\n".encode())


class End(NamedTuple):
    """What is left of a training.

    Attributes:
        model: of the last checkpoint.
        notes: the lines of each worker, a chief being the first.
        results: what the worker has said that left last.
        shocks: how often something happened by which a step may have been done and not noted, or done twice.
        lost: how often a task of a job was lost, one that was told to end and came back included.
        killed: how often a worker was killed.
    """

    model: Any
    notes: Mapping[int, Sequence[str]]
    results: Mapping[str, Any]
    shocks: int
    lost: Mapping[str, int]
    killed: int

    @property
    def step(self) -> int:
        return int(self.model.get_tensor("global_step"))

    def rows(self) -> list[list[float]]:
        """What was added for each worker on each parameter server; each update is there whole."""
        return [of_rows(self.model.get_tensor(f"counts{shard}")) for shard in range(PS)]


class Way:
    """Asynchronous steps; the other ways derive from it.

    Args:
        index: the worker's number.

    Attributes:
        step: what a worker runs.
        hooks: of its session.
    """

    #: whether the steps of all end as one does, so that no step follows the last checkpoint
    in_rounds: ClassVar[bool] = False
    #: whether a lost parameter server loses steps
    forgets: ClassVar[bool] = True
    #: steps of a worker that are handed in together
    together: ClassVar[int] = 1
    #: makes the variables
    worker: ClassVar[type[Worker]] = Worker

    #: of `anabranch cluster run`
    options: ClassVar[Sequence[str]] = ("--workers", str(WORKERS))
    #: the tasks that are disturbed
    tasks: ClassVar[Sequence[str]] = [f"ps/{index}" for index in range(PS)] + [f"worker/{i}" for i in range(WORKERS)]
    #: whether tasks find checkpoints by themselves
    lasts: ClassVar[bool] = True

    def __init__(self, index: int) -> None:
        self.index = index
        self.random = np.random.default_rng([index, os.getpid()])
        self.hooks: list[Any] = []

    def build(self) -> None:
        """Adds the graph of a worker to the default one."""
        optimizer = self.optimizer()
        self.step = optimizer.apply_gradients(self.pairs(), tf.train.get_or_create_global_step())
        self.hooks.append(optimizer.make_session_run_hook(self.index == 0))

    def optimizer(self) -> Any:
        return tf.train.replicas.asynchronous(tf.train.GradientDescentOptimizer(1.0))

    def pairs(self) -> list[tuple[Any, Any]]:
        """Gradients by which a step adds 1 to the row of its worker on each parameter server, and variables."""
        return self.worker(self.index, {"workers": WORKERS, "columns": COLUMNS}).pairs(PS)

    def take(self, session: Any) -> object:
        """Makes a step; what is noted of it."""
        session.run(self.step)
        return 1

    def last_words(self, session: Any) -> Mapping[str, Any]:
        """What the worker says that leaves last."""
        return {}

    def check(self, end: End) -> None:
        """Looks at what is left.

        Raises:
            AssertionError: it is not what the steps make that were noted.
        """
        most = end.shocks * self.together * WORKERS
        noted = {worker: len(end.notes.get(worker, [])) for worker in range(WORKERS)}
        # what a killed worker had not handed in yet
        least = (self.together - 1) * end.killed
        for rows in end.rows():
            for worker, value in enumerate(rows):
                assert value <= noted[worker] + most, f"worker {worker} noted {noted[worker]} steps, and made {value}"
                if not (self.forgets and end.lost.get("ps")):
                    assert value >= noted[worker] - least, f"of {noted[worker]} steps of worker {worker} {value} count"


class Mirrored(Way):
    """Each parameter server is kept by its neighbour as well. No two are lost at once."""

    forgets = False

    def optimizer(self) -> Any:
        return tf.train.replicas.asynchronous(tf.train.replicas.mirrored(tf.train.GradientDescentOptimizer(1.0)))


class Copied(Worker):
    """A worker whose variables are where a device setter puts them, and their copies with the worker."""

    def place(self, shard: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


class Downpour(Way):
    """Sums of gradients."""

    together = EVERY
    worker = Copied

    def optimizer(self) -> Any:
        self._made = tf.train.replicas.downpour(tf.train.GradientDescentOptimizer(1.0), fetch=3, push=EVERY)
        return self._made

    def pairs(self) -> list[tuple[Any, Any]]:
        with self._made.local_copies():
            return super().pairs()


class Averaging(Way):
    """Means of copies: every step adds 1 to one row of a worker's copy."""

    in_rounds = True
    worker = Copied

    def optimizer(self) -> Any:
        self._made = tf.train.replicas.averaging(tf.train.GradientDescentOptimizer(1.0), EVERY, WORKERS)
        return self._made

    def pairs(self) -> list[tuple[Any, Any]]:
        with self._made.local_copies():
            return super().pairs()

    def check(self, end: End) -> None:
        sums = [sum(rows) for rows in end.rows()]
        assert np.ptp(sums) < ROUNDING, f"means are on some parameter servers, and not on others: {sums}"
        assert sums[0] >= EVERY * end.step - ROUNDING, f"{end.step} means of {EVERY} steps are {sums[0]} steps"
        # who waits for a worker that is not heard of trains on: those steps are in the mean, too
        if not end.shocks:
            assert sums[0] <= EVERY * end.step + ROUNDING, f"{end.step} means of {EVERY} steps are {sums[0]} steps"


class Synchronous(Way):
    """Rounds of all workers: the model is that of so many steps that nothing disturbs."""

    in_rounds = True
    backups: ClassVar[int] = 0

    def optimizer(self) -> Any:
        gradient_descent = tf.train.GradientDescentOptimizer(1.0)
        return tf.train.replicas.synchronous(gradient_descent, WORKERS - self.backups, self.backups)

    def pairs(self) -> list[tuple[Any, Any]]:
        return super().pairs() + Regression(self.index, {"workers": WORKERS, "columns": COLUMNS}).pairs(PS)

    def check(self, end: End) -> None:
        for shard, rows in enumerate(end.rows()):
            assert abs(sum(rows) - end.step) < ROUNDING, f"{end.step} rounds made {sum(rows)} on ps/{shard}"
            learned, wanted = end.model.get_tensor(f"weights{shard}"), undisturbed(shard, end.step)
            np.testing.assert_allclose(learned, wanted, atol=1e-4, err_msg=f"step {end.step} on ps/{shard}")
            assert loss(shard, learned) < loss(shard, np.zeros_like(learned))
        if not end.lost.get("ps"):
            for worker, notes in end.notes.items():
                assert len(notes) <= end.step + end.shocks, f"worker {worker} took {len(notes)} of {end.step} rounds"


class Backups(Synchronous):
    """Rounds of all workers but one."""

    backups = 1


class Older(Backups):
    """`SyncReplicasOptimizer`, whose chief the others cannot replace."""

    def optimizer(self) -> Any:
        gradient_descent = tf.train.GradientDescentOptimizer(1.0)
        return tf.train.SyncReplicasOptimizer(gradient_descent, WORKERS - self.backups, WORKERS)

    def check(self, end: End) -> None:
        # its tokens are anybody's: a worker may take several in a round
        super().check(end._replace(notes={}))


class Ranges(Way):
    """Elastic input: each example counts once in an epoch."""

    def build(self) -> None:
        step = tf.train.get_or_create_global_step()
        self.ranges = tf.train.replicas.InputRanges(EXAMPLES, RANGE, epochs=1_000_000, seconds=RANGE_SECONDS)
        self.begin, self.end = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
        with tf.device(step.device):
            used = tf.get_variable("used", initializer=np.zeros(EXAMPLES, np.int32), use_resource=True)
        places = tf.range(EXAMPLES)
        once = tf.cast((places >= self.begin) & (places < self.end), tf.int32)
        self.step = tf.group(used.assign_add(once), step.assign_add(1))
        self.hooks.append(tf.train.replicas.MembershipHook(minimum=1))

    def check(self, end: End) -> None:
        used = end.model.get_tensor("used")
        _, _, epoch, following, *open_ranges = (int(number) for number in end.model.get_tensor("input_ranges"))
        done = np.arange(EXAMPLES) < following
        for begin in open_ranges:
            done[begin : begin + RANGE] = False
        wanted = epoch + done
        assert (used >= wanted).all(), f"in epoch {epoch}, at {following}, open {open_ranges}: {used} of {wanted}"
        again = int((used - wanted).sum())
        # a worker that dies between a step and its next question has that range repeated, and nobody else
        times = end.killed + (end.shocks * WORKERS if end.lost.get("ps") else 0)
        assert again <= times * RANGE, f"{again} examples were used once more, {end.killed} workers were killed: {used}"


class Growing(Way):
    """A table that grows: a step adds 1 to the rows of some keys."""

    def build(self) -> None:
        self.table = tf.train.GrowingTable("table", COLUMNS, initializer=tf.zeros_initializer(), parts=PS)
        self.keys = tf.placeholder(tf.int64, [None])
        optimizer = tf.train.replicas.asynchronous(tf.train.GradientDescentOptimizer(1.0))
        loss = -tf.reduce_sum(self.table.lookup(self.keys))
        self.step = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        self.hooks.append(optimizer.make_session_run_hook(self.index == 0))
        self.all = self.table.lookup(np.arange(KEYS), training=False)

    def take(self, session: Any) -> object:
        keys = self.random.choice(KEYS, KEYS_OF_STEP, replace=False)
        session.run(self.step, {self.keys: keys})
        return " ".join(map(str, keys))

    def last_words(self, session: Any) -> Mapping[str, Any]:
        return {"rows": session.run(self.all).tolist()}

    def check(self, end: End) -> None:
        noted = np.zeros(KEYS)
        for line in (line for lines in end.notes.values() for line in lines):
            noted[[int(key) for key in line.split()]] += 1
        rows = np.array(end.results["rows"])
        assert not np.ptp(rows, axis=1).any(), f"an update is there by half: {rows}"
        assert (rows[:, 0] <= noted + end.shocks * WORKERS).all(), (rows[:, 0], noted)
        if not end.lost.get("ps"):
            assert (rows[:, 0] >= noted).all(), (rows[:, 0], noted)


WAYS: Final[Mapping[str, type[Way]]] = {
    "asynchronous": Way,
    "mirrored": Mirrored,
    "downpour": Downpour,
    "averaging": Averaging,
    "synchronous": Synchronous,
    "backups": Backups,
    "older": Older,
    "ranges": Ranges,
    "growing": Growing,
}
