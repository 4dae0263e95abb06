"""Steps over several devices of one process: what is sent, what runs at the same time, what traces show."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.core import devices as core_devices
from anabranch.runtime.devices import Gpu, session_devices
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.timeline import Timeline
from anabranch.runtime.transfer_call import Route, TransferContext
from anabranch.tools.device_lib import list_local_devices
from tests.device.device_steps import TASK, config, devices_of, traced
from tests.device.shared_task import SharedTask


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


@pytest.mark.parametrize("name", ["gpu", "cpu", "XLA_GPU", "XLA_CPU"])
def test_a_type_in_other_letters_has_no_effect(name: str) -> None:
    """Programs ask for ``device_count={"gpu": 0}``, which TensorFlow ignores."""
    usual = [device.name for device in session_devices()]
    assert [device.name for device in session_devices(tf.ConfigProto(device_count={name: 0}))] == usual


def test_a_gpu_that_is_not_there_cannot_be_made_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(core_devices._types["GPU"], factory=lambda count: [Gpu(0, jax.local_devices()[0])])
    monkeypatch.setattr(core_devices, "_types", {**core_devices._types, "GPU": one})
    options = tf.GPUOptions(visible_device_list="97")
    with pytest.raises(tf.errors.InvalidArgumentError, match="names the GPU '97'; this process has 1 GPUs"):
        session_devices(tf.ConfigProto(gpu_options=options))


def test_without_gpus_a_list_of_visible_ones_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs choose one for each of their processes, ``visible_device_list=str(rank)``, also where there is none."""
    none = replace(core_devices._types["GPU"], factory=lambda count: [])
    monkeypatch.setattr(core_devices, "_types", {**core_devices._types, "GPU": none})
    options = tf.GPUOptions(visible_device_list="1")
    assert {device.device_type for device in session_devices(tf.ConfigProto(gpu_options=options))} == {"CPU"}


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
    with Rendezvous().step(StepId("s", 1)) as exchange:
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
    task = SharedTask()
    with task.session(config=config()) as session:
        session.run(tf.global_variables_initializer())
        # 1 * 2 + 4 = 6, 6 * 2 + 5 = 17, 17 * 2 + 6 = 40
        got, metadata = traced(session, result)
        assert got == 40
        assert session.run(b) == 6
        assert task.containers.rendezvous.steps == 0
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
    task = SharedTask()
    with task.session(config=config()) as session:
        got, metadata = traced(session, result, {x: 1.0})
        np.testing.assert_allclose(got, -2 * np.exp(1) if flag else 4, rtol=1e-6)
        assert any("recv_" in name for name in devices_of(metadata)) == flag
        assert task.containers.rendezvous.steps == 0


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
    task = SharedTask()
    with task.session(config=config()) as session:
        session.run(v.initializer)
        threads = [threading.Thread(target=lambda: [session.run(result) for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert session.run(v) == 100
        assert task.containers.rendezvous.steps == 0


def test_a_failing_step_leaves_the_rendezvous_empty() -> None:
    with tf.device("/cpu:0"):
        x = tf.placeholder(tf.float32, [])
        checked = tf.debugging.check_numerics(x, "x is bad")
    with tf.device("/cpu:1"):
        y = tf.negative(checked)
    task = SharedTask()
    with task.session(config=config()) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="x is bad"):
            session.run(y, {x: np.nan})
        assert session.run(y, {x: 1.0}) == -1
        assert task.containers.rendezvous.steps == 0


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
