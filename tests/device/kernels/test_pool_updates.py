"""Updates and casts of variables on XLA's threads have the bits of XLA's own, and are calls only where they should be.

What needs the extra `native`, a C compiler and vectors of 512 bits is skipped without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.kernels import pool_handler, pool_updates
from anabranch.xla import library_updates, thread_costs
from anabranch.xla.kernel_choice import KERNELS_VARIABLE, chooser

HALF: Any = tf.bfloat16.as_numpy_dtype
#: layers: small and odd ones, and one whose weights several threads share
LAYERS = [(7, 5), (5, 400), (400, 300), (300, 17), (17, 3)]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "descent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
}


@pytest.fixture
def handler(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler, compiled and loaded, on a processor that can; a few variables are enough."""
    if not pool_updates.is_usable():
        pytest.skip("this processor has no vectors of 512 bits")
    monkeypatch.setattr(library_updates, "LEAST_UPDATES", 4)
    monkeypatch.setattr(library_updates, "LEAST_ELEMENTS", 1)
    # programs with calls and without them compute all else by the same kernels
    monkeypatch.setenv(KERNELS_VARIABLE, "estimate")
    chooser.forget()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The names of the operations that are traced as calls, by what they do."""
    found: dict[str, list[str]] = {"updated": [], "narrowed": []}

    def counted(name: str) -> Callable[..., Any]:
        own: Callable[..., Any] = getattr(pool_updates, name)

        def call(node: str, *args: Any) -> Any:
            found[name].append(node)
            return own(node, *args)

        return call

    for name in found:
        monkeypatch.setattr(pool_updates, name, counted(name))
    return found


def network(decay: float = 0.0, dtype: Any = np.float32) -> tuple[Any, Any, list[Any]]:
    """What is fed, a loss, and the variables."""
    rng = np.random.default_rng(0)
    x = tf.placeholder(dtype, (4, 7))
    h, variables = x, []
    for shape in LAYERS:
        values = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[1:]).astype(dtype)
        w, b = (tf.Variable(value, use_resource=True) for value in values)
        h = tf.tanh(tf.nn.bias_add(tf.matmul(h, w), b))
        variables += [w, b]
    loss = tf.reduce_sum(h * h)
    return x, loss + decay * tf.add_n([tf.nn.l2_loss(v) for v in variables]) if decay else loss, variables


def trained(optimizer: str, half: bool, last: float, decay: float = 0.0, dtype: Any = np.float32) -> list[bytes]:
    """The bits of all variables after a few steps, in the last of which a number is another."""
    rng = np.random.default_rng(1)
    with tf.Graph().as_default(), contextlib.ExitStack() as left:
        x, loss, _ = network(decay, dtype)
        made = OPTIMIZERS[optimizer]()
        if half:
            made = tf.train.experimental.enable_mixed_precision_graph_rewrite(made, dtype="bfloat16")
            left.callback(tf.train.experimental.disable_mixed_precision_graph_rewrite)
        step = made.minimize(loss)
        session = left.enter_context(tf.Session())
        session.run(tf.global_variables_initializer())
        for number in range(4):
            fed = rng.standard_normal((4, 7)).astype(dtype)
            if number == 3:
                fed[0, 0] = last
            session.run(step, {x: fed})
        return [np.asarray(value).tobytes() for value in session.run(tf.global_variables())]


def by_xla(monkeypatch: pytest.MonkeyPatch, *args: Any) -> list[bytes]:
    with monkeypatch.context() as patched:
        patched.setattr(library_updates, "LEAST_UPDATES", 1 << 30)
        return trained(*args)


@pytest.mark.parametrize("last", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["descent", "momentum", "adam"])
def test_variables_have_the_bits_of_xla(
    handler: None, calls: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, optimizer: str, half: bool, last: float
) -> None:
    assert trained(optimizer, half, last) == by_xla(monkeypatch, optimizer, half, last)
    assert len(set(calls["updated"])) == 2 * len(LAYERS)
    assert len(set(calls["narrowed"])) == (len(LAYERS) if half else 0)


def test_small_variables_are_left_to_xla(
    handler: None, calls: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_updates, "LEAST_ELEMENTS", 1 << 19)
    trained("descent", False, 0.5)
    assert not calls["updated"]


@pytest.mark.parametrize("optimizer", ["nesterov", "adagrad"])
def test_other_rules_are_left_to_xla(handler: None, calls: dict[str, list[str]], optimizer: str) -> None:
    trained(optimizer, False, 0.5)
    assert not calls["updated"]


def test_what_xla_fuses_with_an_update_stays_with_it(handler: None, calls: dict[str, list[str]]) -> None:
    trained("descent", False, 0.5, 0.1)
    assert not calls["updated"]


def test_other_numbers_are_left_to_xla(handler: None, calls: dict[str, list[str]]) -> None:
    trained("adam", False, 0.5, 0.0, np.float64)
    assert not calls["updated"]


def test_few_variables_are_left_to_xla(
    handler: None, calls: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_updates, "LEAST_UPDATES", 2 * len(LAYERS) + 1)
    trained("descent", False, 0.5)
    assert not calls["updated"]


def test_without_a_compiler_all_is_left_to_xla(
    handler: None, calls: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_handler, "missing", lambda: "there is no C compiler")
    trained("descent", True, 0.5)
    assert calls == {"updated": [], "narrowed": []}


# ---------------------------------------------------------------------- what readers see
def test_a_check_that_fails_leaves_all_variables(handler: None, calls: dict[str, list[str]]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss, variables = network()
        labels = tf.placeholder(tf.int32, (4,))
        more = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=tf.gather(variables[0], [0, 1, 2, 3])
        )
        step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss + tf.reduce_sum(more))
        session.run(tf.global_variables_initializer())
        fed = np.ones((4, 7), np.float32)
        session.run(step, {x: fed, labels: [0, 1, 2, 3]})
        before = session.run(tf.global_variables())
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(step, {x: fed, labels: [0, 1, 2, 99]})
        after = session.run(tf.global_variables())
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
        session.run(step, {x: fed, labels: [0, 1, 2, 3]})
        assert any((one != other).any() for one, other in zip(after, session.run(tf.global_variables()), strict=True))
    assert calls["updated"]


def test_values_that_were_read_before_stay_as_they_were(handler: None, calls: dict[str, list[str]]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss, variables = network()
        read = [tf.identity(v.read_value()) for v in variables]
        with tf.control_dependencies(read):
            step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([step]):
            later = [v.read_value() for v in variables]
        session.run(tf.global_variables_initializer())
        kept: list[Any] = []
        for _ in range(3):
            before = session.run(variables)
            old, new = session.run([read, later], {x: np.ones((4, 7), np.float32)})
            kept.append((before, old, new, [array.copy() for array in (*old, *new)]))
            for values, wanted in ((old, before), (new, session.run(variables))):
                for one, other in zip(values, wanted, strict=True):
                    np.testing.assert_array_equal(one, other)
        for _, old, new, copies in kept:
            for one, other in zip((*old, *new), copies, strict=True):
                np.testing.assert_array_equal(one, other)
    assert calls["updated"]


# ---------------------------------------------------------------------- the handlers
def updated_alone(arrays: Sequence[Any], conditions: Sequence[bool], in_place: bool, rule: str = "Momentum") -> Any:
    var, accum, grad = arrays

    def program(var: Any, accum: Any, grad: Any, rate: Any, conditions: Any) -> Any:
        states, scalars = [var, accum], [rate, jnp.float32(0.9)]
        known = pool_updates.RULES[rule]
        return pool_updates.updated("layer/update", known, states, grad, scalars, conditions, [grad], [in_place] * 2)

    jitted = jax.jit(program, donate_argnums=(0, 1) if in_place else ())
    return jitted(var, accum, grad, jnp.float32(0.5), [jnp.asarray(one) for one in conditions])


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("conditions", [(), (True,), (False,), (True, False), (True, True)])
@pytest.mark.parametrize("elements", [0, 1, 15, 16, 17, 200_003])
def test_nothing_changes_where_a_condition_is_false(
    handler: None, elements: int, conditions: tuple[bool, ...], in_place: bool
) -> None:
    rng = np.random.default_rng(2)
    var, accum, grad = (rng.standard_normal(elements).astype(np.float32) for _ in range(3))
    new, slot = updated_alone([jnp.array(var), jnp.array(accum), jnp.array(grad)], conditions, in_place)
    if all(conditions):
        wide = accum.astype(np.float64) * np.float64(np.float32(0.9)) + grad
        np.testing.assert_allclose(slot, wide, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(new, var - 0.5 * wide, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(new, var)
        np.testing.assert_array_equal(slot, accum)


def test_what_does_not_go_together_is_an_error_that_names_the_operation(handler: None) -> None:
    with pytest.raises(Exception, match=r"layer/update.*gradient is not like"):
        updated_alone([jnp.ones(4), jnp.ones(4), jnp.ones(5)], (), False)
    with pytest.raises(Exception, match=r"layer/update.*slot is not like"):
        updated_alone([jnp.ones(4), jnp.ones(5), jnp.ones(4)], (), False)
    with pytest.raises(Exception, match=r"layer/update.*a variable, its slots, a gradient and numbers"):
        updated_alone([jnp.ones(4), jnp.ones(4), jnp.ones(4)], (), False, "Adam")


@pytest.mark.parametrize("elements", [0, 1, 15, 16, 31, 1000, 300_007])
def test_casts_have_the_bits_of_xla(handler: None, elements: int) -> None:
    bits = np.random.default_rng(3).integers(0, 1 << 32, elements, np.uint64).astype(np.uint32)
    special = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x80000000], np.uint32)
    bits[: len(special)] = special[:elements]
    # numbers below the least normal one are nothing to the threads of programs
    small = (bits & 0x7F800000) == 0
    values = np.where(small, bits & 0x80000000, bits).astype(np.uint32).view(np.float32)
    found = np.asarray(jax.jit(lambda x: pool_updates.narrowed("layer/cast", x))(values))
    wanted = np.asarray(jax.jit(lambda x: x.astype(HALF))(values))
    none = np.isnan(values)
    np.testing.assert_array_equal(found.view(np.uint16)[~none], wanted.view(np.uint16)[~none])
    assert np.isnan(found[none].astype(np.float32)).all()


def test_calls_count_as_the_loops_whose_place_they_take(handler: None) -> None:
    """What is quicker on one thread stays there: a call for small variables is not a library's."""

    def program(x: Any) -> Any:
        return pool_updates.narrowed("layer/cast", x)

    traced = jax.make_jaxpr(program)(np.ones((4, 4), np.float32))
    assert thread_costs.gains(traced, 2) is None
