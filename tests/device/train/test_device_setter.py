"""Device functions that spread variables over parameter servers."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.contrib import training


def devices(setter: Any, count: int = 3) -> list[str]:
    with tf.device(setter):
        variables = [tf.get_variable(f"v{i}", [10 ** (2 - i)], tf.float32) for i in range(count)]
        product = tf.negative(variables[0])
    return [v.op.device for v in variables] + [product.op.device]


def test_variables_go_round_robin_and_the_rest_to_the_worker() -> None:
    assert devices(tf.train.replica_device_setter(2)) == [
        "/job:ps/task:0",
        "/job:ps/task:1",
        "/job:ps/task:0",
        "/job:worker",
    ]


def test_scopes_further_in_fill_parts_and_may_choose_another_job() -> None:
    with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:7")):
        with tf.device("/gpu:1"):
            v, x = tf.get_variable("v", [1]), tf.no_op()
        with tf.device("/job:worker"):
            local = tf.get_variable("local", [1])
    assert v.op.device == "/job:ps/task:0/device:GPU:1"
    assert x.device == "/job:worker/task:7/device:GPU:1"
    assert local.op.device == "/job:worker"  # not a task of the parameter servers, and not told which of the workers
    with tf.device(tf.train.replica_device_setter(2, merge_devices=False)), tf.device("/gpu:1"):
        assert tf.get_variable("w", [1]).op.device == "/device:GPU:1"


def test_variables_may_have_a_device_of_their_own_without_a_job() -> None:
    """In one process: no job, hence no task."""
    setter = tf.train.replica_device_setter(2, ps_device="/cpu:0", worker_device="/cpu:1")
    assert devices(setter) == ["/device:CPU:0"] * 3 + ["/device:CPU:1"]


def test_the_cluster_says_how_many() -> None:
    cluster = tf.train.ClusterDef()
    cluster.job.add(name="ps").tasks.update({0: "a:1", 1: "b:1"})
    for form in (cluster, tf.train.ClusterSpec(cluster), {"ps": ["a:1", "b:1"]}, {"ps": {0: "a:1", 5: "b:1"}}):
        with tf.Graph().as_default():
            found = devices(tf.train.replica_device_setter(cluster=form))
        assert found == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0", "/job:worker"]
    assert tf.train.replica_device_setter(cluster={"worker": ["a:1"]}) is None
    assert tf.train.replica_device_setter() is None
    with pytest.raises(TypeError, match="`cluster` must be a dictionary"):
        tf.train.replica_device_setter(cluster=3)
    with pytest.raises(TypeError, match="ps_strategy must be callable"):
        tf.train.replica_device_setter(1, ps_strategy=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names no job"):
        tf.train.replica_device_setter(cluster={}, ps_device="/cpu:0")


def test_the_program_says_which_types_hold_state() -> None:
    with tf.device(tf.train.replica_device_setter(2, ps_ops=["Neg"])):
        v = tf.get_variable("v", [])
        x = tf.negative(1.0)
    assert (v.op.device, x.op.device) == ("/job:worker", "/job:ps/task:0")


def test_load_is_balanced() -> None:
    strategy = training.GreedyLoadBalancingStrategy(2, training.byte_size_load_fn)
    found = devices(tf.train.replica_device_setter(2, ps_strategy=strategy))
    assert found[:3] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:1"]  # of 100, 10, 1 elements
    assert [training.RandomStrategy(3)(None) for _ in range(4)] == [training.RandomStrategy(3)(None) for _ in range(4)]
    unknown = tf.placeholder(tf.float32, [None]).op
    with pytest.raises(ValueError, match="is not known"):
        training.byte_size_load_fn(unknown)


def test_a_job_of_this_process_can_be_the_parameter_server() -> None:
    """With the one job that there is, such a program runs here."""
    with tf.device(tf.train.replica_device_setter(1, "/job:localhost", "/job:localhost/task:0")):
        v = tf.get_variable("v", [], initializer=tf.ones_initializer())
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(v) == 1
