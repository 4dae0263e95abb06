"""Worker: training steps of a transformer language model, the same mathematics in every system.

Blocks of attention and a hidden layer of four times the width, each after a normalization of its input and added to
it, as in GPT-2 (but no dropout, and no weights are shared); words of 10,000, full softmax cross-entropy, gradient
descent. ``small``: 4 blocks of 256 with 4 heads, batch 8 of 64 words. ``base``: 12 blocks of 768 with 12 heads, BERT's
base and GPT-2's small size, batch 32 of 128 words. Every step is fed NumPy arrays and fetches the loss.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from timing import seconds_per_call

Step = Callable[[], object]

WORDS, RATE, EPSILON = 10_000, 0.1, 1e-5


@dataclass(frozen=True)
class Size:
    """How large a model is, and what it is fed."""

    blocks: int
    width: int
    heads: int
    batch: int
    length: int


SIZES = {"small": Size(4, 256, 4, 8, 64), "base": Size(12, 768, 12, 32, 128)}
#: the parameters of a block: name -> shape, in widths
BLOCK = {
    "scale1": (1,), "offset1": (1,), "attend": (1, 3), "attend_bias": (3,), "project": (1, 1), "project_bias": (1,),
    "scale2": (1,), "offset2": (1,), "hidden": (1, 4), "hidden_bias": (4,), "output": (4, 1), "output_bias": (1,),
}  # fmt: skip


def initial(size: Size) -> dict[str, np.ndarray]:
    """Normal weights of a deviation of 0.02, scales of one, biases of zero."""
    rng = np.random.default_rng(0)

    def made(name: str, *shape: int) -> np.ndarray:
        if len(shape) == 1:
            return (np.ones if name.startswith("scale") else np.zeros)(shape, np.float32)
        return np.float32(0.02) * rng.standard_normal(shape, np.float32)

    width = size.width
    values = {
        f"{i}/{name}": made(name, *(n * width for n in shape))
        for i in range(size.blocks)
        for name, shape in BLOCK.items()
    }
    values |= {"words": made("words", WORDS, width), "places": made("places", size.length, width)}
    values |= {"scale": made("scale", width), "offset": made("offset", width)}
    return values | {"softmax": made("softmax", width, WORDS), "softmax_bias": made("softmax_bias", WORDS)}


def batch(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Words [batch, length], and the words that follow them."""
    words = np.random.default_rng(1).integers(0, WORDS, (size.batch, size.length + 1)).astype(np.int32)
    return np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, 1:])


def mask(size: Size) -> np.ndarray:
    """What is added to the scores [length, length]: much less than nothing where a word would look ahead."""
    return np.triu(np.full((size.length, size.length), -1e9, np.float32), 1)


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
def graph_steps(tf: Any, size: Size, half: str | None = None) -> dict[str, Step]:
    """`half`: the dtype of mixed precision."""
    p = {
        name: tf.get_variable(name, initializer=tf.constant(v), use_resource=True) for name, v in initial(size).items()
    }
    width, depth = size.width, size.width // size.heads
    words, following = (tf.placeholder(tf.int32, [size.batch, size.length]) for _ in range(2))

    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, EPSILON)

    def block(x: Any, i: int) -> Any:
        mine = {name: p[f"{i}/{name}"] for name in BLOCK}
        y = tf.matmul(normalized(x, mine["scale1"], mine["offset1"]), mine["attend"]) + mine["attend_bias"]
        y = tf.transpose(tf.reshape(y, [size.batch, size.length, 3, size.heads, depth]), [2, 0, 3, 1, 4])
        q, k, v = tf.unstack(y)
        scores = tf.matmul(q, k, transpose_b=True) * depth**-0.5 + mask(size)
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        x = x + tf.matmul(tf.reshape(mixed, [-1, width]), mine["project"]) + mine["project_bias"]
        y = tf.matmul(normalized(x, mine["scale2"], mine["offset2"]), mine["hidden"]) + mine["hidden_bias"]
        return x + tf.matmul(tf.nn.relu(y), mine["output"]) + mine["output_bias"]

    x = tf.reshape(tf.nn.embedding_lookup(p["words"], words) + p["places"], [-1, width])
    for i in range(size.blocks):
        x = block(x, i)
    logits = tf.matmul(normalized(x, p["scale"], p["offset"]), p["softmax"]) + p["softmax_bias"]
    labels = tf.reshape(following, [-1])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.train.GradientDescentOptimizer(RATE)
    if half is not None:
        optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=half)
    train = optimizer.minimize(loss)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feeds = dict(zip((words, following), batch(size), strict=True))
    return {"step": lambda: session.run([train, loss], feeds)[1]}


