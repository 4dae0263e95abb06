"""Where operations run: what users ask for, policies outside of the model, the greedy placer, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.placement.cost_model import CostModel
from anabranch.placement.policy import PlacementPolicy, PlacementRule
from tests.device.device_steps import TASK, config, devices_of, traced


# ---------------------------------------------------------------------------------------------------- refusals
def refused(fetch: Any, **options: Any) -> str:
    with tf.Session(config=config(**options)) as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(fetch)
    return str(caught.value)


def test_a_device_that_does_not_exist() -> None:
    with tf.device("/cpu:7"):
        x = tf.no_op("minus")
    message = refused(x)
    assert "Cannot assign a device for operation minus: there is no device '/device:CPU:7'" in message
    assert f"Available: {TASK}CPU:0, {TASK}CPU:1" in message
    assert "device_count" in message
    assert "allow_soft_placement=True" in message
    assert "test_placement.py" in message
    with tf.Session(config=config(allow_soft_placement=True)) as session:
        assert session.run(x) is None


def test_a_job_that_does_not_exist_is_refused_even_softly() -> None:
    with tf.device("/job:ps/task:3"):
        x = tf.no_op("minus")
    assert "there is no device '/job:ps/task:3'" in refused(x, allow_soft_placement=True)


def test_contradictory_colocation() -> None:
    with tf.device("/cpu:0"):
        a = tf.exp(tf.placeholder_with_default(1.0, []), name="a")
    with tf.device("/cpu:1"):
        b = tf.exp(a, name="b")
    b.op._set_attr("_class", [b"loc:@a"])
    message = refused(b)
    assert "'b' (Exp) asks for device '/device:CPU:1', but must share the device of 'a' (Exp, created at " in message
    assert "which asks for '/device:CPU:0': it is colocated with 'a'" in message
    assert message.count("test_placement.py") >= 2
    with tf.Session(config=config(allow_soft_placement=True)) as session:
        np.testing.assert_allclose(session.run(b), np.exp(np.exp(1)), rtol=1e-6)


def test_a_variable_is_used_where_it_lives_whatever_its_users_ask_for() -> None:
    """As in TensorFlow, where towers and optimizers depend on it."""
    with tf.device("/cpu:0"):
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
        queue = tf.FIFOQueue(2, tf.float32, shapes=[[]])
    with tf.device("/cpu:1"):
        add = v.assign_add(1.0, read_value=False)
        doubled = tf.multiply(v.read_value(), 2.0, name="doubled")
        enqueue, dequeue = queue.enqueue(doubled), queue.dequeue()
    with tf.Session(config=config()) as session:
        session.run(v.initializer)
        for _ in range(2):
            _, metadata = traced(session, add)
            assert set(devices_of(metadata).values()) == {"CPU:0"}
        _, metadata = traced(session, enqueue)
        assert devices_of(metadata)["doubled"] == "CPU:1"
        assert session.run(dequeue) == 4


def test_a_request_for_what_can_be_computed_beforehand_is_no_less_a_request() -> None:
    """TensorFlow's guide shows with constants that a device that is not there is an error."""
    with tf.device("/gpu:2"):
        a = tf.constant([1.0, 2.0], shape=[1, 2], name="a")
        product = tf.matmul(a, tf.transpose(a), name="product")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(product)
    assert "Cannot assign a device for operation product: there is no device '/device:GPU:2'" in str(caught.value)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(product) == 5


def in_a_loop(device: str) -> Any:
    """The result of a loop of which a part asks for a device, and the rest for none."""

    def body(i: Any, x: Any) -> Any:
        with tf.device(device):
            return i + 1, tf.cos(x)

    return tf.while_loop(lambda i, _: i < 3, body, (0, tf.placeholder_with_default(1.0, [])), name="loop")[1]


def in_a_branch(device: str) -> Any:
    """The like of a conditional."""

    def branch() -> Any:
        with tf.device(device):
            return tf.cos(tf.cos(tf.cos(1.0 + 0.0 * tf.placeholder_with_default(1.0, []))))

    return tf.cond(tf.placeholder_with_default(True, []), branch, lambda: 0.0, name="branch")


