"""Worker: how long the first training step of a new program takes, of deep networks whose layers are alike.

``rnn, unrolled``: a recurrent network of 128 units, written out for 200 time steps of 32 examples. ``rnn, loop``: the
same as a loop. ``100 layers``: a network of 100 layers of 128 units. Gradient descent on all weights; building the
graph is not counted, and no compiler finds anything on disk.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

BATCH, UNITS, STEPS, LAYERS, RATE = 32, 128, 200, 100, 0.1


def weights(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 1 / np.sqrt(UNITS), (UNITS, UNITS)).astype(np.float32) for _ in range(count)]


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(*shape, UNITS)).astype(np.float32)


def seconds(step: Any) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
def graph_first_steps(tf: Any) -> dict[str, float]:
    builders = {"rnn, unrolled": _unrolled, "rnn, loop": _loop, "100 layers": _deep}
    return {name: _graph_first_step(tf, build) for name, build in builders.items()}


def _graph_first_step(tf: Any, build: Any) -> float:
    with tf.Graph().as_default(), tf.Session() as session:
        loss, x, value = build(tf)
        train = tf.train.GradientDescentOptimizer(RATE).minimize(loss)
        session.run(tf.global_variables_initializer())
        return seconds(lambda: session.run([train, loss], {x: value}))


def _variables(tf: Any, count: int) -> list[Any]:
    return [
        tf.get_variable(f"w{i}", initializer=tf.constant(w), use_resource=True) for i, w in enumerate(weights(count))
    ]


def _unrolled(tf: Any) -> Any:
    x = tf.placeholder(tf.float32, [STEPS, BATCH, UNITS])
    w, u = _variables(tf, 2)
    h = tf.zeros([BATCH, UNITS])
    for row in tf.unstack(x):
        h = tf.tanh(tf.matmul(row, w) + tf.matmul(h, u))
    return tf.reduce_mean(h * h), x, rows(STEPS, BATCH)


def _loop(tf: Any) -> Any:
    x = tf.placeholder(tf.float32, [STEPS, BATCH, UNITS])
    w, u = _variables(tf, 2)
    source = tf.TensorArray(tf.float32, STEPS).unstack(x)
    _, h = tf.while_loop(
        lambda t, _: t < STEPS,
        lambda t, h: (t + 1, tf.tanh(tf.matmul(source.read(t), w) + tf.matmul(h, u))),
        (0, tf.zeros([BATCH, UNITS])),
    )
    return tf.reduce_mean(h * h), x, rows(STEPS, BATCH)


def _deep(tf: Any) -> Any:
    x = tf.placeholder(tf.float32, [BATCH, UNITS])
    h = x
    for i, w in enumerate(_variables(tf, LAYERS)):
        h = tf.nn.relu(tf.matmul(h, w) + tf.get_variable(f"b{i}", [UNITS], use_resource=True))
    return tf.reduce_mean(h * h), x, rows(BATCH)


# ---------------------------------------------------------------------- JAX
def jax_first_steps() -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def unrolled(parameters: Any, x: Any) -> Any:
        w, u = parameters
        h = jnp.zeros((BATCH, UNITS))
        for t in range(STEPS):
            h = jnp.tanh(x[t] @ w + h @ u)
        return jnp.mean(h * h)

    def loop(parameters: Any, x: Any) -> Any:
        w, u = parameters
        h, _ = lax.scan(lambda h, row: (jnp.tanh(row @ w + h @ u), None), jnp.zeros((BATCH, UNITS)), x)
        return jnp.mean(h * h)

    def deep(parameters: Any, x: Any) -> Any:
        for w, b in parameters:
            x = jax.nn.relu(x @ w + b)
        return jnp.mean(x * x)

    def first(loss_of: Any, parameters: Any, value: Any) -> float:
        def step(parameters: Any, x: Any) -> Any:
            loss, grads = jax.value_and_grad(loss_of)(parameters, x)
            return jax.tree.map(lambda p, g: p - RATE * g, parameters, grads), loss

        return seconds(lambda: jax.block_until_ready(jax.jit(step)(parameters, value)))

    layers = [(jnp.asarray(w), jnp.zeros(UNITS)) for w in weights(LAYERS)]
    return {
        "rnn, unrolled": first(unrolled, weights(2), rows(STEPS, BATCH)),
        "rnn, loop": first(loop, weights(2), rows(STEPS, BATCH)),
        "100 layers": first(deep, layers, rows(BATCH)),
    }


def first_steps(system: str) -> dict[str, float]:
    if system == "anabranch":
        os.environ["ANABRANCH_CACHE_DIR"] = ""
        import anabranch as tf

        return graph_first_steps(tf)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        return graph_first_steps(tf)
    return jax_first_steps()


if __name__ == "__main__":
    print(json.dumps(first_steps(sys.argv[1])))
