"""Worker: a training step of one block of BERT's base size, the same mathematics in every system.

Attention of 12 heads over 768 numbers, a hidden layer of 3,072 with a Gaussian error linear unit, each added to its
input and normalized then (Devlin et al., 2019); no dropout. A batch of 8 texts of 128 words, whose numbers are fed with
those that are to come out: the loss is the mean of the squares of what differs, and Adam takes a step.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import seconds_per_call

Step = Callable[[], object]

BATCH, LENGTH, WIDTH, HEADS, RATE, EPSILON = 8, 128, 768, 12, 1e-4, 1e-12
DEPTH = WIDTH // HEADS
#: the parameters: name -> shape, in widths
SHAPES = {
    "query": (1, 1), "query_bias": (1,), "key": (1, 1), "key_bias": (1,), "value": (1, 1), "value_bias": (1,),
    "project": (1, 1), "project_bias": (1,), "scale1": (1,), "offset1": (1,),
    "hidden": (1, 4), "hidden_bias": (4,), "output": (4, 1), "output_bias": (1,), "scale2": (1,), "offset2": (1,),
}  # fmt: skip


def initial() -> dict[str, np.ndarray]:
    """Normal weights of a deviation of 0.02, scales of one, biases of zero."""
    rng = np.random.default_rng(0)

    def made(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return (np.ones if name.startswith("scale") else np.zeros)(shape, np.float32)
        return np.float32(0.02) * rng.standard_normal(shape, np.float32)

    return {name: made(name, tuple(n * WIDTH for n in shape)) for name, shape in SHAPES.items()}


def batch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is fed: numbers [batch, length, width], the same of what is to come out, and which words are there."""
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((BATCH, LENGTH, WIDTH), np.float32) for _ in range(2))
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, BATCH)
    return x, y, (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
def graph_step(tf: Any, half: str | None, config: Any = None) -> Step:
    """`half`: the dtype of mixed precision; `config`: that of the session, where that is what asks for it."""
    p = {name: tf.get_variable(name, initializer=v, use_resource=True) for name, v in initial().items()}
    x, expected = (tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH]) for _ in range(2))
    present = tf.placeholder(tf.float32, [BATCH, LENGTH])

    def dense(x: Any, name: str) -> Any:
        return tf.matmul(x, p[name]) + p[f"{name}_bias"]

    def normalized(x: Any, i: int) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
        return tf.nn.batch_normalization(x, mean, variance, p[f"offset{i}"], p[f"scale{i}"], EPSILON)

    def in_heads(x: Any) -> Any:
        return tf.transpose(tf.reshape(x, [BATCH, LENGTH, HEADS, DEPTH]), [0, 2, 1, 3])

    rows = tf.reshape(x, [-1, WIDTH])
    query, key, value = (in_heads(dense(rows, name)) for name in ("query", "key", "value"))
    scores = tf.matmul(query, key, transpose_b=True) * DEPTH**-0.5 + (1 - present[:, None, None, :]) * -1e4
    mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    attended = normalized(rows + dense(tf.reshape(mixed, [-1, WIDTH]), "project"), 1)
    hidden = dense(attended, "hidden")
    hidden = hidden * 0.5 * (1 + tf.erf(hidden / math.sqrt(2)))
    result = normalized(attended + dense(hidden, "output"), 2)
    loss = tf.reduce_mean(tf.squared_difference(result, tf.reshape(expected, [-1, WIDTH])))
    optimizer = tf.train.AdamOptimizer(RATE)
    if half is not None:
        optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=half)
    train = optimizer.minimize(loss)
    session = tf.Session(config=config)
    session.run(tf.global_variables_initializer())
    feeds = dict(zip((x, expected, present), batch(), strict=True))
    return lambda: session.run([train, loss], feeds)