@pytest.mark.parametrize("build", [in_a_loop, in_a_branch])
def test_what_the_bodies_ask_for_is_asked_for_the_whole(build: Any) -> None:
    far, nowhere = build("/cpu:1"), build("/gpu:0")
    with tf.Session(config=config()) as session:
        got, metadata = traced(session, far)
        np.testing.assert_allclose(got, np.cos(np.cos(np.cos(1))), rtol=1e-6)
        assert "CPU:1" in devices_of(metadata).values()
    for cpus in (1, 2):
        missing = pytest.raises(tf.errors.InvalidArgumentError, match="there is no device '/device:GPU:0'")
        with tf.Session(config=config(cpus)) as session, missing:
            session.run(nowhere)
        with tf.Session(config=config(cpus, allow_soft_placement=True)) as session:
            assert session.run(nowhere) == got


def test_variables_made_in_bodies_keep_the_devices_of_the_scopes() -> None:
    def body(i: Any, x: Any) -> Any:
        with tf.device("/cpu:1"):
            return i + 1, x + tf.get_variable("v", [], initializer=tf.ones_initializer())

    with tf.device("/job:localhost"):
        looped = tf.while_loop(lambda i, _: i < 3, body, (0, 0.0))[1]
    cells = [tf.nn.rnn_cell.DeviceWrapper(tf.nn.rnn_cell.BasicRNNCell(2), f"/cpu:{i}") for i in range(2)]
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), tf.ones([1, 3, 2]), dtype=tf.float32)
    assert {v.op.name: v.device for v in tf.trainable_variables() if "bias" not in v.name} == {
        "v": "/job:localhost/device:CPU:1",
        "rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel": "/device:CPU:0",
        "rnn/multi_rnn_cell/cell_1/basic_rnn_cell/kernel": "/device:CPU:1",
    }
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(looped) == 3
        _, metadata = traced(session, outputs)
        assert set(devices_of(metadata).values()) == {"CPU:0", "CPU:1"}


def test_what_a_body_leaves_open_its_loop_says() -> None:
    def body(i: Any, x: Any) -> Any:
        with tf.device("/cpu:1"):
            x = tf.py_func(np.negative, [x], tf.float32)
        with tf.device("/cpu:0"):
            return i + 1, tf.reshape(x, [])

    with tf.device("/job:localhost"):
        x = tf.while_loop(lambda i, _: i < 3, body, (0, tf.placeholder_with_default(1.0, [])))[1]
    with tf.Session(config=config()) as session:
        plan = session._prepare(session._mapping([x]), []).plan
        asked = {op.type: plan.placement.of(op).asked for op in plan.step.operations}
        assert asked["PyFunc"] == "/job:localhost/device:CPU:1"
        assert asked["Merge"] == "/job:localhost"
        assert session.run(x) == -1


def test_colocation_decides_before_device_scopes() -> None:
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", [], initializer=tf.ones_initializer())
    with tf.colocate_with(v), tf.device("/cpu:0"):
        inside = tf.negative(tf.placeholder_with_default(1.0, []), name="inside")
    with tf.device("/cpu:0"), tf.colocate_with(v):
        also = tf.exp(inside)
    assert (inside.device, also.device) == ("/device:CPU:1", "/device:CPU:1")
    assert inside.op.colocation_groups() == also.op.colocation_groups() == [b"loc:@v"]
    tf.train.AdamOptimizer().minimize(tf.square(v.read_value()))
    slots = {w.op.name: (w.device, w.op.colocation_groups()) for w in tf.global_variables()}
    assert slots["v/Adam"] == slots["beta1_power"] == ("/device:CPU:1", [b"loc:@v"])


# ------------------------------------------------------------------------------------------------------ policy
def test_a_policy_overrides_the_model() -> None:
    x = tf.placeholder_with_default(1.0, [])
    with tf.device("/gpu:3"):
        a = tf.exp(x, name="tower_0/a")
    b = tf.exp(a, name="tower_1/b")
    rules = (PlacementRule("/cpu:1", name="tower_1/*"), PlacementRule("/cpu:0", scope="tower_0"))
    with tf.Session(config=config(), placement=PlacementPolicy(rules)) as session:
        _, metadata = traced(session, b)
    ran = devices_of(metadata)
    assert ran["tower_0/a"] == "CPU:0"
    assert ran["tower_1/b"] == "CPU:1"
    assert a.op.device == "/device:GPU:3"  # the model is as it was


