"""The kernels of a session: chosen when a step is compiled, measured, remembered, explained, and a package's own."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from rich.console import Console

import anabranch as tf
from anabranch.core.devices import Device, register_device, unregister_device
from anabranch.core.kernels import unregister_kernel
from anabranch.ops import raw
from anabranch.runtime import explain
from anabranch.runtime.devices import XlaDevice
from anabranch.xla import lowering
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.kernel_choice import KernelChooser, kernel_mode, target_of
from anabranch.xla.kernel_costs import CostMemory
from anabranch.xla.kernel_timing import Run, timed_run
from anabranch.xla.variants import compile_log

#: a convolution of which estimates do not know whether a product is better
SHAPE, FILTER = (2, 30, 30, 32), (1, 1, 32, 64)


def convolution() -> tuple[tf.Tensor, dict[Any, Any]]:
    x, w = tf.placeholder(tf.float32, SHAPE), tf.placeholder(tf.float32, FILTER)
    y = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME", name="pointwise")
    rng = np.random.default_rng(0)
    return y, {x: rng.normal(size=SHAPE), w: rng.normal(size=FILTER)}


def chosen(name: str = "pointwise") -> tuple[str, str]:
    """What was chosen for an operation in the last compilation, and why."""
    choice = compile_log.events[-1].kernels[name]
    return choice.chosen.name, choice.why


class Stopwatch:
    """A clock that is read before and after each run, and says that the kernels took what a test says."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds
        self.programs: list[Any] = []

    def __call__(self, program: Any, inputs: Any, device: Any) -> Run:
        """Runs the program, as the measurement would."""
        kind = self.seconds[len(self.programs)]
        self.programs.append(program)
        run = timed_run(program, inputs, device, itertools.count().__next__)
        return lambda: kind * run()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes choosers of processes that know nothing but what is on disk."""

    def make(mode: str, *seconds: float) -> Stopwatch:
        stopwatch = Stopwatch(*seconds)
        monkeypatch.setattr(lowering, "timed_run", stopwatch)
        monkeypatch.setattr(lowering, "chooser", KernelChooser(lambda: CostMemory(tmp_path), lambda: mode))
        return stopwatch

    return make


def run(fetch: Any, fed: dict[Any, Any]) -> Any:
    with tf.Session() as session:
        return session.run(fetch, fed)


def test_an_open_choice_is_measured_while_the_step_is_compiled(fresh: Any) -> None:
    """And the next process finds what it took."""
    y, fed = convolution()
    fresh("estimate")
    by_estimate = run(y, fed)
    assert chosen() == ("product", "by estimate alone, as asked")
    stopwatch = fresh("auto", 2.0, 1.0)
    measured = run(y, fed)
    assert chosen() == ("own", "measured: the quickest")
    assert len(stopwatch.programs) == 2
    np.testing.assert_allclose(measured, by_estimate, rtol=1e-4, atol=1e-4)
    later = fresh("auto")
    np.testing.assert_array_equal(run(y, fed), measured)
    assert chosen() == ("own", "measured earlier: the quickest")
    assert not later.programs


def test_gradients_are_measured_with_the_sizes_they_ask_for(fresh: Any) -> None:
    y, fed = convolution()
    grads = tf.gradients(tf.reduce_sum(y * y), list(fed))
    fresh("estimate")
    wanted = run(grads, fed)
    stopwatch = fresh("measure", *[1.0] * 6)
    for found, expected in zip(run(grads, fed), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert len(stopwatch.programs) == 6
    assert {choice.op_type for choice in compile_log.events[-1].kernels.values()} == {
        "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
    }  # fmt: skip


def test_kernels_in_loops_and_branches_are_chosen(fresh: Any) -> None:
    """A measurement while the body is traced is none of the body's."""
    _, fed = convolution()
    w = next(key for key in fed if key.shape.as_list() == list(FILTER))
    back = tf.constant(np.eye(64, 32, dtype=np.float32)[None, None])

    def iterate(i: Any, x: Any) -> Any:
        inner = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME", name="inner")
        return i + 1, tf.tanh(tf.nn.conv2d(inner, back, strides=[1, 1, 1, 1], padding="SAME"))

    _, last = tf.while_loop(lambda i, _: i < 3, iterate, [0, next(key for key in fed if key is not w)])
    fresh("estimate")
    wanted = run(last, fed)
    stopwatch = fresh("auto", 2.0, 1.0, 2.0, 1.0)
    np.testing.assert_allclose(run(last, fed), wanted, rtol=1e-3, atol=1e-3)
    assert len(stopwatch.programs) == 4
    assert {choice.chosen.name for choice in compile_log.events[-1].kernels.values()} == {"own"}


# ---------------------------------------------------------------------- timing
def test_a_program_is_compiled_once_and_each_run_is_timed() -> None:
    times = iter([0.0, 0.02, 1.0, 1.01])
    traced: list[Any] = []

    def program(x: Any) -> Any:
        traced.append(x)
        return jnp.sin(x)

    run = in_wide_types(timed_run, program, [((3,), np.dtype(np.float32))], None, times.__next__)
    assert [in_wide_types(run) for _ in range(2)] == pytest.approx([0.02, 0.01])
    assert len(traced) == 1


def test_a_measurement_inside_a_trace_leaves_nothing_in_it() -> None:
    ran: list[Any] = []

    def traced(x: Any) -> Any:
        kinds = [np.dtype(kind) for kind in (np.float64, np.int8, np.bool_, np.complex64, jnp.bfloat16, np.uint16)]
        inputs = [((2, 3), kind) for kind in kinds]
        clock = itertools.count().__next__
        ran.append(timed_run(lambda *arrays: [a + a for a in arrays], inputs, None, clock)())
        return x + 1

    program = in_wide_types(jax.make_jaxpr(traced), np.float32(1))
    assert [equation.primitive.name for equation in program.eqns] == ["add"]
    assert ran == [1]


