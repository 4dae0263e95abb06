"""Replicas that train in step: several sessions of one task, each in a thread of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.train import replica_rounds
from tests.oracles.sync_replicas_cases import CASES, run

DEADLINE = 30
_targets = itertools.count()


class Replica:
    """A replica with its own graph and session. Its gradients are fed; the other optimizer's learning rate is 1.

    Args:
        target: the task.
        index: number 0 is the chief.
        aggregate, total: of the optimizer.
        sparse: whether the gradient consists of rows.
    """

    def __init__(self, target: str, index: int, aggregate: int, total: int | None, **options: Any) -> None:
        sparse = options.pop("sparse", False)
        num_tokens = options.pop("num_tokens", 0)
        averages = options.pop("averages", None)
        with tf.Graph().as_default() as graph:
            self.step = tf.train.get_or_create_global_step()
            self.w = tf.get_variable("w", [3] if sparse else [], initializer=tf.zeros_initializer())
            unused = tf.get_variable("unused", [], initializer=tf.zeros_initializer())
            if averages is not None:
                options["variable_averages"] = average = tf.train.ExponentialMovingAverage(averages)
                options["variables_to_average"] = [self.w]
            opt = options.pop("opt", None) or tf.train.GradientDescentOptimizer(1.0)
            with tf.name_scope(f"replica_{index}"):  # the local step is the replica's own, on one task too
                self.optimizer = tf.train.SyncReplicasOptimizer(opt, aggregate, total, **options)
                self.grad = tf.placeholder(tf.float32, [None] if sparse else [])
                self.rows = tf.placeholder(tf.int32, [None])
                grad = tf.IndexedSlices(self.grad, self.rows, dense_shape=[3]) if sparse else self.grad
                self.train = self.optimizer.apply_gradients([(grad, self.w), (None, unused)], self.step)
            self.average = average.average(self.w) if averages is not None else None
            self.hook = self.optimizer.make_session_run_hook(index == 0, num_tokens)
            self.hook.begin()
            init = tf.global_variables_initializer()
            local_init = tf.local_variables_initializer()
            self.tokens = self.optimizer._token_queue.size()  # type: ignore[union-attr]
        self.session = tf.Session(target, graph=graph)
        self.coord = tf.train.Coordinator()
        if index == 0:
            self.session.run(init)
        self.session.run(local_init)
        with graph.as_default():
            self.hook.after_create_session(self.session, self.coord)
        self.thread = ThreadPoolExecutor(1)

    def start(self, grad: Any, rows: Any = None) -> Future[None]:
        """Begins a step with a gradient."""
        feeds = {self.grad: grad} if rows is None else {self.grad: grad, self.rows: rows}
        return self.thread.submit(self.session.run, self.train, feeds)

    def value(self, of: Any = None) -> Any:
        return self.session.run(self.w if of is None else of)

    def wait_for_step(self, number: int) -> None:
        """Until the chief has made that many updates."""
        deadline = time.monotonic() + DEADLINE
        while self.value(self.step) < number:
            assert time.monotonic() < deadline

    @property
    def local_step(self) -> int:
        return int(self.session.run(self.optimizer._local_step))

    def close(self) -> None:
        self.coord.request_stop()
        self.coord.join(stop_grace_period_secs=DEADLINE)
        self.session.close()
        self.thread.shutdown()


@contextlib.contextmanager
def replicas(count: int, aggregate: int, total: int | None = None, **options: Any) -> Iterator[list[Replica]]:
    target = f"local://sync_replicas_{next(_targets)}"
    with contextlib.ExitStack() as stack:
        made = []
        for index in range(count):
            made.append(Replica(target, index, aggregate, total, **options))
            stack.callback(made[-1].close)
        yield made
    tf.Session.reset(target)


def ended(*steps: Future[None]) -> None:
    for step in steps:
        step.result(DEADLINE)


def together(work: Callable[[int], None]) -> None:
    """Calls it in two threads; 0 is the chief."""
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


def test_a_step_applies_the_mean_of_all_gradients() -> None:
    with replicas(3, 3) as (a, b, c):
        ended(a.start(1), b.start(2), c.start(6))
        assert (a.value(), a.value(a.step)) == (-3, 1)
        first, second = b.start(1), c.start(1)
        assert not {first, second} & wait([first, second], 0.1).done  # the step lacks a gradient
        ended(a.start(4), first, second)
        assert (c.value(), c.value(c.step), c.value(c.tokens)) == (-5, 2, 0)
        assert [replica.local_step for replica in (a, b, c)] == [2, 2, 2]


def test_the_late_gradient_of_a_backup_replica_is_dropped() -> None:
    """§4.4: the first m of n gradients count."""
    with replicas(3, aggregate=2, total=3) as (a, b, late):
        ended(a.start(1), b.start(3))
        assert (a.value(), a.value(a.step), a.value(a.tokens)) == (-2, 1, 1)
        ended(late.start(100))  # for step 0, which is over; its token lets it go on
        assert (a.value(), a.value(a.step), late.local_step) == (-2, 1, 1)
        ended(late.start(4), b.start(6))
        assert (a.value(), a.value(a.step)) == (-7, 2)


def test_tokens_that_a_straggler_does_not_take_are_taken_by_others() -> None:
    """As in TensorFlow, the queue does not tell replicas apart: who takes an old token computes a stale gradient."""
    with replicas(2, aggregate=1, total=2) as (a, late):
        for step in (1, 2):
            ended(a.start(1))
            a.wait_for_step(step)
        assert (a.value(), a.local_step) == (-2, 1)
        ended(a.start(100))  # stale, and its token is of step 2
        ended(late.start(100))  # stale as well
        assert (a.value(), a.value(a.step), a.local_step, late.local_step) == (-2, 2, 2, 2)
        ended(late.start(5))
        assert a.value() == -7


@pytest.mark.parametrize("name", CASES)
def test_replicas_do_what_tensorflows_do(name: str) -> None:
    """Variables, steps and tokens after each round, to the last bit."""
    fixture = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "sync_replicas.json"
    found = run(tf, f"local://sync_replicas_{next(_targets)}", name)
    assert found == json.loads(fixture.read_text("utf-8"))[name]


def test_fewer_replicas_than_gradients_take_several_tokens() -> None:
    with replicas(2, aggregate=4, total=2, num_tokens=2) as (a, b):
        ended(a.start(1), b.start(2))  # the first tokens
        last = a.start(3), b.start(6)
        ended(*last)
        assert (a.value(), a.value(a.step)) == (-3, 1)


def test_rows_are_averaged_over_the_gradients_that_have_them() -> None:
    """The mean of a sparse accumulator, as TensorFlow's: by row."""
    with replicas(2, 2, sparse=True) as (a, b):
        ended(a.start([1, 2], [0, 2]), b.start([4], [2]))
        np.testing.assert_allclose(a.value(), [-1, 0, -3])


