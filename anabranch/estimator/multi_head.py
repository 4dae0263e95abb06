"""Several heads on the logits of one network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.export_outputs import ExportOutput, PredictOutput
from anabranch.estimator.head_metrics import mean
from anabranch.estimator.heads import DEFAULT, PREDICT, Head, Metrics, Tensors
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys


class MultiHead(Head):
    """Several objectives: the loss is the sum of the heads' losses.

    Logits are tensors by the heads' names, or one tensor whose last dimension the heads share out in their order.
    Labels are by the heads' names. Predictions are by pairs of a head's name and its prediction's. In an exported model
    the heads' signatures are "head" and "head/signature", and the first head is the default.

    Args:
        heads: each has a name.
        head_weights: a factor for each head's loss; None: 1.

    Raises:
        ValueError: there are no heads, one has no name, two have the same, or there are other numbers of weights.

    Example:
        >>> size, kind = tf.estimator.RegressionHead(name="size"), tf.estimator.MultiClassHead(3, name="kind")
        >>> head = tf.estimator.MultiHead([size, kind])
        >>> head.name, head.logits_dimension
        ('size_kind', 4)
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        if not heads:
            raise ValueError(f"Must specify heads. Given: {heads}")
        if head_weights and len(head_weights) != len(heads):
            raise ValueError(
                f"heads and head_weights must have the same size. Given len(heads): {len(heads)}, "
                f"len(head_weights): {len(head_weights)}."
            )
        names = [head.name for head in heads]
        if None in names or len(set(names)) < len(names):
            raise ValueError(f"All given heads must have names of their own. Given: {names}")
        self._heads = {str(head.name): head for head in heads}
        self._weights = tuple(head_weights or ())

    @property
    def name(self) -> str:
        return "_".join(self._heads)

    @property
    def logits_dimension(self) -> int:
        return sum(head.logits_dimension for head in self._heads.values())

    @property
    def loss_reduction(self) -> str:
        reductions = {head.loss_reduction for head in self._heads.values()}
        if len(reductions) > 1:
            raise ValueError(f"The loss_reduction must be the same for different heads. Given: {sorted(reductions)}")
        return reductions.pop()

    def loss(
        self,
        labels: TensorLike,
        logits: TensorLike,
        features: Mapping[str, TensorLike] | None = None,
        mode: str | None = None,
        regularization_losses: Tensors = None,
    ) -> tf.Tensor:
        parts = self._logits_of_heads(logits)
        targets = self._labels_of_heads(labels)
        losses = {name: head.loss(targets[name], parts[name], features, mode) for name, head in self._heads.items()}
        if mode == ModeKeys.TRAIN:
            with tf.name_scope(""):
                for name, loss in losses.items():
                    tf.summary.scalar(f"loss/{name}", loss)
        with tf.name_scope("merge_losses"):
            factors = self._weights or (1.0,) * len(losses)
            weighted = [loss * factor for loss, factor in zip(losses.values(), factors, strict=True)]
            return tf.add_n([*weighted, *(regularization_losses or ())])

    def predictions(self, logits: TensorLike, keys: Sequence[Any] | None = None) -> dict[Any, tf.Tensor]:
        """What the heads say, by (head's name, name)."""
        parts = self._logits_of_heads(logits)
        return {
            (name, key): tensor
            for name, head in self._heads.items()
            for key, tensor in head.predictions(parts[name]).items()
            if keys is None or (name, key) in keys
        }

    def metrics(self, regularization_losses: Tensors = None) -> Metrics:
        """The mean of each head's loss; `update_metrics` adds the metrics of the heads."""
        names = [f"loss/{name}" for name in self._heads]
        if regularization_losses is not None:
            names.append(self._key("regularization_loss"))
        return {name: mean(name) for name in names}

    def update_metrics(  # type: ignore[override]  # as in TensorFlow, whose heads take no mode here
        self,
        eval_metrics: Metrics,
        features: Mapping[str, TensorLike],
        logits: TensorLike,
        labels: TensorLike,
        regularization_losses: Tensors = None,
    ) -> Metrics:
        parts, targets = self._logits_of_heads(logits), self._labels_of_heads(labels)
        if regularization_losses is not None:
            eval_metrics[self._key("regularization_loss")].update_state(tf.add_n(list(regularization_losses)))
        for name, head in self._heads.items():
            eval_metrics[f"loss/{name}"].update_state(head.loss(targets[name], parts[name], features))
            eval_metrics.update(head.update_metrics(head.metrics(), features, parts[name], targets[name]))
        return eval_metrics

    def create_estimator_spec(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        logits: TensorLike,
        labels: TensorLike = None,
        optimizer: PassedOn = None,
        trainable_variables: Sequence[tf.Variable] | None = None,
        train_op_fn: Callable[[tf.Tensor], tf.Operation | tf.Tensor] | None = None,
        update_ops: Sequence[tf.Operation | tf.Tensor] | None = None,
        regularization_losses: Tensors = None,
    ) -> EstimatorSpec:
        if mode != ModeKeys.PREDICT:
            return super().create_estimator_spec(
                features,
                mode,
                logits,
                labels,
                optimizer,
                trainable_variables,
                train_op_fn,
                update_ops,
                regularization_losses,
            )
        with tf.name_scope(self.name, "multi_head"):
            parts = self._logits_of_heads(logits)
            specs = {
                name: head.create_estimator_spec(features, mode, parts[name]) for name, head in self._heads.items()
            }
            predictions = {
                (name, key): tensor for name, spec in specs.items() for key, tensor in spec.predictions.items()
            }
            outputs = _merged({name: spec.export_outputs or {} for name, spec in specs.items()})
            return EstimatorSpec(mode, predictions, export_outputs=outputs)

    def _key(self, metric: str) -> str:
        """Several heads have one loss and one penalty, which bear no name."""
        return metric if metric == "loss" else super()._key(metric)

    def _logits_of_heads(self, logits: TensorLike) -> dict[str, tf.Tensor]:
        if isinstance(logits, Mapping):
            if missing := sorted(set(self._heads) - set(logits)):
                raise ValueError(f"logits has missing values for head(s): {missing}")
            return {name: logits[name] for name in self._heads}
        tensor: tf.Tensor = tf.convert_to_tensor(logits)
        last = tensor.shape.as_list()[-1] if tensor.shape.ndims else None
        if last not in (None, self.logits_dimension):
            sizes = {name: head.logits_dimension for name, head in self._heads.items()}
            raise ValueError(
                f"Could not split logits of shape {tensor.shape} among the heads {sizes}: the last dimension should be "
                f"{self.logits_dimension}, but is {last}."
            )
        parts: dict[str, tf.Tensor] = {}
        begin = 0
        with tf.name_scope("split_logits"):
            for name, head in self._heads.items():
                parts[name] = tensor[..., begin : begin + head.logits_dimension]
                begin += head.logits_dimension
        return parts

    def _labels_of_heads(self, labels: TensorLike) -> Mapping[str, TensorLike]:
        if not isinstance(labels, Mapping):
            raise ValueError(f"labels must be a dict, by the names of heads. Given: {labels}")
        if missing := sorted(set(self._heads) - set(labels)):
            raise ValueError(f"labels has missing values for head(s): {missing}")
        return labels


def _merged(outputs_of_heads: Mapping[str, Mapping[str, ExportOutput]]) -> dict[str, ExportOutput]:
    """The export outputs of several heads as those of one model."""
    first = next(iter(outputs_of_heads.values()))
    merged: dict[str, ExportOutput] = {DEFAULT: first[DEFAULT]}
    predicted: dict[str, tf.Tensor] = {}
    for name, outputs in outputs_of_heads.items():
        for signature, output in outputs.items():
            merged[name if signature == DEFAULT else f"{name}/{signature}"] = output
            if signature == PREDICT and isinstance(output, PredictOutput):
                predicted.update({f"{name}/{key}": tensor for key, tensor in output.outputs.items()})
    merged[PREDICT] = PredictOutput(predicted)
    return merged
