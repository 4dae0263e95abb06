"""Several devices in one process: names, placement, transfers, state, traces, and what goes wrong (§3.3)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.devices import Device, register_device, unregister_device
from anabranch.placement import receive_schedule
from anabranch.placement.cost_model import CostModel
from anabranch.placement.policy import PlacementPolicy, PlacementRule
from anabranch.runtime.device_settings import settings
from anabranch.runtime.devices import XlaDevice, session_devices
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.timeline import Timeline
from anabranch.runtime.transfer_call import Route, TransferContext
from anabranch.tools.device_lib import list_local_devices

TASK = "/job:localhost/replica:0/task:0/device:"


def config(cpus: int = 2, **options: Any) -> Any:
    return tf.ConfigProto(device_count={"CPU": cpus}, **options)


def traced(session: Any, fetches: Any, feed_dict: Any = None, **options: Any) -> Any:
    """A step's results, and its `RunMetadata`."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, **options)
    return session.run(fetches, feed_dict, options=options, run_metadata=metadata), metadata


def devices_of(metadata: Any) -> dict[str, str]:
    """What ran -> its device, without the task."""
    return {
        node.node_name: stats.device.removeprefix(TASK)
        for stats in metadata.step_stats.dev_stats
        for node in stats.node_stats
    }


# ---------------------------------------------------------------------------------------------- what there is
def test_a_session_has_as_many_cpus_as_it_asks_for() -> None:
    """Also when the processor was used before: virtual devices are made for each session."""
    with tf.Session() as session:
        session.run(tf.constant(1.0) + 1.0)
        assert [d.name for d in session.list_devices() if d.device_type == "CPU"] == [f"{TASK}CPU:0"]
    with tf.Session(config=config(3)) as session:
        assert [d.name for d in session.list_devices() if d.device_type == "CPU"] == [
            f"{TASK}CPU:{i}" for i in range(3)
        ]
    assert [d.name for d in list_local_devices(config(2)) if d.device_type == "CPU"] == [
        "/device:CPU:0",
        "/device:CPU:1",
    ]


def test_an_unknown_device_type_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="'QPU', which nobody registered; the types are CPU"):
        tf.Session(config=tf.ConfigProto(device_count={"QPU": 1}))


def test_a_gpu_that_is_not_there_cannot_be_made_visible() -> None:
    options = tf.GPUOptions(visible_device_list="97")
    with pytest.raises(tf.errors.InvalidArgumentError, match="names the GPU '97'; this process has"):
        session_devices(tf.ConfigProto(gpu_options=options))


# ------------------------------------------------------------------------------------------------------ steps
def two_layers(devices: tuple[str, str]) -> tuple[Any, Any, Any]:
    """A network of two layers, each on a device; its input, loss and training operation."""
    x = tf.placeholder(tf.float32, [None, 8], name="x")
    with tf.device(devices[0]):
        w = tf.get_variable("w", [8, 16], initializer=tf.random_normal_initializer(seed=1))
        hidden = tf.nn.relu(tf.matmul(x, w))
    with tf.device(devices[1]):
        v = tf.get_variable("v", [16, 1], initializer=tf.random_normal_initializer(seed=2))
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, v) - 1.0))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, colocate_gradients_with_ops=True)
    return x, loss, train


def losses(devices: tuple[str, str], count: int = 20, **options: Any) -> list[float]:
    with tf.Graph().as_default():
        x, loss, train = two_layers(devices)
        with tf.Session(config=config(**options)) as session:
            session.run(tf.global_variables_initializer())
            batch = np.random.default_rng(0).normal(size=(32, 8))
            return [float(session.run([loss, train], {x: batch})[0]) for _ in range(count)]


def test_a_model_on_two_devices_trains_as_on_one() -> None:
    one = losses(("/cpu:0", "/cpu:0"))
    two = losses(("/cpu:0", "/cpu:1"))
    np.testing.assert_allclose(two, one, rtol=1e-6)
    assert two[-1] < 0.5 * two[0]