def test_other_optimizers_keep_their_slots_and_averages_follow() -> None:
    opt = tf.train.MomentumOptimizer(1.0, 0.5)
    with replicas(1, 1, opt=opt, averages=0.5) as (a,):
        for _ in range(2):
            ended(a.start(2))
        assert a.value() == -5  # 2, then 2 + 0.5 · 2
        assert a.optimizer.get_slot_names() == ["momentum"]
        with a.session.graph.as_default():
            assert a.optimizer.variables() == [a.optimizer.get_slot(a.w, "momentum")]
        assert a.value(a.step) == 2
        average = np.float32(a.value(a.average))
    assert average in (-1, -3)  # after one step or after two: tokens are handed out before the average is taken


def test_misuse_is_refused() -> None:
    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 4, 2)
    w = tf.get_variable("w", [])
    step = tf.train.create_global_step()
    with pytest.raises(ValueError, match="Should be called after apply_gradients"):
        opt.get_chief_queue_runner()
    with pytest.raises(ValueError, match="should be called after apply_gradients"):
        opt.get_init_tokens_op()
    with pytest.raises(ValueError, match="apply_gradient should be called before using the hook"):
        opt.make_session_run_hook(True).begin()
    with pytest.raises(ValueError, match="Must supply at least one variable"):
        opt.apply_gradients([], step)
    with pytest.raises(ValueError, match="Global step is required to check staleness"):
        opt.apply_gradients([(tf.constant(1.0), w)])
    with pytest.raises(ValueError, match="Global step is required"):
        opt.minimize(tf.square(w))
    with pytest.raises(ValueError, match="Unknown grad type"):
        opt.apply_gradients([(3.0, w)], step)
    opt.minimize(tf.square(w), global_step=step)
    with pytest.raises(ValueError, match=r"Too few tokens to finish the first step: 1 \(given\) vs 2 \(needed\)"):
        opt.get_init_tokens_op(1)
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1, name="")
    assert opt.get_init_tokens_op(2).type == "QueueEnqueueManyV2"
    same = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
    same.minimize(tf.square(w), global_step=step)
    assert same.get_init_tokens_op(0).type == "NoOp"


