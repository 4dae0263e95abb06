"""Random programs of reads and updates of variables by calls of a library, beside the same in NumPy's float64.

    python -m tests.fuzz.updates --seconds 600 --seed 1

A program reads, multiplies, assigns and updates variables, each operation after those on the same variables that its
order says, and in no order with others. It runs a few times; where it has a check, that fails once. What is fetched,
then and later, and the variables have to be what NumPy computes in the order in which the operations were made. Each
program follows from a number. The exit status is 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch.ops import raw
from anabranch.xla import executable, library_updates

Array = np.ndarray[Any, Any]
Random = np.random.Generator

#: how often a program runs, in which of them its check fails, and how far off results may be, of the largest
_STEPS: Final = 3
_FAILING: Final = 1
_OFF: Final = 2e-4
_LENGTHS: Final = (0, 1, 1, 3, 15, 16, 17, 33, 400)
#: what an operation does most often first
_KINDS: Final = ("descend", "descend", "read", "momentum", "adam", "assign", "add")
#: of each kind: how many slots there are
_SLOTS: Final = {"descend": 0, "momentum": 1, "adam": 2}

#: computes an operation's effect on the values, with what is fed; returns what is fetched
Effect = Callable[[list[Array], float], Array | None]


class Program:
    """A random program in a graph of its own, which is the default one meanwhile, and what it has to do."""

    def __init__(self, random: Random) -> None:
        self.random = random
        shape = self._shape()
        shapes = [shape if random.integers(2) else self._shape() for _ in range(random.integers(3, 7))]
        types = [np.float64 if random.integers(12) == 0 else np.float32 for _ in shapes]
        given = [
            np.abs(random.standard_normal(shape)).astype(dtype) for shape, dtype in zip(shapes, types, strict=True)
        ]
        self.variables = [tf.Variable(value, use_resource=bool(random.integers(6))) for value in given]
        self.types, self.shapes = types, shapes
        self.values: list[Array] = [value.astype(np.float64) for value in given]
        self.fed = tf.placeholder(tf.float32, [])
        self.row = tf.placeholder_with_default(0, [])
        self.fetches: list[Any] = []
        self.effects: list[Effect] = []
        self._written: dict[int, Any] = {}
        self._readers: defaultdict[int, list[Any]] = defaultdict(list)
        self.has_check = bool(random.integers(3) == 0)
        if self.has_check:
            self.fetches.append(tf.gather(tf.constant([7.0]), self.row))
            self.effects.append(lambda values, fed: np.asarray(7.0))
        operations = [self._operation(str(random.choice(_KINDS))) for _ in range(random.integers(4, 14))]
        self.step = tf.group(*[op for op in operations if op is not None])

    def _shape(self) -> tuple[int, ...]:
        rows, columns = (int(self.random.choice(_LENGTHS)) for _ in range(2))
        return ((rows, columns), (rows, columns), (columns,), ())[int(self.random.integers(4))]

    def _operation(self, kind: str) -> Any:
        """Adds an operation, and what it does; None: one that is fetched."""
        at = int(self.random.integers(len(self.variables)))
        same = [i for i, form in enumerate(self._forms()) if form == self._forms()[at] and i != at]
        if kind in _SLOTS:
            count = _SLOTS[kind] if _SLOTS[kind] <= len(same) else 0
            slots = [int(i) for i in self.random.permutation(same)[:count]]
            return self._update([at, *slots])
        if kind == "read":
            with tf.control_dependencies(self._before([at], [])):
                value = self.variables[at].read_value()
            self._readers[at].append(value.op)
            self.fetches.append(value)
            self.effects.append(lambda values, fed: values[at])
            return None
        new: Array = self.random.standard_normal(self.shapes[at]).astype(self.types[at])
        with tf.control_dependencies(self._before([], [at])):
            scaled = tf.constant(new) * tf.cast(self.fed, new.dtype)
            variable = self.variables[at]
            op = (variable.assign if kind == "assign" else variable.assign_add)(scaled).op
        self._wrote([], [at], op)
        old = 0.0 if kind == "assign" else 1.0

        def effect(values: list[Array], fed: float) -> None:
            values[at] = old * values[at] + new * fed if old else new * fed

        self.effects.append(effect)
        return op

    def _update(self, states: Sequence[int]) -> Any:
        """By gradient descent, momentum or Adam, with one, two or three states; the gradient is a product or a sum."""
        dtype = self.types[states[0]]
        sources = [i for i, form in enumerate(self._forms()) if len(form[0]) == 2 and form[1] == dtype]
        source = int(self.random.choice(sources)) if sources and self.random.integers(2) else None
        read = [] if source is None else [source]
        with tf.control_dependencies(self._before(read, states)):
            gradient, wide = self._gradient(self.shapes[states[0]], dtype, source)
            handles = [self.variables[i].handle for i in states]
            rate, half, one = (tf.constant(number, dtype) for number in (0.1, 0.5, 1.0))
            if len(states) == 1:
                op = raw.ResourceApplyGradientDescent(*handles, rate, gradient)
            elif len(states) == 2:
                op = raw.ResourceApplyMomentum(*handles, rate, gradient, half)
            else:
                # the square of the gradient adds to what may have become negative: epsilon keeps roots away from zero
                op = raw.ResourceApplyAdam(*handles, half, half, rate, half, half, one, gradient)
        self._wrote(read, states, op)
        self.effects.append(lambda values, fed: _updated(values, states, wide(values, fed)))
        return op

    def _gradient(self, shape: tuple[int, ...], dtype: Any, source: int | None) -> tuple[Any, Any]:
        """A gradient in the graph, and a function that computes it."""
        random = self.random
        inner = (9, 7) if source is None else self.shapes[source]
        left = (random.standard_normal((shape[0] if len(shape) == 2 else 5, inner[0])) / 20).astype(dtype)
        right = (random.standard_normal((inner[1], shape[-1] if shape else 3)) / 20).astype(dtype)
        fixed = random.standard_normal(inner).astype(dtype)
        value = self.variables[source].read_value() if source is not None else tf.constant(fixed)
        found = tf.matmul(tf.matmul(tf.constant(left) * tf.cast(self.fed, dtype), value), tf.constant(right))
        axes = {0: (0, 1), 1: (0,), 2: ()}[len(shape)]
        found = tf.reduce_sum(found, axes) if axes else found

        def wide(values: list[Array], fed: float) -> Array:
            middle = fixed if source is None else values[source]
            product = (left.astype(np.float64) * fed) @ middle @ right.astype(np.float64)
            return np.asarray(product.sum(axes))

        return found, wide

    def _forms(self) -> list[tuple[tuple[int, ...], Any]]:
        return list(zip(self.shapes, self.types, strict=True))

    def _before(self, read: Sequence[int], written: Sequence[int]) -> list[Any]:
        """The operations that one comes after that reads and writes these variables."""
        found = [self._written[i] for i in dict.fromkeys([*read, *written]) if i in self._written]
        return [*found, *(op for i in written for op in self._readers[i])]

    def _wrote(self, read: Sequence[int], written: Sequence[int], op: Any) -> None:
        for i in read:
            self._readers[i].append(op)
        for i in written:
            self._written[i] = op
            self._readers[i].clear()


def _updated(values: list[Array], states: Sequence[int], gradient: Array) -> None:
    """What `Program._update` does."""
    if len(states) == 1:
        values[states[0]] = values[states[0]] - 0.1 * gradient
    elif len(states) == 2:
        var, accum = states
        values[accum] = 0.5 * values[accum] + gradient
        values[var] = values[var] - 0.1 * values[accum]
    else:
        var, mean, square = states
        values[mean] = values[mean] + 0.5 * (gradient - values[mean])
        values[square] = values[square] + 0.5 * (gradient**2 - values[square])
        with np.errstate(invalid="ignore"):
            rate = 0.1 * np.sqrt(0.5) / 0.5
            values[var] = values[var] - rate * values[mean] / (np.sqrt(values[square]) + 1.0)


def _is_near(found: Any, wanted: Array) -> bool:
    off = _OFF * float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
    return np.shape(found) == wanted.shape and np.allclose(found, wanted, rtol=0, atol=off, equal_nan=True)


def examine(number: int) -> list[str]:
    """What is wrong with a program."""
    random = np.random.default_rng(number)
    with tf.Graph().as_default():
        program = Program(random)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return list(_compared(program, session, random))


def _compared(program: Program, session: Any, random: Random) -> Any:
    kept: list[tuple[Array, Array]] = []
    for step in range(_STEPS):
        fed = float(np.float32(random.uniform(0.5, 1.0)))
        if program.has_check and step == _FAILING:
            before = session.run(program.variables)
            try:
                session.run([program.fetches, program.step], {program.fed: fed, program.row: 7})
                yield f"step {step}: the check did not fail"
            except tf.errors.InvalidArgumentError:
                after = session.run(program.variables)
                if any(one.tobytes() != other.tobytes() for one, other in zip(before, after, strict=True)):
                    yield f"step {step}: a variable has changed although the check failed"
        fetched, _ = session.run([program.fetches, program.step], {program.fed: fed})
        wanted = [np.copy(one) for effect in program.effects if (one := effect(program.values, fed)) is not None]
        for at, (one, other) in enumerate(zip(fetched, wanted, strict=True)):
            kept.append((one, np.copy(one)))
            if not _is_near(one, other):
                yield f"step {step}: fetch {at} is off"
        now = session.run(program.variables)
        for at, (one, other) in enumerate(zip(now, program.values, strict=True)):
            if not _is_near(one, other):
                yield f"step {step}: variable {at} is off"
        program.values[:] = [value.astype(np.float64) for value in now]
    if any(one.tobytes() != copy.tobytes() for one, copy in kept):
        yield "what was fetched has changed"


def main() -> int:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.updates", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first program")
    options = parser.parse_args()
    library_updates.LEAST_UPDATES = library_updates.LEAST_ELEMENTS = 1  # type: ignore[misc]
    executable.FIRST_DIRECT_CALLS = 0
    end, number, wrong = time.monotonic() + options.seconds, options.seed, 0
    while time.monotonic() < end:
        for told in examine(number):
            wrong += 1
            print(f"program {number}: {told}", flush=True)
        number += 1
    print(f"{number - options.seed} programs, {wrong} mistakes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
