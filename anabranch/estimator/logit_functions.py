"""The networks of ready-made models as functions of features, for models with heads of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.model_functions import arguments_of
from anabranch.estimator.model_parts import Activation, Deep
from anabranch.feature_column.columns import FeatureColumn


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Iterable[int],
    feature_columns: Iterable[FeatureColumn],
    activation_fn: Activation,
    dropout: float | None,
    input_layer_partitioner: PassedOn,
    batch_norm: bool,
) -> Callable[[Mapping[str, Any], str], tf.Tensor]:
    """The network of `DNNClassifier` as a function of features and a mode of `ModeKeys`.

    Args:
        units: how many logits.
        hidden_units: the sizes of the layers.
        feature_columns: dense ones, as for `tf.feature_column.input_layer`.
        activation_fn: of the layers.
        dropout: the part of each layer's outputs that is left out while training; None: nothing.
        input_layer_partitioner: of the variables.
        batch_norm: whether to normalize after each layer.

    Returns:
        A function that gives logits, [batch, units].

    Raises:
        ValueError: `units` is no integer.
    """
    _check_units(units)
    part = Deep(
        tuple(hidden_units),
        tuple(feature_columns),
        "Adagrad",
        0.0,
        activation_fn,
        dropout,
        batch_norm,
        input_layer_partitioner,
    )

    def dnn_logit_fn(features: Mapping[str, Any], mode: str) -> tf.Tensor:
        return part.logits(features, mode, units)

    return dnn_logit_fn


def linear_logit_fn_builder(
    units: int, feature_columns: Iterable[FeatureColumn], sparse_combiner: str = "sum"
) -> Callable[[Mapping[str, Any]], tf.Tensor]:
    """The linear model of `LinearClassifier` as a function of features; its variables are in the scope of the call.

    Args:
        units: how many logits.
        feature_columns: dense and categorical ones, as for `tf.feature_column.linear_model`.
        sparse_combiner: how the weights of several ids are combined.

    Returns:
        A function that gives logits, [batch, units].

    Raises:
        ValueError: `units` is no integer.
    """
    _check_units(units)
    columns = tuple(feature_columns)

    def linear_logit_fn(features: Mapping[str, Any]) -> tf.Tensor:
        return tf.feature_column.linear_model(features, columns, units=units, sparse_combiner=sparse_combiner)

    return linear_logit_fn


def _check_units(units: int) -> None:
    if not isinstance(units, int):
        raise ValueError(f"units must be an int. Given type: {type(units).__name__}")


def call_logit_fn(
    logit_fn: Callable[..., Any], features: Mapping[str, Any], mode: str, params: PassedOn, config: PassedOn
) -> tf.Tensor | dict[str, tf.Tensor]:
    """Calls a function of features and what else it names of mode, params and config.

    Args:
        logit_fn: gives logits: a tensor, or tensors by name.
        features, mode, params, config: what a model function takes.

    Returns:
        What the function gives.

    Raises:
        ValueError: it gives something else.
    """
    offered = {"mode": mode, "params": params, "config": config}
    wanted = arguments_of(logit_fn)
    logits: tf.Tensor | dict[str, tf.Tensor] = logit_fn(
        features=features, **{name: value for name, value in offered.items() if name in wanted}
    )
    parts = logits.values() if isinstance(logits, Mapping) else [logits]
    if not all(isinstance(part, tf.Tensor) for part in parts):
        raise ValueError(f"logit_fn should return a Tensor or a dictionary of strings to Tensors. Given: {logits}")
    return logits