def test_each_tensor_is_sent_to_a_device_once() -> None:
    with tf.device("/cpu:0"):
        a = tf.placeholder(tf.float32, [4], name="a")
        b = tf.exp(a, name="b")
    with tf.device("/cpu:1"):
        c = tf.add(tf.negative(b), tf.square(b), name="c")
    with tf.device("/cpu:2"):
        d = tf.multiply(b, c, name="d")
    with tf.Session(config=config(3)) as session:
        (got, doubled), metadata = traced(session, [d, c], {a: np.ones(4)}, output_partition_graphs=True)
    e = np.exp(np.float32(1))
    np.testing.assert_allclose(got, e * (e * e - e), rtol=1e-6)
    np.testing.assert_allclose(doubled, e * e - e, rtol=1e-6)
    ran = devices_of(metadata)
    assert {name: device for name, device in ran.items() if "send" in name or "recv" in name} == {
        "b/send_CPU_0_to_CPU_1": "CPU:0",
        "b/recv_CPU_0_to_CPU_1": "CPU:1",
        "b/send_CPU_0_to_CPU_2": "CPU:0",
        "b/recv_CPU_0_to_CPU_2": "CPU:2",
        "c/send_CPU_1_to_CPU_2": "CPU:1",
        "c/recv_CPU_1_to_CPU_2": "CPU:2",
    }
    for graph_def in metadata.partition_graphs:  # each is a graph of its own
        names = {node.name for node in graph_def.node}
        assert len({node.device for node in graph_def.node}) == 1
        assert all(source.lstrip("^").split(":")[0] in names for node in graph_def.node for source in node.input)
    kinds = [sorted(n.op for n in g.node if n.op.startswith("_")) for g in metadata.partition_graphs]
    assert kinds == [["_Send", "_Send"], ["_Recv", "_Send"], ["_Recv", "_Recv"]]


def test_virtual_devices_copy_nothing() -> None:
    here, there = session_devices(config())[-2:]
    value = here.put(np.arange(3.0))
    with Rendezvous().step() as exchange:
        context = TransferContext(None, exchange, Route.between(here, there, "t"))
        context.send(value)
        assert context.receive() is value


def test_texts_and_lists_cross_devices() -> None:
    with tf.device("/cpu:0"):
        text = tf.strings.join([tf.placeholder_with_default("x", []), "y"])
    with tf.device("/cpu:1"):
        length = tf.strings.length(text)
    with tf.Session(config=config()) as session:
        assert session.run([length, text]) == [2, b"xy"]


def test_control_edges_hold_across_devices() -> None:
    with tf.device("/cpu:1"):
        counter = tf.get_variable("counter", [], initializer=tf.zeros_initializer())
        increment = counter.assign_add(1.0).op
    with tf.device("/cpu:0"), tf.control_dependencies([increment]):
        done = tf.no_op("done")
    with tf.device("/cpu:1"), tf.control_dependencies([done]):
        after = counter.read_value()
    with tf.Session(config=config()) as session:
        session.run(counter.initializer)
        assert [float(session.run(after)) for _ in range(3)] == [1, 2, 3]


def test_variables_live_on_their_device_in_every_step() -> None:
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    read = tf.identity(v.read_value(), name="fetched")
    with tf.Session(config=config()) as session:
        _, metadata = traced(session, v.initializer)
        assert devices_of(metadata)["v/Assign"] == "CPU:1"
        _, metadata = traced(session, read)
        assert devices_of(metadata)["fetched"] == "CPU:0"
        assert "recv" in " ".join(devices_of(metadata))


def test_conditionals_and_loops_on_another_device() -> None:
    flag = tf.placeholder(tf.bool, [])
    with tf.device("/cpu:1"):
        n = tf.placeholder(tf.int32, [])
        doubled = tf.cond(flag, lambda: n * 2, lambda: n - 1)
    with tf.device("/cpu:0"):
        total = tf.while_loop(lambda i, s: i < doubled, lambda i, s: (i + 1, s + i), (0, 0))[1]
    with tf.Session(config=config()) as session:
        assert session.run(total, {flag: True, n: 5}) == sum(range(10))
        assert session.run(total, {flag: False, n: 5}) == sum(range(4))


