"""Random programs give the same results however their operations are spread over devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.placement import receive_schedule
from tests.device.shared_task import SharedTask

DEVICES = 3

#: a program as data: what to do with which of the values so far, on which device
Instruction = tuple[str, int, int, int]
KINDS = ("add", "sin", "assign", "read", "text", "cond", "while", "where")


@pytest.fixture(scope="module", autouse=True)
def _small_tensors_are_received_late_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receive_schedule, "WORTH_BYTES", 0)
        yield


@st.composite
def programs(draw: Any, kinds: tuple[str, ...] = KINDS, most: int = 8) -> list[Instruction]:
    index, device = st.integers(0, 30), st.integers(0, DEVICES - 1)
    return draw(st.lists(st.tuples(st.sampled_from(kinds), index, index, device), min_size=1, max_size=most))


class Builder:
    """Builds a program; `spread` says whether its devices count."""

    def __init__(self, spread: bool) -> None:
        self.spread = spread
        self.variables = []
        for number in range(2):
            with self.on(number):
                initial = tf.constant_initializer(0.5 + number)
                self.variables.append(tf.get_variable(f"v{number}", [], initializer=initial))

    def on(self, device: int) -> Any:
        return tf.device(f"/cpu:{device}" if self.spread else None)

    def run(self, program: list[Instruction], values: list[Any], depth: int = 0) -> list[Any]:
        """Appends the results of the instructions to the values."""
        last_effect: list[Any] = []
        for kind, one, other, device in program:
            a, b = values[one % len(values)], values[other % len(values)]
            with self.on(device), tf.control_dependencies(last_effect):
                values.append(self.result(kind, a, b, device, depth))
                if kind in ("assign", "read"):
                    last_effect = [values[-1]]
        return values

    def result(self, kind: str, a: Any, b: Any, device: int, depth: int) -> Any:
        variable = self.variables[device % len(self.variables)]
        if kind == "assign":
            with self.on(device % len(self.variables)):
                return tf.identity(variable.assign(tf.cos(a) + b * 0.125))
        if kind == "read":
            with self.on(device % len(self.variables)):
                return variable.read_value()
        if kind == "text":
            return tf.strings.to_number(tf.strings.as_string(tf.cos(a), precision=4))
        if kind == "where":
            return tf.reduce_sum(tf.boolean_mask(tf.stack([a, b]), tf.stack([a > 0, b > 0])))
        if kind in ("cond", "while") and depth < 2:
            return self.cond(a, b, device, depth) if kind == "cond" else self.loop(a, b, device, depth)
        return tf.sin(a) if kind == "sin" else a + b * 0.25

    def cond(self, a: Any, b: Any, device: int, depth: int) -> Any:
        return tf.cond(a < b, self.part(a, b, device, depth), self.part(b, a, device + 1, depth))

    def part(self, a: Any, b: Any, device: int, depth: int) -> Callable[[], Any]:
        inner = [
            ("sin", 0, 1, device % DEVICES),
            ("add", 2, 1, (device + 1) % DEVICES),
            ("while", 3, 0, device % DEVICES),
        ]
        return lambda: self.run(inner, [tf.identity(a), tf.identity(b)], depth + 1)[-1]

    def loop(self, a: Any, b: Any, device: int, depth: int) -> Any:
        inner = [("add", 0, 1, device), ("cond", 2, 1, (device + 1) % DEVICES), ("sin", 3, 0, (device + 2) % DEVICES)]

        def body(i: Any, x: Any) -> Any:
            return i + 1, self.run(inner, [x, tf.identity(b)], depth + 1)[-1]

        return tf.while_loop(lambda i, x: tf.logical_and(i < 3, x < 5.0), body, (0, a))[1]


def outcome(program: list[Instruction], spread: bool, gradients: bool = False) -> Any:
    with tf.Graph().as_default():
        builder = Builder(spread)
        x = tf.placeholder(tf.float32, [])
        values = builder.run(program, [x, tf.constant(0.75)])
        fetches = [values[-1], *builder.variables] if not gradients else tf.gradients(values[-1], [x])
        task = SharedTask()
        with task.session(config=tf.ConfigProto(device_count={"CPU": DEVICES})) as session:
            session.run(tf.global_variables_initializer())
            found = [session.run(fetches, {x: start}) for start in (0.3, -0.4)]
            assert task.containers.rendezvous.steps == 0
            return found


@settings(max_examples=16)
@given(programs())
def test_devices_do_not_change_results(program: list[Instruction]) -> None:
    np.testing.assert_allclose(outcome(program, True), outcome(program, False), rtol=1e-5, atol=1e-6)


@settings(max_examples=6)
@given(programs(("add", "sin", "cond", "while"), 4).map(lambda found: [*found, ("add", 0, len(found) + 1, 1)]))
def test_devices_do_not_change_gradients(program: list[Instruction]) -> None:
    np.testing.assert_allclose(outcome(program, True, True), outcome(program, False, True), rtol=1e-4, atol=1e-6)
