"""Writes graphs with conditionals and loops of primitives, as TensorFlow 1 built them, and what they compute.

Run in an environment that has TensorFlow (`make bench-env`), from the repository's root::

    .venv-peers/bin/python tests/oracles/make_control_flow_fixtures.py

Each `tests/fixtures/tensorflow/NAME.pb` has a `NAME.npz` beside it; `graph_files.py` says what is in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import tensorflow as tf
from graph_files import _ramp, _write_graph, _write_run

tf1 = tf.compat.v1
FILES = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow"

#: feeds, fetches, targets
Run = tuple[dict[Any, Any], list[Any], list[Any]]


def v1_nested_while() -> Run:
    """A loop in a loop; the inner one runs as often as the outer one has; gradients through both."""
    x = tf1.placeholder(tf.float32, [3], name="x")
    n = tf1.placeholder(tf.int32, [], name="n")
    weight = tf.constant(_ramp([3]), name="weight")

    def outer(i: Any, v: Any) -> Any:
        _, v = tf1.while_loop(
            lambda j, _: j < i,
            lambda j, u: (j + 1, tf.sin(u) * 1.5 + weight),
            [0, v],
            name="inner",
            parallel_iterations=3,
        )
        return i + 1, v * v

    steps, result = tf1.while_loop(lambda i, _: i < n, outer, [0, x], name="outer")
    gradients = tf1.gradients(result, [x, weight], name="gradients")
    return {x: _ramp([3]), n: 4}, [steps, result, *gradients], []


def v1_cond_in_while() -> Run:
    """A conditional in a loop; one of its branches holds a loop."""
    x = tf1.placeholder(tf.float32, [2, 2], name="x")

    def body(i: Any, v: Any) -> Any:
        def looped() -> Any:
            return tf1.while_loop(lambda k, _: k < 3, lambda k, u: (k + 1, u * 0.5 + 1.0), [0, v], name="three")[1]

        v = tf1.cond(tf.equal(i % 2, 0), lambda: tf.tanh(v) + tf.cast(i, tf.float32), looped, name="which")
        return i + 1, tf1.cond(i > 2, lambda: tf.ones([2, 2]), lambda: v, name="constant")

    steps, result = tf1.while_loop(lambda i, v: (i < 5) & (tf.reduce_sum(v) < 100.0), body, [0, x], name="loop")
    gradient = tf1.gradients(result, x, name="gradients")[0]
    two, short = tf1.while_loop(lambda i, v: i < 2, body, [0, x], name="short")
    return {x: _ramp([2, 2])}, [steps, result, gradient, two, short, *tf1.gradients(short, x)], []


def v1_tensor_array() -> Run:
    """Tensor arrays that a loop reads and writes, with their gradients; scatter, gather, split, concat."""
    x = tf1.placeholder(tf.float32, [4, 3], name="x")
    source = tf1.TensorArray(tf.float32, 4, name="source", clear_after_read=False).unstack(x)
    target = tf1.TensorArray(tf.float32, 0, dynamic_size=True, name="target")

    def body(i: Any, total: Any, written: Any) -> Any:
        row = source.read(i)
        return i + 1, total + tf.reduce_sum(row), written.write(i, tf.exp(row) * total)

    _, total, target = tf1.while_loop(lambda i, *_: i < source.size(), body, [0, tf.constant(1.0), target], name="loop")
    stacked = target.stack(name="stacked")
    gradient = tf1.gradients(tf.reduce_sum(stacked) * total, x, name="gradients")[0]
    split = tf1.TensorArray(tf.float32, 3, name="pieces", infer_shape=False).split(x, [1, 0, 3])
    gathered = source.gather([3, 1])
    return {x: _ramp([4, 3])}, [total, stacked, gradient, split.concat(), split.size(), gathered], []


def v1_dynamic_rnn() -> Run:
    """A recurrent network over sequences of different lengths, as `dynamic_rnn` builds it, trained for two steps."""
    tf1.enable_resource_variables()
    x = tf1.placeholder(tf.float32, [None, 5, 2], name="x")
    lengths = tf1.placeholder(tf.int32, [None], name="lengths")
    kernel = tf1.get_variable("kernel", initializer=_ramp([5, 3]))
    bias = tf1.get_variable("bias", initializer=_ramp([3]))
    batch = tf.shape(x)[0]
    steps = tf1.TensorArray(tf.float32, 5, name="inputs").unstack(tf.transpose(x, [1, 0, 2]))
    outputs = tf1.TensorArray(tf.float32, 5, name="outputs")

    def step(t: Any, state: Any, written: Any) -> Any:
        new = tf.tanh(tf.matmul(tf.concat([steps.read(t), state], 1), kernel) + bias)
        done = tf1.tile((t >= lengths)[:, None], [1, 3])
        written = written.write(t, tf1.where(done, tf.zeros_like(new), new))
        return t + 1, tf1.where(done, state, new), written

    _, final, outputs = tf1.while_loop(
        lambda t, *_: t < tf.reduce_max(lengths), step, [0, tf.zeros([batch, 3]), outputs], name="rnn"
    )
    loss = tf.reduce_mean(tf.square(final), name="loss")
    optimizer = tf1.train.GradientDescentOptimizer(0.5)
    gradients = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(gradients, name="train")
    initialize = tf1.global_variables_initializer()
    feeds = {x: _ramp([3, 5, 2]), lengths: np.array([5, 2, 4], np.int32)}
    fetches = [final, loss, outputs.read(0), *(g for g, _ in gradients), kernel.read_value()]
    return feeds, fetches, [initialize, train, train]


def v1_cond() -> Run:
    """Conditionals: nested, with constants as results, with a variable that one branch changes, and their gradients."""
    tf1.enable_resource_variables()
    x = tf1.placeholder(tf.float32, [2], name="x")
    p = tf1.placeholder(tf.bool, [], name="p")
    counter = tf1.get_variable("counter", initializer=0.0)

    def counted() -> Any:
        with tf.control_dependencies([counter.assign_add(2.0)]):
            return tf.identity(x) * 3.0

    nested = tf1.cond(p, lambda: tf1.cond(x[0] > 0, lambda: tf.exp(x), lambda: tf.sin(x)), lambda: x * x)
    constant = tf1.cond(p, lambda: 1.0, lambda: 2.0)
    changed = tf1.cond(p, counted, lambda: x)
    text = tf1.cond(p, lambda: tf.constant("yes"), lambda: tf.constant("no"))
    gradients = tf1.gradients(nested * constant + changed, x)
    initialize = tf1.global_variables_initializer()
    with tf.control_dependencies([changed]):
        after = counter.read_value()
    feeds = {x: np.array([-0.5, 2.0], np.float32), p: True}
    return feeds, [nested, constant, changed, text, *gradients, after], [initialize]


def v1_assign_in_while() -> Run:
    """A loop that changes a variable in each iteration, and reads it."""
    tf1.enable_resource_variables()
    total = tf1.get_variable("total", initializer=1.0)

    def body(i: Any, v: Any) -> Any:
        with tf.control_dependencies([total.assign_add(tf.cast(i, tf.float32))]):
            return i + 1, v + total.read_value()

    steps, result = tf1.while_loop(lambda i, _: i < 5, body, [0, 0.0], parallel_iterations=1)
    with tf.control_dependencies([result]):
        after = total.read_value()
    return {}, [steps, result, after], [tf1.global_variables_initializer()]


def v1_loops_in_a_row() -> Run:
    """Loops with two results each, which depend on nothing in common; the second loop takes those of the first."""
    x = tf1.placeholder(tf.float32, [3], name="x")
    y = tf1.placeholder(tf.float32, [3], name="y")

    def looped(a: Any, b: Any, name: str) -> Any:
        body = lambda i, u, v: (i + 1, tf.sin(u), v * 0.5 + x)  # noqa: E731
        return tf1.while_loop(lambda i, *_: i < 3, body, [0, a, b], name=name)[1:]

    first = looped(x, y, "first")
    second = looped(first[1], first[0] * y, "second")
    total = tf.add_n([tf.reduce_sum(value * value) for value in (*first, *second)], name="total")
    return {x: _ramp([3]), y: _ramp([3]) + 0.25}, [total, *tf1.gradients(total, [x, y], name="gradients")], []


GRAPHS: tuple[Callable[[], Run], ...] = (
    v1_nested_while,
    v1_cond_in_while,
    v1_tensor_array,
    v1_dynamic_rnn,
    v1_cond,
    v1_assign_in_while,
    v1_loops_in_a_row,
)


def main() -> None:
    tf1.disable_v2_behavior()
    tf1.disable_control_flow_v2()
    for build in GRAPHS:
        with tf.Graph().as_default() as graph:
            feeds, fetches, targets = build()
            _write_graph(FILES, build.__name__, graph, also_text=False)
            _write_run(FILES / f"{build.__name__}.npz", feeds, fetches, targets)


if __name__ == "__main__":
    main()
