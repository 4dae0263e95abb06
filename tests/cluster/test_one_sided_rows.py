"""Rows of a table of another process of this host are taken in its memory: the same steps, with half the messages."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed import connections, read_ahead
from anabranch.distributed.process_reads import process_reader
from anabranch.runtime.published_rows import PublishedRows
from anabranch.runtime.published_values import keeps_order
from tests.cluster.processes import DEADLINE, Process, one_ps

pytestmark = pytest.mark.skipif(not keeps_order(), reason="processes of this machine do not read each other's boards")

ROWS, WIDTH = 3000, 4
SOME = [3, 2999, 3, 0]


class Rows(list[Any]):
    """What was taken, or None where the table's task was asked for it."""

    @property
    def taken(self) -> int:
        return sum(one is not None for one in self)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    seen, take = Rows(), PublishedRows.take

    def noted(self: PublishedRows, indices: Any) -> Any:
        seen.append(take(self, indices))
        return seen[-1]

    monkeypatch.setattr(PublishedRows, "take", noted)
    return seen


class Training(NamedTuple):
    """A session and a step that adds to rows what is missing to 1, halved.

    Attributes:
        at: fed the rows' numbers.
        allowed: fed whether the step fails between the rows and the update.
        before: fetched, the rows before the update.
    """

    session: Any
    step: Any
    table: Any
    at: Any
    allowed: Any
    before: Any
    addresses: dict[str, list[str]]
    processes: list[Process]

    def run(self, at: Any = SOME, allowed: bool = True) -> Any:
        # always fed: a step with another list of feeds is another step
        before, _ = self.session.run([self.before, self.step], {self.at: at, self.allowed: allowed})
        return before

    def run_until_taken(self, rows: Rows) -> None:
        rows.clear()
        deadline = time.monotonic() + DEADLINE
        while not rows.taken:
            assert time.monotonic() < deadline
            self.run()
        self.session.run(self.table.initializer)
        rows.clear()


@contextlib.contextmanager
def training(use_resource: bool = True) -> Iterator[Training]:
    with one_ps() as (addresses, worker, processes):
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable(
                "table", [ROWS, WIDTH], initializer=tf.zeros_initializer(), use_resource=use_resource
            )
        with tf.device("/job:worker/task:0"):
            at, allowed = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.bool, [])
            numbers = tf.identity(at)
        with tf.device("/job:ps/task:0"):
            taken = tf.gather(table, numbers)
        with tf.device("/job:worker/task:0"):
            before = tf.identity(taken)
            # after the rows are there
            is_allowed = allowed & tf.reduce_all(tf.equal(before, before))
            with tf.control_dependencies([tf.debugging.Assert(is_allowed, ["not allowed"])]):
                change = (1.0 - taken) * 0.5
        with tf.device("/job:ps/task:0"):
            step = tf.scatter_add(table, numbers, change)
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.Session(worker.target, config=config) as session:
            session.run(table.initializer)
            yield Training(session, tf.group(step), table, at, allowed, before, addresses, processes)


@pytest.mark.parametrize("use_resource", [True, False])
def test_steps_that_take_rows_do_what_others_do(rows: Rows, use_resource: bool) -> None:
    with training(use_resource) as one:
        one.run_until_taken(rows)
        expected = np.zeros((ROWS, WIDTH), np.float32)
        generator = np.random.default_rng(0)
        for count in range(60):
            # none, one, several, some of them twice
            at = generator.integers(0, ROWS if count % 2 else 5, count % 7)
            seen = one.run(at)
            np.testing.assert_array_equal(seen, expected[at])
            np.add.at(expected, at, (1 - expected[at]) * 0.5)
        np.testing.assert_array_equal(one.session.run(one.table), expected)
        assert rows.taken > 50


def test_an_index_beyond_the_table_is_an_error_of_the_gather(rows: Rows) -> None:
    with training() as one:
        one.run_until_taken(rows)
        for at in (-1, ROWS):
            with pytest.raises(tf.errors.InvalidArgumentError, match=rf"= {at} is not in \[0, {ROWS}\)") as caught:
                one.run([0, at])
            assert caught.value.op.type == "ResourceGather"
        np.testing.assert_array_equal(one.session.run(one.table), np.zeros((ROWS, WIDTH)))
        assert not rows.taken
        one.run()
        assert rows.taken == 1


