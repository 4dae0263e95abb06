"""`tf.compat.v2.summary`: TensorBoard reads what graphs write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import anabranch as tf

summary = tf.compat.v2.summary


def tensors_in(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    read = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    return {
        tag: [(event.step, tf.make_ndarray(_own(event.tensor_proto))) for event in read.Tensors(tag)]
        for tag in read.Tags()["tensors"]
    }


def _own(message: Any) -> Any:
    return type(tf.make_tensor_proto(0)).FromString(message.SerializeToString())


def test_numbers_are_written_at_steps_that_are_recorded(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    more = tf.assign_add(step, 1)
    x = tf.placeholder(tf.float32, [])
    writer = summary.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.name_scope("train"):
        with summary.record_if(lambda: tf.equal(step % 2, 0)):
            written = summary.scalar("loss (mean)", x * 2, step=step)
        with summary.record_if(False):
            assert summary.scalar("never", x, step=step).dtype == tf.bool
        summary.scalar("always", x, step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(writer.init())
        answers = []
        for _ in range(4):
            answers.append(session.run([written, tf.summary.all_v2_summary_ops()], {x: 1.5})[0])
            session.run(more)
        session.run(writer.close())
    assert [bool(answer) for answer in answers] == [True, False, True, False]
    assert tensors_in(tmp_path) == {
        "train/loss (mean)": [(0, 3.0), (2, 3.0)],
        "train/always": [(at, 1.5) for at in range(4)],
    }


def test_every_plugin_shows_its_summaries(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 5 * 3, dtype=np.uint8).reshape(2, 3, 5, 3)
    summary.experimental.set_step(7)
    try:
        with summary.create_file_writer(str(tmp_path)).as_default() as writer:
            summary.histogram("h", [0.0, 1.0, 1.0, 2.0], buckets=2)
            summary.histogram("equal", [3, 3])
            summary.histogram("none", np.zeros([0], np.float32))
            summary.image("i", pixels, max_outputs=1)
            summary.audio("a", np.zeros((4, 100, 1), np.float32), 1000)
            summary.text("t", ["one", "two"], description="words")
            summary.write("w", lambda: tf.constant([1, 2]))
            raw = tf.Summary(value=[tf.Summary.Value(tag="raw", simple_value=4.0)])
            summary.experimental.write_raw_pb(raw.SerializeToString())
    finally:
        summary.experimental.set_step(None)
    with tf.Session() as session:
        session.run(writer.init())
        session.run(tf.summary.all_v2_summary_ops())
        session.run(summary.flush(writer))
        found = {tag: value for tag, [(step, value)] in tensors_in(tmp_path).items() if step == 7}
        assert found["i"][:2].tolist() == [b"5", b"3"]
        np.testing.assert_array_equal(session.run(tf.image.decode_png(found["i"][2])), pixels[0])
        assert session.run(tf.audio.decode_wav(found["a"][0, 0]).audio).shape == (100, 1)
    assert found["i"].shape == (3,)
    assert found["a"].shape == (3, 2)
    np.testing.assert_allclose(found["h"], [[0, 1, 1], [1, 2, 3]])
    np.testing.assert_allclose(found["equal"], [[2.5, 3.5, 2]])
    assert found["none"].shape == (0, 3)
    assert found["t"].tolist() == [b"one", b"two"]
    assert found["w"].tolist() == [1, 2]
    read = EventAccumulator(str(tmp_path)).Reload()
    plugins = {tag: read.SummaryMetadata(tag).plugin_data.plugin_name for tag in ("h", "i", "a", "t")}
    assert plugins == {"h": "histograms", "i": "images", "a": "audio", "t": "text"}
    assert read.SummaryMetadata("t").summary_description == "words"
    assert [event.value for event in read.Scalars("raw")] == [4.0]


def test_without_a_writer_or_a_step() -> None:
    with tf.Session() as session:
        assert not session.run(summary.scalar("x", 1.0, step=0))
    with summary.create_noop_writer().as_default(), pytest.raises(ValueError, match="No step set"):
        summary.scalar("x", 1.0)
    with pytest.raises(ValueError, match="rank"), summary.create_noop_writer().as_default():
        summary.image("x", np.zeros([3, 3]), step=0)
    with pytest.raises(ValueError, match="encoding"):
        summary.audio("x", np.zeros([1, 2, 1]), 10, step=0, encoding="mp3")
