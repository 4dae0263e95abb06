"""Gradients of random programs with control flow, against numeric ones, up to the third order.

    python -m tests.fuzz.gradients --seconds 3600 --seed 1

Each program (`tests.fuzz.gradient_programs`) is a function of a placeholder, a variable and a second placeholder. Along
a random direction `v`, the derivative of its result `y` must be `<g, v>` where `g` is what `tf.gradients` gives; then
that of `s = <g, w>` for a random `w`, which is differentiated in turn, and so on. Where `tf.gradients` gives None, that
counts as zero, so that a dependence that was overlooked shows. What a program stops gradients at is fed with one value
while the others move, and so counts as a constant there as well.

The package is executed as TensorFlow programs are: as text, which is what is printed of a program that fails, made as
small as it can be.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import anabranch as tf
from tests.fuzz.gradient_programs import Path, Writer, smaller, written

Array = np.ndarray[Any, Any]

PREAMBLE = """
import numpy as np

held, stops = [], []  # tensors that count as constants; those of them that tf.gradients is told of


def frozen(value):
    held.append(tf.stop_gradient(value))
    return held[-1]


def stopped(value):
    held.append(tf.identity(value))
    stops.append(held[-1])
    return held[-1]


@tf.custom_gradient
def sine(value):
    return tf.sin(value), lambda dy: dy * tf.cos(value)


@tf.custom_gradient
def host_sine(value):
    found = tf.py_func(np.sin, [value], tf.float64, stateful=False)
    found.set_shape(value.shape)
    return found, lambda dy: dy * tf.cos(value)


def again(array, i):
    return array.write(i, tf.sin(array.read(i)))


class Cell(tf.nn.rnn_cell.RNNCell):
    state_size = output_size = 2

    def __init__(self, a, b):
        super().__init__(dtype=tf.float64)
        self._a, self._b = a, b

    def call(self, inputs, state):
        new = tf.tanh(tf.matmul(inputs, self._a) + tf.matmul(state, self._b))
        return tf.sin(new), new


def raw(cell, inputs, lengths):
    rows = tf.TensorArray(tf.float64, 3).unstack(inputs)

    def step(time, output, state, _):
        finished = time >= lengths
        zeros = tf.zeros([2, 2], tf.float64)
        row = tf.cond(tf.reduce_all(finished), lambda: zeros, lambda: rows.read(tf.minimum(time, 2)))
        return finished, row, zeros if state is None else state, output, None

    outputs, state, _ = tf.nn.raw_rnn(cell, step)
    return outputs.stack(), state
