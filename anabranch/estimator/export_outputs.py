"""What an exported model gives: predictions, classes with scores, or numbers, as signatures of a SavedModel."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike


class ExportOutput(abc.ABC):
    """One head of an exported model."""

    @abc.abstractmethod
    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> PassedOn:
        """The signature from what the model receives to this output.

        Raises:
            ValueError: the model receives what the method of serving does not.
        """


class PredictOutput(ExportOutput):
    """Tensors by name, of any kind.

    Args:
        outputs: a tensor (which is named "output"), or tensors by name.
    """

    def __init__(self, outputs: TensorLike) -> None:
        self._outputs: dict[str, tf.Tensor] = dict(outputs) if isinstance(outputs, Mapping) else {"output": outputs}
        for name, tensor in self._outputs.items():
            if not isinstance(name, str) or not isinstance(tensor, tf.Tensor | tf.SparseTensor):
                raise ValueError(f"Prediction outputs must be Tensors by name, got {name!r}: {tensor!r}")

    @property
    def outputs(self) -> dict[str, tf.Tensor]:
        """The tensors by name."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> PassedOn:
        return tf.saved_model.predict_signature_def(dict(receiver_tensors), self._outputs)


class ClassificationOutput(ExportOutput):
    """Classes, scores, or both.

    Args:
        scores: floats, [batch, classes].
        classes: strings, [batch, classes].

    Raises:
        ValueError: neither is given, or they are of other dtypes.
    """

    def __init__(self, scores: tf.Tensor | None = None, classes: tf.Tensor | None = None) -> None:
        if scores is None and classes is None:
            raise ValueError("At least one of scores and classes must be set.")
        if scores is not None and not scores.dtype.is_floating:
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and classes.dtype.base_dtype != tf.string:
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        self._scores, self._classes = scores, classes

    @property
    def scores(self) -> tf.Tensor | None:
        """Floats, [batch, classes]."""
        return self._scores

    @property
    def classes(self) -> tf.Tensor | None:
        """Strings, [batch, classes]."""
        return self._classes

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> PassedOn:
        examples = _examples(receiver_tensors, "Classification")
        return tf.saved_model.classification_signature_def(examples, self._classes, self._scores)


class RegressionOutput(ExportOutput):
    """Numbers.

    Args:
        value: floats.

    Raises:
        ValueError: they are of another dtype.
    """

    def __init__(self, value: tf.Tensor) -> None:
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> tf.Tensor:
        """The numbers."""
        return self._value

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> PassedOn:
        return tf.saved_model.regression_signature_def(_examples(receiver_tensors, "Regression"), self._value)


class SupervisedOutput(ExportOutput):
    """What a graph for training, or for evaluation, gives.

    Args:
        loss: a scalar.
        predictions: a tensor, or tensors by name; None: none.
        metrics: by name: a value and the operation that updates it; None: none.
    """

    #: the method of serving
    _method: str

    def __init__(self, loss: TensorLike, predictions: TensorLike = None, metrics: PassedOn = None) -> None:
        self.loss, self.predictions, self.metrics = loss, predictions, dict(metrics or {})

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> PassedOn:
        outputs = {"loss": self.loss}
        if isinstance(self.predictions, Mapping):
            outputs |= {_prefixed("predictions", name): value for name, value in self.predictions.items()}
        elif self.predictions is not None:
            outputs["predictions"] = self.predictions
        for name, metric in self.metrics.items():
            value, update = metric if isinstance(metric, tuple) else (metric.result(), metric.updates[0])
            outputs[f"{_prefixed('metrics', name)}/value"] = value
            outputs[f"{_prefixed('metrics', name)}/update_op"] = _as_tensor(update)
        inputs = {name: tf.saved_model.build_tensor_info(tensor) for name, tensor in receiver_tensors.items()}
        described = {name: tf.saved_model.build_tensor_info(tensor) for name, tensor in outputs.items()}
        return tf.saved_model.build_signature_def(inputs, described, self._method)


class TrainingOutput(SupervisedOutput):
    """What a graph for training gives; `TrainOutput` of TensorFlow."""

    _method = "tensorflow/supervised/training"


class EvaluationOutput(SupervisedOutput):
    """What a graph for evaluation gives; `EvalOutput` of TensorFlow."""

    _method = "tensorflow/supervised/eval"


def _prefixed(prefix: str, name: str) -> str:
    return name if name.startswith(f"{prefix}/") else f"{prefix}/{name}"


def _as_tensor(update: PassedOn) -> tf.Tensor:
    """An operation as a tensor that is there once it has run."""
    if isinstance(update, tf.Operation):
        with tf.control_dependencies([update]):
            update = tf.constant(0)
    tensor: tf.Tensor = update
    return tensor


def _examples(receiver_tensors: Mapping[str, tf.Tensor], method: str) -> tf.Tensor:
    if len(receiver_tensors) != 1:
        raise ValueError(f"{method} signatures take one input of strings; received {sorted(receiver_tensors)}")
    (examples,) = receiver_tensors.values()
    if examples.dtype.base_dtype != tf.string:
        raise ValueError(f"{method} signatures take serialized examples (strings), received {examples}")
    return examples
