"""What a model function is called with, and what becomes of what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.head_metrics import MetricObject
from anabranch.estimator.model_functions import (
    EstimatorSpec,
    ModelFunction,
    arguments_of,
)

#: what a model function may ask for
_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


def check_model_function(model_fn: ModelFunction, params: PassedOn) -> None:
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    wanted = arguments_of(model_fn)
    if "features" not in wanted:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in wanted:
        raise ValueError(f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed.")
    if unknown := sorted(set(wanted) - set(_MODEL_ARGUMENTS)):
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {unknown}")


def metrics_of(
    spec: EstimatorSpec, step: tf.Variable, reserved: tuple[str, ...]
) -> tuple[dict[str, Any], tf.Operation]:
    """The values of a model's metrics, its loss and its step, and the operation that updates them by a batch."""
    values: dict[str, Any] = {}
    updates: list[Any] = []
    for name, metric in spec.eval_metric_ops.items():
        if name in reserved:
            raise ValueError(f"Metric with name {name!r} is not allowed, because Estimator already defines it.")
        if isinstance(metric, MetricObject):
            values[name] = metric.result()
            updates += metric.updates
        else:
            values[name], update = metric
            updates.append(update)
    if "loss" not in values:
        values["loss"], update = tf.metrics.mean(spec.loss)
        updates.insert(0, update)
    values["global_step"] = tf.identity(step)
    return values, tf.group(*updates)


def chosen_predictions(predictions: PassedOn, keys: Sequence[str] | str | None) -> PassedOn:
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    wanted = [keys] if isinstance(keys, str) else list(keys)
    chosen = {name: tensor for name, tensor in predictions.items() if name in wanted}
    if not chosen:
        raise ValueError(f"Expected to run at least one output from {sorted(predictions)}, provided {wanted}.")
    return chosen


def examples_of(batch: PassedOn) -> Iterator[Any]:
    if not isinstance(batch, Mapping):
        yield from batch
        return
    sizes = {name: len(values) for name, values in batch.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Batch length of predictions should be same, got {sizes}; or yield_single_examples=False.")
    for i in range(next(iter(sizes.values()))):
        yield {name: values[i] for name, values in batch.items()}
