"""The first calls of a new graph: a small one runs by its operations' own kernels, and is compiled at the third."""

from __future__ import annotations

import io
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import anabranch as tf
from anabranch.ops.arithmetic import random_bits
from anabranch.ops.arithmetic.random_bits import HostKey
from anabranch.runtime import explain
from anabranch.xla import direct_program, executable, lowering
from anabranch.xla.background import BackgroundCompiler
from anabranch.xla.kernel_choice import KERNELS_VARIABLE
from anabranch.xla.variants import CompileEvent


def test_the_third_call_is_compiled_and_gives_the_same(compilations: list[CompileEvent]) -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    w = tf.Variable(np.full((3, 4), 0.5, np.float32))
    loss = tf.reduce_sum(tf.sigmoid(x @ w)[:, 1:])
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    fed = {x: np.arange(6.0).reshape(2, 3)}
    values = []
    for calls in (executable.FIRST_DIRECT_CALLS, 0):
        with pytest.MonkeyPatch.context() as patch, tf.Session() as session:
            patch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
            session.run(tf.global_variables_initializer())
            compilations.clear()
            for step in range(1, 5):
                session.run(train, fed)
                assert len([e for e in compilations if e.operations > 5]) == (step > calls)
            values.append(session.run(w))
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_what_fails_leaves_the_variables_as_they_were() -> None:
    rows = tf.placeholder(tf.int32, [None])
    v, w = (tf.get_variable(name, initializer=np.zeros(3, np.float32), use_resource=True) for name in "vw")
    with tf.control_dependencies([v.assign_add([1.0, 2.0, 3.0])]):
        step = w.scatter_add(tf.IndexedSlices(tf.ones_like(rows, tf.float32), rows))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for expected in (1, 2, 3):  # directly, directly, compiled
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 3 is not in \[0, 3\)"):
                session.run(step, {rows: [0, 3]})
            session.run(step, {rows: [1, 1]})
            found = session.run([v, w])
            np.testing.assert_array_equal(found, np.multiply(expected, [[1, 2, 3], [0, 2, 0]]))


@pytest.mark.parametrize("what", ["large", "products", "special", "loop"])
def test_what_is_large_or_has_no_kernel_in_numpy_is_compiled_at_once(
    what: str, compilations: list[CompileEvent]
) -> None:
    x = tf.placeholder(tf.float32, [3])
    built = {
        "large": lambda: tf.reduce_sum(tf.fill([8 * executable.FIRST_ELEMENTS], x[0])),
        "products": lambda: tf.reduce_sum(tf.linalg.matmul(*[tf.zeros([2048, 2048]) + x[0]] * 2)),
        "special": lambda: tf.digamma(x),
        "loop": lambda: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1],
    }[what]()
    with tf.Session() as session:
        session.run(built, {x: np.ones(3)})
    assert len(compilations) == 1


def test_a_few_kinds_of_operations_that_only_jax_computes_do_not_keep_a_large_island_from_it(
    compilations: list[CompileEvent],
) -> None:
    x = tf.placeholder(tf.float32, [3])
    y = x
    for _ in range(executable.OPERATIONS_OF_FOREIGN):
        y = tf.erf(y) + 0.1
    z = y
    for _ in range(2):
        z = tf.digamma(tf.lgamma(z + 2.0) + 2.0)  # two kinds more: too many
    values = np.array([0.5, -1, 2], np.float32)
    wanted = values
    for _ in range(executable.OPERATIONS_OF_FOREIGN):
        wanted = np.vectorize(math.erf)(wanted).astype(np.float32) + np.float32(0.1)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(y, {x: values}), wanted, rtol=1e-5)
        assert not compilations
        session.run(z, {x: values})
        assert len(compilations) == 1


