"""`tf.keras.losses`: the package's, for labels and predictions of any dtype, and with the reduction "auto"."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras import package, rebasing

_module = package.module("losses")
_backend = package.module("backend")
_utils = package.module("utils.losses_utils")
_backend = package.module("backend")
_PackageLoss: Any = _module.Loss


class LossReduction:
    """How the losses of a batch become one."""

    AUTO = "auto"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        return (cls.AUTO, cls.NONE, cls.SUM, cls.SUM_OVER_BATCH_SIZE)

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError unless it is one of them."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}.")


def _tensors(y_true: PassedOn, y_pred: PassedOn, *, classes: bool) -> tuple[Any, Any]:
    """Labels and predictions of one floating dtype; labels that are classes keep theirs."""
    if isinstance(y_pred, tf.SparseTensor):
        return y_true, y_pred
    y_pred = tf.convert_to_tensor(y_pred)
    if not y_pred.dtype.is_floating:
        y_pred = tf.cast(y_pred, _backend.floatx())
    if isinstance(y_true, tf.SparseTensor):
        return y_true, y_pred
    y_true = tf.convert_to_tensor(y_true)
    return (y_true if classes else tf.cast(y_true, y_pred.dtype)), y_pred


@rebasing.serves(_PackageLoss)
class Loss(_PackageLoss):
    """A loss of labels and predictions; a subclass defines `call(y_true, y_pred)`, a loss for each example.

    Args:
        reduction: "auto" is the sum over the batch's size.
    """

    def __init__(self, reduction: str = LossReduction.AUTO, name: str | None = None) -> None:
        LossReduction.validate(reduction)
        super().__init__(reduction=reduction, name=name)

    def __call__(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: PassedOn = None) -> Any:
        function = getattr(self, "fn", None)
        if function is not None:
            sparse = function is _module.sparse_categorical_crossentropy
            if inspect.isfunction(function) and function.__module__ == _module.__name__:
                y_true, y_pred = _tensors(y_true, y_pred, classes=sparse)
        with tf.name_scope((self.name or type(self).__name__).strip("<>")):
            losses = tf.convert_to_tensor(self.call(y_true, y_pred))
            reduction = LossReduction.SUM_OVER_BATCH_SIZE if self.reduction == LossReduction.AUTO else self.reduction
            LossReduction.validate(reduction)
            values = tf.cast(losses, _backend.floatx())
            if sample_weight is not None:
                values *= _fitting(tf.cast(tf.convert_to_tensor(sample_weight), values.dtype), values)
            return tf.cast(_utils.reduce_weighted_loss(values, reduction), losses.dtype)


def _fitting(weights: tf.Tensor, losses: tf.Tensor) -> tf.Tensor:
    """Weights that losses can be multiplied with: with further dimensions of one, or a last one less, where needed.

    Raises:
        ValueError: a length is neither one nor that of the losses.
    """
    rank, of_weights = losses.shape.ndims, weights.shape.ndims
    if rank is None or of_weights is None:
        missing = tf.maximum(tf.rank(losses) - tf.rank(weights), 0)
        return tf.reshape(weights, tf.concat([tf.shape(weights), tf.ones([missing], tf.int32)], 0))
    if of_weights == rank + 1:
        weights = tf.squeeze(weights, [-1])
    elif 0 < of_weights < rank:
        for _ in range(rank - of_weights):
            weights = tf.expand_dims(weights, -1)
    lengths = weights.shape.as_list()
    fits = zip(lengths, losses.shape.as_list(), strict=False)
    if lengths and (len(lengths) != rank or any(n not in (1, None, m) and m is not None for n, m in fits)):
        raise ValueError(
            f"weights can not be broadcast to values. values.rank={rank}. weights.rank={len(lengths)}. "
            f"values.shape={losses.shape}. weights.shape={weights.shape}."
        )
    return weights


_LossFunctionWrapper: Any = rebasing.rebased(_module.LossFunctionWrapper)


@rebasing.serves(_module.LossFunctionWrapper)
class LossFunctionWrapper(_LossFunctionWrapper):
    """A loss by a function of labels and predictions."""

    def __init__(
        self, fn: Callable[..., Any], reduction: str = LossReduction.AUTO, name: str | None = None, **kwargs: PassedOn
    ) -> None:
        Loss.__init__(self, reduction, name)
        self.fn = fn
        self._fn_kwargs = kwargs


def _cosine_similarity(y_true: TensorLike, y_pred: TensorLike, axis: int = -1) -> Any:
    y_true, y_pred = _tensors(y_true, y_pred, classes=False)
    return tf.reduce_sum(tf.nn.l2_normalize(y_true, axis=axis) * tf.nn.l2_normalize(y_pred, axis=axis), axis=axis)


class CosineSimilarity(LossFunctionWrapper):
    """The cosine of the angle between labels and predictions."""

    def __init__(self, axis: int = -1, reduction: str = LossReduction.AUTO, name: str = "cosine_similarity") -> None:
        super().__init__(_cosine_similarity, reduction=reduction, name=name, axis=axis)


@functools.cache
def _casting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the package, for labels and predictions of any dtype."""
    sparse = function is _module.sparse_categorical_crossentropy

    @functools.wraps(function)
    def call(y_true: TensorLike, y_pred: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> Any:
        return function(*_tensors(y_true, y_pred, classes=sparse), *args, **kwargs)

    return call


def _is_function_of_losses(value: PassedOn) -> bool:
    if not inspect.isfunction(value) or value.__module__ != _module.__name__:
        return False
    return list(inspect.signature(value).parameters)[:2] == ["y_true", "y_pred"]


def _served() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(_module).items():
        if inspect.isclass(value) and issubclass(value, _PackageLoss):
            found[name] = rebasing.served(value)
        elif _is_function_of_losses(value):
            found[name] = _casting(value)
    return found


def get(identifier: PassedOn) -> Any:
    """The loss of that name or configuration; what can be called is itself."""
    return _public(_module.get(identifier))


def deserialize(name: PassedOn, custom_objects: dict[str, Any] | None = None) -> Any:
    """The loss of that name or configuration; `custom_objects` has a program's own by their names."""
    return _public(_module.deserialize(name, custom_objects))


def _public(found: PassedOn) -> Any:
    """A function of the package as it is served."""
    is_served = hasattr(found, "__wrapped__")
    return _casting(found) if _is_function_of_losses(found) and not is_served else found


NAMES: dict[str, Any] = _served() | {
    "deserialize": deserialize,
    "get": get,
    "CosineSimilarity": CosineSimilarity,
    "Reduction": LossReduction,
    "cosine": _cosine_similarity,
    "cosine_proximity": _cosine_similarity,
    "cosine_similarity": _cosine_similarity,
}
