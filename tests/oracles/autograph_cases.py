"""Functions with Python's statements over tensors, for `make_public_function_fixture.py` and the tests of it.

Each case is a function of the module (`anabranch`, or genuine TensorFlow's `compat.v1`) that returns what to fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def both(tf: Any, function: Callable[..., Any], *arguments: tuple[Any, ...], features: Any = None) -> Any:
    """What a function gives converted by `to_graph` and by `tf.function`, for each of several lists of arguments."""
    converted = tf.autograph.to_graph(function, experimental_optional_features=features)
    traced = tf.function(function, experimental_autograph_options=features)
    results = [made(*each) for each in arguments for made in (converted, traced)]
    return tf.nest.map_structure(tf.convert_to_tensor, results)


def scalars(tf: Any, *numbers: Any) -> list[tuple[Any]]:
    return [(tf.constant(number),) for number in numbers]


# ---------------------------------------------------------------------- conditionals
@case
def conditionals_that_assign(tf: Any) -> Any:
    def sign(x: Any) -> Any:
        label = 10
        if x > 0:
            y, label = x * 2, 1
        elif x < 0:
            y = -x
            label = -1
        else:
            y = x + 7
        return y, label, y + label

    return both(tf, sign, *scalars(tf, 3, -4, 0))


@case
def conditionals_that_return(tf: Any) -> Any:
    def clipped(x: Any, low: float, high: float) -> Any:
        if x < low:
            return tf.constant(low)
        if x > high:
            return tf.constant(high)
        y = x * 2.0
        return y / 2.0

    return both(tf, clipped, *((tf.constant(x), -1.0, 2.0) for x in (-3.5, 0.25, 9.0)))


@case
def conditionals_on_python_values_beside_tensors(tf: Any) -> Any:
    def chosen(x: Any, mode: str, twice: bool = False) -> Any:
        if mode == "square":
            y = x * x
        elif mode == "none":
            return x
        else:
            y = -x
        if twice and x > 1:
            y = y * 2
        return y

    return both(
        tf,
        chosen,
        *((tf.constant(x), mode, twice) for x in (1, 5) for mode in ("square", "none", "") for twice in (True, False)),
    )


@case
def conditional_expressions_and_logic(tf: Any) -> Any:
    def logic(x: Any, y: Any) -> Any:
        a = x if x > y else y  # noqa: FURB136
        b = 0 < x < y <= 10
        c = (x > 0 and y > 0) or not (x + y > 3)
        d = 1 if x > 0 or y > 0 else 2
        return a, b, c, d

    values = ((1, 2), (3, -2), (-4, -9), (-6, -9), (5, 11))
    return both(tf, logic, *((tf.constant(x), tf.constant(y)) for x, y in values))


@case
def second_operands_that_must_not_run(tf: Any) -> Any:
    def guarded(values: Any, at: Any) -> Any:
        found = False
        if at < tf.shape(values)[0] and values[at] > 2:
            found = True
        return found

    values = tf.constant([1, 2, 3])
    return both(tf, guarded, *((values, tf.placeholder_with_default(at, [])) for at in (0, 2, 3)))


@case
def nested_structures(tf: Any) -> Any:
    def nested(x: Any) -> Any:
        state = {"a": (x, [x + 1, 2.0]), "b": 5}
        if x > 0:
            state = {"a": (x * 2, [x, 3.0]), "b": 6}
        pair = (0.0, x)
        while pair[0] < 4.0:
            pair = (pair[0] + 1.0, pair[1] * 2.0)
        return state, pair

    return both(tf, nested, *scalars(tf, 1.5, -1.0))


@case
def equality_by_value(tf: Any) -> Any:
    def compared(x: Any, y: Any) -> Any:
        if x == 3:
            return y != x, 1
        return x == y, 0

    features = tf.autograph.experimental.Feature.EQUALITY_OPERATORS
    pairs = ((3, 3), (3, 4), (5, 5), (5, 6))
    return both(tf, compared, *((tf.constant(x), tf.constant(y)) for x, y in pairs), features=features)


# ---------------------------------------------------------------------- loops
@case
def loops_while(tf: Any) -> Any:
    def collatz(n: Any) -> Any:
        steps = 0
        highest = n
        while n > 1:
            if n % 2 < 1:
                n = n // 2
            else:
                n = 3 * n + 1
            highest = tf.maximum(highest, n)
            steps += 1
        return steps, highest

    return both(tf, collatz, *scalars(tf, 1, 2, 27, 97))


@case
def loops_over_ranges(tf: Any) -> Any:
    def summed(start: Any, limit: Any, delta: Any) -> Any:
        total, last, count = 0, -100, 0
        for i in tf.range(start, limit, delta):
            total += i * i
            last = i
            count += 1
        for j in range(limit):
            count += j
        return total, last, count

    bounds = ((0, 5, 1), (2, 17, 4), (4, 4, 1), (9, 2, -3))
    return both(tf, summed, *(tuple(map(tf.constant, each)) for each in bounds))


@case
def loops_over_rows(tf: Any) -> Any:
    def weighted(rows: Any) -> Any:
        total = tf.zeros([3])
        product = 1.0
        for row in rows:
            for x in row:
                if x < 0:
                    continue
                product = product * (1.0 + x)
            total += row * product
        return total, product

    rows = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    unknown = tf.placeholder_with_default(rows, [None, 3])
    return both(tf, weighted, (tf.constant(rows),), (unknown,))


@case
def breaks_and_continues(tf: Any) -> Any:
    def bounded(n: Any, stop: Any) -> Any:
        total, i = 0, 0
        while i < n:
            i += 1
            if i % 3 < 1:
                continue
            if i > stop:
                total += 1000
                break
            total += i
        return total, i

    pairs = ((10, 20), (10, 5), (0, 3))
    return both(tf, bounded, *((tf.constant(n), tf.constant(stop)) for n, stop in pairs))


@case
def breaks_in_nested_loops(tf: Any) -> Any:
    def first_pair(values: Any, wanted: Any) -> Any:
        found_i, found_j = -1, -1
        n = tf.shape(values)[0]
        for i in tf.range(n):
            for j in tf.range(i + 1, n):
                if tf.equal(values[i] + values[j], wanted):
                    found_i, found_j = i, j
                    break
            if found_i >= 0:
                break
        return found_i, found_j

    values = tf.constant([3, 9, 4, 11, 2])
    return both(tf, first_pair, *((values, tf.constant(wanted)) for wanted in (13, 5, 100)))


@case
def variables_first_assigned_in_a_loop(tf: Any) -> Any:
    def last(n: Any) -> Any:
        i = 0
        while i < n:
            squared = i * i
            if squared > 10:
                note = 1.5
            else:
                note = -1.5
            i += 1
        return squared, note

    return both(tf, last, *scalars(tf, 1, 6))


@case
def loops_with_shape_invariants(tf: Any) -> Any:
    def grown(n: Any) -> Any:
        rows = tf.constant([[1.0, 2.0]])
        i = 0
        while i < n:
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(rows, tf.TensorShape([None, 2]))], maximum_iterations=4
            )
            rows = tf.concat([rows, rows[-1:] * 2.0], 0)
            i += 1
        return rows, i

    return both(tf, grown, *scalars(tf, 0, 3, 9))


@case
def tensor_arrays_in_loops(tf: Any) -> Any:
    def fibonacci(n: Any) -> Any:
        written = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        a, b = 0, 1
        for i in tf.range(n):
            written = written.write(i, a)
            a, b = b, a + b
        return written.stack()

    return both(tf, fibonacci, *scalars(tf, 1, 10))


@case
def loops_over_python_values_unroll(tf: Any) -> Any:
    def unrolled(x: Any, factors: Any) -> Any:
        outputs = []
        for k, factor in enumerate(factors):
            if factor == 3:
                continue
            if x > k:
                x = x * factor
            outputs.append(x)
        while len(outputs) > 3:
            outputs.pop()
        return outputs

    return both(tf, unrolled, (tf.constant(1), (2, 3, 4, 5)), (tf.constant(9), (2, 3)))


# ---------------------------------------------------------------------- functions
@case
def functions_that_are_called(tf: Any) -> Any:
    offset = 3

    def helper(x: Any, scale: int = 2) -> Any:
        if x > offset:
            return x * scale
        return x - offset

    class Gate:
        def __init__(self, limit: int) -> None:
            self.limit = limit

        def __call__(self, x: Any) -> Any:
            return self.opened(x) if x > self.limit else x

        def opened(self, x: Any) -> Any:
            while x > self.limit:
                x = helper(x, scale=1) - 2
            return x

    gate = Gate(4)

    def outer(x: Any, *more: Any, **named: Any) -> Any:
        inner = lambda y: y + 100 if y > 5 else y  # noqa: E731

        def nested(y: Any) -> Any:
            if y > 5:
                return inner(y) + helper(y)
            return gate(y)

        total = helper(*more, **named) + nested(x)
        return total, gate(x)

    return both(tf, outer, *((tf.constant(x), tf.constant(m)) for x in (2, 5, 20) for m in (1, 9)))


@case
def recursion_on_python_values(tf: Any) -> Any:
    def power(x: Any, n: int) -> Any:
        if n == 0:
            return tf.ones_like(x)
        half = power(x, n // 2)
        if n % 2:
            return half * half * x
        return half * half

    return both(tf, power, (tf.constant([1.5, -2.0]), 5))


@case
def attributes_and_items_that_change(tf: Any) -> Any:
    class Counter:
        def __init__(self) -> None:
            self.total = tf.constant(0)
            self.items = {"odd": tf.constant(0)}

    def counted(n: Any) -> Any:
        counter = Counter()
        for i in tf.range(n):
            counter.total += i
            if i % 2 > 0:
                counter.items["odd"] += 1
        return counter.total, counter.items["odd"]

    return both(tf, counted, *scalars(tf, 0, 7))


@case
def built_in_functions(tf: Any) -> Any:
    def built_in(x: Any, rows: Any) -> Any:
        total = abs(x) + float(len(rows)) + float(int(x * 1.5))
        for i in range(len(rows)):
            total += rows[i]
        return total, len(rows)

    rows = tf.constant([0.5, 2.5, -1.0])
    unknown = tf.placeholder_with_default([4.0, 1.0], [None])
    return both(tf, built_in, (tf.constant(-2.5), rows), (tf.constant(3.0), unknown))


# ---------------------------------------------------------------------- gradients
@case
def gradients_of_loops(tf: Any) -> Any:
    def iterated(x: Any, n: Any) -> Any:
        y = x
        for i in tf.range(n):
            if y > 1.0:
                y = y / 2.0 * x
            else:
                y = y * y + tf.cast(i, tf.float32) * 0.25
        return y

    fetched = []
    for value in (0.5, 1.25):
        x = tf.constant(value)
        for y in both(tf, iterated, (x, tf.constant(5))):
            fetched += [y, tf.gradients(y, x)[0]]
    return fetched


@case
def gradients_of_loops_over_rows(tf: Any) -> Any:
    weights = tf.constant(np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32) * 0.4)

    def recurrent(rows: Any, w: Any) -> Any:
        state = tf.zeros([1, 3])
        for row in rows:
            state = tf.tanh(tf.matmul(state + row, w))
            if tf.reduce_sum(state) < -0.5:
                state = -state
        return tf.reduce_sum(state * state)

    rows = tf.constant(np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32))
    fetched = []
    for loss in both(tf, recurrent, (rows, weights)):
        fetched += [loss, *tf.gradients(loss, [rows, weights])]
    return fetched


@case
def gradients_of_newton(tf: Any) -> Any:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-4:
            x = 0.5 * (x + a / x)
        return x

    fetched = []
    for value in (2.0, 30.0):
        a = tf.constant(value)
        for y in both(tf, root, (a,)):
            fetched += [y, tf.gradients(y, a)[0]]
    return fetched


# ---------------------------------------------------------------------- what is not converted
@case
def functions_that_are_left_alone(tf: Any) -> Any:
    @tf.autograph.experimental.do_not_convert
    def counted(x: Any) -> Any:
        return tf.cond(x > 0, lambda: x, lambda: -x)

    @tf.function(autograph=False)
    def traced(x: Any) -> Any:
        return tf.while_loop(lambda y: y < 10, lambda y: y * 2, [x])

    def outer(x: Any) -> Any:
        y = counted(x)
        if y > 2:
            y = traced(y)
        return y

    return both(tf, outer, *scalars(tf, -3, 1))


@case
def loops_that_build_on_functional_ones(tf: Any) -> Any:
    def mixed(rows: Any) -> Any:
        def step(x: Any) -> Any:
            if x > 0:
                return x * 2.0
            return tf.zeros_like(x)

        mapped = tf.map_fn(step, rows)
        return tf.scan(lambda a, x: a + x if x > 1.0 else a, mapped)

    return both(tf, mixed, (tf.constant([0.25, 3.0, -4.0, 1.0]),))
