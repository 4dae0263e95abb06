"""Variables that a step reads and overwrites: XLA writes in place, and every read sees the old value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla import executable, island_program
from anabranch.xla.background import background

SIZE = 160
RATE = 0.5
needs_processor = tf.ConfigProto(device_count={"GPU": 0})


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What XLA made of each island that was compiled meanwhile."""
    texts: list[str] = []
    check = executable.check_compiled

    def noted(compiled: Any, *rest: Any) -> int:
        texts.append(compiled.as_text())
        return int(check(compiled, *rest))

    monkeypatch.setattr(executable, "check_compiled", noted)
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    return texts


def copies(program: str) -> list[str]:
    """The shapes of the arrays of more than one axis that a program copies as they lie."""
    copied = re.findall(r"= f32\[(\d+,[\d,]+)\](\S+) copy\((?:f32\[[\d,]+\](\S+) )?%(\S+)\)", program)
    return [shape for shape, layout, given, name in copied if (given or _layout(program, name)) == layout]


def _layout(program: str, name: str) -> str:
    (found,) = set(re.findall(rf"%{re.escape(name)} = f32\[[\d,]+\](\S+) ", program)) or {""}
    return found


def run(fetches: Any, feeds: dict[Any, Any], programs: list[str]) -> tuple[Any, dict[str, np.ndarray], str]:
    """What a step gives, the variables after it, and its program."""
    with tf.Session(config=needs_processor) as session:
        session.run(tf.global_variables_initializer())
        background.wait(60)
        del programs[:]
        given = session.run(fetches, feeds)
        background.wait(60)
        (program,) = programs
        return given, {v.op.name: session.run(v) for v in tf.global_variables()}, program


def layers(kind: str) -> tuple[tf.Tensor, dict[tf.Tensor, np.ndarray]]:
    """A loss of two layers, the second of which reads its weights in the gradient to its data as well."""
    rng = np.random.default_rng(0)
    if kind == "dense":
        x = tf.placeholder(tf.float32, [8, SIZE])
        fed = rng.normal(size=(8, SIZE)).astype(np.float32)
        hidden = tf.layers.dense(x, SIZE, tf.tanh)
        out = tf.layers.dense(hidden, SIZE)
    else:
        x = tf.placeholder(tf.float32, [2, 6, 6, 64])
        fed = rng.normal(size=(2, 6, 6, 64)).astype(np.float32)
        out = tf.layers.conv2d(tf.layers.conv2d(x, 64, 3, activation=tf.tanh), 64, 3)
    return tf.reduce_mean(tf.square(out)), {x: fed}


@pytest.mark.parametrize("optimizer", ["descent", "momentum", "adam"])
@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_a_training_step_copies_no_weights(
    kind: str, optimizer: str, programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "descent": tf.train.GradientDescentOptimizer(RATE),
        "momentum": tf.train.MomentumOptimizer(RATE, 0.9),
        "adam": tf.train.AdamOptimizer(0.01),
    }[optimizer]
    tf.set_random_seed(1)
    loss, feeds = layers(kind)
    step = [loss, made.minimize(loss)]
    (ordered, _), values, program = run(step, feeds, programs)
    assert not copies(program)

    # the same without the order: XLA copies, and computes the same
    monkeypatch.setattr(island_program, "unordered_reads", lambda operations: {})
    (unordered, _), others, program = run(step, feeds, programs)
    assert copies(program)
    assert ordered == pytest.approx(unordered, rel=1e-6)
    for name, value in values.items():
        np.testing.assert_allclose(value, others[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -0.0, 1e-42])
def test_whatever_was_read_the_new_value_is_written(number: float, programs: list[str]) -> None:
    weights = tf.get_variable("weights", [SIZE, SIZE], initializer=tf.ones_initializer())
    x = tf.placeholder(tf.float32, [1, SIZE])
    product = tf.matmul(x, weights)
    with tf.control_dependencies([product]):
        written = tf.assign(weights, tf.fill([SIZE, SIZE], 3.0))
    (given, _), values, _ = run([product, written], {x: np.full((1, SIZE), number, np.float32)}, programs)
    # XLA takes a subnormal number for 0
    np.testing.assert_allclose(given, np.full((1, SIZE), np.float32(number) * SIZE, np.float32), atol=1e-37)
    np.testing.assert_array_equal(values["weights"], np.full((SIZE, SIZE), 3.0))


def test_a_step_that_looks_up_and_multiplies_with_one_table_is_one_program(programs: list[str]) -> None:
    """How many rows the table has is known beforehand, and so need not leave the program."""
    x, size = tf.placeholder(tf.int32, [None]), 20
    table = tf.get_variable("table", [size, SIZE])
    logits = tf.matmul(tf.nn.embedding_lookup(table, x), table, transpose_b=True)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=x, logits=logits))
    run([loss, tf.train.AdamOptimizer(0.01).minimize(loss)], {x: np.arange(7) % size}, programs)


def test_a_step_with_a_loss_of_the_library_is_one_program(programs: list[str]) -> None:
    x, y = tf.placeholder(tf.float32, [8, SIZE]), tf.placeholder(tf.int32, [8])
    loss = tf.losses.sparse_softmax_cross_entropy(y, tf.layers.dense(x, 10))
    step = [loss, tf.train.GradientDescentOptimizer(RATE).minimize(loss)]
    run(step, {x: np.ones((8, SIZE), np.float32), y: np.zeros(8, np.int32)}, programs)
