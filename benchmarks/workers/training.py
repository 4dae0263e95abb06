"""Worker: training steps of two networks, the same mathematics in every system.

``mlp``: 784-512-512-10, ReLU, momentum, batch 128. ``convolutional``: the demonstration's network: 8x8x1, convolutions
3x3x32 and 3x3x64, max pooling, a hidden layer of 128, dropout 0.4, 10 classes, Adam, batch 64. Every step is fed NumPy
arrays and fetches the loss, as a program would do it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import seconds_per_call

Step = Callable[[], object]
Batch = tuple[np.ndarray, np.ndarray]

MLP_LAYERS = (784, 512, 512, 10)
MLP_BATCH, MLP_RATE, MLP_MOMENTUM = 128, 0.01, 0.9
CONV_BATCH, CONV_RATE, DROPOUT = 64, 1e-3, 0.4
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
#: filters as [height, width, in, out]
CONV_SHAPES = ((3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1024, 128), (128,), (128, 10), (10,))
MLP_SHAPES = tuple(shape for rows, columns in itertools.pairwise(MLP_LAYERS) for shape in ((rows, columns), (columns,)))


def initial(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """He's normal weights, and biases of zero."""
    rng = np.random.default_rng(0)
    return [
        np.zeros(s, np.float32) if len(s) == 1 else rng.normal(0, np.sqrt(2 / np.prod(s[:-1])), s).astype(np.float32)
        for s in shapes
    ]


def batch(size: int, *shape: int) -> Batch:
    rng = np.random.default_rng(1)
    return rng.normal(size=(size, *shape)).astype(np.float32), rng.integers(0, 10, size).astype(np.int32)


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
def graph_steps(tf: Any) -> dict[str, Step]:
    return {"mlp": _graph_mlp(tf), "convolutional": _graph_convolutional(tf)}


def _variables(tf: Any, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    return [
        tf.get_variable(f"v{i}", initializer=tf.constant(value), use_resource=True)
        for i, value in enumerate(initial(shapes))
    ]


def _graph_step(tf: Any, optimizer: Any, logits: Any, x: Any, labels: Any, arrays: Batch) -> Step:
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = optimizer.minimize(loss)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feeds = dict(zip((x, labels), arrays, strict=True))
    return lambda: session.run([train, loss], feeds)[1]


def _graph_mlp(tf: Any) -> Step:
    with tf.Graph().as_default():
        x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
        w1, b1, w2, b2, w3, b3 = _variables(tf, MLP_SHAPES)
        hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
        hidden = tf.nn.relu(tf.matmul(hidden, w2) + b2)
        logits = tf.matmul(hidden, w3) + b3
        optimizer = tf.train.MomentumOptimizer(MLP_RATE, MLP_MOMENTUM)
        return _graph_step(tf, optimizer, logits, x, labels, batch(MLP_BATCH, 784))


def _graph_convolutional(tf: Any) -> Step:
    with tf.Graph().as_default():
        x, labels = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int32, [None])
        w1, b1, w2, b2, w3, b3, w4, b4 = _variables(tf, CONV_SHAPES)
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w1, strides=[1, 1, 1, 1], padding="SAME"), b1))
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(hidden, w2, strides=[1, 1, 1, 1], padding="SAME"), b2))
        hidden = tf.nn.max_pool(hidden, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        hidden = tf.nn.relu(tf.matmul(tf.reshape(hidden, [-1, 1024]), w3) + b3)
        logits = tf.matmul(tf.nn.dropout(hidden, rate=DROPOUT), w4) + b4
        return _graph_step(tf, tf.train.AdamOptimizer(CONV_RATE), logits, x, labels, batch(CONV_BATCH, 8, 8, 1))


# ---------------------------------------------------------------------- JAX
def jax_steps() -> dict[str, Step]:
    return {"mlp": _jax_mlp(), "convolutional": _jax_convolutional()}


def _jax_loss(logits: Any, labels: Any) -> Any:
    import jax.numpy as jnp
    from jax import nn

    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=1))


