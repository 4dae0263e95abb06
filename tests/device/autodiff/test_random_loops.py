"""Random programs of nested loops, conditionals and arrays have the gradients of what they are when written out.

A program is a list of statements on two matrices. `Looped` builds it with loops and conditionals, `Plain` without.
What is written out runs kernel by kernel: it is long, and would be compiled for one run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla import executable

Statement = tuple[Any, ...]
State = tuple[Any, Any]

_STEPS: list[Callable[[Any, Any, Any], State]] = [
    lambda y, z, w: (y * w, tf.sin(z)),
    lambda y, z, w: (z, y),
    lambda y, z, w: (y + z, z * w),
    lambda y, z, w: (tf.tanh(tf.matmul(y, w)), z + w),
    lambda y, z, w: (tf.exp(-tf.square(y)), tf.matmul(z, tf.cos(z))),
    lambda y, z, w: (tf.stop_gradient(y) + z, tf.tanh(tf.matmul(tf.concat([y, z], 1), tf.concat([w, w], 0)))),
]


def program(random: np.random.Generator, depth: int) -> list[Statement]:
    """Some statements; loops and conditionals hold programs of less depth."""
    return [statement(random, depth) for _ in range(int(random.integers(1, 3)))]


def statement(random: np.random.Generator, depth: int) -> Statement:
    kind = random.choice(["step", "loop", "cond", "array", "case"]) if depth else "step"
    if kind == "step":
        return "step", int(random.integers(len(_STEPS)))
    if kind == "cond":
        return "cond", program(random, depth - 1), program(random, depth - 1)
    if kind == "case":
        return "case", [program(random, depth - 1) for _ in range(3)]
    count = (random.choice(["known", "fed", "index"]), int(random.integers(4)))
    return kind, count, program(random, depth - 1)


class Looped:
    """Programs as graphs with control flow."""

    def __init__(self, w: Any, fed: Any) -> None:
        self.w, self.fed = w, fed

    def run(self, statements: list[Statement], state: State, index: Any) -> State:
        for kind, *rest in statements:
            state = getattr(self, kind)(*rest, state, index)
        return state

    def step(self, number: int, state: State, index: Any) -> State:
        return _STEPS[number](*state, self.w)

    def cond(self, one: list[Statement], other: list[Statement], state: State, index: Any) -> Any:
        taken = tf.reduce_sum(state[0]) < 0.5
        return tf.cond(taken, lambda: self.run(one, state, index), lambda: self.run(other, state, index))

    def case(self, branches: list[list[Statement]], state: State, index: Any) -> Any:
        return tf.switch_case(index, [lambda b=b: self.run(b, state, index) for b in branches])

    def count(self, count: tuple[str, int], index: Any) -> Any:
        kind, number = count
        return number if kind == "known" else self.fed + number - 2 if kind == "fed" else index + 1

    def loop(self, count: tuple[str, int], body: list[Statement], state: State, index: Any) -> Any:
        limit = self.count(count, index)
        return tf.while_loop(lambda i, *_: i < limit, lambda i, y, z: (i + 1, *self.run(body, (y, z), i)), (0, *state))[
            1:
        ]

    def array(self, count: tuple[str, int], body: list[Statement], state: State, index: Any) -> State:
        """Rows of an array made of y go in, and what the loop writes comes out."""
        size = count[1] + 1
        source = tf.TensorArray(tf.float64, size).unstack(tf.stack([state[0] * (k + 1.0) for k in range(size)]))

        def one(i: Any, y: Any, z: Any, rows: Any) -> Any:
            y, z = self.run(body, (y + source.read(size - 1 - i), z), i)
            return i + 1, y, z, rows.write(i, y * z)

        rows = tf.TensorArray(tf.float64, size)
        _, y, _, rows = tf.while_loop(lambda i, *_: i < size, one, (0, *state, rows))
        return y, tf.tanh(tf.reduce_sum(rows.stack(), 0))


class Plain(Looped):
    """The same programs written out."""

    def __init__(self, w: Any, fed: int) -> None:
        super().__init__(w, fed)

    def cond(self, one: list[Statement], other: list[Statement], state: State, index: Any) -> Any:
        taken = tf.fill([2, 2], tf.reduce_sum(state[0]) < 0.5)
        both = zip(self.run(one, state, index), self.run(other, state, index), strict=True)
        return tuple(tf.where(taken, a, b) for a, b in both)

    def case(self, branches: list[list[Statement]], state: State, index: Any) -> Any:
        return self.run(branches[min(index, 2)], state, index)

    def loop(self, count: tuple[str, int], body: list[Statement], state: State, index: Any) -> State:
        for i in range(self.count(count, index)):
            state = self.run(body, state, i)
        return state

    def array(self, count: tuple[str, int], body: list[Statement], state: State, index: Any) -> State:
        size = count[1] + 1
        source = [state[0] * (k + 1.0) for k in range(size)]
        rows = []
        for i in range(size):
            y, z = self.run(body, (state[0] + source[size - 1 - i], state[1]), i)
            rows.append(y * z)
            state = (y, z)
        return state[0], tf.tanh(tf.add_n(rows))


def results(kind: type[Looped], statements: list[Statement], xs: list[Any], fed: Any) -> list[Any]:
    """The value, and the gradients of two orders, with zeros where nothing depends on an x."""
    y, z = kind(xs[2], fed).run(statements, (xs[0], xs[1]), 1 if kind is Plain else tf.constant(1))
    values = [tf.reduce_sum(y * tf.cos(z))]
    for _ in range(2):
        grads = tf.gradients(values[-1], xs)
        values += [tf.zeros_like(x) if g is None else g for g, x in zip(grads, xs, strict=True)]
        values.append(tf.add_n([tf.reduce_sum(tf.sin(v)) for v in values[-3:]]))
    return values


@pytest.mark.parametrize("seed", [1, 2, 5, 8, 11])
def test_gradients_of_two_orders(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    statements = [*program(random, 2), ("loop", (["known", "fed"][seed % 2], 2), program(random, 2 - seed % 2))]
    with tf.Graph().as_default(), tf.Session() as session:
        xs = [tf.placeholder(tf.float64, [2, 2]) for _ in range(3)]
        fed = tf.placeholder(tf.int32, [])
        feeds = {x: random.normal(size=(2, 2)) / 2 for x in xs} | {fed: 2}
        found = session.run(results(Looped, statements, xs, fed), feeds)
        monkeypatch.setattr(executable, "EAGER_VARIANTS", 0)
        wanted = session.run(results(Plain, statements, xs, 2), feeds)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * max(1.0, np.abs(b).max()), err_msg=repr(statements))
