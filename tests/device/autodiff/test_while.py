"""Gradients of loops: equal to those of the unrolled graph, in first and second order, compiled and on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.script import py_func
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.frontend.nn.embedding import embedding_lookup
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def placeholder(shape: Any = (), dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def run(fetches: Any, feeds: Any) -> Any:
    with Session() as session:
        session.run([v.initializer for v in get_default_graph().get_collection("variables")])
        return session.run(fetches, feeds)


def repeat(step: Callable[[Any, Any], Any], start: Any, count: Any, **kwargs: Any) -> Any:
    """The loop: x = step(i, x), `count` times."""
    return while_loop(
        lambda i, x: raw.Less(i, count), lambda i, x: (raw.AddV2(i, 1), step(i, x)), (0, start), **kwargs
    )[1]


def unrolled(step: Callable[[Any, Any], Any], start: Any, count: int) -> Any:
    for i in range(count):
        start = step(convert_to_tensor(i), start)
    return start


def check_same(loop: Any, plain: Any, xs: list[Any], feeds: Any, order: int = 2) -> None:
    """Values and gradients of a loop and of the same thing unrolled."""
    found, wanted = [loop], [plain]
    ys = (loop, plain)
    for _ in range(order):
        grads = [gradients(y, xs) for y in ys]
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
        found += [g for g in grads[0] if g is not None]
        wanted += [g for g in grads[1] if g is not None]
        ys = tuple(
            raw.AddN([raw.Sum(raw.Sin(convert_to_tensor(g)), _axes(g)) for g in gs if g is not None]) for gs in grads
        )
    got, expected = run([[convert_to_tensor(t) for t in found], [convert_to_tensor(t) for t in wanted]], feeds)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def _axes(tensor: Any) -> Any:
    return np.arange(convert_to_tensor(tensor).shape.ndims, dtype=np.int32)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_with_captures_and_variables(count: int, known: bool) -> None:
    x, n = placeholder([3]), placeholder(dtype="int32", name="n")
    scale = placeholder([3], name="scale")
    weight = Variable(np.array([1.0, -2.0, 0.5]))

    def step(i: Any, y: Any) -> Any:
        return raw.AddV2(raw.Mul(raw.Sin(y), scale), raw.Mul(weight.value(), raw.Tanh(y)))

    feeds = {x: [0.1, 0.2, -0.3], scale: [1.0, 2.0, 3.0], n: count}
    xs = [x, scale, weight]
    loop = repeat(step, x, count if known else n)
    if count:
        check_same(loop, unrolled(step, x, count), xs, feeds)
    else:
        got = run(gradients(loop, xs), feeds)
        np.testing.assert_array_equal(got, [np.ones(3), np.zeros(3), np.zeros(3)])


def test_third_order() -> None:
    x = placeholder()

    def step(i: Any, y: Any) -> Any:
        return raw.Mul(raw.Sin(y), x)

    check_same(repeat(step, x, 3), unrolled(step, x, 3), [x], {x: 0.7}, order=3)


def test_shapes_that_are_not_known_while_the_graph_is_built() -> None:
    x, bias = placeholder([None, 3]), placeholder([3], name="bias")

    def step(i: Any, y: Any) -> Any:
        return raw.Tanh(raw.AddV2(raw.MatMul(y, raw.MatMul(y, y, transpose_a=True)), bias))

    check_same(
        repeat(step, x, 3), unrolled(step, x, 3), [x, bias], {x: np.arange(6).reshape(2, 3) / 7, bias: [0.1, 0, 1]}
    )


def test_conditional_in_the_body() -> None:
    x = placeholder([2])

    def step(i: Any, y: Any) -> Any:
        return cond(raw.Equal(raw.FloorMod(i, 2), 0), lambda: raw.Mul(raw.Sin(y), x), lambda: raw.Exp(raw.Neg(y)))

    check_same(repeat(step, x, 4), unrolled(step, x, 4), [x], {x: [0.3, 0.9]})


@pytest.mark.parametrize("inner", ["constant", "varying"])
def test_nested(inner: str) -> None:
    x, w = placeholder([2]), placeholder([2], name="w")

    def step(i: Any, y: Any) -> Any:
        return repeat(
            lambda j, z: raw.Mul(raw.Sin(z), raw.AddV2(w, y)), y, 2 if inner == "constant" else raw.AddV2(i, 1)
        )

    def plain(i: Any, y: Any) -> Any:
        z = y
        for _ in range(2 if inner == "constant" else int(run(i, {})) + 1):
            z = raw.Mul(raw.Sin(z), raw.AddV2(w, y))
        return z

    check_same(repeat(step, x, 3), unrolled(plain, x, 3), [x, w], {x: [0.3, 0.9], w: [1.1, -0.4]})


def test_loop_in_a_conditional() -> None:
    x, p = placeholder([2]), placeholder(dtype="bool", name="p")

    def step(i: Any, y: Any) -> Any:
        return raw.Mul(raw.Sin(y), x)

    y = cond(p, lambda: repeat(step, x, 3), lambda: raw.Exp(x))
    check_same(y, unrolled(step, x, 3), [x], {x: [0.3, 0.9], p: True}, order=1)
    check_same(y, raw.Exp(x), [x], {x: [0.3, 0.9], p: False}, order=1)


def test_loop_over_a_constant_in_a_conditional() -> None:
    """What leaves the loop as it entered, with a known value, is dead where the loop is."""
    p, start = placeholder(dtype="bool", name="p"), convert_to_tensor(0.0)

    def loop() -> Any:
        return while_loop(lambda x: raw.Less(x, 10.0), lambda x: raw.AddV2(x, 1.0), [start])

    y = cond(p, loop, lambda: raw.Mul(start, 2.0))
    for taken, wanted in ((True, [10.0, 1.0]), (False, [0.0, 2.0])):
        assert run([y, gradients(y, start)[0]], {p: taken}) == wanted


def test_condition_on_the_values() -> None:
    x = placeholder()
    y = while_loop(lambda y: raw.Less(y, 100.0), lambda y: raw.Mul(y, x), [x])
    got = run([y, gradients(y, x)[0]], {x: 3.0})
    np.testing.assert_allclose(got, [243.0, 5 * 81.0])


def test_shapes_that_change_run_on_the_host() -> None:
    x = placeholder([None])
    y = while_loop(
        lambda i, y: raw.Less(i, 3),
        lambda i, y: (raw.AddV2(i, 1), raw.ConcatV2([y, raw.Mul(y, y)], 0)),
        (0, x),
        shape_invariants=((), [None]),
    )[1]
    dx = gradients(y, x)[0]
    second = gradients(dx, x)[0]
    got = run([y, dx, second], {x: [2.0, 3.0]})
    v = np.array([2.0, 3.0])
    assert got[0].shape == (16,)
    powers = [1, 2, 2, 4, 2, 4, 4, 8]
    np.testing.assert_allclose(got[0], np.concatenate([v**k for k in powers]))
    np.testing.assert_allclose(got[1], sum(k * v ** (k - 1) for k in powers))
    np.testing.assert_allclose(got[2], sum(k * (k - 1) * v ** max(k - 2, 0) for k in powers))


def test_host_work_in_the_body() -> None:
    x = placeholder([2])

    def step(i: Any, y: Any) -> Any:
        factor = py_func(lambda i: np.float64(i + 1.0), [i], "float64")
        factor.set_shape([])
        return raw.Mul(raw.Sin(y), factor)

    def plain(i: Any, y: Any) -> Any:
        return raw.Mul(raw.Sin(y), raw.Cast(raw.AddV2(i, 1), DstT="float64"))

    check_same(repeat(step, x, 3), unrolled(plain, x, 3), [x], {x: [0.3, 0.9]})


def test_random_numbers_are_those_of_the_forward_loop() -> None:
    x = placeholder([4])

    def step(i: Any, y: Any) -> Any:
        return raw.Mul(y, raw.RandomUniform(np.array([4], np.int32), dtype="float64"))

    y = repeat(step, x, 3)
    value, dx = run([y, gradients(y, x)[0]], {x: [1.0, 2.0, 4.0, 8.0]})
    np.testing.assert_allclose(dx, value / [1.0, 2.0, 4.0, 8.0])


def test_random_condition_runs_on_the_host() -> None:
    x = placeholder()
    y = while_loop(
        lambda y: raw.Less(raw.RandomUniform(np.zeros(0, np.int32), dtype="float64", seed=3, seed2=4), 0.7),
        lambda y: raw.Mul(y, x),
        [x],
    )
    value, dx = run([y, gradients(y, x)[0]], {x: 2.0})
    power = np.log2(value)
    np.testing.assert_allclose(dx, power * 2.0 ** (power - 1))


def test_embedding_in_the_body() -> None:
    table = Variable(np.arange(12.0).reshape(4, 3) / 10)
    x = placeholder([3])

    def step(i: Any, y: Any) -> Any:
        return raw.Mul(raw.Sin(y), embedding_lookup(table, raw.FloorMod(raw.Mul(i, 3), 4)))

    check_same(repeat(step, x, 5), unrolled(step, x, 5), [x, table], {x: [0.3, 0.9, 2.0]})


def test_swapped_loop_variables() -> None:
    x, y = placeholder(), placeholder(name="y")
    a, b, _ = while_loop(lambda a, b, i: raw.Less(i, 3), lambda a, b, i: (raw.Mul(b, x), a, raw.AddV2(i, 1)), (x, y, 0))
    loop = raw.Mul(a, raw.Sin(b))
    plain = raw.Mul(raw.Mul(raw.Mul(y, x), x), raw.Sin(raw.Mul(x, x)))
    check_same(loop, plain, [x, y], {x: 1.3, y: 0.4})


def test_tensor_arrays() -> None:
    x, w = placeholder([4, 2]), placeholder([2], name="w")
    source = TensorArray("float64", size=4).unstack(x)
    target = TensorArray("float64", size=4)

    def body(i: Any, state: Any, out: Any) -> Any:
        new = raw.Tanh(raw.AddV2(raw.Mul(state, w), source.read(i)))
        return raw.AddV2(i, 1), new, out.write(i, new)

    start = convert_to_tensor(np.zeros(2))
    _, _, out = while_loop(lambda i, *_: raw.Less(i, 4), body, (0, start, target))
    state, rows = start, []
    for i in range(4):
        state = raw.Tanh(raw.AddV2(raw.Mul(state, w), raw.GatherV2(x, i, 0)))
        rows.append(state)
    check_same(out.stack(), raw.Pack(rows), [x, w], {x: np.arange(8).reshape(4, 2) / 5 - 0.7, w: [0.9, -1.1]})


def test_array_that_the_loop_reads_and_writes() -> None:
    x = placeholder([3])
    array = TensorArray("float64", size=6, clear_after_read=False).write(0, x)

    def body(i: Any, array: Any) -> Any:
        return raw.AddV2(i, 1), array.write(i, raw.Mul(raw.Sin(array.read(raw.Sub(i, 1))), x))

    _, array = while_loop(lambda i, _: raw.Less(i, 6), body, (1, array))
    rows = [x]
    for _ in range(5):
        rows.append(raw.Mul(raw.Sin(rows[-1]), x))
    check_same(array.stack(), raw.Pack(rows), [x], {x: [0.2, 0.5, 1.5]})


_STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda y, z, w: (raw.Mul(y, w), raw.Sin(z)),
    lambda y, z, w: (z, y),
    lambda y, z, w: (raw.AddV2(y, z), raw.Mul(z, w)),
    lambda y, z, w: (raw.Tanh(raw.Mul(y, z)), raw.AddV2(z, w)),
    lambda y, z, w: (raw.Exp(raw.Neg(raw.Square(y))), raw.MatMul(z, z)),
    lambda y, z, w: (raw.StopGradient(y), raw.AddV2(raw.MatMul(y, w), z)),
    lambda y, z, w: (cond(raw.Less(raw.Sum(y, [0, 1]), 0.0), lambda: raw.Neg(z), lambda: raw.Mul(y, w)), raw.Cos(z)),
]


@pytest.mark.parametrize("seed", range(5))
def test_random_bodies_agree_with_the_unrolled_graph(seed: int) -> None:
    random = np.random.default_rng(seed)
    chosen = [_STEPS[k] for k in random.integers(len(_STEPS), size=3)]
    count = int(random.integers(1, 5))
    x, w, n = placeholder([2, 2]), placeholder([2, 2], name="w"), placeholder(dtype="int32", name="n")

    def step(y: Any, z: Any) -> Any:
        for one in chosen:
            y, z = one(y, z, w)
        return y, z

    limit = n if seed % 2 else count
    _, y, z = while_loop(lambda i, *_: raw.Less(i, limit), lambda i, y, z: (raw.AddV2(i, 1), *step(y, z)), (0, x, w))
    plain_y, plain_z = x, w
    for _ in range(count):
        plain_y, plain_z = step(plain_y, plain_z)
    feeds = {x: random.normal(size=(2, 2)), w: random.normal(size=(2, 2)), n: count}
    check_same(raw.AddV2(y, raw.Sin(z)), raw.AddV2(plain_y, raw.Sin(plain_z)), [x, w], feeds)


def test_gradients_to_constants_from_outside() -> None:
    x, taken = convert_to_tensor(1.5), placeholder(dtype="bool")
    looped = repeat(lambda _, y: raw.Mul(y, x), convert_to_tensor(1.0), 3)
    chosen = cond(taken, lambda: raw.Mul(x, x), lambda: raw.Neg(x))
    found = [gradients(looped, x)[0], gradients(chosen, x)[0]]
    np.testing.assert_allclose(run(found, {taken: True}), [3 * 1.5**2, 3.0])


def test_a_conditional_in_a_loop_whose_end_depends_on_its_values() -> None:
    """Counting the iterations runs a copy of the conditional, to whose branches the gradient adds results."""
    x = placeholder()

    def step(y: Any) -> Any:
        return cond(raw.Less(y, 1.0), lambda: raw.Mul(raw.Sin(y), 2.0), lambda: raw.Mul(raw.Cos(y), x))

    def going_on(i: Any, y: Any) -> Any:
        return raw.LogicalAnd(raw.Less(i, 3), raw.Less(y, 5.0))

    loop = while_loop(going_on, lambda i, y: (raw.AddV2(i, 1), step(y)), (0, x))[1]
    check_same(loop, step(step(step(x))), [x], {x: 0.3})


def test_what_leaves_the_loop_as_it_entered() -> None:
    x, y = placeholder([2]), placeholder([2], name="y")
    array = TensorArray("float64", size=2).unstack(y)

    def body(i: Any, kept: Any, array: Any, product: Any) -> Any:
        return raw.AddV2(i, 1), kept, array, raw.Mul(raw.Mul(product, kept), array.read(0))

    _, kept, after, product = while_loop(lambda i, *_: raw.Less(i, 2), body, (0, x, array, x))
    read = after.read(1)
    loop = raw.AddV2(raw.Mul(kept, product), read)
    first = raw.GatherV2(y, 0, 0)
    plain = raw.AddV2(raw.Mul(x, raw.Mul(raw.Mul(raw.Mul(raw.Mul(x, x), first), x), first)), raw.GatherV2(y, 1, 0))
    check_same(loop, plain, [x, y], {x: [0.4, 1.5], y: [1.2, -0.7]})
    alone = while_loop(lambda i, _: raw.Less(i, 2), lambda i, x: (raw.AddV2(i, 1), x), (0, x))[1]
    assert run(gradients(alone, x), {x: [1.0, 2.0]})[0].tolist() == [1.0, 1.0]
