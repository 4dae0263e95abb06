"""Monitored sessions: initialization, hooks, recovery, checkpoints; the session manager beneath."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.frontend.resources.made_objects import MadeObject, register_object
from anabranch.frontend.storage import summary
from anabranch.frontend.storage.summary_writer import FileWriterCache
from anabranch.frontend.variables.functions import global_variables_initializer, report_uninitialized_variables
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.io.event_files import summary_iterator
from anabranch.ops import raw
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.session import Session
from anabranch.train.basic_session_run_hooks import StopAtStepHook
from anabranch.train.checkpoint_management import latest_checkpoint
from anabranch.train.coordinator import Coordinator
from anabranch.train.monitored_session import (
    ChiefSessionCreator,
    MonitoredSession,
    MonitoredTrainingSession,
    SessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from anabranch.train.optimizers.gradient_descent import GradientDescentOptimizer
from anabranch.train.saver import Saver
from anabranch.train.scaffold import Scaffold
from anabranch.train.session_manager import SessionManager
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunHook
from anabranch.train.training_util import create_global_step, get_or_create_global_step


@pytest.fixture(autouse=True)
def _closed_writers() -> Any:
    yield
    FileWriterCache.clear()


class Recorder(SessionRunHook):
    """Notes every call."""

    def __init__(self, log: list[str] | None = None, name: str = "hook") -> None:
        self.log = [] if log is None else log
        self.name = name

    def begin(self) -> None:
        self.log.append(f"{self.name}.begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        assert isinstance(session, Session)
        assert isinstance(coord, Coordinator)
        self.log.append(f"{self.name}.after_create_session")

    def before_run(self, run_context: Any) -> Any:
        self.log.append(f"{self.name}.before_run")
        return None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.log.append(f"{self.name}.after_run")

    def end(self, session: Any) -> None:
        self.log.append(f"{self.name}.end")


def training() -> tuple[Any, Any, Any]:
    """A model with one weight; (weight, loss, update)."""
    w = Variable(np.float32(8.0), name="w")
    loss = raw.Mul(w.value(), w.value(), name="loss")
    train = GradientDescentOptimizer(0.25).minimize(loss, global_step=get_or_create_global_step())
    return w, loss, train


# ---------------------------------------------------------------------- hooks around runs
def test_hooks_are_called_in_order() -> None:
    w, _, train = training()
    log: list[str] = []
    with MonitoredSession(hooks=[Recorder(log, "a"), Recorder(log, "b")]) as session:
        assert session.run(w) == 8.0
        session.run(train)
        assert session.run(w) == 4.0
        assert not session.should_stop()
    each = ["a.before_run", "b.before_run", "a.after_run", "b.after_run"]
    begins = ["a.begin", "b.begin", "a.after_create_session", "b.after_create_session"]
    assert log == [*begins, *each * 3, "a.end", "b.end"]
    assert session.should_stop()
    with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
        session.run(w)


def test_the_graph_is_finalized_inside_and_can_grow_again_after() -> None:
    training()
    graph = get_default_graph()
    with MonitoredSession() as session:
        assert session.graph is graph
        assert graph.finalized
        with pytest.raises(RuntimeError, match="finalized"):
            convert_to_tensor(1.0)
    assert not graph.finalized
    assert session.graph is None


def test_hooks_add_fetches_feeds_and_options() -> None:
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    y = raw.Placeholder(dtype="float32", shape=[], name="y")
    total = raw.AddV2(x, y)

    class Feeder(SessionRunHook):
        def before_run(self, run_context: Any) -> SessionRunArgs:
            assert run_context.original_args.fetches is total
            assert run_context.original_args.feed_dict == {x: 1.0}
            options = RunOptions(trace_level=RunOptions.FULL_TRACE)
            return SessionRunArgs({"twice": [total, {"y": y}]}, feed_dict={y: 2.0}, options=options)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            assert run_values.results == {"twice": [3.0, {"y": 2.0}]}
            assert run_values.options.trace_level == RunOptions.FULL_TRACE
            assert run_values.run_metadata.step_stats.dev_stats

    metadata = RunMetadata()
    with SingularMonitoredSession(hooks=[Feeder()]) as session:
        assert session.run(total, feed_dict={x: 1.0}, run_metadata=metadata) == 3.0
    assert metadata.step_stats.dev_stats


class FeedsX(SessionRunHook):
    def __init__(self, x: Any) -> None:
        self.x = x

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs(None, feed_dict={self.x: 1.0})


def test_the_same_feed_twice_is_refused() -> None:
    x = raw.Placeholder(dtype="float32", shape=[], name="x")
    with SingularMonitoredSession(hooks=[FeedsX(x)]) as session:
        assert session.run(x) == 1.0
        with pytest.raises(RuntimeError, match="fed by a SessionRunHook and user"):
            session.run(x, {x: 2.0})
    with (
        pytest.raises(RuntimeError, match="fed by two hooks"),
        SingularMonitoredSession(hooks=[FeedsX(x), FeedsX(x)]) as session,
    ):
        session.run(x)


def test_a_hook_ends_the_loop() -> None:
    _, _, train = training()
    with MonitoredSession(hooks=[StopAtStepHook(last_step=3)]) as session:
        runs = 0
        while not session.should_stop():
            session.run(train)
            runs += 1
    assert runs == 3


def test_an_exception_goes_through_and_hooks_do_not_end() -> None:
    training()
    hook = Recorder()
    with pytest.raises(KeyError), MonitoredSession(hooks=[hook]):
        raise KeyError("x")
    assert "hook.end" not in hook.log


@pytest.mark.parametrize("end", [errors.OutOfRangeError(None, None, "no more data"), StopIteration()])
def test_the_end_of_the_data_is_a_regular_end(end: Exception) -> None:
    training()
    hook = Recorder()
    with MonitoredSession(hooks=[hook]):
        raise end
    assert hook.log[-1] == "hook.end"


def test_run_step_fn() -> None:
    w, _, train = training()
    hook = Recorder()

    def step_fn(step_context: Any) -> Any:
        assert step_context.session.run(w) == 8.0
        step_context.run_with_hooks(train)
        return step_context.session.run(w)

    with MonitoredSession(hooks=[hook]) as session:
        assert session.run_step_fn(step_fn) == 4.0
        assert hook.log.count("hook.before_run") == 1
        with pytest.raises(ValueError, match="step_context"):
            session.run_step_fn(lambda context, other: None)
        session.run_step_fn(lambda step_context: step_context.request_stop())
        pytest.fail("request_stop leaves the block")  # pragma: no cover
    assert hook.log[-1] == "hook.end"


# ---------------------------------------------------------------------- creation and recovery
def test_scaffold_initializes_and_calls_init_fn() -> None:
    w, _, _ = training()
    x = raw.Placeholder(dtype="float32", shape=[])
    local = Variable(x, name="local", collections=[GraphKeys.LOCAL_VARIABLES], trainable=False)
    called: list[Any] = []
    scaffold = Scaffold(
        init_fn=lambda given, session: called.append((given, session.run(w))), local_init_feed_dict={x: 5.0}
    )
    with SingularMonitoredSession(scaffold=scaffold) as session:
        assert session.run(local) == 5.0
        assert session.raw_session().run(w) == 8.0
    assert called == [(scaffold, 8.0)]


def test_scaffold_uses_collections_and_refuses_two_of_a_kind() -> None:
    w, _, _ = training()
    double = w.assign(16.0).op
    get_default_graph().add_to_collection(GraphKeys.INIT_OP, raw.NoOp(name="nothing"))
    assert Scaffold.get_or_default("init_op", GraphKeys.INIT_OP, lambda: double).name == "nothing"
    get_default_graph().add_to_collection(GraphKeys.INIT_OP, double)
    with pytest.raises(RuntimeError, match='More than one item in the collection "init_op"'):
        Scaffold().finalize()
    assert Scaffold(copy_from_scaffold=Scaffold(init_op=double)).init_op is double
    with pytest.raises(TypeError, match="not a Scaffold"):
        Scaffold(copy_from_scaffold=3)  # type: ignore[arg-type]


def test_a_model_that_is_not_ready_is_named() -> None:
    Variable(1.0, name="forgotten")
    scaffold = Scaffold(init_op=raw.NoOp(name="init_nothing"))
    with pytest.raises(RuntimeError, match=r"did not make model ready.*init_nothing.*forgotten"):
        MonitoredSession(ChiefSessionCreator(scaffold))


class Flaky(SessionRunHook):
    """Fails the runs of these numbers as a lost task would."""

    def __init__(self, failing: set[int]) -> None:
        self.failing = failing
        self.runs = 0

    def before_run(self, run_context: Any) -> None:
        self.runs += 1
        if self.runs in self.failing:
            raise errors.AbortedError(None, None, "the worker is gone")


def test_a_lost_task_means_a_new_session_from_the_latest_checkpoint(tmp_path: Path) -> None:
    w, _, train = training()
    recorder = Recorder()
    values = []
    with MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path),
        save_checkpoint_steps=2,
        save_checkpoint_secs=None,
        hooks=[recorder, Flaky({4})],
        log_step_count_steps=None,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as session:
        for _ in range(4):
            session.run(train)
            values.append(float(session.graph is not None))
        raw_value = session.run_step_fn(lambda step_context: step_context.session.run(w))
    assert recorder.log.count("hook.after_create_session") == 2
    # three steps, of which the third was lost, and that done again
    assert raw_value == 8.0 / 2**3


def test_a_singular_session_does_not_recover() -> None:
    _, _, train = training()
    with (
        pytest.raises(errors.AbortedError, match="the worker is gone"),
        SingularMonitoredSession(hooks=[Flaky({1})]) as session,
    ):
        session.run(train)


def test_creation_is_tried_again() -> None:
    training()

    class Slow(SessionCreator):
        tries = 0

        def create_session(self) -> Any:
            self.tries += 1
            if self.tries < 3:
                raise errors.UnavailableError(None, None, "not yet")
            return ChiefSessionCreator().create_session()

    creator = Slow()
    with MonitoredSession(creator):
        pass
    assert creator.tries == 3


def test_an_exception_of_a_thread_ends_the_loop_and_is_raised_after_the_hooks() -> None:
    _, _, train = training()
    started = threading.Event()
    ended: list[bool] = []

    class StartsThread(SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            def fail() -> None:
                with coord.stop_on_exception():
                    started.wait(10)
                    raise ValueError("the reader failed")

            self.thread = threading.Thread(target=fail)
            coord.register_thread(self.thread)
            self.thread.start()

        def end(self, session: Any) -> None:
            ended.append(True)

    hook = StartsThread()
    session = MonitoredSession(hooks=[hook])
    session.run(train)
    started.set()
    hook.thread.join(10)
    assert session.should_stop()
    with pytest.raises(ValueError, match="the reader failed"):
        session.close()
    assert ended == [True]


def test_a_session_that_is_closed_cannot_be_closed_again() -> None:
    def closed_inside() -> None:
        with MonitoredSession() as session:
            session.close()

    with pytest.raises(RuntimeError, match="Session is already closed"):
        closed_inside()


# ---------------------------------------------------------------------- MonitoredTrainingSession
def test_training_is_saved_and_resumed(tmp_path: Path) -> None:
    with Graph().as_default():
        w, loss, train = training()
        summary.scalar("loss_of_training", loss)
        with MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path),
            save_checkpoint_steps=2,
            save_summaries_steps=1,
            log_step_count_steps=2,
            hooks=[StopAtStepHook(last_step=5)],
        ) as session:
            while not session.should_stop():
                session.run(train)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")
    assert (tmp_path / "graph.pbtxt").exists()
    FileWriterCache.clear()
    events = [e for path in tmp_path.glob("events.out.tfevents.*") for e in summary_iterator(path)]
    tags = {value.tag for event in events for value in event.summary.value}
    assert tags == {"loss_of_training", "global_step/sec"}
    assert any(event.graph_def for event in events)
    assert any(event.meta_graph_def for event in events)
    with Graph().as_default():
        w, _, train = training()
        step = get_or_create_global_step()
        with MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[StopAtStepHook(num_steps=2)]) as session:
            assert session.run(step) == 5
            assert session.run(w) == 8.0 / 2**5
            while not session.should_stop():
                session.run(train)
            assert session.graph is not None
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-7")


def test_nothing_is_written_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, train = training()
    with MonitoredTrainingSession() as session:
        session.run(train)
    assert list(tmp_path.iterdir()) == []


def test_summaries_may_go_elsewhere_and_hooks_of_the_chief_run(tmp_path: Path) -> None:
    _, loss, train = training()
    summary.scalar("loss_of_training", loss)
    recorder = Recorder()
    with MonitoredTrainingSession(summary_dir=str(tmp_path / "logs"), chief_only_hooks=[recorder]) as session:
        session.run(train)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert recorder.log[-1] == "hook.end"


def test_a_worker_waits_for_the_chief() -> None:
    w, _, train = training()
    target = "local://worker_waits"
    recorder = Recorder()
    with (
        MonitoredTrainingSession(master=target) as chief,
        MonitoredTrainingSession(
            master=target, is_chief=False, hooks=[recorder], chief_only_hooks=[Flaky({1})]
        ) as worker,
    ):
        chief.run(train)
        assert worker.run(w) == 4.0
    assert recorder.log[-1] == "hook.end"


# ---------------------------------------------------------------------- the session manager
def test_prepare_session_initializes_or_restores(tmp_path: Path) -> None:
    v = Variable(np.float32(1.0), name="v")
    init = global_variables_initializer()
    saver = Saver([v])
    manager = SessionManager(ready_op=report_uninitialized_variables())
    with manager.prepare_session("", init_op=init, saver=saver, checkpoint_dir=str(tmp_path)) as session:
        assert session.run(v) == 1.0
        session.run(v.assign(2.0))
        path = saver.save(session, str(tmp_path / "model"))
    with manager.prepare_session("", init_op=init, saver=saver, checkpoint_dir=str(tmp_path)) as session:
        assert session.run(v) == 2.0
    with manager.prepare_session("", saver=saver, checkpoint_filename_with_path=path) as session:
        assert session.run(v) == 2.0
    session, ready = manager.recover_session("", saver=saver, checkpoint_dir=str(tmp_path))
    assert ready
    assert session.run(v) == 2.0
    session, ready = manager.recover_session("", saver=saver, checkpoint_dir=str(tmp_path / "empty"))
    assert not ready
    with pytest.raises(ValueError, match="Can not provide both"):
        manager.prepare_session("", saver=saver, checkpoint_dir="a", checkpoint_filename_with_path="b")
    with pytest.raises(RuntimeError, match="no init_op or init_fn or local_init_op was given"):
        manager.prepare_session("")
    with pytest.raises(ValueError, match="must also pass a local_init_op"):
        SessionManager(ready_for_local_init_op=init)


def test_waiting_for_a_checkpoint_and_for_a_session_ends_at_the_deadline(tmp_path: Path) -> None:
    v = Variable(np.float32(1.0), name="v")
    init = global_variables_initializer()
    manager = SessionManager(ready_op=report_uninitialized_variables(), recovery_wait_secs=0.01)
    waited = manager.prepare_session(
        "", init_op=init, saver=Saver([v]), checkpoint_dir=str(tmp_path), wait_for_checkpoint=True, max_wait_secs=0.05
    )
    assert waited.run(v) == 1.0
    with pytest.raises(
        errors.DeadlineExceededError, match=r"not ready after waiting 0.05 secs.*Variables not initialized: v"
    ):
        manager.wait_for_session("", max_wait_secs=0.05)
    manager.prepare_session("local://manager", init_op=init)
    assert manager.wait_for_session("local://manager", max_wait_secs=10).run(v) == 1.0


def test_a_ready_operation_may_also_fail_or_give_nothing() -> None:
    v = Variable(np.float32(1.0), name="v")
    init = global_variables_initializer()
    with SessionManager(ready_op=raw.NoOp()).prepare_session("", init_op=init) as session:
        assert session.run(v) == 1.0
    failing = raw.Identity(v.value())
    session, ready = SessionManager(ready_op=failing).recover_session("")
    assert not ready


def test_a_session_that_cannot_be_prepared_is_closed() -> None:
    v = Variable(np.float32(1.0), name="v")
    opened: list[Session] = []

    def fail(session: Session) -> None:
        opened.append(session)
        raise OSError("no data")

    with pytest.raises(OSError, match="no data"):
        SessionManager().prepare_session("", init_op=global_variables_initializer(), init_fn=fail)
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].run(v)


def test_worker_session_creator_gives_up() -> None:
    Variable(1.0, name="v")
    creator = WorkerSessionCreator(max_wait_secs=0)
    with pytest.raises(errors.DeadlineExceededError):
        creator.create_session()


def test_the_global_step_is_made_once() -> None:
    step = create_global_step()
    assert get_or_create_global_step() is step
    with pytest.raises(ValueError, match="already exists"):
        create_global_step()


# ---------------------------------------------------------------------- registered objects
@pytest.mark.parametrize("is_shared", [True, False])
def test_objects_of_the_collections_of_resources_are_made(is_shared: bool) -> None:
    with Graph().as_default():
        handle = raw.BoostedTreesEnsembleResourceHandleOp(shared_name="trees", name="trees")
        make = raw.BoostedTreesCreateEnsemble(handle, np.int64(7), b"")
        is_made = raw.IsBoostedTreesEnsembleInitialized(handle)
        register_object(MadeObject(handle, make, is_made), is_shared)
        scaffold = Scaffold().finalize()
        with Session() as session:
            assert session.run(scaffold.ready_op).tolist() == [b"trees:0"]
            assert session.run(scaffold.ready_for_local_init_op).tolist() == ([b"trees:0"] if is_shared else [])
            session.run(scaffold.init_op)
            assert session.run(is_made) == is_shared
            session.run(scaffold.local_init_op)
            assert session.run(is_made)
            assert not session.run(scaffold.ready_op).size
