"""Tensors that a session keeps between its steps."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors


def test_a_tensor_outlives_its_step() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        made = tf.get_session_handle(x * 2.0, name="kept")
        handles = [session.run({"h": made}, {x: value})["h"] for value in ([1, 2], [3, 4])]
        holder, value = tf.get_session_tensor(handles[0].handle, tf.float32)
        for handle, expected in zip(handles, ([2, 4], [6, 8]), strict=True):
            assert str(handle) == handle.handle
            assert handle.to_numpy_array().item() == handle.handle.encode()
            assert session.run(value + 1.0, {holder: handle.handle}).tolist() == [n + 1 for n in expected]
            assert session.run(value, {holder: handle}).tolist() == expected
            assert handle.eval().tolist() == expected
            assert session.run(x + 0.0, {x: handle}).tolist() == expected
        size = graph.version
        handles[1].eval()
        assert graph.version == size


def test_a_deleted_tensor_is_gone() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        first, second = session.run([tf.get_session_handle(tf.constant(v)) for v in ([b"a", b"bc"], [b"d"])])
        assert first.eval().tolist() == [b"a", b"bc"]
        first.delete()
        for use in (first.eval, first.delete):
            with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
                use()
        holder, deletion = tf.delete_session_tensor(second.handle)
        session.run(deletion, {holder: second.handle})
        with pytest.raises(errors.InvalidArgumentError, match="is not in the session store"):
            second.eval()


def test_another_session_does_not_know_it() -> None:
    with tf.Graph().as_default() as graph:
        made = tf.get_session_handle(tf.constant(1.0))
        holder, value = tf.get_session_tensor("", tf.float32)
        wrong = tf.get_session_tensor("", tf.int32)
        with tf.Session(graph=graph) as session:
            handle = session.run(made)
            with pytest.raises(errors.InvalidArgumentError, match="asks for int32"):
                session.run(wrong[1], {wrong[0]: handle.handle})
        with tf.Session(graph=graph) as other, pytest.raises(errors.InvalidArgumentError, match="session store"):
            other.run(value, {holder: handle.handle})


def test_a_handle_may_be_a_resource() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        handle = session.run(tf.raw_ops.GetSessionHandleV2(value=np.float32([1, 2])))
        holder, value = tf.get_session_tensor("", tf.float32)
        assert session.run(value, {holder: handle.name}).tolist() == [1, 2]


def test_only_tensors_have_handles() -> None:
    with tf.Graph().as_default(), pytest.raises(TypeError, match="must be of type Tensor"):
        tf.get_session_handle(1.0)


def test_a_tensor_is_deleted_by_the_text_of_its_handle() -> None:
    with tf.Session() as session:
        handle = session.run(tf.get_session_handle(tf.constant(50)))
        text = handle.get_raw_handle()
        holder, deletion = tf.delete_session_tensor(text)
        session.run(deletion, {holder: text})
        with pytest.raises(errors.InvalidArgumentError):
            handle.eval()
