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


def _examples(receiver_tensors: Mapping[str, tf.Tensor], method: str) -> tf.Tensor:
    if len(receiver_tensors) != 1:
        raise ValueError(f"{method} signatures take one input of strings; received {sorted(receiver_tensors)}")
    (examples,) = receiver_tensors.values()
    if examples.dtype.base_dtype != tf.string:
        raise ValueError(f"{method} signatures take serialized examples (strings), received {examples}")
    return examples
