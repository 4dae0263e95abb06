"""`tf.keras.backend`: functions that the package lacks, or that take more arguments in TensorFlow 1.15."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import anabranch as tf
from anabranch.compat.private import keras_backend
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

_backend = package.module("backend")


@contextlib.contextmanager
def learning_phase_scope(value: int) -> Iterator[None]:
    """A block in which layers behave as in training (1) or as in testing (0).

    Raises:
        ValueError: another value.
    """
    if value not in (0, 1):
        raise ValueError("Expected learning phase to be 0 or 1.")
    with keras_backend.learning_phase_set(value):
        yield


def conv1d(
    x: PassedOn,
    kernel: PassedOn,
    strides: PassedOn = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: PassedOn = 1,
) -> Any:
    """The convolution of series; strides and dilations are numbers, or lists of one."""
    one, other = (n[0] if isinstance(n, tuple | list) else n for n in (strides, dilation_rate))
    return _backend.conv1d(x, kernel, one, padding, data_format, other)


def batch_normalization(
    x: PassedOn,
    mean: PassedOn,
    var: PassedOn,
    beta: PassedOn,
    gamma: PassedOn,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> Any:
    """`(x - mean) / sqrt(var + epsilon) * gamma + beta`, where the four are vectors along an axis, or are broadcast."""
    rank = x.shape.ndims
    if rank is not None and axis % rank != rank - 1:
        lengths = [-1 if i == axis % rank else 1 for i in range(rank)]
        mean, var, beta, gamma = (_along(one, lengths) for one in (mean, var, beta, gamma))
    return tf.nn.batch_normalization(x, mean, var, beta, gamma, epsilon)


def _along(vector: PassedOn, lengths: list[int]) -> Any:
    if vector is None or len(vector.shape) != 1:
        return vector
    return tf.reshape(vector, lengths)


def get_value(x: PassedOn) -> Any:
    """The value of a tensor or a variable; what is neither is its own value."""
    return _backend.get_value(x) if isinstance(x, tf.Tensor | tf.Variable) else x


NAMES: dict[str, Any] = {
    "batch_normalization": batch_normalization,
    "conv1d": conv1d,
    "get_value": get_value,
    "get_session": keras_backend.get_session,
    "learning_phase_scope": learning_phase_scope,
}
