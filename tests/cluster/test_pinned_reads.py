"""Variables that are only sent: their buffers travel as they are, and nobody overwrites them meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.resources import ResourceHandle
from anabranch.runtime.containers import VariableState
from anabranch.runtime.messages import Frames
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.xla import executable

PS, WORKER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=1, worker=1) as tasks:
        yield tasks


def state(cluster: LocalCluster, name: str) -> VariableState:
    return cluster.tasks[PS].state.containers.variable(ResourceHandle("", name, "variable"))


def sent_by(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> list[Frames]:
    """The messages that the parameter server sends to the worker, as they leave it."""
    sent: list[Frames] = []
    task = cluster.tasks[PS]
    post = task.service._post
    assert post is not None

    def keep(address: str, frames: Frames) -> None:
        sent.append(frames)
        post(address, frames)

    monkeypatch.setattr(task.service, "_post", keep)
    return sent


def test_who_holds_what_was_sent_keeps_it_from_being_overwritten(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # compiled at once: the operations' own kernels, which run first otherwise, give a variable a new array
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    with tf.device(PS):
        v = tf.get_variable("v", initializer=np.arange(1 << 16, dtype=np.float32), use_resource=True)
    with tf.device(WORKER):
        read = v.read_value() * 2.0
    update = v.assign_add(tf.ones([1 << 16])).op
    with tf.Session(cluster.target("worker")) as session:
        session.run(tf.global_variables_initializer())
        sent = sent_by(cluster, monkeypatch)
        session.run(read)
        kept = state(cluster, "v")
        ((_, content),) = sent
        assert memoryview(content).contiguous
        address = np.frombuffer(content, np.uint8).ctypes.data
        assert address == kept.value.unsafe_buffer_pointer()  # no copy was made
        assert len(kept.pins) == 1
        session.run(update)
        np.testing.assert_array_equal(np.frombuffer(content, np.float32), np.arange(1 << 16))
        sent.clear()
        del content
        assert not kept.pins
        address = kept.value.unsafe_buffer_pointer()
        session.run(update)
        assert kept.value.unsafe_buffer_pointer() == address  # in place again
        np.testing.assert_array_equal(session.run(read), (np.arange(1 << 16) + 2) * 2)


def test_a_variable_without_a_value_is_an_error_and_leaves_nothing_pinned_or_locked(cluster: LocalCluster) -> None:
    with tf.device(PS):
        both = [tf.get_variable(name, [2], use_resource=True) for name in ("a", "b")]
    with tf.device(WORKER):
        total = both[0].read_value() + both[1].read_value()
    with tf.Session(cluster.target("worker")) as session:
        session.run(both[0].initializer)
        with pytest.raises(tf.errors.FailedPreconditionError, match="b"):
            session.run(total)
        assert not any(state(cluster, name).pins or state(cluster, name).lock.locked() for name in ("a", "b"))
        session.run(both[1].initializer)
        session.run(total)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.bool, tf.complex64, tf.string], ids=lambda dtype: dtype.name)
def test_values_arrive_as_they_are(cluster: LocalCluster, dtype: Any) -> None:
    values = [np.ones(()), np.zeros((0, 3)), np.eye(5, 7), np.eye(200)]
    values = [value.astype("S").astype(object) if dtype == tf.string else value for value in values]
    with tf.device(PS):
        kept = [
            tf.get_variable(f"v{i}", value.shape, dtype, tf.constant_initializer(value, dtype), use_resource=True)
            for i, value in enumerate(values)
        ]
    with tf.device(WORKER):
        read = [tf.identity(v.read_value()) for v in kept]
    with tf.Session(cluster.target("worker")) as session:
        session.run(tf.global_variables_initializer())
        for value, found in zip(values, session.run(read), strict=True):
            assert np.shape(found) == value.shape
            np.testing.assert_array_equal(found, value.astype(dtype.as_numpy_dtype))
