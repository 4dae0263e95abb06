"""The ready-made models of `tf.contrib.learn`: those of `tf.estimator`, with `fit`, arrays as input, mean losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn
from anabranch.contrib.feature_columns import THE_FEATURE
from anabranch.contrib.learn.estimators import LearnsFromArrays, Predictions, stacked
from anabranch.contrib.opt_inner import OptimizerWithInner

_MEAN: Final = tf.losses.Reduction.MEAN


class _ReadyMade(LearnsFromArrays):
    """Gives an array of features a name, which `tf.contrib.layers.real_valued_column("")` asks for."""

    def _input(self, input_fn: PassedOn, mode: str) -> tuple[Any, Any, list[tf.train.SessionRunHook]]:
        features, labels, hooks = super()._input(input_fn, mode)  # type: ignore[misc]
        return features if isinstance(features, Mapping) else {THE_FEATURE: features}, labels, hooks

    def _said(
        self, key: str, x: PassedOn, input_fn: PassedOn, batch_size: int | None, as_iterable: bool
    ) -> Iterator[Any] | np.ndarray[Any, Any]:
        said = LearnsFromArrays.predict(self, x, input_fn, batch_size, outputs=[key])
        values = (each[key].item() if each[key].size == 1 else each[key] for each in said)
        return values if as_iterable else stacked(values)


class _Classifier(_ReadyMade):
    def predict(
        self,
        x: PassedOn = None,
        input_fn: PassedOn = None,
        batch_size: int | None = None,
        outputs: Sequence[str] | None = None,
        as_iterable: bool = True,
    ) -> Predictions:
        """The class of each example, or the `outputs` by name."""
        if outputs is not None:
            return super().predict(x, input_fn, batch_size, outputs, as_iterable)
        return self.predict_classes(x, input_fn, batch_size, as_iterable)

    def predict_classes(
        self, x: PassedOn = None, input_fn: PassedOn = None, batch_size: int | None = None, as_iterable: bool = True
    ) -> Predictions:
        """The class of each example."""
        return self._said("class_ids", x, input_fn, batch_size, as_iterable)

    def predict_proba(
        self, x: PassedOn = None, input_fn: PassedOn = None, batch_size: int | None = None, as_iterable: bool = True
    ) -> Predictions:
        """The probabilities of all classes, for each example."""
        return self._said("probabilities", x, input_fn, batch_size, as_iterable)


class _Regressor(_ReadyMade):
    def predict(
        self,
        x: PassedOn = None,
        input_fn: PassedOn = None,
        batch_size: int | None = None,
        outputs: Sequence[str] | None = None,
        as_iterable: bool = True,
    ) -> Predictions:
        """The number of each example, or the `outputs` by name."""
        if outputs is not None:
            return super().predict(x, input_fn, batch_size, outputs, as_iterable)
        return self.predict_scores(x, input_fn, batch_size, as_iterable)

    def predict_scores(
        self, x: PassedOn = None, input_fn: PassedOn = None, batch_size: int | None = None, as_iterable: bool = True
    ) -> Predictions:
        """The number of each example."""
        return self._said("predictions", x, input_fn, batch_size, as_iterable)


class _Clipped(OptimizerWithInner):
    """An optimizer whose gradients have a norm, of all together, of at most a number."""

    def __init__(self, optimizer: tf.train.Optimizer, norm: float) -> None:
        super().__init__(optimizer, use_locking=False, name="Clipped")
        self._norm = norm

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: PassedOn = None, name: str | None = None
    ) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, self._norm)
        return self._opt.apply_gradients(zip(clipped, variables, strict=True), global_step, name)


def clipped(optimizer: PassedOn, norm: float | None) -> Any:
    """An optimizer that keeps the norm of all gradients together below a number; None: as it is.

    Raises:
        ValueError: it is the name of an optimizer, or a function that makes one.
    """
    if norm is None:
        return optimizer
    if not isinstance(optimizer, tf.train.Optimizer):
        raise ValueError(f"gradient_clip_norm wants a tf.train.Optimizer for its optimizer, got {optimizer!r}")
    return _Clipped(optimizer, norm)


class LearnDNNClassifier(_Classifier, tf.estimator.DNNClassifier):  # type: ignore[misc]
    """A network of dense layers that says which class an example is of; see `tf.estimator.DNNClassifier`.

    Args:
        weight_column_name: the feature of an example's weight; None: all weigh the same.
        optimizer: None: Adagrad.
        gradient_clip_norm: the greatest norm of all gradients together, if `optimizer` is a `tf.train.Optimizer`.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Iterable[Any],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column_name: str | None = None,
        optimizer: PassedOn = None,
        activation_fn: PassedOn = tf.nn.relu,
        dropout: float | None = None,
        gradient_clip_norm: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        label_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            hidden_units,
            feature_columns,
            model_dir,
            n_classes,
            weight_column_name,
            label_keys,
            clipped(optimizer or "Adagrad", gradient_clip_norm),
            activation_fn,
            dropout,
            config=config,
            loss_reduction=_MEAN,
        )


