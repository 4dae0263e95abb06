"""Features that an estimator hands on with its predictions, and what its evaluations wrote."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.estimator.run_config import RunConfig


def forward_features(
    estimator: Estimator,
    keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> Estimator:
    """An estimator like another, whose predictions hold features too, by which examples are known.

    Args:
        estimator: whose model function, directory, configuration and warm start the new one has.
        keys: the names of the features; None: all.
        sparse_default_values: what stands for the missing values of a sparse feature, by its name; else 0 or "".

    Returns:
        The new estimator.

    Raises:
        ValueError: `keys` is a list of other than names; (when it predicts) a feature is not there, or a prediction
            has its name; TypeError: the features or predictions are in no dictionary.
    """
    names = [keys] if isinstance(keys, str) else keys
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError(f"keys should be either a string, a list of strings or None. Given: {keys}")
    defaults = dict(sparse_default_values or {})

    def model_fn(features: PassedOn, labels: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.PREDICT:
            return spec
        if not isinstance(features, Mapping) or not isinstance(spec.predictions, Mapping):
            raise TypeError(f"Features and predictions should be dicts, given {features} and {spec.predictions}.")
        forwarded = {}
        for name in features if names is None else names:
            if name not in features:
                raise ValueError(f"keys should be exist in features. Key '{name}' is not in features: {[*features]}")
            if name in spec.predictions:
                raise ValueError(f"Cannot forward feature key ({name}). Predictions have the same key already.")
            forwarded[name] = _dense(features[name], defaults.get(name))
        outputs = {
            name: _with(output, forwarded) for name, output in (spec.export_outputs or {}).items()
        } or spec.export_outputs
        predictions = {**spec.predictions, **forwarded}
        return EstimatorSpec(**{**spec._asdict(), "predictions": predictions, "export_outputs": outputs})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator.warm_start_from)


def _dense(value: PassedOn, default: PassedOn) -> Any:
    return tf.sparse.to_dense(value, default) if isinstance(value, tf.SparseTensor) else value


def _with(output: PassedOn, forwarded: Mapping[str, Any]) -> Any:
    """A signature that gives predictions gives the features too; others stay as they are."""
    if isinstance(output, tf.estimator.export.PredictOutput):
        return tf.estimator.export.PredictOutput({**output.outputs, **forwarded})
    return output


def read_eval_metrics(eval_dir: str) -> OrderedDict[int, dict[str, Any]]:
    """The metrics of evaluations, as they stand in the event files of a directory.

    Args:
        eval_dir: the directory, as `Estimator.eval_dir` tells it.

    Returns:
        global step -> metrics by name, in the order of steps. Later values of a step replace earlier ones.
    """
    found: dict[int, dict[str, Any]] = {}
    files = sorted(tf.gfile.Glob(os.path.join(eval_dir, "*tfevents*")))
    for event in (event for file in files for event in tf.train.summary_iterator(file)):
        metrics = {value.tag: value.simple_value for value in event.summary.value if value.HasField("simple_value")}
        if metrics:
            found.setdefault(event.step, {}).update(metrics)
    return OrderedDict(sorted(found.items()))