def test_values_are_released_when_nothing_needs_them_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a compiled program: not all of a step's values are there at once."""
    most, alive = [0], [0]
    run = lowering.DirectKernel.__call__

    def counted(kernel: Any, inputs: Any, state: Any) -> Any:
        results = run(kernel, inputs, state)
        for result in results:
            if result.size == 1000:
                alive[0] += 1
                most[0] = max(most[0], alive[0])
                weakref.finalize(result, lambda: alive.__setitem__(0, alive[0] - 1))
        return results

    monkeypatch.setattr(lowering.DirectKernel, "__call__", counted)
    y = x = tf.placeholder(tf.float32, [1000])
    for _ in range(20):
        y = tf.sin(y)
    wanted = np.ones(1000, np.float32)
    for _ in range(20):
        wanted = np.sin(wanted)
    with tf.Session() as session:
        for _ in range(2):  # later calls do without what the first one looks at
            most[0] = alive[0] = 0
            found = session.run([y, tf.reduce_sum(x)], {x: np.ones(1000)})
            np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
            assert 1 <= most[0] <= 4
            del found


def test_later_direct_calls_compute_only_what_depends_on_what_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, and what follows from them, are those of the first call; all else is computed anew."""
    monkeypatch.setattr(executable, "MOST_DIRECT_CALLS", 32)
    ran: list[list[str]] = [[]]
    run = lowering.DirectKernel.__call__

    def noted(kernel: Any, inputs: Any, state: Any) -> Any:
        ran[-1].append(kernel.op.name)
        return run(kernel, inputs, state)

    monkeypatch.setattr(lowering.DirectKernel, "__call__", noted)
    x = tf.placeholder(tf.float32, [None, 3])
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=True)
    mean = tf.divide(tf.reduce_sum(x * v), tf.cast(tf.size(x, name="size"), tf.float32), name="mean")
    drawn = tf.random_uniform([2], seed=3, name="drawn")
    with tf.control_dependencies([mean, drawn]):
        step = tf.group(v.assign_add([1.0, 1.0, 1.0]))
    with tf.Session() as session:
        session.run(v.initializer)
        ran.clear()
        draws, value = set(), np.array([1.0, 2.0, 3.0])
        for size in (2, 2, 2, 5, 5, 2):
            ran.append([])
            fed = np.random.default_rng(len(ran)).random((size, 3), np.float32)
            found, numbers, _ = session.run([mean, drawn, step], {x: fed})
            np.testing.assert_allclose(found, (fed * value).mean(), rtol=1e-5)
            draws.add(tuple(numbers))
            value += 1.0
        np.testing.assert_allclose(session.run(v), value)
    assert len(draws) == len(ran)
    assert ["size" in names for names in ran] == [True, False, False, True, False, False]
    assert all("mean" in names and "drawn" in " ".join(names) for names in ran)


def test_what_a_kernel_refuses_is_told_in_later_direct_calls_too() -> None:
    x = tf.placeholder(tf.float32, [2, 2])
    y = tf.matrix_inverse(x, name="inverted") + 1.0
    with tf.Session() as session:
        for matrix, fails in ((np.eye(2), False), (np.zeros((2, 2)), True), (np.eye(2), False)):
            if fails:
                with pytest.raises(tf.errors.InvalidArgumentError, match=r"Input is not invertible") as caught:
                    session.run(y, {x: matrix})
                assert caught.value.op.name == "inverted"
            else:
                np.testing.assert_allclose(session.run(y, {x: matrix}), matrix + 1.0)


@pytest.mark.parametrize("draw", [tf.random_normal, lambda shape: tf.random_gamma(shape, 2.0)])
def test_many_random_numbers_of_a_shape_that_is_fed(
    draw: Callable[[tf.Tensor], tf.Tensor], compilations: list[CompileEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "FIRST_ELEMENTS", 100)
    shape = tf.placeholder(tf.int32, [None])
    drawn = draw(shape)
    for sizes, compiled in (([50], 0), ([40, 500], 1)):
        with tf.Session() as session:
            assert session.run(drawn, {shape: sizes}).shape == tuple(sizes)
        assert len(compilations) == compiled


# ---------------------------------------------------------------------- compiled in the background
class Background:
    """Stands in for the compiling thread: does its work when it is told to."""

    def __init__(self) -> None:
        self.left: list[tuple[Future[None], Callable[[], None]]] = []

    def start(self, work: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self.left.append((future, work))
        return future

    def finish(self) -> None:
        for future, work in self.left:
            try:
                work()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(None)
        self.left.clear()


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Background:
    monkeypatch.setenv(KERNELS_VARIABLE, "auto")
    monkeypatch.setattr(executable, "BACKGROUND_OPERATIONS", 20)
    stand_in = Background()
    monkeypatch.setattr(executable, "background", stand_in)
    return stand_in


def long_program() -> tuple[tf.Tensor, tf.Tensor, tf.Variable]:
    """A placeholder, a loss of more than twenty operations that trains, and what is trained."""
    x = tf.placeholder(tf.float32, [4, 3])
    w = tf.Variable(np.full((3, 3), 0.25, np.float32))
    y: Any = x
    for _ in range(6):
        y = tf.sin(y @ w)
    loss = tf.reduce_mean(tf.square(y - 1.0))
    with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.1).minimize(loss)]):
        return x, tf.identity(loss), w


def test_steps_go_on_while_their_program_is_compiled(
    background: Background, compilations: list[CompileEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, loss, w = long_program()
    fed = {x: np.linspace(0, 1, 12).reshape(4, 3)}
    losses: list[list[float]] = []
    for slowly in (True, False):
        if not slowly:
            monkeypatch.setenv(KERNELS_VARIABLE, "estimate")  # steps that can be repeated wait
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            compilations.clear()
            losses.append([session.run(loss, fed) for _ in range(5)])
            of_steps = [event for event in compilations if event.operations > 20]
            assert [bool(background.left), len(of_steps)] == ([True, 0] if slowly else [False, 1])
            background.finish()
            losses[-1] += [session.run(loss, fed) for _ in range(3)]
            of_steps = [event for event in compilations if event.operations > 20]
            assert [event.apart for event in of_steps] == [slowly]
            losses[-1].append(float(session.run(w).sum()))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][7] < losses[0][0]


def test_another_batch_is_compiled_in_the_background_too(
    background: Background, compilations: list[CompileEvent]
) -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    y: Any = x
    for _ in range(12):
        y = tf.sin(y) + tf.cos(y)
    with tf.Session() as session:
        found = {size: [session.run(y, {x: np.ones((size, 3))}) for _ in range(4)] for size in (4, 2)}
        assert len(background.left) == 2
        background.finish()
        for size, values in found.items():
            values.append(session.run(y, {x: np.ones((size, 3))}))
            np.testing.assert_allclose(values, [values[0]] * 5, rtol=1e-5)
    assert [event.apart for event in compilations if event.operations > 20] == [True, True]


def test_checks_of_the_program_that_took_over_are_looked_at(background: Background) -> None:
    x, loss, w = long_program()
    row = tf.placeholder(tf.int32, [])
    step = loss + tf.gather(w, row)[0]
    fed = {x: np.ones((4, 3))}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            for _ in range(4):
                session.run(step, {**fed, row: 2})
            before = session.run(w)
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 3 is not in \[0, 3\)"):
                session.run(step, {**fed, row: 3})
            np.testing.assert_array_equal(session.run(w), before)
            background.finish()


def test_what_cannot_be_compiled_is_an_error_of_the_step_that_needs_it(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "too large for XLA")

    x, loss, _ = long_program()
    fed = {x: np.ones((4, 3))}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(loss, fed)
        with monkeypatch.context() as patch:
            patch.setattr(executable, "check_compiled", refuse)
            background.finish()
            with pytest.raises(tf.errors.ResourceExhaustedError, match="too large for XLA"):
                session.run(loss, fed)
        assert np.isfinite(session.run(loss, fed))  # compiled now


def test_the_compiling_thread_does_one_after_the_other_and_ends() -> None:
    compiler = BackgroundCompiler()
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append(1)

    def second() -> None:
        done.append(2)
        raise ValueError("the second")

    futures = [compiler.start(first), compiler.start(second)]
    assert begun.wait(30)
    assert not done
    assert not compiler.wait(0.0)
    go_on.set()
    assert compiler.wait(30)
    assert done == [1, 2]
    assert futures[0].result(0) is None
    with pytest.raises(ValueError, match="the second"):
        futures[1].result(0)
    assert compiler.start(lambda: None).result(30) is None  # it begins anew


@pytest.fixture
def compiled_anew() -> Iterator[None]:
    """What a process keeps for normal numbers is compiled as it is here, and not quickly, as in most tests."""
    random_bits._compiled_normal.clear_cache()
    yield
    random_bits._compiled_normal.clear_cache()


def test_what_is_known_to_be_too_much_is_not_begun(
    compilations: list[CompileEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    bind = lowering.DirectKernel.__init__

    def bound(kernel: Any, op: Any, *rest: Any) -> None:
        begun.append(op.name)
        bind(kernel, op, *rest)

    monkeypatch.setattr(lowering.DirectKernel, "__init__", bound)
    x = tf.placeholder(tf.float32, [3])
    small = tf.add(x, 1.0, name="small")
    large = tf.reduce_sum(tf.fill([8 * executable.FIRST_ELEMENTS], small[0]))
    with tf.Session() as session:
        session.run(large, {x: np.ones(3)})
        assert not begun
        assert len(compilations) == 1
        session.run(small, {x: np.ones(3)})
        assert begun == ["small"]


def test_random_numbers_are_the_same_in_both_ways(compiled_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    tf.set_random_seed(7)
    for seed in (None, 5):
        for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
            drawn += [tf.random_uniform([3, 5], dtype=dtype, seed=seed), tf.random_normal([17], dtype=dtype, seed=seed)]
        drawn += [tf.random_gamma([30], [0.5, 8.0], dtype=dtype, seed=seed) for dtype in (tf.float32, tf.float64)]
        drawn += [tf.truncated_normal([50], seed=seed), tf.random_shuffle(tf.range(20), seed=seed)]
        drawn += [tf.random_uniform((), -5, 1 << 20, dtype=tf.int32, seed=seed)]
        drawn += [tf.random_uniform([4], -(1 << 60), 1 << 61, dtype=tf.int64, seed=seed)]
    found: list[list[Any]] = []
    for calls in (2, 0):
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
        with tf.Session() as session:
            found.append(session.run(drawn) + session.run(drawn))
    for direct, compiled in zip(*found, strict=True):
        assert direct.dtype == compiled.dtype
        np.testing.assert_array_equal(direct, compiled)


@pytest.mark.parametrize("seed", [0, 1 << 40, (1 << 63) - 1])
def test_keys_outside_of_jax(seed: int) -> None:
    key = HostKey.of(seed).folded(11)
    with jax.enable_x64(True):
        known = jax.random.fold_in(jax.random.key(np.int64(seed)), 11)
        assert [*key] == jax.random.key_data(known).tolist() == jax.random.key_data(key.on_device()).tolist()
        assert key.bits64() == int(jax.random.bits(known, (), jnp.uint64))


def test_explanations_tell_the_tier() -> None:
    output = io.StringIO()
    explainer = explain.enable(Console(file=output, width=200))
    try:
        y = tf.tanh(tf.placeholder_with_default([1.0, 2.0], [2]), name="bent")
        with tf.Session() as session:
            for _ in range(3):
                session.run(y)
        explainer.print_summary()
    finally:
        explain.disable()
    told = output.getvalue()
    assert told.index("ran directly") < told.index("compiled after 1 more: first run of this step")
    assert told.index("compiled after") < told.index("compiled island")
    assert "1 kinds of steps, 1 compilations in" in told
    assert "1 programs that ran directly first" in told


#: more than `host_memory.ALIGNED_FROM` bytes
LARGE = (200, 300)


def _network_of_large_values() -> tuple[Any, list[Any], dict[Any, Any], np.ndarray[Any, Any]]:
    """What trains, what is fetched beside it, and what is fed: values are read once, twice, through views, and kept."""
    fed = np.random.default_rng(3).normal(size=LARGE).astype(np.float32)
    x = tf.placeholder(tf.float32, LARGE)
    w = tf.Variable(np.random.default_rng(4).normal(size=LARGE).astype(np.float32), use_resource=True)
    product = x * w
    twice = tf.add_n([product, product, tf.identity(product)])
    turned = tf.reshape(product, LARGE[::-1])
    positive = tf.nn.relu(tf.nn.bias_add(product - 1.0, np.linspace(0, 1, LARGE[1], dtype=np.float32)))
    again = tf.reshape(turned + 1.0, LARGE) * positive + twice
    half = tf.cast(tf.cast(again, tf.bfloat16) * tf.cast(x, tf.bfloat16), tf.float32)
    dense = tf.matmul(half, w, transpose_b=True)
    loss = tf.reduce_mean(tf.tanh(dense * 1e-3)) + tf.reduce_mean(tf.square(positive))
    old = w.read_value()
    with tf.control_dependencies([old]):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return train, [loss, product, twice, turned, positive, old, x], {x: fed}, fed


def test_memory_is_written_over_only_where_nobody_reads_it() -> None:
    results = []
    for calls in (executable.FIRST_DIRECT_CALLS, 0):
        with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default(), tf.Session() as session:
            patch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
            train, fetches, feeds, fed = _network_of_large_values()
            before = fed.copy()
            session.run(tf.global_variables_initializer())
            steps = [session.run([train, *fetches], feeds)[1:] for _ in range(2)]
            kept = [[np.copy(value) for value in step] for step in steps]
            steps += [[session.run(tf.global_variables()[0])]]
            np.testing.assert_array_equal(fed, before)
            for step, copies in zip(steps, kept, strict=False):
                for value, copy in zip(step, copies, strict=True):
                    np.testing.assert_array_equal(value, copy)
            results.append(steps)
    for direct, compiled in zip(*results, strict=True):
        for one, other in zip(direct, compiled, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-3)


def test_new_values_are_handed_over_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[bool] = []
    real = direct_program.lasting

    def lasting(values: dict[Any, Any], key: Any, *rest: Any) -> Any:
        place = values[key].ctypes.data if isinstance(values[key], np.ndarray) else None
        result = real(values, key, *rest)
        handed.append(result.nbytes > 1 << 16 and result.ctypes.data == place)
        return result

    monkeypatch.setattr(direct_program, "lasting", lasting)
    w = tf.Variable(np.ones(LARGE, np.float32), use_resource=True)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        handed.clear()
        session.run(train)
        assert handed == [True]
        np.testing.assert_allclose(session.run(w), 0.8, rtol=1e-6)


@pytest.mark.parametrize(("rows", "least", "most"), [(3, 20, 32), (30000, 4, 20), (300000, 2, 2)])
def test_direct_calls_take_no_longer_than_the_compilation(
    rows: int, least: int, most: int, compilations: list[CompileEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small steps go on directly for as long as it pays, and how long depends on the step alone."""
    monkeypatch.setattr(executable, "MOST_DIRECT_CALLS", 32)
    x = tf.placeholder(tf.float32, [None, 8])
    y = tf.reduce_sum(tf.tanh(tf.nn.relu(x * 2.0) + 1.0), axis=0)
    fed = {x: np.full((rows, 8), 0.5, np.float32)}
    with tf.Session() as session:
        direct = 0
        while not compilations:
            direct += 1
            assert direct < 40
            result = session.run(y, fed)
        np.testing.assert_allclose(result, np.full(8, rows * np.tanh(2.0)), rtol=1e-4)
    assert least <= direct - 1 <= most


@pytest.mark.parametrize("update", ["all", "rows"])
def test_direct_calls_that_write_a_large_variable_are_few(
    update: str, compilations: list[CompileEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes the variable down once more, whatever changes, and gives no result that would show its size."""
    monkeypatch.setattr(executable, "MOST_DIRECT_CALLS", 32)
    v = tf.get_variable("v", [500_000, 8], initializer=tf.zeros_initializer(), use_resource=True)
    change = tf.placeholder(tf.float32, [500_000, 8] if update == "all" else [2, 8])
    step = v.assign_sub(change).op if update == "all" else tf.group(tf.scatter_sub(v, [3, 5], change))
    with tf.Session() as session:
        session.run(v.initializer)
        compilations.clear()
        calls = 0
        while not compilations:
            calls += 1
            assert calls <= 3
            session.run(step, {change: np.ones(change.shape.as_list(), np.float32)})
        assert session.run(v)[3, 0] == -calls