class LearnDNNRegressor(_Regressor, tf.estimator.DNNRegressor):  # type: ignore[misc]
    """A network of dense layers that says a number; see `DNNClassifier`."""

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Iterable[Any],
        model_dir: str | None = None,
        weight_column_name: str | None = None,
        optimizer: PassedOn = None,
        activation_fn: PassedOn = tf.nn.relu,
        dropout: float | None = None,
        gradient_clip_norm: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        label_dimension: int = 1,
    ) -> None:
        super().__init__(
            hidden_units,
            feature_columns,
            model_dir,
            label_dimension,
            weight_column_name,
            clipped(optimizer or "Adagrad", gradient_clip_norm),
            activation_fn,
            dropout,
            config=config,
            loss_reduction=_MEAN,
        )


class LearnLinearClassifier(_Classifier, tf.estimator.LinearClassifier):  # type: ignore[misc]
    """A linear model that says which class an example is of; see `tf.estimator.LinearClassifier`, `DNNClassifier`."""

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column_name: str | None = None,
        optimizer: PassedOn = None,
        gradient_clip_norm: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        label_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            feature_columns,
            model_dir,
            n_classes,
            weight_column_name,
            label_keys,
            clipped(optimizer or "Ftrl", gradient_clip_norm),
            config,
            loss_reduction=_MEAN,
        )


class LearnLinearRegressor(_Regressor, tf.estimator.LinearRegressor):  # type: ignore[misc]
    """A linear model that says a number; see `tf.estimator.LinearRegressor` and `DNNClassifier`."""

    def __init__(
        self,
        feature_columns: Iterable[Any],
        model_dir: str | None = None,
        weight_column_name: str | None = None,
        optimizer: PassedOn = None,
        gradient_clip_norm: float | None = None,
        label_dimension: int = 1,
        config: tf.estimator.RunConfig | None = None,
    ) -> None:
        super().__init__(
            feature_columns,
            model_dir,
            label_dimension,
            weight_column_name,
            clipped(optimizer or "Ftrl", gradient_clip_norm),
            config,
            loss_reduction=_MEAN,
        )


class LearnDNNLinearCombinedClassifier(_Classifier, tf.estimator.DNNLinearCombinedClassifier):  # type: ignore[misc]
    """A linear model and a network of dense layers together; see `tf.estimator.DNNLinearCombinedClassifier`."""

    def __init__(
        self,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column_name: str | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: PassedOn = None,
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: PassedOn = None,
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: PassedOn = tf.nn.relu,
        dnn_dropout: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        label_keys: Sequence[str] | None = None,
        fix_global_step_increment_bug: bool = True,
    ) -> None:
        super().__init__(
            model_dir,
            linear_feature_columns,
            linear_optimizer or "Ftrl",
            dnn_feature_columns,
            dnn_optimizer or "Adagrad",
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            n_classes,
            weight_column_name,
            label_keys,
            config=config,
            loss_reduction=_MEAN,
        )


class LearnDNNLinearCombinedRegressor(_Regressor, tf.estimator.DNNLinearCombinedRegressor):  # type: ignore[misc]
    """A linear model and a network of dense layers together; see `tf.estimator.DNNLinearCombinedRegressor`."""

    def __init__(
        self,
        model_dir: str | None = None,
        weight_column_name: str | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: PassedOn = None,
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: PassedOn = None,
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: PassedOn = tf.nn.relu,
        dnn_dropout: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        label_dimension: int = 1,
        fix_global_step_increment_bug: bool = True,
    ) -> None:
        super().__init__(
            model_dir,
            linear_feature_columns,
            linear_optimizer or "Ftrl",
            dnn_feature_columns,
            dnn_optimizer or "Adagrad",
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            label_dimension,
            weight_column_name,
            config=config,
            loss_reduction=_MEAN,
        )


def infer_real_valued_columns_from_input(x: PassedOn) -> list[Any]:
    """The columns of features that are numbers: an array [examples, n], or such by name."""
    arrays = x if isinstance(x, Mapping) else {THE_FEATURE: x}
    return [
        tf.feature_column.numeric_column(name, shape=np.shape(values)[1:] or (1,)) for name, values in arrays.items()
    ]


def infer_real_valued_columns_from_input_fn(input_fn: PassedOn) -> list[Any]:
    """The columns of features that are numbers, as `input_fn` gives them."""
    with tf.Graph().as_default():
        given = input_fn()
        features = given[0] if isinstance(given, tuple | list) else given
        tensors = features if isinstance(features, Mapping) else {THE_FEATURE: features}
        sizes = {name: tuple(tensor.shape.as_list()[1:]) or (1,) for name, tensor in tensors.items()}
    return [tf.feature_column.numeric_column(name, shape=shape) for name, shape in sizes.items()]
