"""`tf.keras.metrics`: those that the package has not, or weights otherwise; and how a model's metrics are called."""

from __future__ import annotations

import inspect
from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras import losses, package, rebasing

_module = package.module("metrics")
_utils = package.module("utils.losses_utils")
_metrics_utils = package.module("utils.metrics_utils")
_backend = package.module("backend")
_PackageMetric: Any = _module.Metric
_Reduce: Any = rebasing.rebased(_module.Reduce)


@rebasing.serves(_module.Reduce)
class Reduce(_Reduce):
    """A sum or a mean of values, each with a weight. Values for which there is one weight are averaged first."""

    def update_state(self, values: TensorLike, sample_weight: PassedOn = None) -> Any:
        values = tf.cast(tf.convert_to_tensor(values), self.dtype)
        if sample_weight is not None:
            weights = tf.cast(tf.convert_to_tensor(sample_weight), self.dtype)
            if values.shape.ndims is not None and weights.shape.ndims is not None:
                values, _, weights = _utils.squeeze_or_expand_dimensions(values, sample_weight=weights)
            if (weights.shape.ndims or 0) and (weights.shape.ndims or 0) < (values.shape.ndims or 0):
                reduce = tf.reduce_sum if self.reduction == _metrics_utils.Reduction.SUM else tf.reduce_mean
                values = reduce(values, list(range(weights.shape.ndims, values.shape.ndims)))
            elif weights.shape.ndims:
                weights = _utils.broadcast_weights(values, weights)
                weights = weights * tf.ones_like(values)
            counted = (
                tf.reduce_sum(weights * tf.ones_like(values)) if not weights.shape.ndims else tf.reduce_sum(weights)
            )
            values = values * weights
        else:
            counted = tf.cast(tf.size(values), self.dtype)
        updates = [tf.assign_add(self.total, tf.reduce_sum(values))]
        kinds = _metrics_utils.Reduction
        if self.reduction == kinds.SUM_OVER_BATCH_SIZE:
            updates.append(tf.assign_add(self.count, tf.cast(tf.size(values), self.dtype)))
        elif self.reduction == kinds.WEIGHTED_MEAN:
            updates.append(tf.assign_add(self.count, counted))
        return updates

    def result(self) -> Any:
        if self.reduction == _metrics_utils.Reduction.SUM:
            return tf.identity(self.total)
        return tf.div_no_nan(self.total, self.count)


_MeanMetricWrapper: Any = rebasing.rebased(_module.MeanMetricWrapper)


@rebasing.serves(_module.MeanMetricWrapper)
class MeanMetricWrapper(_MeanMetricWrapper):
    """The mean of a function of labels and predictions, both of which may be ragged tensors."""

    def update_state(self, y_true: PassedOn, y_pred: PassedOn, sample_weight: PassedOn = None) -> Any:
        is_ragged = isinstance(sample_weight, tf.RaggedTensor)
        weights = tf.expand_dims(sample_weight.flat_values, -1) if is_ragged else sample_weight
        return super().update_state(*_flat(y_true, y_pred), weights)


def _flat(y_true: PassedOn, y_pred: PassedOn) -> Any:
    """The values of two ragged tensors, each in a row of its own; others as they are.

    It is checked that rows have the same lengths.

    Raises:
        ValueError: they have not as many dimensions of rows.
    """
    if not any(isinstance(one, tf.RaggedTensor) for one in (y_true, y_pred)):
        return y_true, y_pred
    splits = [one.nested_row_splits if isinstance(one, tf.RaggedTensor) else () for one in (y_true, y_pred)]
    if len(splits[0]) != len(splits[1]):
        raise ValueError(f"labels and predictions differ in their ragged ranks: {y_true} and {y_pred}")
    same = [tf.assert_equal(one, other) for one, other in zip(*splits, strict=True)]
    with tf.control_dependencies(same):
        return tf.expand_dims(y_true.flat_values, -1), tf.expand_dims(y_pred.flat_values, -1)


_Metric: Any = rebasing.served(_PackageMetric)
_Mean: Any = rebasing.served(_module.Mean)


class MeanIoU(_Metric):
    """The mean over the classes of intersection over union of labels and predictions."""

    def __init__(self, num_classes: int, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.num_classes = num_classes
        self.total_cm = self.add_weight("total_confusion_matrix", shape=(num_classes, num_classes), initializer="zeros")

    def update_state(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: PassedOn = None) -> Any:
        labels, predictions = (tf.reshape(tf.cast(x, tf.int64), [-1]) for x in (y_true, y_pred))
        weights = None if sample_weight is None else tf.reshape(tf.cast(sample_weight, self.dtype), [-1])
        matrix = tf.confusion_matrix(
            labels, predictions, self.num_classes, weights=weights, dtype=tf.as_dtype(self.dtype)
        )
        return [tf.assign_add(self.total_cm, matrix)]

    def result(self) -> Any:
        rows, columns = tf.reduce_sum(self.total_cm, 0), tf.reduce_sum(self.total_cm, 1)
        right = tf.diag_part(self.total_cm)
        union = rows + columns - right
        valid = tf.reduce_sum(tf.cast(tf.not_equal(union, 0), self.dtype))
        return tf.div_no_nan(tf.reduce_sum(tf.div_no_nan(right, union)), valid)

    def reset_states(self) -> None:
        _backend.set_value(self.total_cm, _zeros(self.total_cm.shape.as_list()))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"num_classes": self.num_classes}


