"""What an exported model of `tf.contrib.learn` is fed: `InputFnOps`, and functions that give one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


class InputFnOps(NamedTuple):
    """What a function for serving gives.

    Attributes:
        features: tensors by name.
        labels: None where a model is served.
        default_inputs: the placeholders that are fed, by name.
    """

    features: Any
    labels: Any
    default_inputs: Any


def build_parsing_serving_input_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """A function that makes a placeholder of serialized `tf.train.Example`s, "examples", and parses it.

    Args:
        feature_spec: as for `tf.parse_example`.
        default_batch_size: the static number of records; None: any.
    """

    def input_fn() -> InputFnOps:
        records = tf.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        return InputFnOps(tf.parse_example(records, dict(feature_spec)), None, {"examples": records})

    return input_fn


def build_default_serving_input_fn(
    features: Mapping[str, tf.Tensor], default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """A function that makes a placeholder for each feature, of its dtype and its shape but for the first dimension."""

    def input_fn() -> InputFnOps:
        made = {
            name: tf.placeholder(one.dtype, [default_batch_size, *one.shape.as_list()[1:]], name=one.op.name)
            for name, one in features.items()
        }
        return InputFnOps(made, None, made)

    return input_fn


def as_receiver(given: PassedOn) -> Any:
    """What `tf.estimator` exports with; an `InputFnOps` is a `ServingInputReceiver` by other names."""
    if isinstance(given, InputFnOps):
        return tf.estimator.export.ServingInputReceiver(given.features, given.default_inputs)
    return given
