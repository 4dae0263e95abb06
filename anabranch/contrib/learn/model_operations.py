"""What model functions of `tf.contrib.learn` return, and how a metric is said beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

#: a value and the operation that updates it, or a value alone
MetricOperations: TypeAlias = Any


class ModelFnOps(NamedTuple):
    """The parts of a model; what a call has no use for is None.

    Attributes:
        mode: of `ModeKeys`.
        predictions: a tensor, or tensors by name.
        loss: a scalar.
        train_op: makes a step of training.
        eval_metric_ops: by name: a value and the operation that updates it.
        output_alternatives: by name: the kind of a problem and its outputs by name, for exported models.
        training_chief_hooks: hooks of the chief while it trains.
        training_hooks: hooks of each worker that trains.
        scaffold: how the model is initialized and saved.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    output_alternatives: Mapping[str, tuple[Any, Mapping[str, Any]]] | None = None
    training_chief_hooks: Sequence[tf.train.SessionRunHook] | None = None
    training_hooks: Sequence[tf.train.SessionRunHook] | None = None
    scaffold: tf.train.Scaffold | None = None


class MetricSpec:
    """A metric of an evaluation, with the names of what it compares.

    Args:
        metric_fn: takes predictions, labels and weights, by names such as those or in this order, and returns a value
            and the operation that updates it, as `tf.metrics` does; or a value alone, whose mean counts.
        prediction_key, label_key: the names, where there are several predictions, or labels.
        weight_key: the feature that is the weight; None: all weigh the same.
    """

    def __init__(
        self,
        metric_fn: Callable[..., Any],
        prediction_key: str | None = None,
        label_key: str | None = None,
        weight_key: str | None = None,
    ) -> None:
        self.metric_fn = metric_fn
        self.prediction_key, self.label_key, self.weight_key = prediction_key, label_key, weight_key

    def create_metric_ops(self, inputs: PassedOn, labels: PassedOn, predictions: PassedOn) -> MetricOperations:
        """The metric of these features, labels and predictions.

        Raises:
            ValueError: there are several predictions or labels, and no name says which; or none of the name.
        """
        predicted = _chosen("prediction", predictions, self.prediction_key)
        expected = None if labels is None else _chosen("label", labels, self.label_key)
        named = _argument_names(self.metric_fn)
        values: dict[str, Any] = {}
        if "predictions" in named:
            values["predictions"] = predicted
        if expected is not None and (label := next((n for n in ("labels", "targets") if n in named), None)):
            values[label] = expected
        if self.weight_key is not None:
            values["weights"] = _chosen("feature", inputs, self.weight_key)
        if "predictions" in values:
            return self.metric_fn(**values)
        rest = {name: value for name, value in values.items() if name == "weights"}
        return self.metric_fn(predicted, *([] if expected is None else [expected]), **rest)

    def __str__(self) -> str:
        name = getattr(self.metric_fn, "__name__", repr(self.metric_fn))
        return f"MetricSpec({name}, {self.prediction_key!r}, {self.label_key!r}, {self.weight_key!r})"


def metric_operations(
    metrics: Mapping[str, MetricSpec], features: PassedOn, labels: PassedOn, predictions: PassedOn
) -> dict[str, Any]:
    """By name: a value and the operation that updates it."""
    made = {name: spec.create_metric_ops(features, labels, predictions) for name, spec in metrics.items()}
    return {name: value if isinstance(value, tuple) else tf.metrics.mean(value) for name, value in made.items()}


def _chosen(kind: str, given: TensorLike, key: str | None) -> Any:
    if not isinstance(given, Mapping):
        return given
    if key is None and len(given) == 1:
        return next(iter(given.values()))
    if key is None or key not in given:
        raise ValueError(
            f"a metric wants the {kind} of name {key!r}, where there are {sorted(given)}: say its {kind}_key"
        )
    return given[key]


def _argument_names(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments, those that `functools.partial` sets left out."""
    taken = getattr(function, "keywords", {})
    return {name for name in inspect.signature(function).parameters if name not in taken}
