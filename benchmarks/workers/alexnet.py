"""Worker: a training step of AlexNet, batch 32, gradient descent (s, on the clock and of the processors).

The "one weird trick" form of AlexNet, as convnet benchmarks have it: five convolutions, three max poolings of 3x3 with
stride 2, three dense layers. Systems: ``anabranch`` (with the kernels that it chooses; oneDNN's where the extra
`native` is installed), ``xla`` (without oneDNN), ``tensorflow``, and ``torch`` (channels last). The second argument is
the dtype: float32, or bfloat16 by each system's rewrite (not TensorFlow's, whose graphs of version 1 have none here).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

#: the network diverges at higher rates, and what is no number takes other ways through some kernels
BATCH, SIZE, CLASSES, RATE = 32, 224, 1000, 1e-4
#: filter, stride, padding of each side; and whether max pooling follows
LAYERS = (
    ((11, 11, 3, 64), 4, 2, True),
    ((5, 5, 64, 192), 1, 2, True),
    ((3, 3, 192, 384), 1, 1, False),
    ((3, 3, 384, 256), 1, 1, False),
    ((3, 3, 256, 256), 1, 1, True),
)
DENSE = ((9216, 4096), (4096, 4096), (4096, CLASSES))
STEPS = 5


def initial() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [*(shape for shape, *_ in LAYERS), *DENSE]
    return [rng.standard_normal(s, np.float32) * np.float32(np.sqrt(2 / np.prod(s[:-1]))) for s in shapes]


def examples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((BATCH, SIZE, SIZE, 3), np.float32), rng.integers(0, CLASSES, BATCH).astype(np.int32)


def graph_step(tf: Any, dtype: str, session_of: Callable[[Any], Any]) -> Callable[[], object]:
    """One program for anabranch and for TensorFlow; `session_of` makes a session that is closed in time."""
    images, labels = examples()
    x, y = tf.placeholder(tf.float32, images.shape), tf.placeholder(tf.int32, labels.shape)
    weights = [
        tf.get_variable(f"w{i}", initializer=tf.constant(value), use_resource=True) for i, value in enumerate(initial())
    ]
    hidden = x
    for (_, stride, pad, pooled), w in zip(LAYERS, weights, strict=False):
        pads = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        hidden = tf.nn.relu(tf.nn.conv2d(hidden, w, strides=[1, stride, stride, 1], padding=pads))
        if pooled:
            hidden = tf.nn.max_pool(hidden, [1, 3, 3, 1], [1, 2, 2, 1], "VALID")
    hidden = tf.reshape(hidden, [BATCH, -1])
    *inner, last = weights[len(LAYERS) :]
    for w in inner:
        hidden = tf.nn.relu(tf.matmul(hidden, w))
    logits = tf.matmul(hidden, last)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    optimizer = tf.train.GradientDescentOptimizer(RATE)
    if dtype != "float32":
        optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=dtype)
    train = optimizer.minimize(loss)
    session = session_of(tf.Session())
    session.run(tf.global_variables_initializer())
    return lambda: session.run([loss, train], {x: images, y: labels})[0]


def torch_step(dtype: str) -> Callable[[], object]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    images, labels = examples()
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    y = torch.from_numpy(labels).long()
    weights = []
    for value in initial():
        w = torch.from_numpy(value)
        if value.ndim == 4:
            w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        weights.append(w.requires_grad_())
    optimizer = torch.optim.SGD(weights, RATE)

    def network() -> Any:
        hidden = x
        for (_, stride, pad, pooled), w in zip(LAYERS, weights, strict=False):
            hidden = functional.relu(functional.conv2d(hidden, w, None, stride, pad))
            if pooled:
                hidden = functional.max_pool2d(hidden, 3, 2)
        hidden = hidden.flatten(1)
        *inner, last = weights[len(LAYERS) :]
        for w in inner:
            hidden = functional.relu(hidden @ w)
        return hidden @ last

    def step() -> object:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype != "float32"):
            logits = network()
        loss = functional.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def step_of(system: str, dtype: str, session_of: Callable[[Any], Any]) -> Callable[[], Any]:
    if system == "torch":
        return torch_step(dtype)
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    else:
        if system == "xla":
            os.environ["ANABRANCH_NATIVE"] = "0"
        import anabranch as tf

    return graph_step(tf, dtype, session_of)


def main(system: str, dtype: str = "float32") -> None:
    walls, busy = [], []
    with contextlib.ExitStack() as opened:
        step = step_of(system, dtype, opened.enter_context)
        for _ in range(2):
            step()
        for _ in range(STEPS):
            start, used = time.perf_counter(), time.process_time()
            loss = step()
            walls.append(time.perf_counter() - start)
            busy.append(time.process_time() - used)
    if not np.isfinite(loss):
        raise SystemExit("AlexNet has diverged: its figures would be of another computation")
    what = f"AlexNet, batch {BATCH}, {dtype}"
    print(json.dumps({what: min(walls), f"{what}, processor time": min(busy)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
