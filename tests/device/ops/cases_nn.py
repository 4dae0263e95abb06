"""Rows of the op table: biases, activations, softmax and its losses, ranking."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anabranch.core import dtypes
from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(20160)
X = RNG.normal(size=(3, 5)).astype(np.float32) * 2
G = RNG.normal(size=(3, 5)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
BIAS = RNG.normal(size=5).astype(np.float32)
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def exp_sum(x: Array) -> Array:
    return np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    return x - x.max(-1, keepdims=True) - np.log(exp_sum(x))


def softmax(x: Array) -> Array:
    return np.exp(log_softmax(x))


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x.astype(np.float64)).astype(x.dtype)


def half(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16)


ACTIVATIONS = {
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
    "Elu": lambda x: np.where(x < 0, np.exp(x) - 1, x),
    "Selu": lambda x: SELU_SCALE * np.where(x < 0, SELU_ALPHA * (np.exp(x) - 1), x),
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "LeakyRelu": lambda x: np.where(x > 0, x, np.float32(0.2).astype(x.dtype) * x),
}
#: from the incoming gradient and the activation's input (output for Elu and Selu)
ACTIVATION_GRADS = {
    "ReluGrad": lambda g, x: g * (x > 0),
    "Relu6Grad": lambda g, x: g * ((x > 0) & (x < 6)),
    "EluGrad": lambda g, y: np.where(y < 0, g * (y + 1), g),
    "SeluGrad": lambda g, y: np.where(y < 0, g * (y + SELU_SCALE * SELU_ALPHA), g * SELU_SCALE),
    "SoftplusGrad": lambda g, x: g / (1 + np.exp(-x)),
    "SoftsignGrad": lambda g, x: g / (1 + np.abs(x)) ** 2,
    "LeakyReluGrad": lambda g, x: np.where(x > 0, g, np.float32(0.2).astype(g.dtype) * g),
}
WIDE = np.array([[-800.0, -3.0, -1e-3, 0.0, 1e-3], [3.0, 7.0, 30.0, 90.0, 800.0]], np.float32)


def cross_entropy(logits: Array, labels: Array) -> list[Array]:
    logits, labels = np.broadcast_arrays(logits, labels)
    return [-(labels * log_softmax(logits)).sum(-1), softmax(logits) - labels]


def sparse_cross_entropy(logits: Array, labels: Array) -> list[Array]:
    return cross_entropy(logits, np.eye(logits.shape[1], dtype=logits.dtype)[labels])


def top_k(k: int) -> Any:
    def oracle(x: Array, *_: Any) -> list[Array]:
        order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[..., :k]
        return [np.take_along_axis(x, order, -1), order.astype(np.int32)]

    return oracle


def in_top_k(predictions: Array, targets: Array, k: int) -> Array:
    rows = []
    for row, target in zip(predictions, targets, strict=True):
        good = 0 <= target < len(row) and np.isfinite(row).all()
        rows.append(bool(good and (row > row[target]).sum() < k))
    return np.array(rows)


LABELS = np.array([[0.25, 0.25, 0.5, 0, 0], [0, 1, 0, 0, 0], [0.125, 0.125, 0.125, 0.125, 0.5]], np.float32)
TIES = np.array([[1, 3, 3, 2], [5, 5, 5, 5], [0, -1, 7, 7]], np.int32)
PREDICTIONS = np.array([[0.1, 0.7, 0.2], [0.5, 0.5, 0.0], [np.nan, 0.2, 0.3], [1, 2, 3]], np.float32)
TARGETS = np.array([1, 1, 1, 7], np.int32)

NANS, SIGNS = np.full(3, np.nan, np.float32), np.array([-1, 0, 1], np.float32)

CASES = [
    OpCase("ReluGrad", (NANS, SIGNS), expected=NANS, gradient=False, label="NaN passes"),
    OpCase("Relu6Grad", (NANS, SIGNS), expected=NANS, gradient=False, label="NaN passes"),
    OpCase("BiasAdd", (IMAGE, BIAS), oracle=np.add, order=2),
    OpCase("BiasAdd", (X, half(BIAS).astype(np.float32)), oracle=np.add, label="matrix"),
    OpCase("BiasAdd", (half(X), half(BIAS)), oracle=np.add, label="bfloat16"),
    OpCase(
        "BiasAdd",
        (IMAGE, BIAS[:3]),
        {"data_format": "NCHW"},
        lambda x, b: x + b[:, None, None],
        label="NCHW",
    ),
    OpCase("BiasAdd", (X, BIAS[:3]), error=InvalidArgumentError, label="too short"),
    OpCase("BiasAddV1", (X, BIAS), oracle=np.add),
    OpCase("BiasAddGrad", (IMAGE,), oracle=lambda g: g.sum((0, 1, 2)), order=2),
    OpCase("BiasAddGrad", (IMAGE,), {"data_format": "NCHW"}, lambda g: g.sum((0, 2, 3)), label="NCHW"),
    OpCase("BiasAddGrad", (half(IMAGE),), oracle=lambda g: g.sum((0, 1, 2)), label="bfloat16"),
    *(OpCase(name, (X,), oracle=f, order=2) for name, f in ACTIVATIONS.items()),
    *(OpCase(name, (half(X),), oracle=f, label="bfloat16") for name, f in ACTIVATIONS.items()),
    *(OpCase(name, (X.astype(np.float64),), oracle=f, label="double") for name, f in ACTIVATIONS.items()),
    *(OpCase(name, (WIDE,), oracle=f, gradient=False, label="extreme") for name, f in ACTIVATIONS.items()),
    OpCase("Relu", (TIES,), oracle=lambda x: np.maximum(x, 0), label="int32"),
    OpCase("LeakyRelu", (X,), {"alpha": 0.5}, lambda x: np.where(x > 0, x, x / 2), label="alpha"),
    *(OpCase(name, (G, X), oracle=f) for name, f in ACTIVATION_GRADS.items()),
    *(OpCase(name, (half(G), half(X)), oracle=f, label="bfloat16") for name, f in ACTIVATION_GRADS.items()),
    OpCase("Softmax", (X,), oracle=softmax, order=2),
    OpCase("Softmax", (IMAGE,), oracle=softmax, label="rank 4"),
    OpCase("Softmax", (half(X),), oracle=softmax, label="bfloat16"),
    OpCase("Softmax", (WIDE,), oracle=softmax, gradient=False, label="extreme"),
    OpCase("LogSoftmax", (X,), oracle=log_softmax, order=2),
    OpCase("LogSoftmax", (X.astype(np.float16),), oracle=log_softmax, label="half"),
    OpCase("LogSoftmax", (WIDE,), oracle=log_softmax, gradient=False, label="extreme"),
    OpCase("SoftmaxCrossEntropyWithLogits", (X, LABELS), oracle=cross_entropy, order=2),
    OpCase("SoftmaxCrossEntropyWithLogits", (X, LABELS[:1]), oracle=cross_entropy, label="one label row"),
    OpCase("SoftmaxCrossEntropyWithLogits", (half(X), half(LABELS)), oracle=cross_entropy, label="bfloat16"),
    OpCase("SoftmaxCrossEntropyWithLogits", (X, LABELS[:, :4]), error=InvalidArgumentError, label="other classes"),
    OpCase("SparseSoftmaxCrossEntropyWithLogits", (X, np.array([4, 0, 2])), oracle=sparse_cross_entropy, order=2),
    OpCase(
        "SparseSoftmaxCrossEntropyWithLogits",
        (X.astype(np.float64), np.array([4, 0, 2], np.int32)),
        oracle=sparse_cross_entropy,
        label="double",
    ),
    OpCase("SparseSoftmaxCrossEntropyWithLogits", (X, np.array([4, 5, 2])), error=InvalidArgumentError, label="5"),
    OpCase("L2Loss", (X,), oracle=lambda x: (x**2).sum() / 2, order=2),
    OpCase("L2Loss", (half(X),), oracle=lambda x: (x**2).sum() / 2, label="bfloat16"),
    OpCase("TopK", (X,), {"k": 2}, top_k(2), order=2),
    OpCase("TopK", (TIES,), {"k": 3}, top_k(3), label="ties"),
    OpCase("TopK", (X,), {"k": 6}, error=InvalidArgumentError, label="k too large"),
    OpCase("TopKV2", (X, np.int32(3)), oracle=top_k(3), order=2),
    OpCase("TopKV2", (X[0], np.int32(1)), oracle=top_k(1), label="vector"),
    OpCase("TopKV2", (RNG.normal(size=(2, 3, 7)), np.int32(4)), oracle=top_k(4), label="rank 3"),
    OpCase("TopKV2", (half(X), np.int32(2)), oracle=top_k(2), gradient=False, label="bfloat16"),
    OpCase("TopKV2", (X, np.int32(0)), oracle=top_k(0), label="none"),
    OpCase(
        "TopKV2",
        (X, np.int64(2)),
        {"index_type": dtypes.int64},
        lambda x, k: [top_k(2)(x)[0], top_k(2)(x)[1].astype(np.int64)],
        gradient=False,
        label="int64",
    ),
    OpCase("InTopK", (PREDICTIONS, TARGETS), {"k": 1}, lambda p, t: in_top_k(p, t, 1)),
    OpCase("InTopK", (PREDICTIONS, TARGETS), {"k": 2}, lambda p, t: in_top_k(p, t, 2), label="k=2"),
    OpCase("InTopKV2", (PREDICTIONS, TARGETS.astype(np.int64), np.int64(1)), oracle=in_top_k),
    OpCase(
        "InTopKV2",
        (np.zeros((4, 0), np.float32), np.array([0, 1, 2, -5]), np.int64(2)),
        expected=np.zeros(4, bool),
        label="no classes",
    ),
    OpCase("NthElement", (X, np.int32(1)), oracle=lambda x, n: np.sort(x)[:, 1]),
    OpCase("NthElement", (X, np.int32(1)), {"reverse": True}, lambda x, n: np.sort(x)[:, -2], label="reverse"),
    OpCase("NthElement", (TIES, np.int32(2)), oracle=lambda x, n: np.sort(x)[:, 2], label="int32"),
    OpCase("NthElement", (X, np.int32(5)), error=InvalidArgumentError, label="n too large"),
]
