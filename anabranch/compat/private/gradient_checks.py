"""`tensorflow.python.ops.gradient_checker_v2`: derivatives of functions, by gradients and by differences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.core.values import TensorLike

#: one for each argument
Jacobians: TypeAlias = list[np.ndarray[Any, np.dtype[Any]]]


def compute_gradient(
    f: Callable[..., tf.Tensor], x: Sequence[TensorLike], delta: float = 1e-3
) -> tuple[Jacobians, Jacobians]:
    """The jacobians of a function at some values, by its gradients and by differences.

    `tf.test.compute_gradient` finds both, and varies real and imaginary parts of complex values apart.

    Args:
        f: of tensors, one for each element of `x`.
        x: values or tensors.
        delta: the step of the differences.

    Returns:
        Two lists of matrices [elements of x, elements of f], theoretical and numeric ones.
    """
    tensors = [tf.convert_to_tensor(one) for one in x]
    session = tf.get_default_session()
    with contextlib.nullcontext(session) if session is not None else tf.Session(graph=tensors[0].graph) as session:
        values = session.run(tensors)
        inputs = [tf.placeholder_with_default(tf.constant(value), np.shape(value)) for value in values]
        y = f(*inputs)
        shapes = [np.shape(value) for value in values]
        pairs = tf.test.compute_gradient(inputs, shapes, y, np.shape(session.run(y)), values, delta)
    return [theoretical for theoretical, _ in pairs], [numeric for _, numeric in pairs]


def max_error(grad1: Jacobians, grad2: Jacobians) -> float:
    """The largest difference between two lists of jacobians."""
    return max((np.abs(a - b).max() for a, b in zip(grad1, grad2, strict=True) if a.size), default=0.0)
