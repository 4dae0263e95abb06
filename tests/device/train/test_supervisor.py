"""The supervisor: sessions, services in threads, ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.frontend.storage import summary
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.io.event_files import summary_iterator
from anabranch.ops import raw
from anabranch.proto.summary_pb2 import SessionLog
from anabranch.proto.training_pb2 import MetaGraphDef
from anabranch.train.basic_loops import basic_train_loop
from anabranch.train.checkpoint_management import latest_checkpoint
from anabranch.train.optimizers.gradient_descent import GradientDescentOptimizer
from anabranch.train.supervisor import Supervisor
from anabranch.train.training_util import get_or_create_global_step


def training() -> tuple[Any, Any]:
    w = Variable(np.float32(8.0), name="w")
    loss = raw.Mul(w.value(), w.value())
    summary.scalar("loss", loss)
    return w, GradientDescentOptimizer(0.25).minimize(loss, global_step=get_or_create_global_step())


def events_in(directory: Path) -> list[Any]:
    return [event for path in sorted(directory.glob("events.*")) for event in summary_iterator(path)]


def test_a_managed_session_trains_saves_and_resumes(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        w, train = training()
        supervisor = Supervisor(logdir=str(tmp_path), save_summaries_secs=1000, save_model_secs=0)
        assert graph.finalized
        with supervisor.managed_session() as session:
            for _ in range(3):
                assert not supervisor.should_stop()
                session.run(train)
            supervisor.saver.save(session, supervisor.save_path, global_step=supervisor.global_step)
            supervisor.summary_computed(session, session.run(supervisor.summary_op))
    assert supervisor.should_stop()
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    assert (tmp_path / "graph.pbtxt").exists()
    events = events_in(tmp_path)
    assert [event.WhichOneof("what") for event in events[:3]] == ["file_version", "graph_def", "meta_graph_def"]
    meta_graph = MetaGraphDef.FromString(events[2].meta_graph_def)
    assert meta_graph.graph_def == graph.as_graph_def(add_shapes=True)
    assert meta_graph.saver_def == supervisor.saver.saver_def
    statuses = [event.session_log.status for event in events if event.HasField("session_log")]
    assert SessionLog.START in statuses
    assert statuses[-1] == SessionLog.STOP
    assert any(event.step == 3 and event.summary.value[0].tag == "loss" for event in events if event.summary.value)
    with Graph().as_default():
        w, train = training()
        with Supervisor(logdir=str(tmp_path), save_model_secs=0).managed_session() as session:
            assert session.run(w) == 1.0
            assert session.run(get_or_create_global_step()) == 3


def test_a_basic_loop_begins_again_where_a_lost_session_was_saved(tmp_path: Path) -> None:
    seen: list[tuple[float, str]] = []

    def step(session: Any, what: Any, note: str) -> None:
        seen.append((float(session.run(w)), note))
        session.run(what)
        if len(seen) == 2:
            supervisor.saver.save(session, supervisor.save_path, global_step=supervisor.global_step)
        if len(seen) == 3:
            raise errors.AbortedError(None, None, "the task was restarted")
        if len(seen) == 4:
            supervisor.request_stop()

    with Graph().as_default():
        w, train = training()
        supervisor = Supervisor(logdir=str(tmp_path), save_summaries_secs=0, save_model_secs=0)
        basic_train_loop(supervisor, step, args=(train,), kwargs={"note": "x"})
    assert seen == [(8.0, "x"), (4.0, "x"), (2.0, "x"), (2.0, "x")]


def test_a_basic_loop_passes_other_errors_on(tmp_path: Path) -> None:
    def step(session: Any) -> None:
        raise ValueError("not mine")

    with Graph().as_default():
        training()
        supervisor = Supervisor(logdir=None, save_summaries_secs=0, save_model_secs=0)
        with pytest.raises(ValueError, match="not mine"):
            basic_train_loop(supervisor, step)


def test_services_write_from_threads(tmp_path: Path) -> None:
    _, train = training()
    supervisor = Supervisor(logdir=str(tmp_path), save_summaries_secs=0.01, save_model_secs=0.01)
    saved = threading.Event()
    save = supervisor.saver.save

    def noted(*args: Any, **kwargs: Any) -> Any:
        path = save(*args, **kwargs)
        saved.set()
        return path

    supervisor.saver.save = noted
    with supervisor.managed_session() as session:
        session.run(train)
        assert saved.wait(30)
        counted = threading.Event()
        supervisor.loop(0.01, counted.set)
        assert counted.wait(30)
    assert latest_checkpoint(str(tmp_path)) is not None
    tags = {value.tag for event in events_in(tmp_path) for value in event.summary.value}
    assert tags == {"loss", "global_step/sec"}


@pytest.mark.parametrize(("value", "saved"), [([123], "model.ckpt-123"), ([1.5], "model.ckpt")])
def test_an_old_variable_called_global_step_counts(tmp_path: Path, value: list[Any], saved: str) -> None:
    with Graph().as_default():
        Variable(value, name="global_step")
        supervisor = Supervisor(logdir=str(tmp_path), save_summaries_secs=0)
        with supervisor.managed_session():
            pass
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / saved)


def test_without_a_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    w, train = training()
    supervisor = Supervisor()
    assert supervisor.summary_writer is None
    assert supervisor.save_path is None
    with supervisor.managed_session() as session:
        session.run(train)
        assert session.run(w) == 4.0
        with pytest.raises(RuntimeError, match="requires a summary writer"):
            supervisor.summary_computed(session, b"")
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_the_data_is_regular_and_other_exceptions_are_raised() -> None:
    training()
    supervisor = Supervisor()
    with supervisor.managed_session():
        raise errors.OutOfRangeError(None, None, "end")
    with pytest.raises(ValueError, match="wrong"), supervisor.managed_session():
        raise ValueError("wrong")


def test_an_exception_in_a_thread_is_raised_at_the_end() -> None:
    training()
    supervisor = Supervisor()
    session = supervisor.PrepareSession()
    with supervisor.StopOnException():
        raise KeyError("in a thread")
    assert supervisor.ShouldStop()
    supervisor.wait_for_stop()
    with pytest.raises(KeyError, match="in a thread"):
        supervisor.stop()
    session.close()


def test_a_worker_waits_for_the_chief_and_does_not_write(tmp_path: Path) -> None:
    w, train = training()
    graph = get_default_graph()
    chief = Supervisor(graph=graph, init_fn=lambda session: session.run(train))
    worker = Supervisor(graph=graph, is_chief=False, logdir=str(tmp_path), recovery_wait_secs=0.01)
    with pytest.raises(RuntimeError, match="Only chief supervisor can start standard services"):
        worker.start_standard_services(None)  # type: ignore[arg-type]
    with chief.managed_session("local://supervised"), worker.managed_session("local://supervised") as session:
        assert session.run(w) == 4.0
    assert list(tmp_path.iterdir()) == []


def test_arguments_replace_defaults_and_collections_are_used() -> None:
    w, _ = training()
    set_to_seven = w.assign(7.0).op
    get_default_graph().add_to_collection(GraphKeys.INIT_OP, set_to_seven)
    supervisor = Supervisor(summary_op=None, saver=None, global_step=None, ready_op=None, local_init_op=None)
    assert supervisor.init_op is set_to_seven
    assert supervisor.saver is supervisor.summary_op is supervisor.global_step is supervisor.ready_op is None
    with supervisor.managed_session() as session:
        assert session.run(w) == 7.0
