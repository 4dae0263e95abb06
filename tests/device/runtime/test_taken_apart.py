"""Steps that several threads train with at once, in parts: the same mathematics, and nothing lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime import bound_partition, contended_island, island_call
from anabranch.runtime.contention import ContendedError, Contention, Ways
from anabranch.xla import executable, one_thread as clients

DEADLINE = 120.0


class SoonContended(Contention):
    """Takes its island apart at the second run, as if threads had waited for each other."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def ran(self) -> None:
        self.count += 1
        if self.count == 2:
            raise ContendedError(10.0)


class InParts(Ways):
    """Always takes the parts."""

    def apart(self, thread: int) -> bool:
        return True


class InTurns(Ways):
    """Takes the whole island and its parts in turns, so that threads run both at once."""

    count = 0

    def apart(self, thread: int) -> bool:
        self.count += 1
        return self.count % 3 != 0


@pytest.fixture(params=[InParts, InTurns], ids=["parts", "both"])
def taken_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Islands are taken apart at their second run; what was made then."""
    made: list[str] = []
    planned = bound_partition.plan_in_phases

    def plan(*args: Any) -> Any:
        found = planned(*args)
        made.append("whole" if found is None else " ".join(str(len(item.operations)) for item in found.items))
        return found

    monkeypatch.setattr(island_call, "Contention", SoonContended)
    monkeypatch.setattr(contended_island, "Ways", request.param)
    monkeypatch.setattr(bound_partition, "plan_in_phases", plan)
    return made


def on_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def model(optimizer: Any) -> tuple[dict[Any, Any], Any, Any]:
    """Feeds, loss and training step of a model with a table, weights, a normalization, and dropout."""
    ids, labels = tf.placeholder(tf.int32, [None, 3]), tf.placeholder(tf.float32, [None])
    rng = np.random.default_rng(0)
    table = tf.get_variable("table", initializer=rng.normal(size=(40, 6)).astype(np.float32), use_resource=True)
    w = tf.get_variable("w", initializer=rng.normal(size=(18, 5)).astype(np.float32), use_resource=True)
    scale = tf.get_variable("scale", initializer=np.ones(5, np.float32), use_resource=True)
    x = tf.matmul(tf.reshape(tf.nn.embedding_lookup(table, ids), [-1, 18]), w)
    x = tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), None, scale, 1e-3)
    x = tf.nn.dropout(tf.nn.relu(x), rate=0.3, seed=5)
    loss = tf.reduce_mean(tf.squared_difference(tf.reduce_sum(x, 1), labels))
    step = tf.train.get_or_create_global_step()
    feeds = {ids: rng.integers(0, 40, (16, 3)), labels: rng.normal(size=16)}
    return feeds, loss, optimizer().minimize(loss, step)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: tf.train.GradientDescentOptimizer(0.05),
        lambda: tf.train.AdamOptimizer(0.01),
        lambda: tf.train.AdagradOptimizer(0.1),
        lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    ],
    ids=["descent", "adam", "adagrad", "momentum"],
)
def test_a_step_in_parts_computes_what_it_computed_as_one(optimizer: Any, taken_apart: list[str]) -> None:
    def trained(contention: type[Contention]) -> tuple[list[Any], list[Any]]:
        with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default(), tf.Session() as session:
            patch.setattr(island_call, "Contention", contention)
            tf.set_random_seed(1)
            feeds, loss, train = model(optimizer)
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train], feeds)[0] for _ in range(30)]
            return losses, session.run(tf.global_variables())

    whole, parts = trained(Contention), trained(SoonContended)
    assert any(len(sizes.split()) == 3 for sizes in taken_apart), taken_apart
    for one, other in zip((*whole[0], *whole[1]), (*parts[0], *parts[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
    assert whole[0][-1] < whole[0][0]


def test_no_update_is_lost_and_several_variables_are_updated_as_one(taken_apart: list[str]) -> None:
    """Threads add their gradients; another thread looks at both variables all the while."""
    threads, steps, size = 4, 60, 64
    x = tf.placeholder(tf.float32, [size])
    a, b = (tf.get_variable(name, [size], initializer=tf.zeros_initializer(), use_resource=True) for name in "ab")
    # the gradient to both is x, whatever they are
    loss = tf.reduce_sum(tf.exp(tf.zeros_like(x)) * (a + b) * x + tf.sin(x) * 0.0)
    train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    rows = np.random.default_rng(0).integers(-3, 4, (threads, steps, size)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        ended = threading.Event()

        def work(number: int) -> None:
            if number < threads:
                for row in rows[number]:
                    session.run(train, {x: row})
                return
            while not ended.is_set():
                one, other = session.run([a, b])
                np.testing.assert_array_equal(one, other)

        watcher = threading.Thread(target=lambda: on_threads(1, lambda _: work(threads)))
        watcher.start()
        try:
            on_threads(threads, work)
        finally:
            ended.set()
            watcher.join(DEADLINE)
        one, other = session.run([a, b])
    assert [sizes for sizes in taken_apart if sizes != "whole"]
    np.testing.assert_array_equal(one, -rows.sum((0, 1)))
    np.testing.assert_array_equal(one, other)


def test_rows_that_threads_update_all_arrive(taken_apart: list[str]) -> None:
    threads, steps, rows, width = 3, 50, 30, 4
    ids, x = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, width])
    table = tf.get_variable("t", [rows, width], initializer=tf.zeros_initializer(), use_resource=True)
    other = tf.get_variable("o", [width], initializer=tf.zeros_initializer(), use_resource=True)
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * x + tf.tanh(tf.cos(x) * 0.0)) + tf.reduce_sum(other)
    train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    rng = np.random.default_rng(0)
    indices = rng.integers(0, rows, (threads, steps, 8)).astype(np.int32)
    values = rng.integers(-2, 3, (threads, steps, 8, width)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def work(number: int) -> None:
            for i, v in zip(indices[number], values[number], strict=True):
                session.run(train, {ids: i, x: v})

        on_threads(threads, work)
        expected = np.zeros((rows, width), np.float32)
        np.subtract.at(expected, indices.reshape(-1), values.reshape(-1, width))
        np.testing.assert_array_equal(session.run(table), expected)
        np.testing.assert_array_equal(session.run(other), np.full(width, -threads * steps))
    assert [sizes for sizes in taken_apart if sizes != "whole"]


def test_a_bad_index_changes_nothing(taken_apart: list[str]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        feeds, loss, train = model(lambda: tf.train.AdagradOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            session.run(train, feeds)
        assert [sizes for sizes in taken_apart if sizes != "whole"]
        before = session.run(tf.global_variables())
        (ids, rows), *others = feeds.items()
        with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
            session.run([loss, train], {ids: rows + 20, **dict(others)})
        for one, other in zip(before, session.run(tf.global_variables()), strict=True):
            np.testing.assert_array_equal(one, other)
        session.run(train, feeds)


def test_a_variable_that_is_assigned_what_was_made_of_it_is_not_taken_apart(taken_apart: list[str]) -> None:
    threads, steps = 4, 50
    v = tf.get_variable("v", [], tf.int32, tf.zeros_initializer(), use_resource=True)
    count = v.assign(tf.abs(tf.square(v) - tf.square(v) + v) + 1).op
    with tf.Session() as session:
        session.run(v.initializer)
        on_threads(threads, lambda number: [session.run(count) for _ in range(steps)] and None)
        assert session.run(v) == threads * steps
    assert set(taken_apart) == {"whole"}


def test_each_thread_computes_gradients_by_a_program_of_its_own_and_shares_the_variables(
    taken_apart: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of two clients go into updates of the first; what is fetched may be an array of any."""
    if jax.default_backend() != "cpu":
        pytest.skip("only where processors are all that there is")
    for module in (clients, executable, bound_partition):
        monkeypatch.setattr(module, "processors", lambda: 2)
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    threads, steps, size = 2, 40, 64
    both = threading.Barrier(threads)
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        if clients.own_clients.count < 2:
            pytest.skip("the first session of this process found one processor")
        x = tf.placeholder(tf.float32, [size])
        w = tf.get_variable("w", [size], initializer=tf.zeros_initializer(), use_resource=True)
        loss = tf.reduce_sum(tf.exp(tf.zeros_like(x)) * w * x + tf.sin(x) * 0.0)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
        after = tf.reduce_sum(tf.py_func(lambda value: value, [loss], tf.float32))
        session.run(w.initializer)
        rows = np.random.default_rng(0).integers(-3, 4, (threads, steps, size)).astype(np.float32)

        def work(number: int, half: slice) -> None:
            for row in rows[number, half]:
                both.wait(DEADLINE)
                session.run([after, train], {x: row})

        # another thread has the first client meanwhile: whoever comes first gets the second one, and later the first
        clients.own_clients.take(threading.get_ident())
        on_threads(threads, lambda number: work(number, slice(None, steps // 2)))
        clients.own_clients.give_back(threading.get_ident())
        on_threads(threads, lambda number: work(number, slice(steps // 2, None)))
        np.testing.assert_array_equal(session.run(w), -rows.sum((0, 1)))
        made = made_of(executable.Executable)
        used = {variant.client for one in made if one.island.has_own_clients for variant in one._variants.values()}
    assert used == {0, 1}


def made_of(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, kind)]