"""


class Difference(AssertionError):
    """A derivative is not what the differences of the function say."""


@dataclass(frozen=True)
class Options:
    """How a program is differentiated."""

    orders: int
    is_weighted: bool  # the result enters as it is, with weights in grad_ys
    arguments: dict[str, Any]


def options_of(seed: int) -> Options:
    """The options for the program of a seed."""
    choose = random.Random(f"{seed}/options")
    arguments = {
        "unconnected_gradients": choose.choice(["none", "none", "zero"]),
        "gate_gradients": choose.random() < 0.2,
        "colocate_gradients_with_ops": choose.random() < 0.2,
        "aggregation_method": choose.choice([None, 0, 1, 2]),
    }
    return Options(choose.choice([2, 2, 2, 2, 3]), choose.random() < 0.6, arguments)


def check(text: str, seed: int) -> None:
    """Differentiates a program.

    Raises:
        Difference: a derivative is wrong.
        Exception: whatever is raised while the program is built, or run.
    """
    numbers = np.random.default_rng(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        names: dict[str, Any] = {"tf": tf}
        exec(compile(text, f"<program {seed}>", "exec"), names)  # noqa: S102  (our own text, made from the seed)
        x, r = tf.placeholder(tf.float64, [2, 2], "x"), tf.placeholder(tf.float64, [2], "r")
        w = tf.get_variable("w", [2, 2], tf.float64, tf.zeros_initializer(), use_resource=True)
        n = tf.placeholder(tf.int32, [], "n")
        y = names["build"](x, w, r, n)
        orders = _derivatives(y, [x, w, r], names["stops"], options_of(seed), numbers)
        values, constants = [numbers.normal(size=s) / 2 for s in ((2, 2), (2, 2), (2,))], {n: 2}
        w.load(values[1], session)
        constants |= dict(
            zip(names["held"], session.run(names["held"], {x: values[0], r: values[2], n: 2}), strict=True)
        )

        def at(step: float) -> list[tuple[Any, Any]]:
            moved = [value + step * d for value, d in zip(values, orders.direction, strict=True)]
            w.load(moved[1], session)
            return session.run(orders.pairs, {x: moved[0], r: moved[2], **constants})  # type: ignore[no-any-return]

        _compare(at, orders.missing)


@dataclass(frozen=True)
class _Orders:
    """Per order, a function and its derivative along `direction`, and the xs that it was said not to depend on."""

    direction: list[Array]
    pairs: list[tuple[Any, Any]]
    missing: list[list[int]]


def _derivatives(y: Any, xs: list[Any], stops: list[Any], options: Options, numbers: Any) -> _Orders:
    direction = [numbers.normal(size=x.shape.as_list()) for x in xs]
    value, seeds = tf.reduce_sum(y * tf.cos(y)), None
    if options.is_weighted:
        weights = numbers.normal(size=y.shape.as_list())
        value, seeds = y, [tf.constant(weights)]
    pairs, missing = [], []
    for _order in range(options.orders):
        grads = tf.gradients(value, xs, seeds, stop_gradients=stops, **options.arguments)
        total = value if seeds is None else tf.reduce_sum(value * seeds[0])
        pairs.append((total, _product(grads, direction)))
        missing.append([k for k, g in enumerate(grads) if g is None])
        value, seeds = _product(grads, [numbers.normal(size=x.shape.as_list()) for x in xs]), None
    return _Orders(direction, pairs, missing)


def _product(grads: list[Any], direction: list[Array]) -> Any:
    terms = [tf.reduce_sum(tf.convert_to_tensor(g) * d) for g, d in zip(grads, direction, strict=True) if g is not None]
    return tf.add_n([tf.zeros([], tf.float64), *terms])


_STEP = 1e-3


def _compare(at: Any, missing: list[list[int]]) -> None:
    points = {k: at(k * _STEP) for k in (-2, -1, 0, 1, 2)}
    for order, (_, found) in enumerate(points[0]):
        near = (points[1][order][0] - points[-1][order][0]) / (2 * _STEP)
        far = (points[2][order][0] - points[-2][order][0]) / (4 * _STEP)
        wanted = (4 * near - far) / 3
        scale = max(1.0, abs(wanted), abs(found), abs(points[0][order][0]))
        if not abs(near - far) < 1e-2 * scale:
            return  # the function is too rough here for differences
        if not abs(found - wanted) < 1e-5 * scale:
            none = [("x", "w", "r")[k] for k in missing[order]]
            raise Difference(
                f"order {order + 1}: the derivative is {found!r}, differences say {wanted!r}; None for {none or 'none'}"
            )


# ---------------------------------------------------------------------- fuzzing
def program(seed: int, dropped: frozenset[Path] = frozenset(), depth: int = 2) -> str:
    """The text of a seed's program."""
    return PREAMBLE + "\n\n" + Writer(seed, dropped, depth).program() + "\n"


def failure(seed: int, dropped: frozenset[Path] = frozenset(), depth: int = 2) -> Exception | None:
    """What is wrong with the program of a seed; None if nothing is."""
    try:
        check(program(seed, dropped, depth), seed)
    except Exception as error:  # whatever a program raises is a finding
        return error
    return None


def _report(seed: int, depth: int, error: Exception) -> None:
    kind = type(error)
    dropped = smaller(seed, depth, lambda paths: isinstance(failure(seed, paths, depth), kind))
    last = failure(seed, dropped, depth) or error
    print(f"\n=== seed {seed}, depth {depth}: {kind.__name__}", flush=True)
    print("".join(traceback.format_exception(last)[-6:]))
    print(written(seed, depth, dropped).text, flush=True)


def _seeds(first: int, seconds: float) -> Iterator[int]:
    end, seed = time.monotonic() + seconds, first
    while time.monotonic() < end:
        yield seed
        seed += 1


def main(arguments: list[str]) -> int:
    """Runs programs until the time is over; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first program; each next one has the next seed")
    parser.add_argument("--depth", type=int, help="how deep bodies are nested; default: 1, now and then 2")
    given = parser.parse_args(arguments)
    failed, count = [], 0
    for seed in _seeds(given.seed, given.seconds):
        count += 1
        depth = given.depth or (2 if seed % 4 == 0 else 1)
        error = failure(seed, depth=depth)
        if error is not None:
            failed.append(seed)
            _report(seed, depth, error)
    print(f"{count} programs from seed {given.seed}, {len(failed)} failed: {failed}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