# ---------------------------------------------------------------------- explanations
def test_explanations_say_what_was_chosen_and_why(fresh: Any) -> None:
    y, fed = convolution()
    summary = tf.reduce_sum(tf.exp(y))
    output = io.StringIO()
    explain.enable(Console(file=output, width=200))
    try:
        fresh("auto", 0.002, 0.001)
        run(summary, fed)
    finally:
        explain.disable()
    told = [line.split() for line in output.getvalue().splitlines() if "pointwise" in line and "Conv2D" in line]
    assert [word for word in told[-1] if word.isprintable() and word not in "│┃"] == [
        "pointwise", "Conv2D", "own", "measured:", "the", "quickest",
        "product", "0.95", "(2", "ms),", "own", "1", "(1", "ms)",
    ]  # fmt: skip
    assert "Exp" not in compile_log.events[-1].kernels


# ---------------------------------------------------------------------- kernels of packages
@pytest.fixture
def odd() -> Iterator[None]:
    """A type of device with kernels of its own: an exact softplus, and a convolution that shows itself."""

    def make(count: int | None) -> list[Device]:
        return [XlaDevice("ODD", index) for index in range(count or 1)]

    @tf.register_kernel("Softplus", "doubling", device_type="ODD", types={"T": [tf.float32]}, cost=0.1)
    def _(features: Any) -> Any:
        return 2 * features

    @tf.register_kernel(
        *("LeakyRelu", "with attributes"),
        device_type="ODD",
        cost=0.1,
        applies=lambda case: case.inputs[0].shape == (2,),
    )
    def _(features: Any, *, alpha: float, ctx: Any) -> Any:
        return features * alpha + len(ctx.op.name)

    register_device("ODD", make)
    yield
    unregister_device("ODD")
    unregister_kernel("Softplus", "doubling", "ODD")
    unregister_kernel("LeakyRelu", "with attributes", "ODD")


@pytest.mark.usefixtures("odd")
def test_a_registered_device_has_kernels_of_its_own() -> None:
    """By device type, dtype and predicate (§3.3); elsewhere the operation's own runs."""
    x = tf.placeholder(tf.float32, [2])
    with tf.device("/device:ODD:0"):
        odd_one = tf.nn.softplus(x, name="odd")
        odd_doubles = tf.nn.softplus(tf.cast(x, tf.float64))
        leaky = tf.nn.leaky_relu(x, 0.25, name="leaky")
        other_shape = tf.nn.leaky_relu(tf.stack([x, x]), 0.25)
    with tf.device("/cpu:0"):
        usual = tf.nn.softplus(x)
    fed = {x: [-4.0, 8.0]}
    with tf.Session() as session:
        found = session.run([odd_one, odd_doubles, leaky, other_shape, usual], fed)
    softplus = np.log1p(np.exp([-4.0, 8.0]))
    np.testing.assert_array_equal(found[0], [-8, 16])
    np.testing.assert_allclose(found[1], softplus, rtol=1e-6)
    np.testing.assert_array_equal(found[2], [4, 7])
    np.testing.assert_array_equal(found[3], [[-1, 8]] * 2)
    np.testing.assert_allclose(found[4], softplus, rtol=1e-6)


@pytest.mark.usefixtures("odd")
def test_a_device_on_the_host_has_the_processors_kernels_too() -> None:
    with tf.device("/device:ODD:0"):
        y, fed = convolution()
    run(y, fed)
    assert chosen()[0] == "product"
    assert target_of(None).device_types == (jax.default_backend().upper(),)
    assert target_of(jax.devices("cpu")[0], "ODD").device_types == ("ODD", "CPU")
    assert target_of(jax.devices("cpu")[0], "CPU").device_types == ("CPU",)


def test_what_is_known_while_a_step_is_compiled_needs_no_kernel() -> None:
    """Shape arithmetic stays in NumPy, whatever is registered."""

    @tf.register_kernel("Neg", "absurd", device_type="CPU", cost=0.1)
    def _(x: Any) -> Any:
        return x * 100

    try:
        x = tf.placeholder(tf.int32, [None])
        with tf.Session() as session:
            size = -raw.Neg(x=tf.size(x))
            assert session.run(tf.ones([size]), {x: [1, 2, 3]}).shape == (3,)
            assert session.run(raw.Neg(x=x), {x: [1, 2, 3]}).tolist() == [100, 200, 300]
    finally:
        unregister_kernel("Neg", "absurd", "CPU")


def test_a_wrong_mode_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    y, fed = convolution()
    monkeypatch.setattr(lowering, "chooser", KernelChooser(lambda: None, kernel_mode))
    monkeypatch.setenv("ANABRANCH_KERNELS", "fast")
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be one of auto, estimate, measure, got 'fast'"):
        run(y, fed)


@pytest.mark.parametrize("convolves", [False, True])
def test_kernels_are_loaded_with_the_first_operation_that_has_some(convolves: bool) -> None:
    program = f"""
        import sys
        import anabranch as tf
        x = tf.placeholder_with_default([[[[1.0]]]], [1, 1, 1, 1])
        y = tf.nn.conv2d(x, x, strides=[1, 1, 1, 1], padding="SAME") if {convolves} else tf.exp(x)
        with tf.Session() as session:
            session.run(y)
        print("anabranch.kernels.convolutions" in sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{convolves}\n"