def test_a_loop_over_variables_of_two_devices() -> None:
    with tf.device("/cpu:0"):
        a = tf.get_variable("a", [], initializer=tf.constant_initializer(2.0))
    with tf.device("/cpu:1"):
        b = tf.get_variable("b", [], initializer=tf.constant_initializer(3.0))

    def body(i: Any, x: Any) -> Any:
        with tf.device("/cpu:0"):
            x = x * a
        with tf.device("/cpu:1"), tf.control_dependencies([b.assign_add(1.0)]):
            return i + 1, x + b

    result = tf.while_loop(lambda i, _: i < 3, body, (0, 1.0))[1]
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        # 1 * 2 + 4 = 6, 6 * 2 + 5 = 17, 17 * 2 + 6 = 40
        got, metadata = traced(session, result)
        assert got == 40
        assert session.run(b) == 6
        assert session._master.task.containers.rendezvous.steps == 0
    ran = devices_of(metadata)
    assert {ran["while/While/body/mul"], ran["while/While/body/add_1"]} == {"CPU:0", "CPU:1"}
    sent = [
        node
        for stats in metadata.step_stats.dev_stats
        for node in stats.node_stats
        if node.node_name == "while/While/body/mul/send_CPU_0_to_CPU_1"
    ]
    assert len(sent) == 3  # once in each iteration


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_on_another_device(flag: bool) -> None:
    """What is not taken is dead, its transfers too."""
    x = tf.placeholder(tf.float32, [])

    def far() -> Any:
        with tf.device("/cpu:1"):
            y = tf.exp(x)
        with tf.device("/cpu:0"):
            return tf.negative(y)

    result = tf.cond(tf.placeholder_with_default(flag, []), far, lambda: x + 1) * 2
    with tf.Session(config=config()) as session:
        got, metadata = traced(session, result, {x: 1.0})
        np.testing.assert_allclose(got, -2 * np.exp(1) if flag else 4, rtol=1e-6)
        assert any("recv_" in name for name in devices_of(metadata)) == flag
        assert session._master.task.containers.rendezvous.steps == 0


def test_what_data_or_shapes_decide_is_as_known_on_another_device() -> None:
    """A loop that is compiled with a size that another device tells; sizes that change from step to step are not."""
    x = tf.placeholder(tf.float32, [None])
    with tf.device("/cpu:0"):
        count = tf.shape(x + 1)[0]
        chosen = tf.boolean_mask(x, x > 0)
    with tf.device("/cpu:1"):
        array = tf.TensorArray(tf.float32, count)
        array = tf.while_loop(lambda i, _: i < count, lambda i, a: (i + 1, a.write(i, x[i] * 2)), (0, array))[1]
        doubled, root = array.stack(), tf.sqrt(chosen, name="root")
    with tf.Session(config=config()) as session:
        for size in (3, 4):
            values = np.arange(size, dtype=np.float32)
            np.testing.assert_allclose(session.run(doubled, {x: values}), 2 * values)
            np.testing.assert_allclose(session.run(root, {x: values}), np.sqrt(values[1:]))
        plan = session._prepare(session._mapping([doubled]), [x]).plan
        assert any(op.type.endswith("While") for island in plan.islands for op in island.operations)
        plan = session._prepare(session._mapping([root]), [x]).plan
        assert "root" not in {op.name for island in plan.islands for op in island.operations}


@pytest.mark.parametrize(("number", "wanted"), [(0, 6.0), (1, 9.0), (2, 8.0), (5, 8.0)])
def test_the_branches_of_a_case_on_different_devices(number: int, wanted: float) -> None:
    index, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [])

    def on(device: str, function: Any) -> Any:
        def branch() -> Any:
            with tf.device(device):
                return function(x)

        return branch

    branches = [on("/cpu:0", lambda x: x * 2.0), on("/cpu:1", lambda x: x * x), on("/cpu:1", lambda x: x + 5.0)]
    with tf.device("/cpu:0"):
        y = tf.switch_case(index, branches)
    with tf.Session(config=config()) as session:
        assert session.run(y, {index: number, x: 3.0}) == wanted
        assert session.run(tf.gradients(y, x)[0], {index: 1, x: 3.0}) == 6.0


