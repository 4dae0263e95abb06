"""Hooks one by one, with a clock that the tests move."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.frontend.platform import logging as program_log
from anabranch.frontend.storage import summary
from anabranch.frontend.storage.summary_writer import FileWriter, FileWriterCache
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.io.event_files import summary_iterator
from anabranch.ops import raw
from anabranch.proto.summary_pb2 import SessionLog
from anabranch.train import basic_session_run_hooks
from anabranch.train.basic_session_run_hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    NeverTriggerTimer,
    SecondOrStepTimer,
    StopAtStepHook,
)
from anabranch.train.monitored_session import SingularMonitoredSession
from anabranch.train.recording_hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    ProfilerHook,
    StepCounterHook,
    SummarySaverHook,
)
from anabranch.train.saver import Saver
from anabranch.train.scaffold import Scaffold
from anabranch.train.training_util import (
    assert_global_step,
    get_global_step,
    get_or_create_global_step,
    get_or_create_global_step_read,
    global_step,
)


class Clock:
    """Stands in for `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(basic_session_run_hooks, "time", found)
    return found


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines logged, at INFO and above."""
    program_log.set_verbosity(program_log.INFO)
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def _closed_writers() -> Any:
    yield
    FileWriterCache.clear()


def counting() -> Any:
    """An operation that raises the global step."""
    return get_or_create_global_step().assign_add(1).op


def events_in(directory: Path) -> list[Any]:
    FileWriterCache.clear()
    return [event for path in sorted(directory.glob("events.*")) for event in summary_iterator(path)]


# ---------------------------------------------------------------------- the timer
def test_timer_by_steps() -> None:
    timer = SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    assert [timer.should_trigger_for_step(step) for step in (1, 2, 3, 4, 5)] == [False, False, False, True, True]
    assert timer.update_last_triggered_step(5)[1] == 4
    assert timer.last_triggered_step() == 5
    timer.reset()
    assert timer.should_trigger_for_step(5)
    assert not NeverTriggerTimer().should_trigger_for_step(1)


def test_timer_by_seconds(clock: Clock) -> None:
    timer = SecondOrStepTimer(every_secs=2.0)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    clock.now += 1.5
    assert not timer.should_trigger_for_step(2)
    clock.now += 0.5
    assert timer.should_trigger_for_step(2)
    assert not timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(3) == (2.0, 2)


def test_timer_needs_one_of_the_two() -> None:
    with pytest.raises(ValueError, match="Either every_secs or every_steps"):
        SecondOrStepTimer()
    with pytest.raises(ValueError, match="Can not provide both"):
        SecondOrStepTimer(every_secs=1.0, every_steps=1)


# ---------------------------------------------------------------------- stopping
@pytest.mark.parametrize(("arguments", "runs"), [({"num_steps": 2}, 2), ({"last_step": 5}, 5)])
def test_stop_at_step(arguments: dict[str, int], runs: int) -> None:
    count = counting()
    done = 0
    with SingularMonitoredSession(hooks=[StopAtStepHook(**arguments)]) as session:
        while not session.should_stop():
            session.run(count)
            done += 1
    assert done == runs


def test_a_finished_training_says_so(tmp_path: Path, messages: Any) -> None:
    for _ in range(2):
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            train = tf.assign_add(step, 1)
            hooks = [tf.train.StopAtStepHook(last_step=3)]
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, save_summaries_steps=None, save_summaries_secs=None
            ) as session:
                while not session.should_stop():
                    session.run(train)
    told = [text for text in messages() if "This training is finished" in str(text)]
    assert len(told) == 1
    assert "is at global step 3, and it was to stop at step 3" in str(told[0])


def test_stop_at_step_needs_one_number_and_a_global_step() -> None:
    with pytest.raises(ValueError, match="One of num_steps or last_step"):
        StopAtStepHook()
    with pytest.raises(ValueError, match="Only one of num_steps or last_step"):
        StopAtStepHook(1, 2)
    with pytest.raises(RuntimeError, match="Global step should be created to use StopAtStepHook"):
        StopAtStepHook(1).begin()


def test_nan_ends_the_training(messages: Any) -> None:
    x = raw.Placeholder(dtype="float32", shape=[])
    with SingularMonitoredSession(hooks=[NanTensorHook(x)]) as session:
        session.run(x, {x: 1.0})
        with pytest.raises(NanLossDuringTrainingError, match="NaN loss during training"):
            session.run(x, {x: np.nan})
    with SingularMonitoredSession(hooks=[NanTensorHook(x, fail_on_nan_loss=False)]) as session:
        session.run(x, {x: np.nan})
        assert session.should_stop()
    assert messages().count("Model diverged with loss = NaN.") == 2


# ---------------------------------------------------------------------- logging
def test_logging_every_n_runs(messages: Any, clock: Clock) -> None:
    x = Variable(np.float32(1.5), name="x")
    convert_to_tensor([1, 2], name="y")
    count = counting()
    with SingularMonitoredSession(hooks=[LoggingTensorHook({"first": x, "second": "y:0"}, every_n_iter=2)]) as session:
        for _ in range(4):
            session.run(count)
            clock.now += 1.0
    logged = [line for line in messages() if "first" in line]
    assert logged == ["first = 1.5, second = [1 2]", "first = 1.5, second = [1 2] (2.000 sec)"]


def test_logging_in_the_order_given_by_seconds_and_at_the_end(messages: Any, clock: Clock) -> None:
    convert_to_tensor(2.0, name="z")
    convert_to_tensor(1.0, name="a")
    count = counting()
    hook = LoggingTensorHook(["z", "a"], every_n_secs=10, at_end=True)
    with SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(count)
            clock.now += 6.0
    logged = [line for line in messages() if line.startswith("z = ")]
    assert logged == ["z = 2.0, a = 1.0", "z = 2.0, a = 1.0 (12.000 sec)", "z = 2.0, a = 1.0 (6.000 sec)"]


def test_logging_only_at_the_end_with_a_formatter(messages: Any) -> None:
    x = Variable(np.float32(2.0), name="x")
    count = counting()
    hook = LoggingTensorHook({"x": x}, at_end=True, formatter=lambda values: f"the end is {values['x']}")
    with SingularMonitoredSession(hooks=[hook]) as session:
        session.run(count)
        assert "the end is 2.0" not in messages()
    assert "the end is 2.0" in messages()


def test_logging_needs_to_know_when() -> None:
    with pytest.raises(ValueError, match="exactly one of every_n_iter and every_n_secs"):
        LoggingTensorHook(["x"])
    with pytest.raises(ValueError, match="exactly one of every_n_iter and every_n_secs"):
        LoggingTensorHook(["x"], every_n_iter=1, every_n_secs=1)
    with pytest.raises(ValueError, match="invalid every_n_iter=0"):
        LoggingTensorHook(["x"], every_n_iter=0)


# ---------------------------------------------------------------------- checkpoints
class Listener(CheckpointSaverListener):
    def __init__(self, stop_at: int | None = None) -> None:
        self.log: list[str] = []
        self.stop_at = stop_at

    def begin(self) -> None:
        self.log.append("begin")

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.log.append(f"before {global_step_value}")

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        self.log.append(f"after {global_step_value}")
        return global_step_value == self.stop_at or None

    def end(self, session: Any, global_step_value: int) -> None:
        self.log.append(f"end {global_step_value}")


def test_checkpoints_are_saved_at_the_beginning_by_steps_and_at_the_end(tmp_path: Path) -> None:
    count = counting()
    listener = Listener()
    hook = CheckpointSaverHook(str(tmp_path), save_steps=2, scaffold=(scaffold := Scaffold()), listeners=[listener])
    with SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as session:
        for _ in range(5):
            session.run(count)
    saves = [line for n in (0, 2, 4, 5) for line in (f"before {n}", f"after {n}")]
    assert listener.log == ["begin", *saves, "end 5"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"checkpoint", "graph.pbtxt"} <= names
    assert all(any(name.startswith(f"model.ckpt-{n}.") for name in names) for n in (0, 2, 4, 5))
    logs = [event for event in events_in(tmp_path) if event.HasField("session_log")]
    assert [event.step for event in logs] == [0, 2, 4, 5]
    assert all(event.session_log.status == SessionLog.CHECKPOINT for event in logs)


def test_checkpoints_by_time_and_a_listener_that_stops(tmp_path: Path, clock: Clock) -> None:
    count = counting()
    listener = Listener(stop_at=2)
    hook = CheckpointSaverHook(
        str(tmp_path), save_secs=10, saver=Saver(), listeners=[listener], checkpoint_basename="m"
    )
    with SingularMonitoredSession(hooks=[hook]) as session:
        while not session.should_stop():
            session.run(count)
            clock.now += 10
    assert listener.log == ["begin", "before 0", "after 0", "before 2", "after 2", "end 2"]
    assert any(path.name.startswith("m-2.") for path in tmp_path.iterdir())


def test_a_checkpoint_hook_needs_one_saver(tmp_path: Path) -> None:
    count = counting()
    with pytest.raises(ValueError, match="cannot provide both saver and scaffold"):
        CheckpointSaverHook(str(tmp_path), save_steps=1, saver=object(), scaffold=Scaffold())
    saver = Saver()
    get_default_graph().add_to_collection(GraphKeys.SAVERS, saver)
    get_default_graph().add_to_collection(GraphKeys.SAVERS, saver)
    with (
        pytest.raises(RuntimeError, match="More than one item in collection savers"),
        SingularMonitoredSession(
            hooks=[CheckpointSaverHook(str(tmp_path), save_steps=1)], scaffold=Scaffold(saver=saver)
        ) as session,
    ):
        session.run(count)


# ---------------------------------------------------------------------- summaries, speed, traces
def test_summaries_every_n_steps(tmp_path: Path) -> None:
    count = counting()
    with get_default_graph().control_dependencies([count]):
        text = summary.scalar(
            "doubled", raw.Mul(raw.Cast(get_or_create_global_step().read_value(), DstT="float32"), 2.0)
        )
    hook = SummarySaverHook(save_steps=2, output_dir=str(tmp_path), summary_op=text)
    with SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            session.run(count)
    events = events_in(tmp_path)
    values = {event.step: event.summary.value[0].simple_value for event in events if event.HasField("summary")}
    assert values == {1: 2.0, 3: 6.0, 5: 10.0}
    assert [event.step for event in events if event.session_log.status == SessionLog.START] == [1]


def test_several_summaries_by_time_to_a_given_writer(tmp_path: Path, clock: Clock) -> None:
    count = counting()
    texts = [summary.scalar("a", 1.0), summary.scalar("b", 2.0)]
    with FileWriter(tmp_path) as writer:
        hook = SummarySaverHook(save_secs=10, summary_writer=writer, summary_op=texts)
        with SingularMonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run(count)
                clock.now += 6.0
    steps = [(event.step, event.summary.value[0].tag) for event in events_in(tmp_path) if event.HasField("summary")]
    assert steps == [(1, "a"), (1, "b"), (3, "a"), (3, "b")]


def test_a_graph_without_summaries_is_no_problem(tmp_path: Path) -> None:
    count = counting()
    scaffold = Scaffold()
    hook = SummarySaverHook(save_steps=1, output_dir=str(tmp_path), scaffold=scaffold)
    with SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as session:
        session.run(count)
    assert not any(event.HasField("summary") for event in events_in(tmp_path))
    with pytest.raises(ValueError, match="Exactly one of scaffold or summary_op"):
        SummarySaverHook(save_steps=1)


def test_steps_per_second(tmp_path: Path, clock: Clock, messages: Any) -> None:
    count = counting()
    with SingularMonitoredSession(hooks=[StepCounterHook(every_n_steps=4, output_dir=str(tmp_path))]) as session:
        for _ in range(9):
            session.run(count)
            clock.now += 0.5
    assert messages().count("global_step/sec: 2") == 2
    values = [(e.step, e.summary.value[0].simple_value) for e in events_in(tmp_path) if e.HasField("summary")]
    assert values == [(5, 2.0), (9, 2.0)]
    with pytest.raises(ValueError, match="exactly one of every_n_steps and every_n_secs"):
        StepCounterHook(every_n_steps=1, every_n_secs=1)


def test_traces_open_as_json(tmp_path: Path) -> None:
    count = counting()
    hook = ProfilerHook(save_steps=2, output_dir=str(tmp_path))
    with SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(count)
    assert sorted(path.name for path in tmp_path.glob("timeline-*")) == ["timeline-2.json", "timeline-4.json"]
    trace = json.loads((tmp_path / "timeline-2.json").read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert complete
    assert all(event["dur"] > 0 and event["ts"] > 0 for event in complete)
    assert any(event.tagged_run_metadata.tag.startswith("step_") for event in events_in(tmp_path))


# ---------------------------------------------------------------------- the others
def test_waiting_for_the_global_step(clock: Clock, messages: Any) -> None:
    step = get_or_create_global_step()
    count = counting()

    class Others:
        """Raises the global step while the hook sleeps."""

        def __init__(self) -> None:
            self.session: Any = None
            self.slept = 0

        def sleep(self, seconds: float) -> None:
            self.slept += 1
            self.session.run(step.initializer if self.slept == 0 else count)

    others = Others()
    clock.sleep = others.sleep  # type: ignore[method-assign]
    with SingularMonitoredSession(hooks=[GlobalStepWaiterHook(3)]) as session:
        others.session = session.raw_session()
        assert session.run(step) == 3
        session.run(step)
    assert others.slept == 3
    assert messages().count("Waiting for global step 3 before starting training.") == 1
    with SingularMonitoredSession(hooks=[GlobalStepWaiterHook(0)]) as session:
        assert session.run(step) == 0


def test_final_operations() -> None:
    x = raw.Placeholder(dtype="float32", shape=[])
    hook = FinalOpsHook({"doubled": raw.Mul(x, 2.0)}, {x: 4.0})
    with SingularMonitoredSession(hooks=[hook]):
        assert hook.final_ops_values is None
    assert hook.final_ops_values == {"doubled": 8.0}
    with SingularMonitoredSession(hooks=[FinalOpsHook(None)]):
        pass


def test_final_operations_that_need_data_are_reported(messages: Any) -> None:
    class Session:
        def run(self, *args: Any, **kwargs: Any) -> Any:
            raise errors.OutOfRangeError(None, None, "end")

    with pytest.raises(errors.OutOfRangeError):
        FinalOpsHook(1).end(Session())
    assert any("FinalOpsHook" in line for line in messages())


def test_feeds_from_a_function() -> None:
    x = raw.Placeholder(dtype="float32", shape=[])
    values = iter([1.0, 2.0])
    with SingularMonitoredSession(hooks=[FeedFnHook(lambda: {x: next(values)})]) as session:
        assert session.run(x) == 1.0
        assert session.run(x) == 2.0


def test_the_global_step_is_found_read_and_checked() -> None:
    assert get_global_step() is None
    assert get_or_create_global_step_read() is None
    step = get_or_create_global_step()
    assert step.name == "global_step:0"
    assert step.dtype.name == "int64"
    assert not step.trainable
    assert get_default_graph().get_collection(GraphKeys.GLOBAL_STEP) == [step]
    read = get_or_create_global_step_read()
    assert get_or_create_global_step_read() is read
    with SingularMonitoredSession() as session:
        assert global_step(session, step) == 0
    for wrong, message in (
        (3, "must be a Variable or Tensor"),
        (convert_to_tensor(1.0), "does not have integer type"),
        (convert_to_tensor([1]), "is not scalar"),
    ):
        with pytest.raises(TypeError, match=message):
            assert_global_step(wrong)


def test_several_global_steps_are_none(messages: Any) -> None:
    for name in ("a", "b"):
        Variable(0, name=name, trainable=False, collections=[GraphKeys.GLOBAL_STEP])
    assert get_global_step() is None
    assert "Multiple tensors in global_step collection." in messages()


def test_a_variable_called_global_step_counts() -> None:
    step = Variable(0, name="global_step", trainable=False)
    assert get_or_create_global_step() is step