def test_a_replica_does_not_begin_before_the_chief_has_initialized() -> None:
    with pytest.raises(RuntimeError, match=r"did not make model ready .* local_init.*Variables not initialized: .*w"):
        Replica(f"local://sync_replicas_{next(_targets)}", 1, 1, 2)


def test_everything_stands_on_the_device_of_its_variable() -> None:
    setter = tf.train.replica_device_setter(cluster={"ps": ["a:1", "b:1"], "worker": ["c:1"]})
    with tf.device(setter):
        step = tf.train.create_global_step()
        w = tf.get_variable("w", [])
        opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
        train = opt.minimize(tf.square(w), step)
        opt.get_init_tokens_op()
    assert (step.device, w.device, opt._local_step.device) == ("/job:ps/task:0", "/job:ps/task:1", "/job:worker")
    devices = {op.type: op.device for op in tf.get_default_graph().get_operations()}
    of_accumulators = {device for kind, device in devices.items() if "ccumulator" in kind}
    assert of_accumulators == {"/job:ps/task:1"}
    assert {device for kind, device in devices.items() if kind.startswith(("FIFO", "Queue"))} == {"/job:ps/task:0"}
    assert devices["ResourceApplyGradientDescent"] == "/job:ps/task:1"
    assert train.device == "/job:worker"


def run_forever(session: tf.Session, train: tf.Operation) -> None:
    while True:
        session.run(train)


def assert_trained(target: str) -> None:
    """Each step has halved the weight: it took gradients of the weight as of that step."""
    with tf.Session(target) as session:
        w, step = session.run([tf.get_variable("w", []), tf.train.create_global_step()])
    assert w == 0.5**step < 0.5
    tf.Session.reset(target)


def test_monitored_sessions_train_together() -> None:
    target = f"local://sync_replicas_{next(_targets)}"
    ended: list[int] = []

    def work(index: int) -> None:
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [], initializer=tf.ones_initializer())
            with tf.name_scope(f"replica_{index}"):
                opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.25), 2)
                train = opt.minimize(tf.square(w), step)
            hook = opt.make_session_run_hook(index == 0, num_tokens=0)
            with tf.train.MonitoredTrainingSession(
                target, index == 0, hooks=[hook], log_step_count_steps=None
            ) as session:
                while index > 0 or session.run(step) < 4:
                    session.run(train)
            ended.append(index)

    together(work)
    assert sorted(ended) == [
        0,
        1,
    ]  # the chief closes the queue of tokens, an end that the other's session does not raise
    assert_trained(target)


def test_supervisors_train_together() -> None:
    target = f"local://sync_replicas_{next(_targets)}"
    begun = threading.Barrier(2)

    def work(index: int) -> None:
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [], initializer=tf.ones_initializer())
            with tf.name_scope(f"replica_{index}"):
                opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.25), 2)
                train = opt.minimize(tf.square(w), step)
            local_init = opt.chief_init_op if index == 0 else opt.local_step_init_op
            ready = opt.ready_for_local_init_op
            tokens = opt.get_init_tokens_op(0)
            supervisor = tf.train.Supervisor(
                is_chief=index == 0,
                local_init_op=tf.group(tf.local_variables_initializer(), local_init),
                ready_for_local_init_op=ready,
                global_step=step,
            )
            session = supervisor.prepare_or_wait_for_session(target, start_standard_services=False)
            if index == 0:
                supervisor.start_queue_runners(session, [opt.get_chief_queue_runner()])
                session.run(tokens)
            begun.wait(DEADLINE)
            if index == 0:
                while session.run(step) < 3:
                    session.run(train)
            else:
                with pytest.raises(tf.errors.OutOfRangeError, match="'sync_token_q' is closed"):
                    run_forever(session, train)
            supervisor.stop()
            session.close()

    together(work)
    assert_trained(target)


