"""Heads that say numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.estimator.export_outputs import ExportOutput, PredictOutput, RegressionOutput
from anabranch.estimator.head_metrics import Metric, mean
from anabranch.estimator.heads import (
    BATCH_MEAN,
    DEFAULT,
    PREDICT,
    LossFunction,
    Metrics,
    SingleHead,
    WeightColumn,
    dense_labels,
    in_range,
)


class RegressionHead(SingleHead):
    """Numbers, by squared differences or a loss of your own.

    Labels are numbers, [batch, ..., label_dimension], or without the last dimension where it is 1.

    Args:
        label_dimension: how many numbers an example has.
        weight_column: the feature of an example's weight, or of each of its numbers; None: all weigh the same.
        loss_reduction: "sum_over_batch_size" (the mean over a batch), "sum", or one of `tf.losses.Reduction`.
        loss_fn: of labels, logits and, if it names them, features: losses of the shape of the labels.
        inverse_link_fn: makes predictions of logits; None: they are the logits.
        name: of the head, which its metrics bear too.

    Raises:
        ValueError: the dimension is not positive, an unknown reduction, or a function of other arguments.

    Example:
        >>> head = tf.estimator.RegressionHead()
        >>> with tf.Session() as session:
        ...     print(session.run(head.loss([[1.0], [3.0]], [[2.0], [1.0]])))
        2.5
    """

    _has_weights_of_logits = True
    _dual_loss: str | None = "squared_loss"

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        loss_reduction: str = BATCH_MEAN,
        loss_fn: LossFunction = None,
        inverse_link_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        super().__init__(label_dimension, weight_column, loss_reduction, loss_fn, name)
        self._loss_dimension = label_dimension
        self._inverse_link_fn = inverse_link_fn
        self._prediction_keys = ("predictions",) if inverse_link_fn is None else ("predictions", "logits")

    @property
    def inverse_link_fn(self) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """What makes predictions of logits; None: they are the logits."""
        return self._inverse_link_fn

    @property
    def dual_loss(self) -> str | None:
        """See `SingleHead`; squared differences are of the logits."""
        linked = self._dual_loss == "squared_loss" and self._inverse_link_fn is not None
        return None if linked else super().dual_loss

    def _targets(self, labels: TensorLike, logits: tf.Tensor) -> tf.Tensor:
        targets: tf.Tensor = tf.cast(dense_labels(labels, logits, self.logits_dimension), tf.float32)
        return targets

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.squared_difference(logits, targets)

    def _predictions(self, logits: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        said = logits if self._inverse_link_fn is None else self._inverse_link_fn(logits)
        return {"predictions": said, "logits": logits}

    def _own_metrics(self) -> list[Metric]:
        return [mean("prediction/mean"), mean("label/mean")]

    def _update_own_metrics(
        self, metrics: Metrics, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        said = self.predictions(logits, ["predictions"])["predictions"]
        self._value(metrics, "prediction/mean").update_state(said, weights)
        self._value(metrics, "label/mean").update_state(targets, weights)

    def _export_outputs(self, predictions: Mapping[Any, tf.Tensor]) -> dict[str, ExportOutput]:
        regression = RegressionOutput(predictions["predictions"])
        return {DEFAULT: regression, "regression": regression, PREDICT: PredictOutput(predictions)}


class PoissonRegressionHead(RegressionHead):
    """Expected counts: the exponential of the logits is the mean of a Poisson distribution.

    Args:
        label_dimension, weight_column, loss_reduction, name: as for `RegressionHead`.
        compute_full_loss: whether the loss has the term of the labels alone, log(label!), by Stirling's approximation.
    """

    _dual_loss = "poisson_loss"

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        loss_reduction: str = BATCH_MEAN,
        compute_full_loss: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(label_dimension, weight_column, loss_reduction, None, tf.exp, name)
        self._compute_full_loss = compute_full_loss

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.nn.log_poisson_loss(targets, logits, compute_full_loss=self._compute_full_loss)


class LogisticRegressionHead(RegressionHead):
    """A share in [0, 1], by the cross entropy of a sigmoid.

    Args:
        weight_column, loss_reduction, name: as for `RegressionHead`.
    """

    _dual_loss = None  # that of logits takes labels of 0 and 1 only

    def __init__(
        self, weight_column: WeightColumn = None, loss_reduction: str = BATCH_MEAN, name: str | None = None
    ) -> None:
        super().__init__(1, weight_column, loss_reduction, None, tf.sigmoid, name)

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        shares = in_range(targets, 2, "Labels must be in range [0, 1]")
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=shares, logits=logits)
