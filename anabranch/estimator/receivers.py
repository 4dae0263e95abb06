"""What an exported model receives, and how that becomes features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


class _ReceiverFields(NamedTuple):
    features: Any
    receiver_tensors: dict[str, tf.Tensor]
    receiver_tensors_alternatives: dict[str, dict[str, tf.Tensor]] | None


def _by_name(tensors: TensorLike, default: str, what: str) -> dict[str, Any]:
    if tensors is None:
        raise ValueError(f"{what} must be defined.")
    named = dict(tensors) if isinstance(tensors, Mapping) else {default: tensors}
    for name, tensor in named.items():
        if not isinstance(name, str) or not isinstance(tensor, tf.Tensor | tf.SparseTensor):
            raise ValueError(f"{what} must be tensors by name, got {name!r}: {tensor!r}")
    return named


def _alternatives(given: Mapping[str, TensorLike] | None) -> dict[str, dict[str, tf.Tensor]] | None:
    if given is None:
        return None
    return {name: _by_name(tensors, "input", "receiver_tensors_alternatives") for name, tensors in given.items()}


class ServingInputReceiver(_ReceiverFields):
    """Features, and the placeholders that they are computed from.

    Args:
        features: tensors by name, or one tensor (which is named "feature").
        receiver_tensors: placeholders by name, or one (which is named "input").
        receiver_tensors_alternatives: by signature's name, other tensors of the same graph that can be fed instead.

    Raises:
        ValueError: something is no tensor, or not named by a string.
    """

    __slots__ = ()

    def __new__(
        cls,
        features: TensorLike,
        receiver_tensors: TensorLike,
        receiver_tensors_alternatives: Mapping[str, TensorLike] | None = None,
    ) -> Self:
        return super().__new__(
            cls,
            _by_name(features, "feature", "features"),
            _by_name(receiver_tensors, "input", "receiver_tensors"),
            _alternatives(receiver_tensors_alternatives),
        )


class TensorServingInputReceiver(_ReceiverFields):
    """`ServingInputReceiver` of a model function that takes one tensor, not tensors by name."""

    __slots__ = ()

    def __new__(
        cls,
        features: TensorLike,
        receiver_tensors: TensorLike,
        receiver_tensors_alternatives: Mapping[str, TensorLike] | None = None,
    ) -> Self:
        if not isinstance(features, tf.Tensor | tf.SparseTensor):
            raise ValueError(f"feature must be a Tensor or SparseTensor, got {features!r}")
        return super().__new__(
            cls,
            features,
            _by_name(receiver_tensors, "input", "receiver_tensors"),
            _alternatives(receiver_tensors_alternatives),
        )


class _SupervisedFields(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: dict[str, tf.Tensor]


class SupervisedInputReceiver(_SupervisedFields):
    """Features and labels, and the placeholders that they are computed from.

    Args:
        features, labels: tensors by name, or one tensor.
        receiver_tensors: placeholders by name, or one (which is named "input").

    Raises:
        ValueError: something is no tensor, or not named by a string.
    """

    __slots__ = ()

    def __new__(cls, features: TensorLike, labels: TensorLike, receiver_tensors: TensorLike) -> Self:
        _by_name(features, "feature", "features")
        _by_name(labels, "label", "labels")
        return super().__new__(cls, features, labels, _by_name(receiver_tensors, "input", "receiver_tensors"))


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, object], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes a placeholder of serialized `tf.train.Example` records, "examples", and parses it.

    Args:
        feature_spec: as for `tf.io.parse_example`.
        default_batch_size: the static number of records; None: any.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        records = tf.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(tf.parse_example(records, dict(feature_spec)), {"examples": records})

    return serving_input_receiver_fn


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, tf.Tensor], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes a placeholder for each feature, like it in dtype and shape but for the batch's size.

    Args:
        features: tensors by name.
        default_batch_size: the static number of examples; None: any.
    """
    kinds = {name: (tensor.dtype.base_dtype, tensor.shape.as_list()) for name, tensor in features.items()}

    def serving_input_receiver_fn() -> ServingInputReceiver:
        fed = {
            name: tf.placeholder(dtype, [default_batch_size, *shape[1:]], name=name)
            for name, (dtype, shape) in kinds.items()
        }
        return ServingInputReceiver(fed, fed)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: TensorLike, labels: TensorLike, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """A function that makes a placeholder for each feature and label, like it but for the batch's size.

    Args:
        features, labels: tensors by name, or one tensor, whose placeholder is named "input" or "label".
        default_batch_size: the static number of examples; None: any.

    Raises:
        ValueError: a feature and a label have one name.
    """
    kinds = {}
    for given, default in ((features, "input"), (labels, "label")):
        for name, tensor in _by_name(given, default, f"{default}s").items():
            if name in kinds:
                raise ValueError(f"features and labels must have different names; both have {name!r}")
            kinds[name] = tensor.dtype.base_dtype, tensor.shape.as_list()
    named_features = list(features) if isinstance(features, Mapping) else None
    named_labels = list(labels) if isinstance(labels, Mapping) else None

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        fed = {
            name: tf.placeholder(dtype, [default_batch_size, *shape[1:]], name=name)
            for name, (dtype, shape) in kinds.items()
        }
        return SupervisedInputReceiver(
            fed["input"] if named_features is None else {name: fed[name] for name in named_features},
            fed["label"] if named_labels is None else {name: fed[name] for name in named_labels},
            fed,
        )

    return supervised_input_receiver_fn