def test_what_other_sessions_write_is_seen_by_the_next_step(rows: Rows) -> None:
    with training() as one:
        one.run_until_taken(rows)
        with tf.Session(one.session.sess_str) as other:
            value = tf.placeholder(tf.float32, [ROWS, WIDTH])
            assign = one.table.assign(value).op
            for number in (2.0, 3.0, 5.0):
                other.run(assign, {value: np.full((ROWS, WIDTH), number)})
                assert one.run([7])[0, 0] == number
                assert other.run(one.table)[7, 0] == number + (1 - number) / 2
        assert rows.taken


def test_a_step_that_fails_after_it_has_taken_rows_ends_at_once_and_changes_nothing(rows: Rows) -> None:
    with training() as one:
        one.run_until_taken(rows)
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not allowed"):
                one.run(allowed=False)
        # who was to begin has begun, and has answered: nobody waits until the grace after a failure is over
        assert time.monotonic() - begun < 4
        assert rows.taken == 3
        np.testing.assert_array_equal(one.session.run(one.table), np.zeros((ROWS, WIDTH)))


def test_a_table_without_a_value_is_not_read(rows: Rows) -> None:
    with training() as one:
        one.run_until_taken(rows)
        one.session.run(tf.raw_ops.DestroyResourceOp(resource=one.table.handle))
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            one.run()
        assert not rows.taken
        one.session.run(one.table.initializer)
        one.run()
        np.testing.assert_array_equal(one.run([3, 1])[:, 0], [1.0, 0.0])


def test_a_server_that_was_killed_is_read_no_more_and_again_when_it_is_back(rows: Rows) -> None:
    with training() as one:
        one.run_until_taken(rows)
        one.processes[0].kill()
        with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match="ps"):
            one.run()
        one.processes.append(Process("task_process.py", json.dumps(one.addresses), "ps", "0"))
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            one.session.run(one.table.initializer)
        one.session.run(one.table.initializer)
        one.run_until_taken(rows)
        assert one.run([5])[0, 0] == 0


