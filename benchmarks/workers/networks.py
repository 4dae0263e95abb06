"""Worker: steps of the networks of `benchmarks/networks.py` (s): a training step (gradient descent), or inference.

    networks.py SYSTEM NETWORK [training|bfloat16|inference]

``bfloat16`` is training in mixed precision: variables and their updates are float32.

Prints the first step (after the variables have their values), the longest of the two after it, the least time of later
ones, and the least processor time. anabranch's later ones come when its program, which is compiled in the background,
has taken over. Systems: ``anabranch`` (with the kernels that it chooses; oneDNN's where the extra `native` is
installed), ``jax`` (by hand: one jitted function), ``tensorflow`` (a session), ``torch`` (eager, channels last).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import wait_for_the_compiler

from benchmarks.networks import NETWORKS, Network, Size

#: a rate at which none of the networks diverges: what is no number takes other ways through some kernels
RATE, EPSILON = 1e-4, 1e-3
#: later steps: as many as fit, but two at least
SECONDS, MOST_STEPS = 20, 10
Step = Callable[[], Any]


def examples(network: Network) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images = rng.standard_normal((network.batch, network.side, network.side, 3), np.float32)
    return images, rng.integers(0, 1000, network.batch).astype(np.int32)


class Values:
    """Initial values of parameters, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def weights(self, *shape: int) -> np.ndarray:
        deviation = np.float32(np.sqrt(2 / np.prod(shape[:-1])))
        return self._rng.standard_normal(shape, np.float32) * deviation


def both(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


# ---------------------------------------------------------------------- graphs
class GraphBuilder:
    """For anabranch and for TensorFlow."""

    def __init__(self, tf: Any) -> None:
        self.tf, self.values, self.count = tf, Values(), 0

    def variable(self, value: np.ndarray) -> Any:
        self.count += 1
        initial = self.tf.constant_initializer(value)
        return self.tf.get_variable(f"v{self.count}", value.shape, initializer=initial, use_resource=True)

    def conv(
        self,
        x: Any,
        depth: int,
        size: Size,
        stride: int = 1,
        padding: str = "SAME",
        normalized: bool = False,
        relu: bool = True,
    ) -> Any:
        nn = self.tf.nn
        w = self.variable(self.values.weights(*both(size), int(x.shape[3]), depth))
        x = nn.conv2d(x, w, strides=[1, stride, stride, 1], padding=padding)
        offset = self.variable(np.zeros(depth, np.float32))
        if normalized:
            scale = self.variable(np.ones(depth, np.float32))
            x = nn.fused_batch_norm(x, scale, offset, epsilon=EPSILON)[0]
        else:
            x = nn.bias_add(x, offset)
        return nn.relu(x) if relu else x

    def pool(self, x: Any, size: int, stride: int, kind: str = "max", padding: str = "VALID") -> Any:
        function = self.tf.nn.max_pool if kind == "max" else self.tf.nn.avg_pool
        return function(x, [1, size, size, 1], [1, stride, stride, 1], padding)

    def concat(self, parts: list[Any]) -> Any:
        return self.tf.concat(parts, 3)

    def added(self, x: Any, y: Any) -> Any:
        return self.tf.nn.relu(x + y)

    def mean(self, x: Any) -> Any:
        return self.tf.reduce_mean(x, [1, 2])

    def flat(self, x: Any) -> Any:
        return self.tf.reshape(x, [int(x.shape[0]), -1])

    def dense(self, x: Any, depth: int, relu: bool = True) -> Any:
        w = self.variable(self.values.weights(int(x.shape[1]), depth))
        x = self.tf.matmul(x, w) + self.variable(np.zeros(depth, np.float32))
        return self.tf.nn.relu(x) if relu else x


def graph_step(tf: Any, network: Network, training: bool, half: str | None = None, config: Any = None) -> Step:
    """`half`: the dtype of mixed precision, in training; `config`: the session's."""
    images, labels = examples(network)
    x, y = tf.placeholder(tf.float32, images.shape), tf.placeholder(tf.int32, labels.shape)
    fetched = logits = network.build(GraphBuilder(tf), x)
    if training:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        optimizer = tf.train.GradientDescentOptimizer(RATE)
        if half is not None:
            optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=half)
        fetched = [loss, optimizer.minimize(loss)]
    session = tf.Session(config=config)
    session.run(tf.global_variables_initializer())
    return lambda: session.run(fetched, {x: images, y: labels})


def rewritten_by_onednn(tf: Any) -> Any:
    """TensorFlow's own way to mixed precision on a processor: its rewriter of graphs."""
    config = tf.ConfigProto()
    # 1: ON
    config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = 1
    return config


