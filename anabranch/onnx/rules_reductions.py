"""Import rules of reductions, and of what else works along axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import anabranch as tf
from anabranch.onnx.rules import OnnxNode, rule

Reduction = Callable[[tf.Tensor, object, bool], tf.Tensor]


def _wide(function: Callable[..., tf.Tensor]) -> Reduction:
    def reduce(x: tf.Tensor, axes: object, keep: bool) -> tf.Tensor:
        if x.dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.bool):
            return tf.cast(function(tf.cast(x, tf.int64), axes, keepdims=keep), x.dtype)
        return function(x, axes, keepdims=keep)

    return reduce


_sum, _max, _min, _prod, _mean = map(
    _wide, (tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_prod, tf.reduce_mean)
)

_REDUCTIONS: dict[str, tuple[Reduction, tuple[int, ...]]] = {
    "ReduceSum": (_sum, (1, 11, 13)),
    "ReduceMax": (_max, (1, 11, 12, 13, 18, 20)),
    "ReduceMin": (_min, (1, 11, 12, 13, 18, 20)),
    "ReduceProd": (_prod, (1, 11, 13, 18)),
    "ReduceMean": (_mean, (1, 11, 13, 18)),
    "ReduceL1": (lambda x, axes, keep: _sum(tf.abs(x), axes, keep), (1, 11, 13, 18)),
    "ReduceL2": (lambda x, axes, keep: tf.sqrt(_sum(x * x, axes, keep)), (1, 11, 13, 18)),
    "ReduceSumSquare": (lambda x, axes, keep: _sum(x * x, axes, keep), (1, 11, 13, 18)),
    "ReduceLogSum": (lambda x, axes, keep: tf.math.log(_sum(x, axes, keep)), (1, 11, 13, 18)),
    "ReduceLogSumExp": (lambda x, axes, keep: tf.reduce_logsumexp(x, axes, keepdims=keep), (1, 11, 13, 18)),
}


def _register(name: str, function: Reduction, versions: tuple[int, ...]) -> None:
    @rule(name, *versions)
    def reduction(node: OnnxNode) -> tf.Tensor:
        x, keep = node.tensor(), bool(node.integer("keepdims", 1))
        axes: object = node.attr("axes")
        if node.has(1) and node.tensor(1).shape.num_elements() != 0:
            axes = node.static(1).reshape(-1).tolist()
        if axes is None or axes == []:
            if node.integer("noop_with_empty_axes"):
                # The reduction of each element by itself.
                return (
                    tf.identity(x)
                    if name in ("ReduceSum", "ReduceMax", "ReduceMin")
                    else function(tf.expand_dims(x, 0), [0], False)
                )
            axes = None
        return function(x, axes, keep)


for _name, (_function, _versions) in _REDUCTIONS.items():
    _register(_name, _function, _versions)


def _arg(node: OnnxNode, function: Callable[..., tf.Tensor]) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(0)
    if node.integer("select_last_index"):
        size = tf.shape(x, out_type=tf.int64)[axis]
        result = size - 1 - function(tf.reverse(x, [axis]), axis, output_type=tf.int64)
    else:
        result = function(x, axis, output_type=tf.int64)
    return tf.expand_dims(result, axis) if node.integer("keepdims", 1) else result


@rule("ArgMax", 1, 11, 12, 13)
def _argmax(node: OnnxNode) -> tf.Tensor:
    return _arg(node, tf.argmax)


@rule("ArgMin", 1, 11, 12, 13)
def _argmin(node: OnnxNode) -> tf.Tensor:
    return _arg(node, tf.argmin)


def _along(node: OnnxNode, function: Callable[[tf.Tensor, int], tf.Tensor], before: int = 1) -> tf.Tensor:
    """Before operator set 13, the axes from the given one on are one."""
    x = node.tensor()
    if node.since >= 13:
        return function(x, node.axis(-1))
    axis = node.axis(before)
    shape = tf.shape(x)
    lead = tf.reduce_prod(shape[:axis])
    flat = function(tf.reshape(x, tf.stack([lead, -1])), 1)
    return tf.reshape(flat, shape)


def _softmax_along(x: tf.Tensor, axis: int) -> tf.Tensor:
    e = tf.exp(x - tf.reduce_max(x, axis, keepdims=True))
    return e / tf.reduce_sum(e, axis, keepdims=True)


def _log_softmax_along(x: tf.Tensor, axis: int) -> tf.Tensor:
    shifted = x - tf.reduce_max(x, axis, keepdims=True)
    return shifted - tf.math.log(tf.reduce_sum(tf.exp(shifted), axis, keepdims=True))


def _hardmax_along(x: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.one_hot(tf.argmax(x, axis), tf.shape(x)[axis], axis=axis, dtype=x.dtype)


@rule("Softmax", 1, 11, 13)
def _softmax(node: OnnxNode) -> tf.Tensor:
    return _along(node, _softmax_along)


@rule("LogSoftmax", 1, 11, 13)
def _log_softmax(node: OnnxNode) -> tf.Tensor:
    return _along(node, _log_softmax_along)


@rule("Hardmax", 1, 11, 13)
def _hardmax(node: OnnxNode) -> tf.Tensor:
    return _along(node, _hardmax_along)


@rule("CumSum", 11, 14)
def _cumsum(node: OnnxNode) -> tf.Tensor:
    axis = int(node.static(1).reshape(()))
    return tf.cumsum(node.tensor(), axis, bool(node.integer("exclusive")), bool(node.integer("reverse")))


@rule("TopK", 1, 10, 11)
def _top_k(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    x, axis = node.tensor(), node.axis(-1)
    k = node.integer("k") if node.since < 10 else tf.reshape(tf.cast(node.tensor(1), tf.int32), [])
    order = [i for i in range(node.rank()) if i != axis] + [axis]
    back = [int(i) for i in np.argsort(order)]
    moved = tf.transpose(x, order)
    if node.integer("largest", 1):
        values, indices = tf.nn.top_k(moved, k)
    elif x.dtype.is_unsigned:
        values, indices = tf.nn.top_k(tf.constant(x.dtype.max, x.dtype) - moved, k)
        values = tf.constant(x.dtype.max, x.dtype) - values
    else:
        keys = -moved if x.dtype.is_floating else -1 - moved
        values, indices = tf.nn.top_k(keys, k)
        values = -values if x.dtype.is_floating else -1 - values
    return tf.transpose(values, back), tf.transpose(tf.cast(indices, tf.int64), back)


@rule("Einsum", 12)
def _einsum(node: OnnxNode) -> tf.Tensor:
    equation = node.text("equation").replace(" ", "")
    return tf.einsum(equation, *[node.tensor(i) for i in range(len(node.values))])