# ---------------------------------------------------------------------- JAX
def jax_step(half: str | None) -> Step:
    import jax

    def product(x: Any, w: Any) -> Any:
        return x @ w if half is None else x.astype(half) @ w.astype(half)

    def loss_of(p: Any, x: Any, expected: Any, present: Any) -> Any:
        def dense(x: Any, name: str) -> Any:
            y = product(x, p[name])
            return y + p[f"{name}_bias"].astype(y.dtype)

        def normalized(x: Any, i: int) -> Any:
            x = x.astype(np.float32)
            mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * p[f"scale{i}"] + p[f"offset{i}"]

        def in_heads(x: Any) -> Any:
            return x.reshape(BATCH, LENGTH, HEADS, DEPTH).transpose(0, 2, 1, 3)

        rows = x.reshape(-1, WIDTH)
        query, key, value = (in_heads(dense(rows, name)) for name in ("query", "key", "value"))
        scores = product(query, key.swapaxes(2, 3)).astype(np.float32) * DEPTH**-0.5
        scores = scores + (1 - present[:, None, None, :]) * -1e4
        mixed = product(jax.nn.softmax(scores), value).transpose(0, 2, 1, 3)
        attended = normalized(rows + dense(mixed.reshape(-1, WIDTH), "project"), 1)
        hidden = jax.nn.gelu(dense(attended, "hidden"), approximate=False)
        result = normalized(attended + dense(hidden, "output"), 2)
        return ((result - expected.reshape(-1, WIDTH)) ** 2).mean()

    def step(p: Any, slots: Any, count: Any, *arrays: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(p, *arrays)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, slots[0], gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, slots[1], gradients)
        rate = RATE * (1 - 0.999**count) ** 0.5 / (1 - 0.9**count)
        p = jax.tree.map(lambda w, m, v: w - rate * m / (v**0.5 + 1e-8), p, first, second)
        return p, (first, second), count + 1, loss

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    parameters = jax.device_put(initial())
    slots = [jax.tree.map(jax.numpy.zeros_like, parameters) for _ in range(2)]
    held: list[Any] = [parameters, tuple(slots), jax.numpy.float32(1)]
    arrays = batch()

    def run() -> float:
        *held[:], loss = jitted(*held, *arrays)
        return float(loss)

    return run


# ---------------------------------------------------------------------- PyTorch
def torch_step(half: str | None, compiled: bool = False) -> Step:
    """With PyTorch's own attention, and its fused Adam."""
    import torch
    from torch.nn import functional

    p = {name: torch.from_numpy(v).requires_grad_() for name, v in initial().items()}

    def loss_of(x: Any, expected: Any, present: Any) -> Any:
        def dense(x: Any, name: str) -> Any:
            return functional.linear(x, p[name].T, p[f"{name}_bias"])

        def normalized(x: Any, i: int) -> Any:
            return functional.layer_norm(x, (WIDTH,), p[f"scale{i}"], p[f"offset{i}"], EPSILON)

        def in_heads(x: Any) -> Any:
            return x.reshape(BATCH, LENGTH, HEADS, DEPTH).transpose(1, 2)

        query, key, value = (in_heads(dense(x, name)) for name in ("query", "key", "value"))
        mask = ((1 - present[:, None, None, :]) * -1e4).to(query.dtype)
        mixed = functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2)
        attended = normalized(x + dense(mixed.reshape(BATCH, LENGTH, WIDTH), "project"), 1)
        hidden = functional.gelu(dense(attended, "hidden"))
        return functional.mse_loss(normalized(attended + dense(hidden, "output"), 2).float(), expected)

    called = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.Adam(p.values(), RATE, fused=True)
    arrays = batch()

    def run() -> float:
        tensors = map(torch.from_numpy, arrays)
        with torch.autocast("cpu", getattr(torch, half or "bfloat16"), enabled=half is not None):
            loss = called(*tensors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def step_of(system: str, half: str | None) -> Step:
    if system == "anabranch":
        import anabranch as tf

        return graph_step(tf, half)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = int(half is not None)
        return graph_step(tf, None, config)
    return jax_step(half) if system == "jax" else torch_step(half)


def main(system: str, dtype: str) -> None:
    """`dtype`: float32, or that of mixed precision."""
    step = step_of(system, None if dtype == "float32" else dtype)
    print(json.dumps({f"a block of BERT, {dtype}": seconds_per_call(step, 1, repeats=15, warm_up=5)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
