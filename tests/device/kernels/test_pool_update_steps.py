"""Steps whose variables a library updates: what is interrupted, runs beside others, or has other variables too.

What needs the extra `native`, a C compiler and vectors of 512 bits is skipped without them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.kernels import pool_updates
from anabranch.ops import raw
from anabranch.xla import library_updates
from tests.device.kernels.updated_networks import Steady
from tests.device.runtime.test_interrupts import Thrower, ThrownError
from tests.device.shared_task import SharedTask
from tests.fuzz import updates

DEADLINE = 300.0
DESCENT: Callable[..., Any] = tf.train.GradientDescentOptimizer
MOMENTUM: Callable[..., Any] = partial(tf.train.MomentumOptimizer, momentum=0.0)
OPTIMIZERS = {"descent": DESCENT, "momentum": MOMENTUM}
HALF: Any = tf.bfloat16.as_numpy_dtype

pytestmark = pytest.mark.usefixtures("updates_handler")


def together(*functions: Callable[[], Any]) -> None:
    """Runs functions on threads of their own until all have ended; raises what one has raised."""
    failed: list[BaseException] = []

    def run(function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


# ---------------------------------------------------------------------- what comes from outside
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_point_at_which_a_step_is_interrupted_leaves_half_of_it(
    update_calls: dict[str, list[str]], optimizer: str, check: bool
) -> None:
    steady = Steady(OPTIMIZERS[optimizer], check=check)
    task = SharedTask()
    with task.session() as session:
        session.run(tf.global_variables_initializer())
        states = task.variables(session, *tf.global_variables())
        session.run(steady.step, steady.fed)
        before = steady.steps(session.run(steady.variables))
        for point in itertools.count(1):
            with contextlib.suppress(ThrownError), Thrower(point) as thrower:
                session.run(steady.step, steady.fed)
            assert not any(state.lock.locked() or state.pins for state in states), point
            steps = steady.steps(session.run(steady.variables))
            assert steps in (before, before + 1), point
            before = steps
            if thrower.left > 0:
                break
        assert point > 10
        session.run(steady.step, steady.fed)
        assert steady.steps(session.run(steady.variables)) == before + 1 > 2
    assert update_calls["updated"]


def test_a_deadline_that_passes_before_the_updates_leaves_all_variables(update_calls: dict[str, list[str]]) -> None:
    steady = Steady(DESCENT)
    told = threading.Event()
    waited = tf.py_func(lambda: np.float32(told.wait(DEADLINE)), [], tf.float32)
    (scale,) = steady.fed
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with tf.control_dependencies([waited]):
            gradient = tf.matmul(tf.ones([7, 2]) * scale, tf.ones([2, 5]))
            handle = steady.variables[0].handle
            late = raw.ResourceApplyGradientDescent(handle, tf.constant(0.5), gradient)
        session.run(steady.step, steady.fed)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(tf.group(late), steady.fed, tf.RunOptions(timeout_in_ms=50))
        told.set()
        assert steady.steps(session.run(steady.variables)) == 1
        session.run(steady.step, steady.fed)
        assert steady.steps(session.run(steady.variables)) == 2
    assert update_calls["updated"]


def test_a_call_that_fails_says_which_variables_are_lost(
    update_calls: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their memory was given to the program; they can be initialized anew."""
    monkeypatch.setitem(pool_updates.RULES, "GradientDescent", pool_updates.UpdateRule(7, ("alpha",)))  # type: ignore[misc]
    steady = Steady(DESCENT)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InternalError, match="there is no such rule") as failed:
            session.run(steady.step, steady.fed)
        assert "update_steady" in failed.value.op.name
        assert "steady0, steady1" in failed.value.message
        assert "are lost" in failed.value.message
        for v in steady.variables:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                session.run(v)
        session.run(tf.global_variables_initializer())
        assert steady.steps(session.run(steady.variables)) == 0
    assert update_calls["updated"]


