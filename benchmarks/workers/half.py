"""Worker: float32 beside half precision: a product of matrices, and a training step of a small network (s).

In ``anabranch`` by the rewrite that `enable_mixed_precision_graph_rewrite` turns on, in ``torch`` by its autocast. The
dtypes take turns, and each figure is the median of its turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZE, BATCH, ROUNDS = 1024, 32, 7
DTYPES = ("float32", "bfloat16", "float16")
FILTERS = ((3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64))
CLASSES = 10

Steps = dict[str, Callable[[], object]]


def examples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix, images and labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, BATCH).astype(np.int64)
    return rng.standard_normal((SIZE, SIZE), np.float32), rng.standard_normal((BATCH, 32, 32, 3), np.float32), labels


def anabranch_steps(dtype: str) -> Steps:
    import anabranch as tf

    matrix, images, labels = examples()
    with tf.Graph().as_default():
        opt: Any = tf.train.MomentumOptimizer(0.01, 0.9)
        if dtype != "float32":
            opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, dtype=dtype)
        a = tf.get_variable("a", initializer=matrix)
        # its greatest value, for what nobody fetches XLA does not compute
        product = tf.reduce_max(tf.matmul(a, a))
        x, y = tf.placeholder(tf.float32, images.shape), tf.placeholder(tf.int64, labels.shape)
        hidden = x
        for _, _, _, filters in FILTERS:
            hidden = tf.layers.conv2d(hidden, filters, 3, padding="same", activation=tf.nn.relu)
        logits = tf.layers.dense(tf.layers.flatten(tf.layers.max_pooling2d(hidden, 2, 2)), CLASSES)
        train = opt.minimize(tf.losses.sparse_softmax_cross_entropy(y, logits))
        initialize = tf.global_variables_initializer()
        session = tf.Session()
    if dtype != "float32":
        tf.train.experimental.disable_mixed_precision_graph_rewrite()
    session.run(initialize)
    return {
        f"product of {SIZE} x {SIZE}": lambda: session.run(product),
        "training step": lambda: session.run(train, {x: images, y: labels}),
    }


def torch_steps(dtype: str) -> Steps:
    import torch
    from torch import nn

    matrix, images, labels = examples()
    a = torch.from_numpy(matrix)
    half = torch.autocast("cpu", getattr(torch, dtype), enabled=dtype != "float32")
    layers: list[nn.Module] = []
    for _, _, channels, filters in FILTERS:
        layers += [nn.Conv2d(channels, filters, 3, padding="same"), nn.ReLU()]
    layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 16 * FILTERS[-1][-1], CLASSES)]
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(network.parameters(), 0.01, 0.9)
    x, y = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)

    def product() -> object:
        with half, torch.no_grad():
            return (a @ a).max()

    def train() -> object:
        opt.zero_grad()
        with half:
            logits = network(x)
        nn.functional.cross_entropy(logits.float(), y).backward()
        return opt.step()

    return {f"product of {SIZE} x {SIZE}": product, "training step": train}


def main(system: str) -> None:
    make = torch_steps if system == "torch" else anabranch_steps
    steps = {f"{what}, {dtype}": step for dtype in DTYPES for what, step in make(dtype).items()}
    times: dict[str, list[float]] = {what: [] for what in steps}
    for step in steps.values():
        for _ in range(4):  # the first two calls of a small step may run uncompiled
            step()
    for _ in range(ROUNDS):
        for what, step in steps.items():
            start = time.perf_counter()
            step()
            times[what].append(time.perf_counter() - start)
    print(json.dumps({what: statistics.median(seen) for what, seen in times.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