class _Saved(tf.train.CheckpointSaverListener):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.models: list[tuple[float, ...]] = []

    def after_save(self, session: tf.Session, global_step_value: int) -> None:
        path = str(self._directory / f"model.ckpt-{global_step_value}")
        self.models.append(tuple(float(tf.train.load_variable(path, name)) for name in ("global_step", "a", "b")))


@pytest.mark.parametrize("comes", [True, False])
def test_a_checkpoint_has_no_half_of_a_round(tmp_path: Path, comes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas have handed in gradients for one of two variables, so that a round has updated that one alone."""
    monkeypatch.setattr(replica_rounds, "_HALF_A_ROUND", float(DEADLINE) if comes else 0.1)
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        variables = [tf.get_variable(name, initializer=0.0) for name in ("a", "b")]
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
        optimizer.apply_gradients([(tf.constant(-1.0), var) for var in variables], step)
        others = []
        for var in variables:
            shared = tf.ConditionalAccumulator(tf.float32, shape=(), shared_name=f"{var.name}/grad_accum")
            others.append(shared.apply_grad(tf.constant(-1.0), local_step=step))
        saved = _Saved(tmp_path)
        hooks = [
            optimizer.make_session_run_hook(is_chief=True),
            tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=[saved]),
        ]
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(), hooks) as session:
            beside = session._tf_sess()
            beside.run(others)
            until(lambda: int(beside.run(step)) == 1)
            beside.run(others[0])
            until(lambda: beside.run(variables) == [2.0, 1.0])
            # a checkpoint of the first round is due now that the second has begun
            session.run(variables)
            if comes:
                beside.run(others[1])
                until(lambda: int(beside.run(step)) == 2)
        assert saved.models == [(0.0, 0.0, 0.0), (2.0, 2.0, 2.0)][: 1 + comes]


class _BegunMeanwhile(_Saved):
    """Has a round begin, and update one of two variables, when the model is about to be saved for the last time."""

    round_begins: Callable[[], None] | None = None

    def before_save(self, session: tf.Session, global_step_value: int) -> None:
        if self.round_begins is not None:
            self.round_begins()


@pytest.mark.parametrize("comes", ["at once", "later", "never"])
def test_a_round_that_begins_while_the_last_checkpoint_is_saved_is_not_there_by_half(
    tmp_path: Path, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of its second variable comes before that is read, after it, or not at all."""
    monkeypatch.setattr(replica_rounds, "_HALF_A_ROUND", 0.1 if comes == "never" else float(DEADLINE))
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        variables = [tf.get_variable(name, initializer=0.0) for name in ("a", "b")]
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
        optimizer.apply_gradients([(tf.constant(-1.0), var) for var in variables], step)
        others = []
        for var in variables:
            shared = tf.ConditionalAccumulator(tf.float32, shape=(), shared_name=f"{var.name}/grad_accum")
            others.append(shared.apply_grad(tf.constant(-1.0), local_step=step))
        saved = _BegunMeanwhile(tmp_path)
        hooks = [
            optimizer.make_session_run_hook(is_chief=True),
            tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1_000_000, listeners=[saved]),
        ]
        rests = replica_rounds.RoundsRunner.rest
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(), hooks) as session:
            beside = session._tf_sess()
            beside.run(others)
            until(lambda: int(beside.run(step)) == 1)

            def begin() -> None:
                saved.round_begins = None
                beside.run(others[0])
                until(lambda: beside.run(variables) == [2.0, 1.0])
                if comes == "at once":
                    beside.run(others[1])
                    until(lambda: int(beside.run(step)) == 2)

            def rest(rounds: replica_rounds.RoundsRunner, within: float) -> bool:
                if comes == "later" and within == DEADLINE:
                    beside.run(others[1])
                return rests(rounds, within)

            monkeypatch.setattr(replica_rounds.RoundsRunner, "rest", rest)
            saved.round_begins = begin
        latest = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(tmp_path)))
        model = tuple(float(latest.get_tensor(name)) for name in ("global_step", "a", "b"))
        assert model == ((0.0, 0.0, 0.0) if comes == "never" else (2.0, 2.0, 2.0))
        # and no file is left of the one that was dropped
        assert {path.name.split(".")[1] for path in tmp_path.glob("model.ckpt*")} <= {"ckpt-0", "ckpt-2"}
        # none that was there for a moment had it either
        assert all(len(set(each)) == 1 for each in saved.models)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