def test_a_policy_file_serves_an_unchanged_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('clear = true\n[[rule]]\ntype = "Exp"\ndevice = "/device:CPU:1"\n', "utf-8")
    monkeypatch.setenv("ANABRANCH_PLACEMENT", str(file))
    with tf.device("/job:nowhere"):
        b = tf.exp(tf.negative(tf.placeholder_with_default(1.0, []), name="a"), name="b")
    with tf.Session(config=config()) as session:
        _, metadata = traced(session, b)
    ran = devices_of(metadata)
    assert (ran["a"], ran["b"]) == ("CPU:0", "CPU:1")


def test_the_greedy_placer_spreads_independent_work() -> None:
    branches = []
    for i in range(2):
        x = tf.placeholder_with_default(np.full((64, 64), 0.01, np.float32), [64, 64], name=f"x{i}")
        for layer in range(4):
            x = tf.matmul(x, x, name=f"branch_{i}/{layer}")
        branches.append(x)
    total = tf.add_n(branches, name="total")
    model = CostModel()
    model.set_transfer("CPU", "CPU", 1e-7, 0)
    with tf.Session(config=config(), placement=PlacementPolicy(placer="greedy", cost_model=model)) as session:
        got, metadata = traced(session, total)
        assert set(devices_of(metadata).values()) == {"CPU:0", "CPU:1"}
    with tf.Session() as session:
        np.testing.assert_array_equal(got, session.run(total))


def test_measured_costs_serve_the_greedy_placer(tmp_path: Path) -> None:
    x = tf.placeholder_with_default(np.full((128, 128), 0.01, np.float32), [128, 128])
    slow = tf.matmul(tf.matmul(x, x, name="slow"), x)
    with tf.Session(config=config()) as session:
        model = session.measure_costs(slow, steps=3)
    measured = model.seconds(slow.op, "CPU")
    assert 1e-7 < measured < 1
    assert any(key.startswith("CPU MatMul") for key in model.measured)
    assert model.transfers["CPU:CPU"].bytes_per_second == 0  # nothing is copied
    assert 0 < model.transfers["CPU:CPU"].latency < 0.1
    model.save(tmp_path / "costs.json")
    (tmp_path / "policy.toml").write_text('placer = "greedy"\ncost_model = "costs.json"\n', "utf-8")
    with tf.Session(config=config(), placement=tmp_path / "policy.toml") as session:
        assert session.run(slow).shape == (128, 128)


def two_branches(devices: tuple[str, str]) -> Any:
    """The training of a network of two branches, each with variables of its own, each on a device."""
    x = tf.placeholder_with_default(np.ones((64, 256), np.float32), [64, 256])
    branches = []
    for number, device in enumerate(devices):
        with tf.device(device), tf.variable_scope(f"branch_{number}"):
            hidden = x
            for layer in range(3):
                hidden = tf.layers.dense(hidden, 256, tf.tanh, name=f"layer_{layer}")
            branches.append(hidden)
    loss = tf.reduce_mean(tf.square(tf.concat(branches, 1) - 0.5))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss, colocate_gradients_with_ops=True)


def test_the_greedy_placer_does_as_well_as_a_person() -> None:
    """By its own costs, and within a tenth: it looks at one operation after the other."""
    seconds = {}
    for devices in (("/cpu:0", "/cpu:0"), ("/cpu:0", "/cpu:1"), ("", "")):
        with tf.Graph().as_default():
            train = two_branches(devices)
            with tf.Session(config=config(), placement=PlacementPolicy(placer="greedy")) as session:
                placement = session._prepare(session._mapping([train]), []).plan.placement
                seconds[devices] = placement.seconds
    alone, by_hand, greedy = seconds.values()
    assert by_hand < 0.8 * alone
    assert greedy < 1.1 * by_hand


def test_a_malformed_policy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"rules": []}', "utf-8")
    with pytest.raises(tf.errors.InvalidArgumentError, match="unknown key 'rules'; the keys are clear, cost_model"):
        tf.Session(placement=str(file))
    with pytest.raises(tf.errors.NotFoundError, match="cannot read the placement policy"):
        tf.Session(placement=tmp_path / "none.toml")
    with pytest.raises(TypeError, match="must be a PlacementPolicy or the path"):
        tf.Session(placement=3)
