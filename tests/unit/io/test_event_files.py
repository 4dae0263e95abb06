"""Event files: written for TensorBoard, read back, and read from TensorFlow."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import event_file_loader

from anabranch import errors
from anabranch.io import records
from anabranch.io.event_files import EventsWriter, summary_iterator
from anabranch.proto.summary_pb2 import Event, Summary

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "events.out.tfevents"


def scalar(step: int, value: float) -> Event:
    return Event(
        wall_time=1e9 + step, step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=value)])
    )


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    with EventsWriter(tmp_path / "new" / "run") as writer:
        for step in range(100):
            writer.write_event(scalar(step, step / 4))
    events = list(event_file_loader.LegacyEventFileLoader(writer.path).Load())
    assert events[0].file_version == "brain.Event:2"
    assert abs(events[0].wall_time - time.time()) < 60
    assert [(event.step, event.summary.value[0].tag, event.summary.value[0].simple_value) for event in events[1:]] == [
        (step, "loss", step / 4) for step in range(100)
    ]


def test_name_of_the_file(tmp_path: Path) -> None:
    first, second = EventsWriter(tmp_path, ".suffix"), EventsWriter(tmp_path, ".suffix")
    assert first.path != second.path
    host = re.escape(socket.gethostname())
    for writer in (first, second):
        assert re.fullmatch(rf"events\.out\.tfevents\.\d{{10}}\.{host}(\.1)?\.suffix", os.path.basename(writer.path))
        writer.close()
        writer.close()


def test_events_are_there_after_flush(tmp_path: Path) -> None:
    with EventsWriter(tmp_path) as writer:
        writer.write_event(scalar(1, 2))
        assert len(list(summary_iterator(writer.path))) == 1
        writer.flush()
        assert [event.step for event in summary_iterator(writer.path)] == [0, 1]


def test_reads_tensorflows_events() -> None:
    assert next(summary_iterator(FIXTURE)).file_version == "brain.Event:2"


def test_damage(tmp_path: Path) -> None:
    with records.TFRecordWriter(tmp_path / "f") as writer:
        writer.write(Event(step=1).SerializeToString())
        writer.write(b"\xff")
    events = summary_iterator(tmp_path / "f")
    assert next(events).step == 1
    with pytest.raises(errors.DataLossError, match="Record 1 of"):
        next(events)
    with pytest.raises(errors.NotFoundError):
        next(summary_iterator(tmp_path / "missing"))


def test_misuse(tmp_path: Path) -> None:
    writer = EventsWriter(tmp_path)
    writer.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        writer.write_event(scalar(0, 0))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.FailedPreconditionError):
        EventsWriter(tmp_path / "file")
