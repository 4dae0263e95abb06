"""`tf.contrib.summary`: what is written when, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

summary = tf.contrib.summary


def events_in(folder: Path) -> list[Any]:
    return [event for file in sorted(folder.glob("*tfevents*")) for event in tf.train.summary_iterator(str(file))]


def numbers_in(folder: Path) -> list[tuple[int, str, float]]:
    return [(e.step, v.tag, v.simple_value) for e in events_in(folder) for v in e.summary.value]


def test_summaries_are_written_in_the_steps_that_are_recorded(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    more = tf.assign_add(step, 1)
    x = tf.placeholder(tf.float32, [])
    with summary.create_file_writer(str(tmp_path)).as_default() as writer:
        with summary.record_summaries_every_n_global_steps(2), tf.name_scope("train"):
            summary.scalar("loss", x * 2, family="f")
        with summary.never_record_summaries():
            summary.scalar("never", x)
        summary.scalar("nobody said that summaries are recorded", x)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            summary.initialize(tf.get_default_graph())
            for _ in range(5):
                session.run([summary.all_summary_ops()], {x: 1.5})
                session.run(more)
            session.run(writer.close())
    assert numbers_in(tmp_path) == [(at, "train/f/loss", 3.0) for at in (0, 2, 4)]
    (graph,) = [event.graph_def for event in events_in(tmp_path) if event.graph_def]
    assert "global_step" in {node.name for node in tf.GraphDef.FromString(graph).node}


def test_every_kind_of_summary(tmp_path: Path) -> None:
    with summary.create_file_writer(str(tmp_path), flush_millis=10).as_default(), summary.always_record_summaries():
        summary.histogram("h", [1.0, 2.0, 2.0], step=3)
        summary.image("i", np.zeros((2, 4, 5, 3), np.uint8), step=3)
        summary.audio("a", np.zeros((1, 100), np.float32), 1000, 1, step=3)
        summary.generic("g", tf.constant([1, 2]), step=3)
        graph = summary.graph(tf.Graph().as_graph_def(), step=4)
        with tf.Session() as session:
            session.run(summary.summary_writer_initializer_op())
            session.run([*summary.all_summary_ops(), graph])
            session.run(summary.flush())
            session.run(summary.flush())
    values = {v.tag: v for e in events_in(tmp_path) for v in e.summary.value}
    assert values["h"].histo.num == 3
    assert (values["i/image/0"].image.height, values["i/image/1"].image.width) == (4, 5)
    assert values["a/audio"].audio.sample_rate == 1000
    assert tf.make_ndarray(values["g"].tensor).tolist() == [1, 2]
    assert [event.step for event in events_in(tmp_path) if event.graph_def] == [4]


def test_without_a_writer_nothing_is_written(tmp_path: Path) -> None:
    with summary.always_record_summaries():
        nothing = [summary.scalar("x", 1.0, step=0), summary.flush(), summary.graph(b"", step=0)]
        with summary.create_file_writer(None).as_default():
            nothing.append(summary.scalar("y", 1.0, step=0))
    assert {operation.type for operation in nothing} == {"NoOp"}
    assert summary.all_summary_ops() == []


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="needs a session"):
        summary.initialize()
    with pytest.raises(TypeError, match="GraphDef"):
        summary.graph(3)
