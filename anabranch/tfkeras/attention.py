"""Attention of queries to values by keys."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras.layer import KerasLayer

_FAR_BELOW = -1e9


class BaseDenseAttention(KerasLayer):
    """A sum of the values for each query, weighted by the softmax of scores.

    Called on `[query, value]` or `[query, value, key]`, of shapes [batch, queries, width], [batch, values, width] and
    as the values; masks `[query_mask, value_mask]`. What derives from it defines `_calculate_scores(query, key)`.

    Args:
        causal: whether a query sees no later values.
    """

    def __init__(self, causal: bool = False, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.causal = causal
        self.supports_masking = True

    def _calculate_scores(self, query: TensorLike, key: TensorLike) -> Any:
        raise NotImplementedError("what derives from BaseDenseAttention computes the scores")

    def call(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        self._check(inputs, mask)
        query, value = inputs[0], inputs[1]
        key = inputs[2] if len(inputs) > 2 else value
        query_mask, value_mask = mask or (None, None)
        scores = self._calculate_scores(query, key)
        allowed = None if value_mask is None else tf.expand_dims(tf.cast(value_mask, tf.bool), -2)
        if self.causal:
            ones = tf.ones_like(scores, dtype=tf.int32)
            earlier = tf.greater_equal(tf.cumsum(ones, -2), tf.cumsum(ones, -1))
            allowed = earlier if allowed is None else tf.logical_and(allowed, earlier)
        if allowed is not None:
            scores += _FAR_BELOW * tf.cast(tf.logical_not(allowed), scores.dtype)
        outputs = tf.matmul(tf.nn.softmax(scores), value)
        if query_mask is not None:
            outputs *= tf.cast(tf.expand_dims(query_mask, -1), outputs.dtype)
        return outputs

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        if not mask or mask[0] is None:
            return None
        return tf.convert_to_tensor(mask[0])

    def _check(self, inputs: PassedOn, mask: PassedOn) -> None:
        name = type(self).__name__
        if not isinstance(inputs, list):
            raise ValueError(
                f"{name} layer must be called on a list of inputs, namely [query, value] or [query, value, key]."
            )
        if not 2 <= len(inputs) <= 3:
            raise ValueError(
                f"{name} layer accepts inputs list of length 2 or 3, namely [query, value] or [query, value, key]. "
                f"Given length: {len(inputs)}"
            )
        if mask is not None:
            if not isinstance(mask, list):
                raise ValueError(f"{name} layer mask must be a list, namely [query_mask, value_mask].")
            if len(mask) != 2:
                raise ValueError(
                    f"{name} layer mask must be a list of length 2, namely [query_mask, value_mask]. "
                    f"Given length: {len(mask)}"
                )

    def __call__(self, inputs: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        mask = kwargs.get("mask")
        if mask is None and isinstance(inputs, list) and len(inputs) == 3:
            found = [getattr(x, "_keras_mask", None) for x in inputs[:2]]
            if any(one is not None for one in found):
                kwargs["mask"] = found
        return super().__call__(inputs, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "causal": self.causal}


class Attention(BaseDenseAttention):
    """Attention with scores query · key, scaled by a variable for `use_scale`."""

    def __init__(self, use_scale: bool = False, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.use_scale = use_scale
        self.scale: Any = None

    def build(self, input_shape: PassedOn) -> None:
        if self.use_scale:
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones", dtype=self.dtype, trainable=True)
        self.built = True

    def _calculate_scores(self, query: TensorLike, key: TensorLike) -> Any:
        scores = tf.matmul(query, key, transpose_b=True)
        return scores if self.scale is None else scores * self.scale

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "use_scale": self.use_scale}


class AdditiveAttention(BaseDenseAttention):
    """Attention with scores sum(tanh(query + key)), each term scaled by a variable for `use_scale`."""

    def __init__(self, use_scale: bool = True, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.use_scale = use_scale
        self.scale: Any = None

    def build(self, input_shape: PassedOn) -> None:
        if self.use_scale:
            width = tf.TensorShape(input_shape[1]).as_list()[-1]
            self.scale = self.add_weight(
                name="scale", shape=[width], initializer="glorot_uniform", dtype=self.dtype, trainable=True
            )
        self.built = True

    def _calculate_scores(self, query: TensorLike, key: TensorLike) -> Any:
        mixed = tf.tanh(tf.expand_dims(query, -2) + tf.expand_dims(key, -3))
        return tf.reduce_sum(mixed if self.scale is None else self.scale * mixed, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "use_scale": self.use_scale}
