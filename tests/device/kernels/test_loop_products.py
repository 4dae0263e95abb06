"""Products in loops whose matrix is transposed before the loop, or is not: whichever is quicker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.kernels import OWN_KERNEL, alternates, has_alternates
from anabranch.kernels import loop_products
from anabranch.xla import lowering
from anabranch.xla.kernel_choice import KernelChoice, KernelChooser, kernel_mode
from anabranch.xla.variants import CompileEvent, compile_log

ITERATIONS = 4


@pytest.fixture(autouse=True)
def fresh_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured earlier, and no time for it is used up."""
    monkeypatch.setattr(lowering, "chooser", KernelChooser(lambda: None, kernel_mode))


def looped(rows: int, summed: int, columns: int, transposed: bool, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    """Fetches and feeds of a loop with one product, and what it gives."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, summed)).astype(dtype)
    w = (rng.normal(size=(columns, summed) if transposed else (summed, columns)) / summed).astype(dtype)
    start, matrix = tf.placeholder(dtype, x.shape), tf.placeholder(dtype, w.shape)

    def body(i: Any, a: Any) -> Any:
        product = tf.matmul(a, matrix, transpose_b=transposed)
        return i + 1, a + tf.reduce_mean(tf.tanh(product), 1, keepdims=True)

    _, last = tf.while_loop(lambda i, _: i < ITERATIONS, body, (0, start))
    wanted = x
    for _ in range(ITERATIONS):
        wanted = wanted + np.tanh(wanted @ (w.T if transposed else w)).mean(1, keepdims=True)
    return [last, *tf.gradients(last, [start])], {start: x, matrix: w}, wanted


def choices_of(fetches: Any, feeds: Any, wanted: Any) -> Mapping[str, KernelChoice]:
    """What was chosen when a step was compiled; its results are right."""
    events: list[CompileEvent] = []
    compile_log.listeners.append(events.append)
    try:
        with tf.Session() as session:
            found = session.run(fetches, feeds)
    finally:
        compile_log.listeners.remove(events.append)
    np.testing.assert_allclose(found[0], wanted, rtol=2e-5, atol=1e-5)
    return {name: choice for event in events for name, choice in event.kernels.items()}


@pytest.mark.parametrize("transposed", [False, True])
def test_small_matrices_lie_along_the_result(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is known, and nothing is measured."""
    monkeypatch.setattr(lowering, "timed_run", lambda *_: pytest.fail("measured"))
    found = choices_of(*looped(3, 20, 30, transposed))
    assert {choice.chosen.name for choice in found.values()} == {loop_products.NAME}
    # the forward product, or that of its gradient, which is transposed the other way round
    assert len(found) == 1


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("quicker", [OWN_KERNEL, loop_products.NAME])
def test_large_matrices_are_measured(transposed: bool, quicker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quicker one is taken, and gives the same; a loop is what is measured."""
    shapes: list[Any] = []
    order: list[str] = []

    def measured(program: Any, inputs: Any, device: Any) -> Any:
        shapes.append([shape for shape, _ in inputs])
        order.append(loop_products.NAME if len(order) % 2 == first else OWN_KERNEL)
        seconds = 1.0 if order[-1] == quicker else 3.0
        return lambda: seconds

    # the kernel with the least estimate is measured first
    first = 0 if transposed else 1
    monkeypatch.setattr(lowering, "timed_run", measured)
    monkeypatch.setattr(loop_products, "_LARGE", 600)
    monkeypatch.setenv("ANABRANCH_KERNELS", "measure")
    fetches, feeds, wanted = looped(5, 20, 30, transposed)
    found = choices_of(fetches[:1], feeds, wanted)
    assert [choice.chosen.name for choice in found.values()] == [quicker]
    matrix = (30, 20) if transposed else (20, 30)
    assert shapes == [[(32, 5, 20), matrix]] * 2
    assert sorted(order) == sorted([OWN_KERNEL, loop_products.NAME])


def test_an_iteration_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Really, once: both kernels of a large product."""
    monkeypatch.setenv("ANABRANCH_KERNELS", "auto")
    fetches, feeds, wanted = looped(16, 1024, 1024, False)
    (choice,) = choices_of(fetches[:1], feeds, wanted).values()
    assert choice.why.startswith("measured"), choice
    assert set(choice.measured) == {OWN_KERNEL, loop_products.NAME}
    assert all(seconds > 0 for seconds in choice.measured.values())


@pytest.mark.parametrize("transposed", [False, True])
def test_many_rows_and_float64(transposed: bool) -> None:
    fetches, feeds, wanted = looped(200, 40, 50, transposed, np.float64)
    choices_of(fetches, feeds, wanted)


def test_a_product_that_is_no_loop_s_is_left_alone() -> None:
    x = tf.constant(np.ones((4, 3), np.float32))
    found = choices_of(
        [tf.matmul(x, x, transpose_b=True) + tf.placeholder_with_default(0.0, [])], {}, np.full((4, 4), 3.0)
    )
    assert found == {}


def test_elsewhere_a_product_has_no_open_choice() -> None:
    """What has one is compiled with more care: it may call back, and counts as more work."""
    attrs = {"T": tf.float32, "transpose_a": False, "transpose_b": False}
    loop_kernels = [kernel.name for kernel in alternates("MatMul", attrs) if kernel.prepares and kernel.accepts(attrs)]
    assert loop_kernels == [loop_products.NAME]
    assert not has_alternates("MatMul", attrs, settled=False)
