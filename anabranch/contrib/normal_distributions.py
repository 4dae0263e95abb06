"""`tf.contrib.distributions`: normal distributions of vectors, and those whose scales are given before a softplus."""

from __future__ import annotations

import math
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


class NormalWithSoftplusScale(tf.distributions.Normal):
    """Normal distributions whose standard deviation is ``softplus(scale)``.

    Args:
        loc: means, float.
        scale: float, any sign.
        validate_args: check in every step that parameters are valid.
        allow_nan_stats: whether a statistic that does not exist is NaN (True) or an error.
        name: the scope of its operations.
    """

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "NormalWithSoftplusScale",
    ) -> None:
        super().__init__(loc, tf.nn.softplus(scale), validate_args, allow_nan_stats, name)
        self._parameters.update(loc=loc, scale=scale)


class MultivariateNormalDiag(tf.distributions.Distribution):
    """Normal distributions of vectors whose elements are independent: mean + deviation * a standard normal vector.

    Args:
        loc: means, float [..., size]; None: zeros.
        scale_diag: standard deviations, [..., size], not 0; None: ones where there is no multiplier either.
        scale_identity_multiplier: [...]: added to all standard deviations; None: nothing.
        validate_args: check in every step that no standard deviation is 0.
        allow_nan_stats: whether a statistic that does not exist is NaN (True) or an error.
        name: the scope of its operations.

    Raises:
        ValueError: neither means nor standard deviations say how long the vectors are.

    Example:
        >>> pair = tf.contrib.distributions.MultivariateNormalDiag([0.0, 1.0], [1.0, 2.0])
        >>> sess.run(pair.log_prob([0.0, 1.0]))
        np.float32(-2.5310242)
    """

    def __init__(
        self,
        loc: TensorLike | None = None,
        scale_diag: TensorLike | None = None,
        scale_identity_multiplier: TensorLike | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiag",
    ) -> None:
        parameters = {
            "loc": loc, "scale_diag": scale_diag, "scale_identity_multiplier": scale_identity_multiplier,
            "validate_args": validate_args, "allow_nan_stats": allow_nan_stats, "name": name,
        }  # fmt: skip
        with tf.name_scope(name) as scope:
            means, deviations = _mean_and_deviation(loc, scale_diag, scale_identity_multiplier)
            self._loc: tf.Tensor = means
            self._deviation: tf.Tensor = deviations
            if validate_args:
                checks = [tf.assert_positive(tf.abs(self._deviation), message="a standard deviation is 0")]
                with tf.control_dependencies(checks):
                    self._deviation = tf.identity(self._deviation)
        super().__init__(
            self._loc.dtype, tf.distributions.FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters,
            [self._loc, self._deviation], scope,
        )  # fmt: skip

    @property
    def loc(self) -> tf.Tensor:
        """The means, [..., size]."""
        return self._loc

    def _batch_shape(self) -> tf.TensorShape:
        shape: tf.TensorShape = self._loc.shape[:-1]
        return shape

    def _batch_shape_tensor(self) -> tf.Tensor:
        shape: tf.Tensor = tf.shape(self._loc)[:-1]
        return shape

    def _event_shape(self) -> tf.TensorShape:
        shape: tf.TensorShape = self._loc.shape[-1:]
        return shape

    def _event_shape_tensor(self) -> tf.Tensor:
        shape: tf.Tensor = tf.shape(self._loc)[-1:]
        return shape

    def _sample_n(self, n: tf.Tensor, seed: int | None) -> Any:
        shape = tf.concat([tf.expand_dims(n, 0), tf.shape(self._loc)], 0)
        return self._loc + self._deviation * tf.random_normal(shape, dtype=self.dtype, seed=seed)

    def _log_prob(self, value: tf.Tensor) -> Any:
        distance = tf.square((value - self._loc) / self._deviation)
        return -0.5 * tf.reduce_sum(distance, -1) - self._log_normalization()

    def _log_normalization(self) -> Any:
        return tf.reduce_sum(0.5 * math.log(2 * math.pi) + tf.log(tf.abs(self._deviation)), -1)

    def _entropy(self) -> Any:
        return self._log_normalization() + 0.5 * tf.cast(tf.shape(self._loc)[-1], self.dtype)

    def _mean(self) -> tf.Tensor:
        return self._loc

    def _mode(self) -> tf.Tensor:
        return self._loc

    def _stddev(self) -> tf.Tensor:
        return tf.abs(self._deviation)

    def _covariance(self) -> tf.Tensor:
        return tf.matrix_diag(tf.square(self._deviation))


class MultivariateNormalDiagWithSoftplusScale(MultivariateNormalDiag):
    """`MultivariateNormalDiag` whose standard deviations are ``softplus(scale_diag)``.

    Args:
        loc: means, float [..., size].
        scale_diag: float [..., size], any sign.
        validate_args: check in every step that parameters are valid.
        allow_nan_stats: whether a statistic that does not exist is NaN (True) or an error.
        name: the scope of its operations.
    """

    def __init__(
        self,
        loc: TensorLike,
        scale_diag: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "MultivariateNormalDiagWithSoftplusScale",
    ) -> None:
        super().__init__(
            loc, tf.nn.softplus(scale_diag), validate_args=validate_args, allow_nan_stats=allow_nan_stats, name=name
        )
        self._parameters.update(loc=loc, scale_diag=scale_diag)
        del self._parameters["scale_identity_multiplier"]


@tf.distributions.RegisterKL(MultivariateNormalDiag, MultivariateNormalDiag)
def _divergence(a: MultivariateNormalDiag, b: MultivariateNormalDiag, name: str | None = None) -> Any:
    with tf.name_scope(name, "kl_mvn_mvn"):
        ratio = tf.square(a.stddev() / b.stddev())
        distance = tf.square((a.mean() - b.mean()) / b.stddev())
        return 0.5 * tf.reduce_sum(ratio + distance - 1 - tf.log(ratio), -1)


def _mean_and_deviation(
    loc: TensorLike | None, diagonal: TensorLike | None, multiplier: TensorLike | None
) -> tuple[Any, Any]:
    """Both as tensors of one shape, [..., size]."""
    if loc is None and diagonal is None:
        raise ValueError("say loc or scale_diag: without them nothing tells how long the vectors are")
    given = [value for value in (loc, diagonal, multiplier) if value is not None]
    dtype = next((tf.as_dtype(value.dtype).base_dtype for value in given if hasattr(value, "dtype")), tf.float32)
    first = tf.convert_to_tensor(given[0], dtype)
    parts = [first, *(tf.convert_to_tensor(value, first.dtype) for value in given[1:])]
    mean = parts.pop(0) if loc is not None else tf.zeros_like(parts[0])
    deviation = parts.pop(0) if diagonal is not None else None
    if multiplier is not None:
        shift = tf.expand_dims(parts.pop(), -1)
        deviation = shift if deviation is None else deviation + shift
    if deviation is None:
        deviation = tf.ones_like(mean)
    zeros = tf.zeros_like(mean) * tf.zeros_like(deviation)
    return mean + zeros, deviation + zeros
