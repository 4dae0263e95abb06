"""Worker: training steps of an LSTM language model, the same mathematics in every system.

Two layers of 512, batch 32, 35 time steps, a vocabulary of 10,000: embedding, LSTM layers, full softmax cross-entropy,
gradients clipped to a global norm of 5, gradient descent with rate 1. Every step is fed NumPy arrays and fetches the
loss, as a program would do it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import seconds_per_call

Step = Callable[[], object]

LAYERS, UNITS, BATCH, STEPS, WORDS = 2, 512, 32, 35, 10_000
RATE, NORM, FORGET_BIAS = 1.0, 5.0, 1.0


def initial() -> dict[str, np.ndarray]:
    """Uniform weights in [-0.05, 0.05], and biases of zero."""
    rng = np.random.default_rng(0)
    shapes = {"embedding": (WORDS, UNITS), "softmax": (UNITS, WORDS)}
    shapes |= {f"kernel{i}": (2 * UNITS, 4 * UNITS) for i in range(LAYERS)}
    weights = {name: rng.uniform(-0.05, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {f"bias{i}": np.zeros(4 * UNITS, np.float32) for i in range(LAYERS)}
    return weights | {"softmax_bias": np.zeros(WORDS, np.float32)}


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Words [batch, steps], and the words that follow them."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, WORDS, (BATCH, STEPS + 1)).astype(np.int32)
    return np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, 1:])


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
class Cell:
    """What `tf.nn.dynamic_rnn` takes as a cell; the classes that TensorFlow had for that are gone from its releases."""

    output_size = UNITS
    state_size = (UNITS, UNITS)

    def __init__(self, tf: Any, kernel: Any, bias: Any) -> None:
        self.tf, self.kernel, self.bias = tf, kernel, bias

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return self.tf.zeros([BATCH, UNITS], dtype), self.tf.zeros([BATCH, UNITS], dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        tf, (c, h) = self.tf, state
        gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, h], 1), self.kernel), self.bias)
        i, j, f, o = tf.split(gates, 4, 1)
        c = c * tf.sigmoid(f + FORGET_BIAS) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def graph_steps(tf: Any, half: str | None = None) -> dict[str, Step]:
    """`half`: the dtype of mixed precision."""
    values = {
        name: tf.get_variable(name, initializer=tf.constant(v), use_resource=True) for name, v in initial().items()
    }
    words, following = (tf.placeholder(tf.int32, [BATCH, STEPS]) for _ in range(2))
    outputs = tf.nn.embedding_lookup(values["embedding"], tf.transpose(words))
    for i in range(LAYERS):
        cell = Cell(tf, values[f"kernel{i}"], values[f"bias{i}"])
        with tf.variable_scope(f"layer{i}"):
            outputs, _ = tf.nn.dynamic_rnn(cell, outputs, dtype=tf.float32, time_major=True)
    logits = tf.matmul(tf.reshape(outputs, [-1, UNITS]), values["softmax"]) + values["softmax_bias"]
    labels = tf.reshape(tf.transpose(following), [-1])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    variables = list(values.values())
    optimizer = tf.train.GradientDescentOptimizer(RATE)
    if half is not None:
        optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=half)
    gradients, _ = zip(*optimizer.compute_gradients(loss, variables), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, NORM)
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feeds = dict(zip((words, following), batch(), strict=True))
    return {"step": lambda: session.run([train, loss], feeds)[1]}


# ---------------------------------------------------------------------- JAX
def jax_steps(half: str | None = None) -> dict[str, Step]:
    """`half`: the dtype of mixed precision."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def layer(kernel: Any, bias: Any, x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            c, h = state
            gates = (jnp.concatenate([row, h.astype(row.dtype)], 1) @ kernel).astype(np.float32) + bias
            i, j, f, o = jnp.split(gates, 4, 1)
            c = c * jax.nn.sigmoid(f + FORGET_BIAS) + jax.nn.sigmoid(i) * jnp.tanh(j)
            h = jnp.tanh(c) * jax.nn.sigmoid(o)
            return (c, h), h.astype(row.dtype)

        zeros = jnp.zeros((BATCH, UNITS))
        return lax.scan(step, (zeros, zeros), x)[1]

    def loss_of(values: Any, words: Any, following: Any) -> Any:
        if half is not None:
            values = {name: v if v.ndim == 1 else v.astype(half) for name, v in values.items()}
        outputs = values["embedding"][words.T]
        for i in range(LAYERS):
            outputs = layer(values[f"kernel{i}"], values[f"bias{i}"], outputs)
        logits = (outputs.reshape(-1, UNITS) @ values["softmax"]).astype(np.float32) + values["softmax_bias"]
        likelihoods = jnp.take_along_axis(jax.nn.log_softmax(logits), following.T.reshape(-1, 1), axis=1)
        return -jnp.mean(likelihoods)

    def step(values: Any, words: Any, following: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(values, words, following)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
        scale = NORM / jnp.maximum(norm, NORM)
        return {name: v - RATE * scale * grads[name] for name, v in values.items()}, loss

    jitted = jax.jit(step, donate_argnums=0)
    state = [{name: jax.device_put(v) for name, v in initial().items()}]
    arrays = batch()

    def run() -> float:
        state[0], loss = jitted(state[0], *arrays)
        return float(loss)

    return {"step": run}


# ---------------------------------------------------------------------- PyTorch
def torch_steps(device: str = "cpu", half: str | None = None) -> dict[str, Step]:
    """PyTorch's own LSTM: two biases per gate, and no constant added to the forget gate.

    `half`: the dtype of mixed precision.
    """
    import torch

    values = initial()
    embedding = torch.nn.Embedding(WORDS, UNITS).to(device)
    network = torch.nn.LSTM(UNITS, UNITS, LAYERS).to(device)
    softmax = torch.nn.Linear(UNITS, WORDS).to(device)
    with torch.no_grad():
        embedding.weight.copy_(torch.from_numpy(values["embedding"]))
        softmax.weight.copy_(torch.from_numpy(values["softmax"].T))
    parameters = [*embedding.parameters(), *network.parameters(), *softmax.parameters()]
    optimizer = torch.optim.SGD(parameters, RATE)
    arrays = batch()

    def run() -> float:
        words, following = (torch.from_numpy(a).to(device).long() for a in arrays)
        with torch.autocast(device, getattr(torch, half or "bfloat16"), enabled=half is not None):
            logits = softmax(network(embedding(words.T))[0])
        loss = torch.nn.functional.cross_entropy(logits.float().reshape(-1, WORDS), following.T.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, NORM)
        optimizer.step()
        return float(loss)

    return {"step": run}


def steps_of(system: str) -> dict[str, Step]:
    if system == "anabranch":
        import anabranch as tf

        return graph_steps(tf)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        return graph_steps(tf)
    return jax_steps() if system == "jax" else torch_steps()


if __name__ == "__main__":
    steps = steps_of(sys.argv[1])
    print(json.dumps({name: seconds_per_call(step, 1, repeats=9, warm_up=3) for name, step in steps.items()}))