# ---------------------------------------------------------------------- PyTorch
class TorchBuilder:
    """Makes parameters in its first pass, and takes them again in later ones."""

    def __init__(self, device: str = "cpu") -> None:
        import torch

        self.torch, self.functional, self.device = torch, torch.nn.functional, device
        self.values, self.parameters, self.at = Values(), [], 0

    def parameter(self, make: Callable[[], np.ndarray]) -> Any:
        if self.at == len(self.parameters):
            value = self.torch.from_numpy(make()).to(self.device)
            if value.ndim == 4:
                value = value.permute(3, 2, 0, 1).contiguous(memory_format=self.torch.channels_last)
            self.parameters.append(value.requires_grad_())
        self.at += 1
        return self.parameters[self.at - 1]

    def padded(self, x: Any, size: tuple[int, int], stride: int, padding: str, fill: float = 0.0) -> tuple[Any, Any]:
        """The images, padded where the sides need different paddings; and the padding that is left to do."""
        if padding == "VALID":
            return x, 0
        missing = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in zip(x.shape[2:], size, strict=True)]
        if not any(total % 2 for total in missing):
            return x, tuple(total // 2 for total in missing)
        (down, across) = missing
        sides = across // 2, across - across // 2, down // 2, down - down // 2
        return self.functional.pad(x, sides, value=fill), 0

    def conv(
        self,
        x: Any,
        depth: int,
        size: Size,
        stride: int = 1,
        padding: str = "SAME",
        normalized: bool = False,
        relu: bool = True,
    ) -> Any:
        w = self.parameter(lambda: self.values.weights(*both(size), x.shape[1], depth))
        offset = self.parameter(lambda: np.zeros(depth, np.float32))
        x, left = self.padded(x, both(size), stride, padding)
        x = self.functional.conv2d(x, w, None if normalized else offset, stride, left)
        if normalized:
            scale = self.parameter(lambda: np.ones(depth, np.float32))
            x = self.functional.batch_norm(x, None, None, scale, offset, training=True, eps=EPSILON)
        return self.functional.relu(x) if relu else x

    def pool(self, x: Any, size: int, stride: int, kind: str = "max", padding: str = "VALID") -> Any:
        if kind == "average":
            left = size // 2 if padding == "SAME" else 0
            return self.functional.avg_pool2d(x, size, stride, left, count_include_pad=False)
        x, left = self.padded(x, (size, size), stride, padding, float("-inf"))
        return self.functional.max_pool2d(x, size, stride, left)

    def concat(self, parts: list[Any]) -> Any:
        return self.torch.cat(parts, 1)

    def added(self, x: Any, y: Any) -> Any:
        return self.functional.relu(x + y)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def flat(self, x: Any) -> Any:
        return x.flatten(1)

    def dense(self, x: Any, depth: int, relu: bool = True) -> Any:
        w = self.parameter(lambda: self.values.weights(x.shape[1], depth))
        x = x @ w + self.parameter(lambda: np.zeros(depth, np.float32))
        return self.functional.relu(x) if relu else x


def torch_step(
    network: Network, training: bool, device: str = "cpu", half: str | None = None, compiled: bool = False
) -> Step:
    """`half`: the dtype of mixed precision."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    images, labels = examples(network)
    builder = TorchBuilder(device)

    def fed() -> tuple[Any, Any]:
        x, y = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
        return x.permute(0, 3, 1, 2), y.long()

    x, y = fed()
    with torch.no_grad():
        network.build(builder, x[:1])  # makes the parameters

    def forward(x: Any) -> Any:
        builder.at = 0
        return network.build(builder, x)

    called = torch.compile(forward) if compiled else forward

    def logits() -> Any:
        with torch.autocast(device, getattr(torch, half or "bfloat16"), enabled=half is not None):
            return called(x).float()

    def infer() -> object:
        with torch.inference_mode():
            return logits()

    optimizer = torch.optim.SGD(builder.parameters, RATE)

    def train() -> object:
        nonlocal x, y
        x, y = fed()
        loss = torch.nn.functional.cross_entropy(logits(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return train if training else infer


# ---------------------------------------------------------------------- JAX
class JaxBuilder:
    """Takes parameters from a list; makes them where it has none (in NumPy, outside of a program)."""

    def __init__(self, parameters: list[Any] | None = None, half: str | None = None) -> None:
        import jax

        self.jax, self.values, self.half = jax, Values(), half
        self.makes, self.parameters, self.at = parameters is None, parameters or [], 0

    def parameter(self, make: Callable[[], np.ndarray]) -> Any:
        if self.makes:
            self.parameters.append(make())
        self.at += 1
        value = self.parameters[self.at - 1]
        return value if self.half is None else value.astype(self.half)

    def conv(
        self,
        x: Any,
        depth: int,
        size: Size,
        stride: int = 1,
        padding: str = "SAME",
        normalized: bool = False,
        relu: bool = True,
    ) -> Any:
        jnp = self.jax.numpy
        w = self.parameter(lambda: self.values.weights(*both(size), x.shape[3], depth))
        offset = self.parameter(lambda: np.zeros(depth, np.float32))
        numbers = ("NHWC", "HWIO", "NHWC")
        x = self.jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=numbers)
        if normalized:
            scale = self.parameter(lambda: np.ones(depth, np.float32))
            wide = x.astype(np.float32)
            mean, variance = jnp.mean(wide, (0, 1, 2)), jnp.var(wide, (0, 1, 2))
            x = ((wide - mean) * self.jax.lax.rsqrt(variance + EPSILON)).astype(x.dtype) * scale
        return self.jax.nn.relu(x + offset) if relu else x + offset

    def pool(self, x: Any, size: int, stride: int, kind: str = "max", padding: str = "VALID") -> Any:
        lax, jnp = self.jax.lax, self.jax.numpy
        window = (1, size, size, 1), (1, stride, stride, 1), padding
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, *window)
        counts = lax.reduce_window(jnp.ones((1, *x.shape[1:3], 1)), 0.0, lax.add, *window)
        return (lax.reduce_window(x.astype(np.float32), 0.0, lax.add, *window) / counts).astype(x.dtype)

    def concat(self, parts: list[Any]) -> Any:
        return self.jax.numpy.concatenate(parts, 3)

    def added(self, x: Any, y: Any) -> Any:
        return self.jax.nn.relu(x + y)

    def mean(self, x: Any) -> Any:
        return x.mean((1, 2))

    def flat(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)

    def dense(self, x: Any, depth: int, relu: bool = True) -> Any:
        w = self.parameter(lambda: self.values.weights(x.shape[1], depth))
        x = x @ w + self.parameter(lambda: np.zeros(depth, np.float32))
        return self.jax.nn.relu(x) if relu else x


def jax_step(network: Network, training: bool, half: str | None = None) -> Step:
    """`half`: the dtype of mixed precision."""
    import jax

    images, labels = examples(network)
    maker = JaxBuilder()
    jax.eval_shape(lambda x: network.build(maker, x), images)
    state = [jax.device_put(value) for value in maker.parameters]

    def loss_of(parameters: list[Any], x: Any, y: Any) -> Any:
        logits = network.build(JaxBuilder(parameters, half), x if half is None else x.astype(half))
        log = jax.nn.log_softmax(logits.astype(np.float32))
        return -log[np.arange(network.batch), y].mean()

    @jax.jit
    def infer(parameters: list[Any], x: Any) -> Any:
        return network.build(JaxBuilder(parameters), x)

    def trained(parameters: list[Any], x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        return loss, [p - RATE * g for p, g in zip(parameters, gradients, strict=True)]

    update = jax.jit(trained, donate_argnums=0)

    def train() -> object:
        nonlocal state
        loss, state = update(state, images, labels)
        return float(loss)

    return train if training else lambda: np.asarray(infer(state, images))


def step_of(system: str, network: Network, kind: str) -> Step:
    training, half = kind != "inference", "bfloat16" if kind == "bfloat16" else None
    if system == "torch":
        return torch_step(network, training, half=half)
    if system == "jax":
        return jax_step(network, training, half)
    if system == "anabranch":
        import anabranch as tf

        return graph_step(tf, network, training, half)
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    return graph_step(tf, network, training, config=None if half is None else rewritten_by_onednn(tf))


def main(system: str, name: str, kind: str = "training") -> None:
    network = NETWORKS[name]
    step = step_of(system, network, kind)
    walls: list[float] = []
    busy: list[float] = []
    began = time.perf_counter()
    while len(walls) < 5 or (len(walls) <= MOST_STEPS + 2 and time.perf_counter() - began < SECONDS + sum(walls[:3])):
        if len(walls) == 3:
            wait_for_the_compiler()
        start, used = time.perf_counter(), time.process_time()
        result = step()
        walls.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    if not np.isfinite(result[0] if isinstance(result, list) else result).all():
        raise SystemExit(f"{name} has diverged: its figures would be of another computation")
    what = f"{name}, batch {network.batch}"
    figures = {what: min(walls[3:]), f"{what}, processor time": min(busy[3:])}
    figures |= {f"{what}, first step": walls[0], f"{what}, first step, processor time": busy[0]}
    print(json.dumps(figures | {f"{what}, second and third": max(walls[1:3])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