def test_gradients_of_a_loop_over_two_devices() -> None:
    def build(devices: tuple[str, str]) -> tuple[Any, Any]:
        with tf.device(devices[0]):
            a = tf.get_variable("a", [], initializer=tf.constant_initializer(0.5))
        with tf.device(devices[1]):
            b = tf.get_variable("b", [], initializer=tf.constant_initializer(0.25))

        def body(i: Any, x: Any) -> Any:
            with tf.device(devices[0]):
                x = tf.sin(x * a)
            with tf.device(devices[1]):
                return i + 1, x + tf.cos(b)

        result = tf.while_loop(lambda i, _: i < 4, body, (0, 1.0))[1]
        return result, tf.gradients(result, [a, b])

    found = []
    for devices in (("/cpu:0", "/cpu:0"), ("/cpu:0", "/cpu:1")):
        with tf.Graph().as_default(), tf.Session(config=config()) as session:
            fetches = build(devices)
            session.run(tf.global_variables_initializer())
            found.append(np.hstack(session.run(fetches)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_a_loop_and_its_gradients_on_different_devices() -> None:
    """How often the loop runs is found out on the device of the loop, and decides what is compiled for the other."""
    p, x = tf.placeholder(tf.bool, []), tf.constant(1.0)

    def body(i: Any, x: Any) -> Any:
        return i + 1, tf.cond(p, lambda: x * x * 2.0, lambda: 10.0)

    with tf.device("/cpu:0"):
        y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
    with tf.device("/cpu:1"):
        first = tf.gradients(y, x)[0]
    with tf.device("/cpu:0"):
        second = tf.gradients(first, x)[0]
    with tf.Session(config=config()) as session:
        assert session.run([first, second], {p: True}) == [1024.0, 7168.0]
        assert session.run([first, second], {p: False}) == [0.0, 0.0]


def test_islands_of_two_devices_run_on_threads_of_their_own() -> None:
    fetches = []
    for number in range(2):
        with tf.device(f"/cpu:{number}"):
            fetches.append(tf.exp(tf.placeholder_with_default(np.float32(number), []), name=f"island_{number}"))
    with tf.Session(config=config()) as session:
        got, metadata = traced(session, fetches)
    np.testing.assert_allclose(got, np.exp([0, 1]), rtol=1e-6)
    threads = {node.node_name: node.thread_id for d in metadata.step_stats.dev_stats for node in d.node_stats}
    assert threads["island_0"] != threads["island_1"]


def test_independent_islands_of_two_devices_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other to have begun."""
    meeting, run = threading.Barrier(2, timeout=60), IslandCall.__call__

    def together(island: IslandCall, values: list[Any]) -> None:
        meeting.wait()
        run(island, values)

    monkeypatch.setattr(IslandCall, "__call__", together)
    fetches = []
    for number in range(2):
        with tf.device(f"/cpu:{number}"):
            fetches.append(tf.exp(tf.placeholder_with_default(np.float32(number), [])))
    with tf.Session(config=config()) as session:
        np.testing.assert_allclose(session.run(fetches), np.exp([0, 1]), rtol=1e-6)


def test_towers_share_their_variables() -> None:
    """Data parallelism: the averaged gradient of two halves is that of the whole."""

    def loss(x: Any) -> Any:
        with tf.variable_scope("model", reuse=tf.AUTO_REUSE), tf.device("/cpu:0"):
            w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer())
        return tf.reduce_mean(tf.square(tf.matmul(x, w)))

    batch = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    gradients = []
    for tower in range(2):
        with tf.device(f"/cpu:{tower}"), tf.name_scope(f"tower_{tower}"):
            value = loss(tf.constant(batch[4 * tower : 4 * tower + 4]))
            gradients.append(tf.gradients(value, tf.trainable_variables(), colocate_gradients_with_ops=True)[0])
    averaged = tf.add_n(gradients) / 2
    whole = tf.gradients(loss(tf.constant(batch)), tf.trainable_variables())[0]
    with tf.Session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        (got, expected), metadata = traced(session, [averaged, whole])
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert {"CPU:0", "CPU:1"} == set(devices_of(metadata).values())


def test_no_device_waits_for_what_it_does_not_need() -> None:
    """What is sent is an island of its own, so that the rest of the device's work runs beside the other device's."""
    with tf.device("/cpu:0"):
        shared = tf.exp(tf.placeholder_with_default(1.0, []), name="shared")
        here = tf.sin(tf.cos(shared), name="here")
    with tf.device("/cpu:1"):
        there = tf.negative(shared, name="there")
    with tf.Session(config=config()) as session:
        plan = session._prepare(session._mapping([here, there]), ()).plan
        islands = [[op.name for op in island.operations] for island in plan.islands]
        assert islands == [["PlaceholderWithDefault", "shared"], ["Cos", "here"], ["there"]]
        np.testing.assert_allclose(session.run([here, there]), [np.sin(np.cos(np.exp(1))), -np.exp(1)], rtol=1e-5)


def test_threads_run_steps_that_use_several_devices() -> None:
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
        add = v.assign_add(tf.placeholder_with_default(1.0, []))
    with tf.device("/cpu:0"):
        result = tf.identity(add)
    with tf.Session(config=config()) as session:
        session.run(v.initializer)
        threads = [threading.Thread(target=lambda: [session.run(result) for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert session.run(v) == 100
        assert session._master.task.containers.rendezvous.steps == 0


def test_a_failing_step_leaves_the_rendezvous_empty() -> None:
    with tf.device("/cpu:0"):
        x = tf.placeholder(tf.float32, [])
        checked = tf.debugging.check_numerics(x, "x is bad")
    with tf.device("/cpu:1"):
        y = tf.negative(checked)
    with tf.Session(config=config()) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="x is bad"):
            session.run(y, {x: np.nan})
        assert session.run(y, {x: 1.0}) == -1
        assert session._master.task.containers.rendezvous.steps == 0


def test_random_numbers_do_not_depend_on_the_device() -> None:
    with tf.device("/cpu:1"):
        numbers = tf.random_normal([4], seed=5)
    with tf.Session(config=config()) as two:
        spread = [two.run(numbers).tolist() for _ in range(2)]
    with tf.Session(config=config(1, allow_soft_placement=True)) as one:
        assert [one.run(numbers).tolist() for _ in range(2)] == spread


# ----------------------------------------------------------------------------------------------------- traces
def test_a_trace_has_a_row_for_each_device_and_arrows_between_them() -> None:
    with tf.device("/cpu:0"):
        a = tf.exp(tf.placeholder(tf.float32, [4], name="a"), name="b")
    with tf.device("/cpu:1"):
        c = tf.negative(a, name="c")
    with tf.Session(config=config()) as session:
        _, metadata = traced(session, c, {"a:0": np.ones(4)})
    events = json.loads(Timeline(metadata.step_stats).generate_chrome_trace_format())["traceEvents"]
    rows = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(rows.values()) == [f"{TASK}CPU:0 Compute", f"{TASK}CPU:1 Compute"]
    row_of = {e["args"]["name"]: rows[e["pid"]] for e in events if e["ph"] == "X"}
    assert row_of["b"].endswith("CPU:0 Compute")
    assert row_of["c"].endswith("CPU:1 Compute")
    arrows = {e["name"] for e in events if e["ph"] == "s"}
    assert {"b", "b/send_CPU_0_to_CPU_1", "b/recv_CPU_0_to_CPU_1"} <= arrows


def test_placement_is_logged_once_when_asked(capfd: Any) -> None:
    with tf.device("/cpu:1"):
        x = tf.negative(tf.placeholder_with_default([1.0], [1]), name="minus")
    with tf.Session(config=config(log_device_placement=True)) as session:
        session.run(x)
        session.run([x, x.op])
    assert capfd.readouterr().err.count(f"minus: (Neg): {TASK}CPU:1\n") == 1


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
    assert "test_devices.py" in message
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
    assert message.count("test_devices.py") >= 2
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
        assigned = session._prepare(session._mapping([x]), []).plan.placement.assigned
        asked = {op.type: found.asked for op, found in assigned.items()}
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


# ------------------------------------------------------------------------------------------ devices of others
class OddDevice(XlaDevice):
    """A device that cannot take exponentials, and counts what is copied."""

    copies = 0

    def supports(self, op: Any) -> bool:
        return op.type != "Exp"

    def put(self, value: Any) -> Any:
        OddDevice.copies += 1
        return super().put(value)


@pytest.fixture
def odd() -> Iterator[None]:
    def make(count: int | None) -> list[Device]:
        return [OddDevice("ODD", index, memory_limit_bytes=1 << 20) for index in range(1 if count is None else count)]

    register_device("ODD", make)
    OddDevice.copies = 0
    yield
    unregister_device("ODD")


@pytest.mark.usefixtures("odd")
def test_a_registered_device_runs_what_it_can() -> None:
    with tf.device("/device:ODD:1"):
        x = tf.negative(tf.placeholder_with_default(1.0, []), name="minus")
        y = tf.exp(x, name="power")
    with tf.Session(config=tf.ConfigProto(device_count={"ODD": 2}, allow_soft_placement=True)) as session:
        listed = [d for d in session.list_devices() if d.device_type == "ODD"]
        assert [d.name for d in listed] == [f"{TASK}ODD:0", f"{TASK}ODD:1"]
        assert listed[0].memory_limit_bytes == 1 << 20
        _, metadata = traced(session, y)
        assert devices_of(metadata)["minus"] == "ODD:1"
        assert devices_of(metadata)["power"] == "CPU:0"
    with tf.Session(config=tf.ConfigProto(device_count={"ODD": 2})) as session:
        assert session.run(x) == -1
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="operation power: no kernel for Exp on '/device:ODD:1'"
        ):
            session.run(y)


SIZE = 1 << 18


def ping_pong(devices: tuple[str, str], rounds: int = 4) -> Any:
    """A number goes back and forth; at each round the second device combines it with one more large tensor."""
    with tf.device(devices[0]):
        x = tf.placeholder_with_default(np.linspace(0, 1, SIZE, dtype=np.float32), [SIZE])
        large = [tf.exp(x + float(i), name=f"large_{i}") for i in range(rounds)]
        number = tf.reduce_mean(x)
    for tensor in large:
        with tf.device(devices[1]):
            number = tf.reduce_mean(tensor * number)
        with tf.device(devices[0]):
            number = tf.sin(number)
    return number


class CountingDevice(XlaDevice):
    """A device that knows the bytes of the copies that it was given and that somebody still holds."""

    held = most = 0

    def put(self, value: Any) -> Any:
        copy = jax.numpy.array(value, copy=True)
        self._count(copy.nbytes)
        weakref.finalize(copy, self._count, -copy.nbytes)
        return copy

    @classmethod
    def _count(cls, change: int) -> None:
        cls.held += change
        cls.most = max(cls.most, cls.held)


@pytest.mark.parametrize(("worth", "most"), [(receive_schedule.WORTH_BYTES, 2), (1 << 40, 4)])
def test_tensors_are_received_when_they_are_needed(worth: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP5.2; and what was received is let go after its last use. Received at once, all would be held together."""
    monkeypatch.setattr(receive_schedule, "WORTH_BYTES", worth)
    monkeypatch.setattr(CountingDevice, "held", 0)
    monkeypatch.setattr(CountingDevice, "most", 0)
    register_device("COUNTING", lambda count: [CountingDevice("COUNTING", 0)])
    try:
        with tf.Session() as session:
            fetch = ping_pong(("/cpu:0", "/device:COUNTING:0"))
            plan = session._prepare(session._mapping([fetch]), []).plan
            got = session.run(fetch)
    finally:
        unregister_device("COUNTING")
    held = CountingDevice.most / (4 * SIZE)
    assert most - 1 < held < most + 0.1
    (peaks,) = [found for device, found in plan.receives.peaks.items() if "COUNTING" in device]
    assert peaks[1] / (4 * SIZE) < most + 0.1
    assert {one.name.partition("/")[0] for one in plan.receives.delayed} == (
        {"large_2", "large_3"} if most < 4 else set()
    )
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(ping_pong(("", ""))), got, rtol=1e-5)


@pytest.mark.usefixtures("odd")
def test_a_registered_device_is_given_copies_and_no_host_work() -> None:
    with tf.device("/device:ODD:0"):
        x = tf.negative(tf.exp(tf.placeholder_with_default(1.0, [])), name="minus")
        text = tf.strings.as_string(x)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        got, metadata = traced(session, text)
        assert got.startswith(b"-2.718")
        assert {name: d for name, d in devices_of(metadata).items() if "_" not in name} == {
            "Exp": "CPU:0", "minus": "ODD:0", "AsString": "CPU:0", "PlaceholderWithDefault": "ODD:0",
        }  # fmt: skip
    assert OddDevice.copies == 1
    with pytest.raises(ValueError, match="already registered"):
        register_device("ODD", lambda count: [])


def test_an_installed_package_can_announce_a_device(tmp_path: Path) -> None:
    """As an installer leaves it: a module, and metadata that name its entry point."""
    information = tmp_path / "far_devices-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: far-devices\nVersion: 1.0\n", "utf-8")
    (information / "entry_points.txt").write_text("[anabranch.devices]\nFAR = far_devices:make\n", "utf-8")
    (tmp_path / "far_devices.py").write_text(
        "from anabranch.runtime.devices import XlaDevice\n\n\n"
        "def make(count):\n    return [XlaDevice('FAR', index) for index in range(count or 1)]\n",
        "utf-8",
    )
    program = """
        import anabranch as tf
        with tf.device("/device:FAR:1"):
            x = tf.negative(tf.placeholder_with_default(3.0, []))
        with tf.Session(config=tf.ConfigProto(device_count={"FAR": 2})) as session:
            print([d.name[-5:] for d in session.list_devices()], session.run(x))
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=240,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['CPU:0', 'FAR:0', 'FAR:1'] -3.0"


def test_devices_with_memory_of_their_own() -> None:
    """Two devices of JAX: variables live on theirs, values are copied, results are the same."""
    program = """
        import jax, numpy as np
        jax.config.update("jax_num_cpu_devices", 2)
        import anabranch as tf
        from anabranch.core.devices import register_device
        from anabranch.runtime.devices import XlaDevice
        register_device("FAR", lambda count: [XlaDevice("FAR", 0, jax.devices()[1])])
        x = tf.placeholder(tf.float32, [2, 2])
        with tf.device("/device:FAR:0"):
            v = tf.get_variable("v", [2, 2], initializer=tf.ones_initializer())
            numbers = tf.random_uniform([2, 2], seed=1)
            far = tf.matmul(tf.exp(x), v)
        near = tf.negative(far) + 0 * numbers
        with tf.device("/device:FAR:0"):
            update = v.assign_sub(0.5 * tf.reduce_sum(near) * tf.ones([2, 2]))
        with tf.Session() as session:
            session.run(v.initializer)
            for _ in range(2):
                got = session.run([near, update], {x: np.zeros((2, 2))})
            (state,) = session._master.task.containers.live_variables()
            print(state.value.device.id, got[0].tolist(), float(np.asarray(state.value)[0, 0]))
            session.run(tf.global_variables_initializer())
            print(session.run(v).tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    # v: 1, then 1 + 0.5 * 8 = 5, then 5 + 0.5 * 40 = 25
    assert done.stdout.splitlines() == ["1 [[-10.0, -10.0], [-10.0, -10.0]] 25.0", "[[1.0, 1.0], [1.0, 1.0]]"]


# -------------------------------------------------------------------------------------------- process-wide settings
@pytest.fixture
def _settings() -> Iterator[None]:
    yield
    settings.reset()


@pytest.mark.usefixtures("_settings")
def test_the_process_can_set_what_sessions_do_not_say() -> None:
    (processor,) = tf.config.experimental.list_physical_devices("CPU")
    assert [d.name for d in tf.config.experimental.list_logical_devices("CPU")] == ["/device:CPU:0"]
    two = [tf.config.experimental.VirtualDeviceConfiguration()] * 2
    tf.config.experimental.set_virtual_device_configuration(processor, two)
    assert tf.config.experimental.get_virtual_device_configuration(processor) == two
    names = ["/device:CPU:0", "/device:CPU:1"]
    assert [d.name for d in tf.config.list_logical_devices("CPU")] == names
    assert [d.name for d in list_local_devices() if d.device_type == "CPU"] == names
    with tf.Session() as session:
        assert [d.name.removeprefix(TASK) for d in session.list_devices() if d.device_type == "CPU"] == [
            "CPU:0",
            "CPU:1",
        ]
    with tf.Session(config=config(1)) as session:
        assert len([d for d in session.list_devices() if d.device_type == "CPU"]) == 1


@pytest.mark.usefixtures("_settings", "odd")
def test_devices_can_be_hidden_and_soft_placement_be_the_default() -> None:
    (odd_device,) = tf.config.list_physical_devices("ODD")
    tf.config.experimental.set_memory_growth(odd_device, True)
    assert tf.config.experimental.get_memory_growth(odd_device)
    tf.config.set_visible_devices([], "ODD")
    assert not tf.config.list_logical_devices("ODD")
    with tf.device("/device:ODD:0"):
        x = tf.no_op("x")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="there is no device"):
        session.run(x)
    tf.config.set_soft_device_placement(True)
    with tf.Session() as session:
        session.run(x)
    tf.config.set_visible_devices(odd_device, "ODD")
    assert [d.name for d in tf.config.list_logical_devices("ODD")] == ["/device:ODD:0"]
    with pytest.raises(ValueError, match="cannot be divided"):
        tf.config.experimental.set_virtual_device_configuration(
            odd_device, [tf.config.experimental.VirtualDeviceConfiguration()] * 2
        )
    with pytest.raises(ValueError, match="take one from list_physical_devices"):
        tf.config.set_visible_devices("/gpu:7")
