"""Import rules of pools: what is computed of the elements in windows that slide."""

from __future__ import annotations

import itertools

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx.rules import OnnxNode, rule, sizes_of
from anabranch.onnx.rules_linear import pads_of, spatial_sizes


class _PoolWindows:
    """The windows of a node: its input, padded, and where each element of a window is."""

    def __init__(self, node: OnnxNode, filling: float | int) -> None:
        x = node.tensor()
        self.kernel = node.ints("kernel_shape") or []
        ones = [1] * len(self.kernel)
        self.strides = node.ints("strides", default=ones) or ones
        self.dilations = node.ints("dilations", default=ones) or ones
        self.sizes = spatial_sizes(node)
        self.pads = pads_of(node, self.sizes, self.kernel, self.strides, self.dilations)
        self.beyond = [(0, self._beyond(i) if node.integer("ceil_mode") else 0) for i in range(len(self.kernel))]
        self.filling = filling
        self.padded = self.pad(x, filling)

    def _beyond(self, i: int) -> int:
        """How far the last window reaches over the padding when the number of windows is rounded up."""
        low, high = self.pads[i]
        whole, reach = self.sizes[i] + low + high, (self.kernel[i] - 1) * self.dilations[i] + 1
        steps = -(-(whole - reach) // self.strides[i])
        if steps * self.strides[i] >= self.sizes[i] + low:  # The window would start in the padding.
            steps -= 1
        return max(steps * self.strides[i] + reach - whole, 0)

    def pad(self, x: tf.Tensor, filling: float | int, pads: bool = True) -> tf.Tensor:
        both = [
            ((p[0] if pads else 0) + b[0], (p[1] if pads else 0) + b[1])
            for p, b in zip(self.pads, self.beyond, strict=True)
        ]
        if not any(map(any, both)):
            return x
        return tf.raw_ops.PadV2(
            input=x, paddings=np.array([(0, 0), (0, 0), *both]), constant_values=tf.constant(filling, x.dtype)
        )

    def parts(self, x: tf.Tensor) -> list[tf.Tensor]:
        """For each place in a window, the elements there of all windows."""
        spans = []
        shape = tf.shape(x)
        sizes = x.shape.as_list()
        for i, (k, s, d) in enumerate(zip(self.kernel, self.strides, self.dilations, strict=True)):
            known = sizes[i + 2]
            whole = known if known is not None else shape[i + 2]
            steps = (whole - (k - 1) * d - 1) // s + 1
            spans.append([slice(j * d, j * d + (steps - 1) * s + 1, s) for j in range(k)])
        return [x[(slice(None), slice(None), *place)] for place in itertools.product(*spans)]

    @property
    def plain(self) -> bool:
        return len(self.kernel) == 2 and self.dilations == [1, 1]

    def pool(self, x: tf.Tensor, kind: str) -> tf.Tensor:
        """A pool of the library over two dimensions."""
        moved = tf.transpose(x, [0, 2, 3, 1])
        function = tf.nn.max_pool if kind == "max" else tf.nn.avg_pool
        return tf.transpose(function(moved, [1, *self.kernel, 1], [1, *self.strides, 1], "VALID"), [0, 3, 1, 2])

    def total(self, x: tf.Tensor) -> tf.Tensor:
        if self.plain and x.dtype in (tf.float32, tf.float64):
            return self.pool(x, "avg") * tf.constant(self.kernel[0] * self.kernel[1], x.dtype)
        return tf.add_n(self.parts(x))


@rule("MaxPool", 1, 8, 10, 11, 12, 22)
def _max_pool(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    x = node.tensor()
    least: float | int = int(x.dtype.min) if x.dtype.is_integer else float("-inf")
    windows = _PoolWindows(node, least)
    if node.outputs < 2 and windows.plain and x.dtype in (tf.float32, tf.float64):
        return (windows.pool(windows.padded, "max"),)
    stacked = tf.stack(windows.parts(windows.padded))
    wide = tf.cast(stacked, tf.int32) if x.dtype in (tf.int8, tf.uint8) else stacked
    largest = tf.cast(tf.reduce_max(wide, 0), x.dtype)
    if node.outputs < 2:
        return (largest,)
    sizes = sizes_of(x)
    numbers: HostArray = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    if node.integer("storage_order"):
        lead = sizes[:2]
        per = int(np.prod(windows.sizes))
        inside = np.arange(per, dtype=np.int64).reshape(windows.sizes[::-1]).T
        numbers = (np.arange(int(np.prod(lead)), dtype=np.int64) * per).reshape(
            [*lead, *[1] * len(windows.sizes)]
        ) + inside
    places = tf.stack(windows.parts(windows.pad(tf.constant(numbers), -1)))
    chosen = tf.one_hot(tf.argmax(wide, 0), len(windows.parts(windows.padded)), axis=0, dtype=tf.int64)
    return largest, tf.reduce_sum(chosen * places, 0)


@rule("AveragePool", 1, 7, 10, 11, 19, 22)
def _average_pool(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    windows = _PoolWindows(node, 0)
    ones = tf.ones_like(x[:1, :1])
    if node.integer("count_include_pad"):
        ones = tf.pad(ones, [[0, 0], [0, 0], *windows.pads], constant_values=1)
        counts = windows.total(windows.pad(ones, 0, pads=False))
    else:
        counts = windows.total(windows.pad(ones, 0))
    return windows.total(windows.padded) / counts


@rule("LpPool", 1, 2, 11, 18, 22)
def _lp_pool(node: OnnxNode) -> tf.Tensor:
    windows, p = _PoolWindows(node, 0), node.real("p", 2)
    return tf.pow(windows.total(tf.pow(tf.abs(windows.padded), p)), 1 / p)


def _space(node: OnnxNode) -> list[int]:
    return list(range(2, node.rank()))


@rule("GlobalAveragePool", 1, 22)
def _global_average_pool(node: OnnxNode) -> tf.Tensor:
    return tf.reduce_mean(node.tensor(), _space(node), keepdims=True)


@rule("GlobalMaxPool", 1, 22)
def _global_max_pool(node: OnnxNode) -> tf.Tensor:
    return tf.reduce_max(node.tensor(), _space(node), keepdims=True)


@rule("GlobalLpPool", 1, 2, 22)
def _global_lp_pool(node: OnnxNode) -> tf.Tensor:
    p = node.real("p", 2)
    return tf.pow(tf.reduce_sum(tf.pow(tf.abs(node.tensor()), p), _space(node), keepdims=True), 1 / p)


@rule("MaxUnpool", 9, 11, 22)
def _max_unpool(node: OnnxNode) -> tf.Tensor:
    x, places = node.tensor(0), node.tensor(1)
    kernel = node.ints("kernel_shape") or []
    strides = node.ints("strides", default=[1] * len(kernel)) or []
    pads = node.ints("pads", default=[0] * (2 * len(kernel))) or []
    sizes = sizes_of(x)
    inner = [
        (size - 1) * s + k - pads[i] - pads[i + len(kernel)]
        for i, (size, s, k) in enumerate(zip(sizes[2:], strides, kernel, strict=True))
    ]
    natural = [*sizes[:2], *inner]
    shape = natural if not node.has(2) else (node.ints("", 2) or [])
    flat = tf.scatter_nd(
        tf.reshape(places, [-1, 1]), tf.reshape(x, [-1]), tf.constant([int(np.prod(natural))], tf.int64)
    )
    result = tf.reshape(flat, natural)
    return tf.pad(result, [[0, b - a] for a, b in zip(natural, shape, strict=True)])