def _jax_mlp() -> Step:
    import jax

    def loss_of(parameters: Any, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = parameters
        hidden = jax.nn.relu(x @ w1 + b1)
        hidden = jax.nn.relu(hidden @ w2 + b2)
        return _jax_loss(hidden @ w3 + b3, labels)

    def step(parameters: Any, speeds: Any, x: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(parameters, x, labels)
        speeds = [MLP_MOMENTUM * s + g for s, g in zip(speeds, grads, strict=True)]
        return [p - MLP_RATE * s for p, s in zip(parameters, speeds, strict=True)], speeds, loss

    x, labels = batch(MLP_BATCH, 784)
    jitted = jax.jit(step, donate_argnums=(0, 1))
    parameters = [jax.device_put(v) for v in initial(MLP_SHAPES)]
    state: list[Any] = [parameters, [jax.numpy.zeros_like(v) for v in parameters]]

    def run() -> float:
        *state[:], loss = jitted(*state, x, labels)
        return float(loss)

    return run


def _jax_convolutional() -> Step:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss_of(parameters: Any, key: Any, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2, w3, b3, w4, b4 = parameters
        hidden = jax.nn.relu(convolve(x, w1) + b1)
        hidden = jax.nn.relu(convolve(hidden, w2) + b2)
        hidden = lax.reduce_window(hidden, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        hidden = jax.nn.relu(hidden.reshape(-1, 1024) @ w3 + b3)
        keep = jax.random.bernoulli(key, 1 - DROPOUT, hidden.shape)
        return _jax_loss(jnp.where(keep, hidden / (1 - DROPOUT), 0) @ w4 + b4, labels)

    def step(parameters: Any, means: Any, squares: Any, count: Any, x: Any, labels: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), count)
        loss, grads = jax.value_and_grad(loss_of)(parameters, key, x, labels)
        count = count + 1
        rate = CONV_RATE * jnp.sqrt(1 - BETA2**count) / (1 - BETA1**count)
        means = [BETA1 * m + (1 - BETA1) * g for m, g in zip(means, grads, strict=True)]
        squares = [BETA2 * s + (1 - BETA2) * g * g for s, g in zip(squares, grads, strict=True)]
        updates = [rate * m / (jnp.sqrt(s) + EPSILON) for m, s in zip(means, squares, strict=True)]
        return [p - u for p, u in zip(parameters, updates, strict=True)], means, squares, count, loss

    x, labels = batch(CONV_BATCH, 8, 8, 1)
    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    parameters = [jax.device_put(v) for v in initial(CONV_SHAPES)]
    zeros = [[jnp.zeros_like(v) for v in parameters] for _ in range(2)]
    state: list[Any] = [parameters, *zeros, jnp.int32(0)]

    def run() -> float:
        *state[:], loss = jitted(*state, x, labels)
        return float(loss)

    return run


# ---------------------------------------------------------------------- PyTorch
def torch_steps() -> dict[str, Step]:
    return {"mlp": _torch_mlp(), "convolutional": _torch_convolutional()}


def _torch_step(parameters: list[Any], optimizer: Any, logits_of: Callable[[Any], Any], arrays: Batch) -> Step:
    import torch

    def run() -> float:
        x, labels = (torch.from_numpy(a) for a in arrays)
        loss = torch.nn.functional.cross_entropy(logits_of(x), labels.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return run


def _torch_mlp() -> Step:
    import torch

    parameters = [torch.tensor(v, requires_grad=True) for v in initial(MLP_SHAPES)]
    w1, b1, w2, b2, w3, b3 = parameters

    def logits_of(x: Any) -> Any:
        hidden = torch.relu(torch.addmm(b1, x, w1))
        return torch.addmm(b3, torch.relu(torch.addmm(b2, hidden, w2)), w3)

    optimizer = torch.optim.SGD(parameters, MLP_RATE, momentum=MLP_MOMENTUM)
    return _torch_step(parameters, optimizer, logits_of, batch(MLP_BATCH, 784))


def _torch_convolutional() -> Step:
    import torch
    from torch.nn import functional

    values = [np.ascontiguousarray(v.transpose(3, 2, 0, 1)) if v.ndim == 4 else v for v in initial(CONV_SHAPES)]
    parameters = [torch.tensor(v, requires_grad=True) for v in values]
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters

    def logits_of(x: Any) -> Any:
        hidden = torch.relu(functional.conv2d(x.permute(0, 3, 1, 2), w1, b1, padding=1))
        hidden = functional.max_pool2d(torch.relu(functional.conv2d(hidden, w2, b2, padding=1)), 2)
        hidden = torch.relu(torch.addmm(b3, hidden.permute(0, 2, 3, 1).reshape(-1, 1024), w3))
        return torch.addmm(b4, functional.dropout(hidden, DROPOUT), w4)

    optimizer = torch.optim.Adam(parameters, CONV_RATE, (BETA1, BETA2), EPSILON)
    return _torch_step(parameters, optimizer, logits_of, batch(CONV_BATCH, 8, 8, 1))


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
    print(json.dumps({name: seconds_per_call(step, 100, repeats=9) for name, step in steps_of(sys.argv[1]).items()}))
