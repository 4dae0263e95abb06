"""How much memory steps take: what is computed again for gradients, and what is done where memory is short."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core import sizes as core_sizes
from anabranch.xla import sizes as compiled_sizes
from anabranch.xla.variants import compile_log

# `anabranch.xla` has a function of this module's name, as a public one of TensorFlow's
executable = importlib.import_module("anabranch.xla.executable")

LAYERS, GROUP, WIDTH, BATCH = 24, 4, 64, 2048


def chain(recomputed: bool) -> tuple[Any, Any, Any]:
    """Placeholder, loss and training step of a chain of layers, groups of which are computed again or not."""
    x = tf.placeholder(tf.float32, [BATCH, WIDTH])
    rng = np.random.default_rng(0)
    weights = [
        tf.get_variable(f"w{i}", initializer=rng.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32), use_resource=True)
        for i in range(LAYERS)
    ]

    def layers(y: Any, *held: Any) -> Any:
        for w in held:
            y = tf.tanh(tf.matmul(y, w))
        return y

    y: Any = x
    for start in range(0, LAYERS, GROUP):
        held = weights[start : start + GROUP]
        y = tf.recompute_grad(layers)(y, *held) if recomputed else layers(y, *held)
    loss = tf.reduce_mean(tf.square(y))
    return x, loss, tf.train.GradientDescentOptimizer(0.5).minimize(loss)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each compiled program needs besides its arguments and results."""
    found: list[int] = []
    check = executable.check_compiled

    def note(compiled: Any, *others: Any) -> int:
        found.append(compiled.memory_analysis().temp_size_in_bytes)
        return int(check(compiled, *others))

    monkeypatch.setattr(executable, "check_compiled", note)
    return found


def trained(recomputed: bool, steps: int = 4) -> list[Any]:
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss, train = chain(recomputed)
        session.run(tf.global_variables_initializer())
        rows = np.random.default_rng(1).normal(size=(BATCH, WIDTH))
        losses = [session.run([loss, train], {x: rows})[0] for _ in range(steps)]
        return [*losses, *session.run(tf.trainable_variables())]


def test_what_is_computed_again_is_not_kept(planned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "BACKGROUND_OPERATIONS", 1 << 30)
    once = trained(False)
    kept = max(planned)
    planned.clear()
    again = trained(True)
    assert kept > LAYERS * BATCH * WIDTH * 4
    assert max(planned) < 0.6 * kept
    for one, other in zip(once, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_graph_that_was_written_and_read_computes_again_too(
    planned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "BACKGROUND_OPERATIONS", 1 << 30)
    with tf.Graph().as_default():
        chain(True)
        meta = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.import_meta_graph(meta)
        session.run("init" if "init" in graph.get_operations() else tf.global_variables_initializer())
        for _ in range(4):
            session.run("GradientDescent", {"Placeholder:0": np.ones((BATCH, WIDTH))})
    assert max(planned) < 0.6 * LAYERS * BATCH * WIDTH * 4


def test_infinite_gradients_do_not_change_what_is_computed_again() -> None:
    x = tf.constant([0.5, 2.0])
    y = tf.recompute_grad(lambda x: tf.sin(tf.exp(x)))(x)
    seed = tf.placeholder(tf.float32, [2])
    grad = tf.gradients(y, x, seed)[0]
    with tf.Session() as session:
        for _ in range(40):
            found = session.run(grad, {seed: [np.inf, np.nan]})
    assert found[0] == np.inf * np.sign(np.cos(np.exp(0.5)))
    assert np.isnan(found[1])


def test_where_memory_is_short_no_variable_is_copied_by_a_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_UNCHECKED_BYTES", 1)
    monkeypatch.setattr(executable, "available_memory", lambda: 3 * 4 * 1000 - 1)
    directly: list[Any] = []
    compile_log.direct_listeners.append(directly.append)
    try:
        v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer(), use_resource=True)
        w = tf.get_variable("w", [900], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            directly.clear()
            session.run(v.assign_add(tf.ones([1000]) * 2.0).op)
            assert not directly
            session.run(w.assign_add(tf.ones([900]) * 2.0).op)
            assert len(directly) == 1
            np.testing.assert_array_equal(session.run(v), np.full(1000, 2.0))
    finally:
        compile_log.direct_listeners.remove(directly.append)


def test_freed_memory_is_given_back_before_a_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    left, given = [1 << 20], []
    monkeypatch.setattr(compiled_sizes, "_UNCHECKED", 1)
    monkeypatch.setattr(compiled_sizes, "available_memory", lambda: left[0])

    def give_back(kept: int) -> None:
        given.append(kept)
        left[0] = core_sizes.available_memory()

    monkeypatch.setattr(compiled_sizes, "return_freed_memory", give_back)
    x = tf.placeholder(tf.float32, [1 << 20])
    y = tf.cumsum(tf.exp(x) + 1.0)
    with tf.Session() as session:
        for _ in range(3):
            found = session.run(y, {x: np.zeros(1 << 20)})
        assert found[-1] == pytest.approx(2 << 20)
    assert given == [0]


#: in a process of its own: a step for which the system gives it no memory, with the check before it and without
_LIMITED = """
import resource, sys
import numpy as np
import anabranch as tf
from anabranch.core.host_memory import aligned_empty
from anabranch.core.sizes import _pages
from anabranch.xla import executable, heap

executable.FIRST_DIRECT_CALLS = 0
x = tf.placeholder(tf.float32, [None, 1000])
w = tf.get_variable("w", initializer=np.full((1000, 1000), 1e-3, np.float32), use_resource=True)
h = tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, w)), w))
step = tf.train.GradientDescentOptimizer(1e-6).minimize(tf.reduce_sum(h * h))
fed = {x: aligned_empty((10000, 1000), np.float32)}  # which nobody copies
fed[x][:] = 1
session = tf.Session()
if sys.argv[1] == "unchecked":
    heap._holes.clear()
session.run(tf.global_variables_initializer())
for _ in range(2):
    session.run(step, fed)
before = session.run(w)
heap.return_freed_memory(kept=0)
limit = _pages(0) * resource.getpagesize() + (8 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    session.run(step, fed)
except tf.errors.ResourceExhaustedError as error:
    print("are lost" in error.message, "GradientDescent" in error.op.name)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    print((session.run(w) == before).all())
except tf.errors.FailedPreconditionError:
    print("uninitialized")
    session.run(tf.global_variables_initializer())
session.run(step, fed)
print(np.isfinite(session.run(w)).all())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits")
@pytest.mark.parametrize(
    ("kind", "told"), [("checked", "False True\nTrue\nTrue\n"), ("unchecked", "True True\nuninitialized\nTrue\n")]
)
def test_a_step_that_gets_no_memory_leaves_variables_or_says_that_they_are_lost(kind: str, told: str) -> None:
    """XLA takes the memory that it writes over before it asks for more: who asks first keeps the variables."""
    command = [sys.executable, "-c", _LIMITED, kind]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout == told, ran.stderr