# ---------------------------------------------------------------------- JAX
def jax_steps(size: Size, half: str | None = None) -> dict[str, Step]:
    """`half`: the dtype of mixed precision."""
    import jax
    import jax.numpy as jnp

    width, depth = size.width, size.width // size.heads

    def product(x: Any, w: Any) -> Any:
        return x @ w if half is None else x.astype(half) @ w.astype(half)

    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        x = x.astype(np.float32)
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * scale + offset

    def block(p: Any, x: Any, i: int) -> Any:
        mine = {name: p[f"{i}/{name}"] for name in BLOCK}
        y = product(normalized(x, mine["scale1"], mine["offset1"]), mine["attend"])
        y = y + mine["attend_bias"].astype(y.dtype)
        q, k, v = y.reshape(size.batch, size.length, 3, size.heads, depth).transpose(2, 0, 3, 1, 4)
        scores = product(q, k.swapaxes(2, 3)).astype(np.float32) * depth**-0.5 + mask(size)
        mixed = product(jax.nn.softmax(scores), v).transpose(0, 2, 1, 3)
        x = x + product(mixed.reshape(-1, width), mine["project"]) + mine["project_bias"]
        y = product(normalized(x, mine["scale2"], mine["offset2"]), mine["hidden"])
        y = jax.nn.relu(y + mine["hidden_bias"].astype(y.dtype))
        return x + product(y, mine["output"]) + mine["output_bias"]

    def loss_of(p: Any, words: Any, following: Any) -> Any:
        x = (p["words"][words] + p["places"]).reshape(-1, width)
        for i in range(size.blocks):
            x = block(p, x, i)
        logits = product(normalized(x, p["scale"], p["offset"]), p["softmax"]).astype(np.float32) + p["softmax_bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), following.reshape(-1, 1), axis=1))

    def step(p: Any, words: Any, following: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, words, following)
        return {name: v - RATE * grads[name] for name, v in p.items()}, loss

    jitted = jax.jit(step, donate_argnums=0)
    state = [{name: jax.device_put(v) for name, v in initial(size).items()}]
    arrays = batch(size)

    def run() -> float:
        state[0], loss = jitted(state[0], *arrays)
        return float(loss)

    return {"step": run}


# ---------------------------------------------------------------------- PyTorch
def torch_steps(size: Size, device: str = "cpu", half: str | None = None, compiled: bool = False) -> dict[str, Step]:
    """PyTorch, with its own attention; `half`: the dtype of mixed precision."""
    import torch
    from torch.nn import functional

    p = {name: torch.from_numpy(v).to(device).requires_grad_() for name, v in initial(size).items()}
    width, depth = size.width, size.width // size.heads

    def block(x: Any, i: int) -> Any:
        mine = {name: p[f"{i}/{name}"] for name in BLOCK}
        y = functional.layer_norm(x, (width,), mine["scale1"], mine["offset1"], EPSILON)
        y = functional.linear(y, mine["attend"].T, mine["attend_bias"])
        q, k, v = y.reshape(size.batch, size.length, 3, size.heads, depth).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + functional.linear(mixed.reshape(-1, width), mine["project"].T, mine["project_bias"])
        y = functional.layer_norm(x, (width,), mine["scale2"], mine["offset2"], EPSILON)
        y = torch.relu(functional.linear(y, mine["hidden"].T, mine["hidden_bias"]))
        return x + functional.linear(y, mine["output"].T, mine["output_bias"])

    def loss_of(words: Any, following: Any) -> Any:
        x = (functional.embedding(words, p["words"]) + p["places"]).reshape(-1, width)
        for i in range(size.blocks):
            x = block(x, i)
        x = functional.layer_norm(x, (width,), p["scale"], p["offset"], EPSILON)
        logits = functional.linear(x, p["softmax"].T, p["softmax_bias"]).float()
        return functional.cross_entropy(logits, following.reshape(-1))

    called = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.SGD(p.values(), RATE)
    arrays = batch(size)

    def run() -> float:
        words, following = (torch.from_numpy(a).to(device).long() for a in arrays)
        with torch.autocast(device, getattr(torch, half or "bfloat16"), enabled=half is not None):
            loss = called(words, following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return {"step": run}


def steps_of(system: str, size: Size) -> dict[str, Step]:
    if system == "anabranch":
        import anabranch as tf

        return graph_steps(tf, size)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        return graph_steps(tf, size)
    return jax_steps(size) if system == "jax" else torch_steps(size)


def main(system: str, name: str = "small") -> None:
    steps = steps_of(system, SIZES[name])
    print(json.dumps({what: seconds_per_call(step, 1, repeats=9, warm_up=3) for what, step in steps.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