def test_where_the_system_does_not_let_read_rows_are_sent(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def forbidden(process: int, number_at: int, number: int) -> None:
        asked.append(process_reader(process, number_at, number))

    monkeypatch.setattr(connections, "process_reader", forbidden)
    with training() as one:
        deadline = time.monotonic() + DEADLINE
        while not asked:
            assert time.monotonic() < deadline
            one.run()
        for _ in range(3):
            one.run([9])
        assert one.run([9])[0, 0] == 1 - 0.5**3
    assert asked[0] is not None, "the test could not tell"
    assert not rows


def test_where_the_system_does_not_let_read_no_rows_are_taken_of_what_is_small_either(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same indices are those of both tables, and nothing else takes them: they have to be sent."""
    monkeypatch.setattr(read_ahead, "MANY", 2)
    monkeypatch.setattr(connections, "process_reader", lambda *_: None)
    with one_ps() as (_, worker, _):
        with tf.device("/job:ps/task:0"):
            tables = [
                tf.get_variable(f"t{size}", [size, 2], initializer=tf.ones_initializer(), use_resource=True)
                for size in (10, ROWS)
            ]
            total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            at = tf.placeholder(tf.int32, [None])
            numbers = tf.identity(at)
        with tf.device("/job:ps/task:0"):
            taken = [tf.gather(table, numbers) for table in tables]
        with tf.device("/job:worker/task:0"):
            change = tf.add_n([tf.reduce_sum(one) for one in taken])
        step = total.assign_add(change).op
        with tf.Session(worker.target, config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 500))) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(80):
                session.run(step, {at: [1, 2, 3]})
            assert session.run(total) == 80 * 12
    assert not rows


def test_a_number_that_stands_elsewhere_shows_another_process() -> None:
    with one_ps() as (_, _, processes):
        process = processes[0]._process.pid
        # nothing is mapped there
        assert process_reader(process, 8, 1) is None
        assert process_reader(1 << 22, 1 << 20, 1) is None


def test_threads_of_one_session_lose_no_update(rows: Rows) -> None:
    with one_ps() as (_, worker, _):
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("t", [ROWS, WIDTH], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            at = tf.placeholder(tf.int32, [3])
            numbers = tf.identity(at)
        with tf.device("/job:ps/task:0"):
            taken = tf.gather(table, numbers)
        with tf.device("/job:worker/task:0"):
            ones = taken * 0.0 + 1.0
        with tf.device("/job:ps/task:0"):
            step = tf.group(tf.scatter_add(table, numbers, ones))
        with tf.Session(worker.target) as session:
            session.run(table.initializer)
            deadline = time.monotonic() + DEADLINE
            while not rows.taken:
                assert time.monotonic() < deadline
                session.run(step, {at: [1, 2, 3]})
            session.run(table.initializer)

            def work(thread: int) -> None:
                for _ in range(100):
                    session.run(step, {at: [0, 100 + thread, 200]})

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(work, range(4)))
            counts = session.run(table)[:, 0]
            assert (counts[0], counts[200]) == (400, 400)
            np.testing.assert_array_equal(counts[100:104], np.full(4, 100))


class _RandomStep:
    """Tables and variables, lookups of which some take their indices from others' rows, and updates of what was read.

    Built twice from one seed, with devices and without, it is the same step.
    """

    def __init__(self, seed: int, is_local: bool) -> None:
        draw = np.random.default_rng(seed)
        server, worker = (None, None) if is_local else ("/job:ps/task:0", "/job:worker/task:0")
        with tf.device(server):
            self.tables = [
                tf.get_variable(
                    f"t{seed}_{i}",
                    [int(draw.choice([20, 3000])), 4],
                    initializer=tf.zeros_initializer(),
                    use_resource=bool(draw.integers(2)),
                )
                for i in range(draw.integers(1, 4))
            ]
            dense = tf.get_variable(f"d{seed}", [4], initializer=tf.ones_initializer(), use_resource=True)
        with tf.device(worker):
            self.at = tf.placeholder(tf.int32, [None])
            numbers = [tf.identity(self.at)]
        reads = []
        for _ in range(draw.integers(1, 5)):
            table, at = self.tables[draw.integers(len(self.tables))], numbers[draw.integers(len(numbers))]
            with tf.device(server):
                rows = tf.gather(table, at)
                # what is computed there has to be asked for
                rows = rows * 2.0 if draw.integers(4) == 0 else rows
            with tf.device(worker):
                numbers.append(tf.cast(tf.abs(rows[:, 0]), tf.int32) % 20)
            reads.append((table, at, rows))
        with tf.device(worker):
            total = tf.add_n([tf.reduce_sum(rows) for _, _, rows in reads])
            # after everything was read
            with tf.control_dependencies([total]):
                changes = [tf.ones_like(rows) + dense.read_value() for _, _, rows in reads]
        updates = []
        for (table, at, _), change in zip(reads, changes, strict=True):
            if draw.integers(3):
                with tf.device(server), tf.control_dependencies(updates[-1:]):
                    updates.append(tf.group(tf.scatter_add(table, at, change)))
        self.step = [total, tf.group(*updates, dense.assign_add(tf.ones([4]) * changes[0][0, 0]))]
        self.initializer = tf.group(*(t.initializer for t in self.tables), dense.initializer)


def test_random_steps_are_those_of_one_process(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MANY", 2)
    with one_ps() as (_, worker, _):
        for seed in range(5):
            with tf.Graph().as_default(), tf.Session() as session:
                local = _RandomStep(seed, True)
                session.run(local.initializer)
                expected = [session.run(local.step, {local.at: at}) for at in _numbers(seed)]
                values = session.run(local.tables)
            with tf.Graph().as_default(), tf.Session(worker.target) as session:
                one = _RandomStep(seed, False)
                session.run(one.initializer)
                seen = [session.run(one.step, {one.at: at}) for at in _numbers(seed)]
                np.testing.assert_allclose([total for total, _ in seen], [total for total, _ in expected], rtol=1e-5)
                for got, wanted in zip(session.run(one.tables), values, strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert rows.taken


def _numbers(seed: int) -> Iterator[Any]:
    draw = np.random.default_rng(seed)
    for count in range(12):
        yield draw.integers(0, 20, 1 + count % 3)