def _zeros(shape: list[int]) -> Any:
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0.0


class MeanTensor(_Metric):
    """The mean of each element over tensors of one shape."""

    def __init__(self, name: str = "mean_tensor", dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self._total: Any = None
        self._count: Any = None

    @property
    def total(self) -> Any:
        return self._total

    @property
    def count(self) -> Any:
        return self._count

    def _build(self, shape: PassedOn) -> None:
        self._shape = tf.TensorShape(shape)
        lengths = self._shape.as_list()
        self._total = self.add_weight("total", shape=lengths, initializer="zeros")
        self._count = self.add_weight("count", shape=lengths, initializer="zeros")
        _backend.get_session().run([self._total.initializer, self._count.initializer])

    def update_state(self, values: TensorLike, sample_weight: PassedOn = None) -> Any:
        values = tf.cast(tf.convert_to_tensor(values), self.dtype)
        if self._total is None:
            self._build(values.shape)
        elif not values.shape.is_compatible_with(self._total.shape):
            raise ValueError(
                f"MeanTensor input values must always have the same shape. Expected shape (set during the first call): "
                f"{self._total.shape}. Got: {values.shape}"
            )
        counts = tf.ones_like(values)
        if sample_weight is not None:
            weights = tf.cast(tf.convert_to_tensor(sample_weight), self.dtype)
            values, _, weights = _utils.squeeze_or_expand_dimensions(values, sample_weight=weights)
            weights = _utils.broadcast_weights(values, weights) if weights.shape.ndims else weights
            counts, values = counts * weights, values * weights
        return [tf.assign_add(self._total, values), tf.assign_add(self._count, counts)]

    def result(self) -> Any:
        if self._total is None:
            raise ValueError(
                "MeanTensor does not have any result yet. Please call the MeanTensor instance or use "
                "`.update_state(value)` before retrieving the result."
            )
        return tf.div_no_nan(self._total, self._count)

    def reset_states(self) -> None:
        if self._total is not None:
            for variable in (self._total, self._count):
                _backend.set_value(variable, _zeros(variable.shape.as_list()))


class MeanRelativeError(_Mean):
    """The mean of |labels - predictions| / normalizer."""

    def __init__(self, normalizer: TensorLike, name: str | None = None, dtype: DTypeLike | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.normalizer = tf.cast(tf.convert_to_tensor(normalizer), self.dtype)

    def update_state(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: PassedOn = None) -> Any:
        y_true, y_pred = (tf.cast(tf.convert_to_tensor(x), self.dtype) for x in (y_true, y_pred))
        y_pred, y_true = _utils.squeeze_or_expand_dimensions(y_pred, y_true)[:2]
        y_pred.shape.assert_is_compatible_with(y_true.shape)
        errors = tf.div_no_nan(tf.abs(y_true - y_pred), self.normalizer)
        return super().update_state(errors, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"normalizer": _backend.get_value(self.normalizer)}


NAMES: dict[str, Any] = {
    "MeanIoU": MeanIoU,
    "MeanTensor": MeanTensor,
    "MeanRelativeError": MeanRelativeError,
    "Mean": _Mean,
    **{
        name: value
        for name, value in losses.NAMES.items()
        if inspect.isfunction(value) and not name.startswith("cosine") and hasattr(_module, name)
    },
    "cosine": losses.NAMES["cosine"],
    "cosine_proximity": losses.NAMES["cosine_proximity"],
}

_SHORT = {"accuracy": "acc", "acc": "acc", "crossentropy": "ce", "ce": "ce"}


def named(of_output: dict[str, Any], given: PassedOn, *, weighted: bool) -> dict[str, Any]:
    """The metrics of an output under TensorFlow 1's names: "acc" for "accuracy", "weighted_" before weighted ones.

    Args:
        of_output: as the package collected them.
        given: what `compile` was given.
    """
    objects = {one.name for one in tf.nest.flatten(given) if isinstance(one, _PackageMetric)}
    found: dict[str, Any] = type(of_output)()
    for name, metric in of_output.items():
        if name not in objects:
            name = _SHORT.get(name) or _full_name(name)
        if type(metric) is _module.MeanMetricWrapper:
            metric = rebasing.served(type(metric))(metric._fn, name=metric.name, **metric._fn_kwargs)
        found[f"weighted_{name}" if weighted else name] = metric
    return found


def _full_name(name: str) -> str:
    function = getattr(_module, name, None)
    if inspect.isclass(function):
        return name
    return str(getattr(function, "name", None) or getattr(function, "__name__", name))
