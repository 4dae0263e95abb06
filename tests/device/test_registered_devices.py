"""Types of devices that packages register, with memory and abilities of their own, and the settings of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
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
from anabranch.runtime.device_settings import settings
from anabranch.runtime.devices import XlaDevice
from anabranch.tools.device_lib import list_local_devices
from tests.device.device_steps import TASK, config, devices_of, traced


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
        # means of large tensors: NumPy and XLA add in different orders
        np.testing.assert_allclose(session.run(ping_pong(("", ""))), got, rtol=1e-4)


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
        from anabranch.runtime.local_worker import LocalTask
        register_device("FAR", lambda count: [XlaDevice("FAR", 0, jax.devices()[1])])
        x = tf.placeholder(tf.float32, [2, 2])
        with tf.device("/device:FAR:0"):
            v = tf.get_variable("v", [2, 2], initializer=tf.ones_initializer())
            numbers = tf.random_uniform([2, 2], seed=1)
            far = tf.matmul(tf.exp(x), v)
        near = tf.negative(far) + 0 * numbers
        with tf.device("/device:FAR:0"):
            update = v.assign_sub(0.5 * tf.reduce_sum(near) * tf.ones([2, 2]))
        with tf.Session("local://watched") as session:
            session.run(v.initializer)
            for _ in range(2):
                got = session.run([near, update], {x: np.zeros((2, 2))})
            (state,) = LocalTask.named("watched").containers.live_variables()
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
