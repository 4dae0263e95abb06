"""Writers of event files that are resources of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.io.event_files import summary_iterator
from anabranch.proto.summary_pb2 import Event, SummaryMetadata
from tests.oracles import summary_database_cases

raw = tf.raw_ops
DATABASE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "summary_database.json"


def test_a_database_is_what_tensorflow_writes(tmp_path: Path) -> None:
    """CreateSummaryDbWriter."""
    path = tmp_path / "summaries.sqlite"
    summary_database_cases.write(tf, path)
    recorded, found = json.loads(DATABASE.read_text()), summary_database_cases.facts(path)
    assert sorted(found) == sorted(recorded)
    for what, expected in recorded.items():
        assert json.loads(json.dumps(found[what])) == expected, what


def test_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "summaries.sqlite"
    for _ in range(2):
        summary_database_cases.write(tf, path)
    found = summary_database_cases.facts(path)
    assert found["number of Runs"] == [[2]]
    assert [row[6] for row in found["tensors"] if row[:2] == ["run", "loss"]] == [3, 4, 11]


def test_what_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no database" * 100)
    with pytest.raises(errors.UnknownError, match="cannot be written"):
        summary_database_cases.write(tf, path)


def opened(folder: Path, max_queue: int = 10) -> tuple[Any, Any]:
    writer = raw.SummaryWriter(shared_name="")
    opening = raw.CreateSummaryFileWriter(
        writer=writer, logdir=str(folder), max_queue=max_queue, flush_millis=100_000, filename_suffix=".v2"
    )
    return writer, opening


def events(folder: Path) -> list[Event]:
    (file,) = folder.iterdir()
    assert file.name.endswith(".v2")
    return list(summary_iterator(str(file)))[1:]


def test_each_kind_of_event(tmp_path: Path) -> None:
    graph_def = tf.Graph().as_graph_def().SerializeToString()
    metadata = SummaryMetadata(display_name="shown").SerializeToString()
    pixels, color = np.zeros((1, 2, 2, 1), np.float32), np.array([1], np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        writer, opening = opened(tmp_path)
        at = {"writer": writer, "step": np.int64(7)}
        writes = [
            raw.WriteScalarSummary(**at, tag="loss", value=np.int32(3)),
            raw.WriteHistogramSummary(**at, tag="weights", values=[1.0, 2.0]),
            raw.WriteImageSummary(**at, tag="picture", tensor=pixels, bad_color=color, max_images=1),
            raw.WriteAudioSummary(**at, tag="sound", tensor=np.zeros((1, 4), np.float32), sample_rate=8000.0),
            raw.WriteSummary(**at, tag="tensor", tensor=[1, 2], summary_metadata=metadata),
            raw.WriteGraphSummary(**at, tensor=graph_def),
            raw.WriteRawProtoSummary(**at, tensor=raw.ScalarSummary(tags="raw", values=0.5)),
            raw.ImportEvent(writer=writer, event=Event(step=9).SerializeToString()),
        ]
        session.run(opening)
        for write in writes:
            session.run(write)
        session.run(raw.FlushSummaryWriter(writer=writer))
        scalar, histogram, image, audio, tensor, graph, other, imported = events(tmp_path)
        session.run(raw.CloseSummaryWriter(writer=writer))
    assert {e.step for e in (scalar, histogram, image, audio, tensor, graph, other)} == {7}
    assert (scalar.summary.value[0].tag, scalar.summary.value[0].simple_value) == ("loss", 3)
    assert histogram.summary.value[0].histo.num == 2
    assert (image.summary.value[0].tag, image.summary.value[0].image.height) == ("picture/image", 2)
    assert audio.summary.value[0].audio.sample_rate == 8000
    assert tensor.summary.value[0].metadata.display_name == "shown"
    assert tf.make_ndarray(tensor.summary.value[0].tensor).tolist() == [1, 2]
    assert graph.graph_def == graph_def
    assert other.summary.value[0].simple_value == 0.5
    assert imported.step == 9


def test_a_full_queue_is_flushed_and_a_second_opening_changes_nothing(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        writer, opening = opened(tmp_path, max_queue=1)
        write = raw.WriteScalarSummary(writer=writer, step=np.int64(1), tag="x", value=1.0)
        session.run(opening)
        session.run(write)
        assert events(tmp_path) == []
        session.run(opening)
        session.run(write)
        assert len(events(tmp_path)) == 2


def test_a_writer_that_is_not_open(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        writer, opening = opened(tmp_path)
        write = raw.WriteScalarSummary(writer=writer, step=np.int64(1), tag="x", value=1.0)
        close = raw.CloseSummaryWriter(writer=writer)
        for action in (write, raw.FlushSummaryWriter(writer=writer)):
            with pytest.raises(errors.NotFoundError, match="closed, or not opened yet"):
                session.run(action)
        session.run(opening)
        session.run(write)
        session.run(close)
        session.run(close)
        assert len(events(tmp_path)) == 1
        with pytest.raises(errors.NotFoundError, match="closed"):
            session.run(write)


def test_what_is_no_message_is_refused(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        writer, opening = opened(tmp_path)
        session.run(opening)
        for refused in (
            raw.ImportEvent(writer=writer, event=b"\xff"),
            raw.WriteGraphSummary(writer=writer, step=np.int64(0), tensor=b"\xff"),
            raw.WriteRawProtoSummary(writer=writer, step=np.int64(0), tensor=b"\xff"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match="bytes that are no"):
                session.run(refused)
        with pytest.raises(errors.InvalidArgumentError, match="needs the handle of a summary writer"):
            session.run(raw.FlushSummaryWriter(writer=tf.FIFOQueue(1, tf.int32).queue_ref))
        with pytest.raises(ValueError, match="rank 0"):
            raw.WriteScalarSummary(writer=writer, step=np.int64(0), tag="x", value=[1.0])