# ---------------------------------------------------------------------- threads and sessions
@pytest.mark.parametrize("use_locking", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_threads_that_train_the_same_variables_lose_no_step(
    update_calls: dict[str, list[str]], optimizer: str, use_locking: bool
) -> None:
    """Hogwild: islands lock what they write whether they are asked to or not (docs/decisions/0012)."""
    steady = Steady(partial(OPTIMIZERS[optimizer], use_locking=use_locking))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        over, seen = threading.Event(), [0]

        def train() -> None:
            for _ in range(60):
                session.run(steady.step, steady.fed)

        def look() -> None:
            while not over.is_set():
                values = session.run(steady.variables)
                copies = [value.copy() for value in values]
                seen.append(steady.steps(values))
                assert seen[-1] >= seen[-2]
                for one, other in zip(values, copies, strict=True):
                    np.testing.assert_array_equal(one, other)

        def train_both() -> None:
            try:
                together(train, train)
            finally:
                over.set()

        together(train_both, look)
        assert steady.steps(session.run(steady.variables)) == 120
    assert update_calls["updated"]


def test_two_sessions_train_the_same_variables(update_calls: dict[str, list[str]]) -> None:
    """Each has a graph of its own, and another optimizer, and two threads look at what is there meanwhile."""
    task = SharedTask()
    made: list[tuple[Any, Steady, Any]] = []
    with contextlib.ExitStack() as left:
        for optimizer in (DESCENT, MOMENTUM):
            with tf.Graph().as_default():
                steady = Steady(optimizer)
                narrow = [tf.matmul(tf.ones([1, 7], HALF), tf.cast(steady.variables[0].read_value(), tf.bfloat16))]
                session = left.enter_context(task.session())
                initializer = tf.global_variables_initializer()
                made.append((session, steady, narrow))
                session.run(initializer)

        def train(session: Any, steady: Steady) -> None:
            for _ in range(40):
                session.run(steady.step, steady.fed)

        def look(session: Any, steady: Steady, narrow: Any) -> None:
            for _ in range(40):
                steady.steps(session.run(steady.variables))
                (product,) = session.run(narrow)
                assert len(np.unique(product)) == 1

        together(*(partial(train, *one[:2]) for one in made), *(partial(look, *one) for one in made))
        for session, steady, _ in made:
            assert steady.steps(session.run(steady.variables)) == 80
    assert len(set(update_calls["updated"])) > 10


# ---------------------------------------------------------------------- variables of all kinds
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_variables_of_other_types_and_odd_sizes(
    update_calls: dict[str, list[str]], optimizer: str, check: bool
) -> None:
    shapes = [(), (1,), (3, 5), (0,), (17,), (0, 3), (3, 0), (7, 31), (1, 1), (33,), (331, 401), (130_003,)]
    dtypes = [np.float32, np.float16, np.float32, np.float32, np.float64, np.float32, HALF]
    steady = Steady(OPTIMIZERS[optimizer], shapes * 2, dtypes, check)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(1, 5):
            session.run(steady.step, steady.fed)
            values = session.run(steady.variables)
            assert steady.steps(values) == number
            assert [value.shape for value in values] == shapes * 2
        if check:
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(steady.step, {**steady.fed, steady.row: 7})
            assert steady.steps(session.run(steady.variables)) == 4
    assert update_calls["updated"]


def test_values_that_are_not_aligned_are_taken_over(update_calls: dict[str, list[str]]) -> None:
    steady = Steady(DESCENT)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number, v in itertools.product(range(1, 4), steady.variables):
            size = v.shape.num_elements()
            memory = np.zeros(4 * size + 64, np.uint8)
            begin = number + (-memory.ctypes.data) % 16
            loaded = memory[begin : begin + 4 * size].view(np.float32).reshape(v.shape.as_list())
            v.load(loaded, session)
        session.run(steady.step, steady.fed)
        assert steady.steps(session.run(steady.variables)) == 1
        assert not loaded.any()
    assert update_calls["updated"]


# ---------------------------------------------------------------------- what readers see
@pytest.fixture
def one_is_enough(updates_handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_updates, "LEAST_UPDATES", 1)


@pytest.mark.usefixtures("one_is_enough")
@pytest.mark.parametrize("shape", [(3, 5), (300, 200)])
@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
def test_readers_between_updates_see_what_their_order_says(
    update_calls: dict[str, list[str]], shape: tuple[int, int], narrow: bool
) -> None:
    """Reads, and products, before, between and after two updates, an assignment and an addition."""
    v = tf.get_variable("v", shape, initializer=tf.zeros_initializer(), use_resource=True)
    fed = tf.placeholder(tf.float32, [])
    ones = fed * tf.ones([2, shape[0]])
    found: list[Any] = []
    last: list[Any] = []

    def look() -> None:
        """A value, and a product: each column's sum."""
        with tf.control_dependencies(last):
            value = v.read_value()
            factor = tf.cast(value, tf.bfloat16) if narrow else value
            product = tf.matmul(tf.ones([1, shape[0]], factor.dtype), factor)
        found.extend([value, product])
        last[:] = [value, product]

    def update(make: Callable[[], Any]) -> None:
        with tf.control_dependencies(last):
            last[:] = [make()]
        look()

    def descend() -> Any:
        gradient = tf.matmul(ones, tf.ones([2, shape[1]]), transpose_a=True)
        return raw.ResourceApplyGradientDescent(v.handle, tf.constant(0.5), gradient)

    look()
    for make in (
        descend,
        descend,
        lambda: v.assign(tf.fill(shape, fed)).op,
        descend,
        lambda: v.assign_add(ones[0, 0] + 0 * v).op,
    ):
        update(make)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kept = []
        first = 0.0
        for number in range(1, 5):
            numbers = session.run(found, {fed: number})
            kept.append((numbers, [value.copy() for value in numbers]))
            after = [first, first - number, first - 2 * number, number, 0, number]
            for value, product, wanted in zip(numbers[::2], numbers[1::2], after, strict=True):
                np.testing.assert_array_equal(value, np.full(shape, wanted, np.float32))
                np.testing.assert_allclose(np.asarray(product, np.float32), wanted * shape[0], rtol=2**-7)
            first = number
        for numbers, copies in kept:
            for one, other in zip(numbers, copies, strict=True):
                np.testing.assert_array_equal(one, other)
    assert len(set(update_calls["updated"])) == 3


@pytest.mark.usefixtures("one_is_enough")
def test_random_programs_give_what_numpy_computes(update_calls: dict[str, list[str]]) -> None:
    """A short run of the fuzzer."""
    for number in range(6):
        assert not updates.examine(number), number
    assert len(update_calls["updated"]) > 6


def test_a_variable_that_is_fetched_with_its_update_is_of_before_or_after(update_calls: dict[str, list[str]]) -> None:
    steady = Steady(DESCENT)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kept = []
        for number in range(1, 6):
            values, _ = session.run([steady.variables, steady.step], steady.fed)
            kept.append((values, [value.copy() for value in values]))
            for value in values:
                assert steady.steps([value]) in (number - 1, number)
        for values, copies in kept:
            for one, other in zip(values, copies, strict=True):
                np.testing.assert_array_equal(one, other)
        assert steady.steps(session.run(steady.variables)) == 5
    assert update_calls["updated"]


@pytest.mark.usefixtures("one_is_enough")
def test_a_slot_that_another_update_reads_has_its_value_in_their_order(update_calls: dict[str, list[str]]) -> None:
    """An update's gradient is a product of what the update before has changed, slot and variable."""
    one, other, slot = (
        tf.get_variable(name, [200, 100], initializer=tf.ones_initializer(), use_resource=True)
        for name in ("one", "other", "slot")
    )
    fed = tf.placeholder(tf.float32, [])
    rate, half = tf.constant(0.5), tf.constant(0.5)
    ones = tf.ones([200, 200])
    first = raw.ResourceApplyMomentum(one.handle, slot.handle, rate, tf.matmul(fed * ones, other.read_value()), half)
    with tf.control_dependencies([first]):
        moved = tf.matmul(ones, slot.read_value())
        second = raw.ResourceApplyGradientDescent(other.handle, rate, tf.matmul(ones, one.read_value()))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        a = b = c = 1.0
        for _ in range(3):
            found, _ = session.run([moved, tf.group(second)], {fed: 0.25})
            c = c * 0.5 + 0.25 * 200 * b
            a -= 0.5 * c
            b -= 0.5 * 200 * a
            np.testing.assert_allclose(found, np.full((200, 100), 200 * c), rtol=1e-5)
            for variable, wanted in ((one, a), (other, b), (slot, c)):
                np.testing.assert_allclose(session.run(variable), np.full((200, 100), wanted), rtol=1e-5)
    assert len(set(update_calls["updated"])) == 2
