"""Worker: how much memory a training step takes, at its highest, beyond the process before the model was made (MB).

``chain``: 24 layers of 1,024 with batch 4,096, as they are, and with each four layers computed again for their
gradients (`tf.recompute_grad`, PyTorch's `checkpoint`). ``ResNet-50``: batch 8. Each measurement is a process of its
own, since what one has freed another would use; the second argument says which.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from timing import wait_for_the_compiler

LAYERS, GROUP, WIDTH, BATCH = 24, 4, 1024, 4096
STEPS = 12


def peak() -> float:
    """The most memory that this process has had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def resident() -> float:
    """What it has now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def graph_chain(tf: Any, recomputed: bool) -> Any:
    x = tf.placeholder(tf.float32, [BATCH, WIDTH])
    weights = [
        tf.get_variable(f"w{i}", [WIDTH, WIDTH], use_resource=True, initializer=tf.random_normal_initializer(0, 0.03))
        for i in range(LAYERS)
    ]

    def layers(y: Any, *held: Any) -> Any:
        for w in held:
            y = tf.tanh(tf.matmul(y, w))
        return y

    y = x
    for start in range(0, LAYERS, GROUP):
        held = weights[start : start + GROUP]
        y = tf.recompute_grad(layers)(y, *held) if recomputed else layers(y, *held)
    loss = tf.reduce_mean(tf.square(y))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    feeds = {x: np.ones((BATCH, WIDTH), np.float32)}
    return lambda: session.run([train, loss], feeds)


def torch_chain(recomputed: bool) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    weights = [(0.03 * torch.randn(WIDTH, WIDTH)).requires_grad_() for _ in range(LAYERS)]
    optimizer = torch.optim.SGD(weights, 0.1)
    x = np.ones((BATCH, WIDTH), np.float32)

    def layers(y: Any, *held: Any) -> Any:
        for w in held:
            y = torch.tanh(y @ w)
        return y

    def run() -> float:
        y = torch.from_numpy(x)
        for start in range(0, LAYERS, GROUP):
            held = weights[start : start + GROUP]
            y = checkpoint(layers, y, *held, use_reentrant=False) if recomputed else layers(y, *held)
        loss = y.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def step_of(system: str, what: str) -> Any:
    if not what.startswith("chain"):
        from networks import NETWORKS, step_of as step_of_network

        return step_of_network(system, NETWORKS[what], "training")
    if system == "torch":
        return torch_chain(what.endswith("recomputed"))
    return graph_chain(graphs_of(system), what.endswith("recomputed"))


def graphs_of(system: str) -> Any:
    if system == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    return tf


def warm_up(system: str) -> None:
    """Loads what each first computation of a process loads."""
    if system == "torch":
        import torch

        x = torch.ones(64, 64, requires_grad=True)
        (x @ x).sum().backward()
        return
    tf = graphs_of(system)
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [64, 64], use_resource=True)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(v, v)))
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train)


def main(system: str, what: str) -> None:
    warm_up(system)
    before = resident()
    step = step_of(system, what)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
        wait_for_the_compiler()
    print(json.dumps({f"{what}: MB at the most": peak() - before, f"{what}: s a step": min(times)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
