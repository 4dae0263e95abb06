"""`tf.contrib.model_pruning`: weights that are small become zero while a model is trained (Zhu and Gupta 2017).

A weight has a mask of its shape, by which it is multiplied before it is used, and a threshold. From time to time the
masks are made anew: 0 where a weight's magnitude is below the threshold, which is where as large a part of the weights
lies below it as should be zero by then.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike

MASKS: Final = "masks"
THRESHOLDS: Final = "thresholds"
MASKED_WEIGHTS: Final = "masked_weights"
WEIGHTS: Final = "kernel"
#: how the product of a weight and its mask is named
MASKED_WEIGHT_NAME: Final = "weights/masked_weight"


def apply_mask(x: PassedOn, scope: ScopeLike = "") -> tf.Tensor:
    """A weight, times a mask that pruning changes.

    Args:
        x: a variable, also a partitioned one.
        scope: of the variables "mask" and "threshold".

    Example:
        >>> w = tf.get_variable("w", initializer=[0.1, -2.0, 0.3, 4.0])
        >>> masked = tf.contrib.model_pruning.apply_mask(w)
        >>> update = tf.contrib.model_pruning.Pruning(global_step=0, sparsity=0.5).mask_update_op()
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(update)
        >>> sess.run(masked).tolist()
        [0.0, -2.0, 0.0, 4.0]
    """
    ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
    with tf.variable_scope(scope):
        mask = tf.get_variable("mask", x.get_shape(), x.dtype, ones, trainable=False)
        threshold = tf.get_variable("threshold", [], x.dtype, zeros, trainable=False)
    return masked_by(x, mask, threshold)


def masked_by(weight: PassedOn, mask: PassedOn, threshold: PassedOn) -> tf.Tensor:
    """A weight times its mask; enters all of them into the collections that pruning looks at."""
    masked: tf.Tensor = tf.multiply(mask, weight, MASKED_WEIGHT_NAME)
    if not any(mask is known for known in tf.get_collection(MASKS)):
        for name, value in ((THRESHOLDS, threshold), (MASKS, mask), (MASKED_WEIGHTS, masked), (WEIGHTS, weight)):
            tf.add_to_collection(name, value)
    return masked


def get_masked_weights() -> list[tf.Tensor]:
    """The products of weights and masks, in the default graph."""
    return list(tf.get_collection(MASKED_WEIGHTS))


def get_masks() -> list[Any]:
    """The masks, in the default graph."""
    return list(tf.get_collection(MASKS))


def get_thresholds() -> list[Any]:
    """The thresholds, in the default graph."""
    return list(tf.get_collection(THRESHOLDS))


def get_weights() -> list[Any]:
    """The weights that have masks, in the default graph."""
    return list(tf.get_collection(WEIGHTS))


def get_weight_sparsity() -> list[tf.Tensor]:
    """What part of each mask is zero."""
    return [tf.nn.zero_fraction(mask) for mask in get_masks()]


def get_pruning_hparams() -> tf.contrib.training.HParams:
    """How pruning goes on, where nothing else is said.

    Returns:
        `name` of scopes; `begin_pruning_step` and `end_pruning_step` (-1: none), between which masks are made anew
        every `pruning_frequency` steps; `target_sparsity`, that in the beginning (`initial_sparsity`), and between
        which steps it goes from one to the other (`sparsity_function_begin_step`, `sparsity_function_end_step`), with
        which exponent (`sparsity_function_exponent`); `weight_sparsity_map`, such as ["conv1:0.9"]: targets of weights
        whose names match; `threshold_decay`: what part of the old threshold stays; `block_height`, `block_width` (-1:
        all) of blocks that are kept or dropped as a whole, by their mean or maximum (`block_pooling_function`: "AVG",
        "MAX"), and `block_dims_map`, such as ["dense1:4x4"]; `nbins` and `use_tpu` are not used.
    """
    return tf.contrib.training.HParams(
        name="model_pruning",
        begin_pruning_step=0,
        end_pruning_step=-1,
        weight_sparsity_map=[""],
        block_dims_map=[""],
        threshold_decay=0.0,
        pruning_frequency=10,
        nbins=256,
        block_height=1,
        block_width=1,
        block_pooling_function="AVG",
        initial_sparsity=0.0,
        target_sparsity=0.5,
        sparsity_function_begin_step=0,
        sparsity_function_end_step=100,
        sparsity_function_exponent=3.0,
        use_tpu=False,
    )


class Pruning:
    """Makes masks anew while a model is trained.

    Args:
        spec: what `get_pruning_hparams` gives, changed.
        global_step: default: the graph's.
        sparsity: what part of the weights is to be zero; default: as `spec` says, by the step.

    Raises:
        ValueError: numbers of `spec` are out of range, or in the wrong order.
    """

    def __init__(
        self, spec: PassedOn = None, global_step: TensorLike | None = None, sparsity: TensorLike | None = None
    ) -> None:
        chosen: PassedOn = get_pruning_hparams() if spec is None else spec
        self._spec = cast(Any, chosen)
        _check(self._spec)
        step = tf.train.get_global_step() if global_step is None else global_step
        self._global_step = tf.cast(step, tf.int32)
        self._sparsity: Any = self._sparsity_by_step() if sparsity is None else sparsity
        with tf.variable_scope(self._spec.name, reuse=tf.AUTO_REUSE):
            zeros = tf.zeros_initializer()
            self._last_update_step = tf.get_variable("last_mask_update_step", [], tf.int32, zeros, trainable=False)
        self._block_dims_map = [
            (re.compile(name), [int(size) for size in text.split("x")])
            for name, text in _pairs(self._spec.block_dims_map)
        ]
        if any(len(sizes) != 2 for _, sizes in self._block_dims_map):
            raise ValueError(f"Expected 2 values for each block dim in {self._spec.block_dims_map}")
        self._weight_sparsity_map = [
            (re.compile(name), float(text)) for name, text in _pairs(self._spec.weight_sparsity_map)
        ]
        if any(target >= 1.0 for _, target in self._weight_sparsity_map):
            raise ValueError("Weight sparsity can not exceed 1.0")
        self._assign_ops: list[tf.Operation] = []

    # ------------------------------------------------------------------ operations
    def mask_update_op(self) -> tf.Operation:
        """Makes all masks anew, and notes the step.

        Raises:
            ValueError: a name matches two entries of a map, or the function of blocks is unknown.
        """
        with tf.name_scope(self._spec.name):
            if not self._assign_ops:
                for weight, mask, threshold in zip(get_weights(), get_masks(), get_thresholds(), strict=True):
                    self._assign_ops += self._assigned(weight, mask, threshold)
            noted = self._last_update_step.assign(self._global_step, name="last_mask_update_step_assign")
            with tf.control_dependencies([noted, *self._assign_ops]):
                return tf.no_op("mask_update")

    def conditional_mask_update_op(self) -> tf.Operation:
        """Makes the masks anew where it is time to: what a program runs after each step of training."""
        spec, step = self._spec, self._global_step
        with tf.name_scope(spec.name):
            has_ended = step > spec.end_pruning_step if spec.end_pruning_step >= 0 else tf.constant(False)
            is_due = self._last_update_step + spec.pruning_frequency <= step
            is_time = tf.logical_and(tf.logical_and(step >= spec.begin_pruning_step, is_due), tf.logical_not(has_ended))
        result: tf.Operation = tf.cond(is_time, self.mask_update_op, tf.no_op)
        return result

    def add_pruning_summaries(self) -> None:
        """Adds summaries of the sparsity that is aimed at, of that of each mask, and of the thresholds."""
        with tf.name_scope(f"{self._spec.name}_summaries"):
            tf.summary.scalar("sparsity", self._sparsity)
            tf.summary.scalar("last_mask_update_step", self._last_update_step)
            for mask, threshold in zip(get_masks(), get_thresholds(), strict=True):
                tf.summary.scalar(f"{_name(mask)}/sparsity", tf.nn.zero_fraction(mask))
                tf.summary.scalar(f"{_name(threshold)}/threshold", threshold)

    def print_hparams(self) -> None:
        """Logs how pruning goes on."""
        tf.logging.info(self._spec.to_json())

    # ------------------------------------------------------------------ sparsity
    def _sparsity_by_step(self) -> tf.Tensor:
        spec = self._spec
        begin, end = spec.sparsity_function_begin_step, spec.sparsity_function_end_step
        with tf.name_scope(spec.name):
            passed = tf.clip_by_value(tf.cast(self._global_step - begin, tf.float32) / (end - begin), 0.0, 1.0)
            missing = (spec.initial_sparsity - spec.target_sparsity) * (1 - passed) ** spec.sparsity_function_exponent
            sparsity: tf.Tensor = tf.add(missing, spec.target_sparsity, name="sparsity")
        return sparsity

    def _sparsity_of(self, name: str) -> Any:
        target = _matching(self._weight_sparsity_map, name, "weight_sparsity_map")
        return self._sparsity if target is None else self._sparsity * (target / self._spec.target_sparsity)

    # ------------------------------------------------------------------ masks
    def _assigned(self, weight: PassedOn, mask: PassedOn, threshold: PassedOn) -> list[tf.Operation]:
        whole = weight.as_tensor() if _is_partitioned(weight) else weight
        new_threshold, new_mask = self._maybe_update_block_mask(whole, threshold)
        return [tf.assign(threshold, new_threshold).op, _assigned(mask, new_mask)]

    def _maybe_update_block_mask(self, weights: PassedOn, threshold: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
        """A new threshold and mask of a weight: of its blocks, where it is a matrix and has such."""
        blocks = _matching(self._block_dims_map, _name(weights), "block_dims_map")
        height, width = blocks or (self._spec.block_height, self._spec.block_width)
        matrix = tf.squeeze(weights)
        if matrix.shape.ndims != 2 or (height, width) == (1, 1):
            return self._update_mask(weights, threshold, _name(weights))
        kind = self._spec.block_pooling_function
        if kind not in ("AVG", "MAX"):
            raise ValueError(f"Unknown pooling function for block sparsity: {kind}")
        rows, columns = (int(size or 0) for size in matrix.shape.as_list())
        block = [rows if height == -1 else height, columns if width == -1 else width]
        with tf.name_scope(f"{_name(weights)}_pruning_ops"):
            picture = tf.abs(matrix)[tf.newaxis, ..., tf.newaxis]
            pooled = tf.nn.pool(picture, block, kind, "SAME", strides=block)[0, ..., 0]
            new_threshold, kept = self._update_mask(pooled, threshold, _name(weights))
            spread = tf.repeat(tf.repeat(kept, block[0], 0), block[1], 1)
            return new_threshold, tf.reshape(spread[:rows, :columns], weights.shape)

    def _update_mask(self, weights: PassedOn, threshold: TensorLike, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        sparsity = self._sparsity_of(name)
        with tf.name_scope(f"{name}_pruning_ops"):
            magnitudes = tf.abs(tf.convert_to_tensor(weights))
            count = tf.size(magnitudes)
            kept = tf.cast(tf.round(tf.cast(count, tf.float32) * (1 - sparsity)), tf.int32)
            falling, _ = tf.nn.top_k(tf.reshape(magnitudes, [-1]), count)
            decay = self._spec.threshold_decay
            smoothed = falling[tf.maximum(kept - 1, 0)] * (1 - decay) + threshold * decay
            return smoothed, tf.cast(magnitudes >= smoothed, magnitudes.dtype)


def _check(spec: PassedOn) -> None:
    if spec.begin_pruning_step < 0:
        raise ValueError("Illegal value for begin_pruning_step")
    if spec.end_pruning_step != -1 and spec.begin_pruning_step >= spec.end_pruning_step:
        raise ValueError(
            f"Pruning must begin before it can end. begin_step={spec.begin_pruning_step}, "
            f"end_step={spec.end_pruning_step}. Set end_pruning_step to -1 if it is required till training stops"
        )
    if spec.sparsity_function_begin_step < 0:
        raise ValueError("Illegal value for sparsity_function_begin_step")
    if spec.sparsity_function_begin_step >= spec.sparsity_function_end_step:
        raise ValueError("Sparsity function requires begin_step < end_step")
    for name in ("threshold_decay", "initial_sparsity", "target_sparsity"):
        if not 0.0 <= getattr(spec, name) < 1.0:
            raise ValueError(f"{name} must be in range [0,1)")


def _pairs(entries: list[str]) -> list[list[str]]:
    return [entry.split(":") for entry in entries if entry]


def _matching(entries: list[tuple[re.Pattern[str], PassedOn]], name: str, what: str) -> Any:
    found = [value for pattern, value in entries if pattern.search(name)]
    if len(found) > 1:
        raise ValueError(f"Multiple matches in {what} for weight {name}")
    return found[0] if found else None


def _is_partitioned(variable: PassedOn) -> bool:
    return hasattr(variable, "as_tensor")


def _name(value: PassedOn) -> str:
    return str(value.name) if _is_partitioned(value) else str(value.op.name)


def _assigned(mask: PassedOn, value: tf.Tensor) -> tf.Operation:
    if not _is_partitioned(mask):
        result: tf.Operation = tf.assign(mask, value).op
        return result
    parts = list(mask)
    whole, first = mask.get_shape().as_list(), parts[0].shape.as_list()
    axis = next((i for i, (a, b) in enumerate(zip(whole, first, strict=True)) if a != b), 0)
    values = tf.split(value, [part.shape.as_list()[axis] for part in parts], axis)
    return tf.group(*(tf.assign(part, new).op for part, new in zip(parts, values, strict=True)))
