"""States of Python's in checkpoints of objects, and the containers of `tf.contrib.checkpoint`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

checkpoints = tf.contrib.checkpoint


class Words(tf.train.experimental.PythonState):
    """Words, as one string with spaces."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)

    def serialize(self) -> str:
        return " ".join(self.words)

    def deserialize(self, string_value: bytes) -> None:
        self.words = string_value.decode().split()


def test_states_are_saved_as_they_are_and_restored_at_once(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph, tf.Session():
        words = Words("a")
        checkpoint = tf.train.Checkpoint(words=words)
        first = checkpoint.save(str(tmp_path / "words"))
        graph.finalize()
        words.words += ["b", "c"]
        second = checkpoint.save(str(tmp_path / "words"))
        checkpoint.restore(first).assert_consumed()
        assert words.words == ["a"]
        checkpoint.restore(second)
        assert words.words == ["a", "b", "c"]
    assert tf.train.load_variable(second, "words/.ATTRIBUTES/py_state") == b"a b c"

    with tf.Graph().as_default(), tf.Session() as session:
        later = tf.train.Checkpoint()
        later.restore(second)
        later.words = Words()  # is found when it is attached
        assert later.words.words == ["a", "b", "c"]
        with pytest.raises(AssertionError, match=r"\(root\)\.words"):
            tf.train.Checkpoint().restore(second).expect_partial().assert_consumed()
        tf.train.Checkpoint(words=Words("x")).restore(None).initialize_or_restore(session)


def test_arrays_of_numpy_are_made_by_a_restore(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session():
        arrays = checkpoints.NumpyState()
        arrays.x, arrays.n = np.arange(6.0).reshape(2, 3), np.int64(4)
        path = tf.train.Checkpoint(arrays=arrays).write(str(tmp_path / "arrays"))
        arrays.x[0, 0] = 100.0
        other = checkpoints.NumpyState()
        tf.train.Checkpoint(arrays=other).restore(path).assert_consumed()
        np.testing.assert_array_equal(other.x, np.arange(6.0).reshape(2, 3))
        assert other.n == 4
        with pytest.raises(NotImplementedError, match="not a NumPy array"):
            other.y = "text"
        with pytest.raises(AttributeError, match="no attribute 'z'"):
            _ = other.z


def test_containers_hold_variables_and_layers(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        dense = tf.layers.Dense(2)
        dense(tf.ones([1, 3]))
        held = checkpoints.List([dense, tf.Variable(1.0, trainable=False)])
        held.append({"inner": tf.Variable(2.0)})
        held += [checkpoints.Mapping(a=tf.Variable(3.0))]
        assert held.layers == [dense]
        assert held.trainable_variables[:2] == dense.trainable_variables
        assert [v.name for v in held.non_trainable_variables] == ["Variable:0"]
        assert len(held * 2) == len(held + held) == 8
        checkpoint = tf.train.Checkpoint(held=held)
        session.run(tf.global_variables_initializer())
        path = checkpoint.write(str(tmp_path / "held"))
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        with pytest.raises(ValueError, match="Only trackable objects"):
            held.append(3)
        with pytest.raises(ValueError, match="removes elements"):
            held *= 0
        mapping = held[3]
        with pytest.raises(ValueError, match="append-only"):
            mapping["a"] = tf.Variable(0.0)
        with pytest.raises(TypeError, match="only string keys"):
            mapping[1] = dense
        assert held != checkpoints.List(list(held))
    names = {name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for name, _ in tf.train.list_variables(path)}
    assert {"held/0/kernel", "held/0/bias", "held/1", "held/2/inner", "held/3/a"} <= names


def test_names_of_a_tracker_are_unique() -> None:
    tracker = checkpoints.UniqueNameTracker()
    objects = [tracker.track(tf.Module(), name) for name in ("x", "y", "x_1", "x", "x")]
    named = [(name, held) for name, held in tracker._checkpoint_dependencies]
    assert named == list(zip(("x", "y", "x_1", "x_2", "x_3"), objects, strict=True))
    with pytest.raises(ValueError, match="Expected a trackable value"):
        tracker.track(3, "z")


def test_split_dependencies_are_saved_and_restored_together(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        whole = tf.Variable([1.0, 2.0, 3.0])

        def fill(buffer: dict[str, Any]) -> None:
            buffer["head"], buffer["tail"] = whole.read_value()[:1], whole.read_value()[1:]

        def consume(buffer: dict[str, Any]) -> Any:
            return whole.assign(tf.concat([buffer["head"], buffer["tail"]], 0)).op

        parts = checkpoints.split_dependency(("head", "tail"), (tf.float32, tf.float32), fill, consume, whole.device)
        checkpoint = tf.train.Checkpoint(parts=parts)
        session.run(whole.initializer)
        path = checkpoint.write(str(tmp_path / "split"))
        assert tf.train.load_variable(path, "parts/tail/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [2.0, 3.0]
        session.run(whole.assign([0.0, 0.0, 0.0]))
        checkpoint.restore(path).assert_consumed().run_restore_ops()
        assert session.run(whole).tolist() == [1.0, 2.0, 3.0]
        tf.train.Checkpoint(head=parts["head"]).write(path)  # whose other half nobody takes
        with pytest.raises(AssertionError, match="must be saved together"):
            tf.train.Checkpoint(head=parts["head"]).write(path)
