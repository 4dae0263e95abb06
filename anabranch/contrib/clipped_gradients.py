"""`tf.contrib.estimator`: optimizers that clip gradients."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn, TensorLike
from anabranch.contrib.opt_inner import OptimizerWithInner


class ClippingOptimizer(OptimizerWithInner):
    """An optimizer around another one, which makes all gradients together shorter where they are too long.

    Args:
        optimizer: computes and applies them.
        clip_norm: float scalar: how long they are at most.
    """

    def __init__(self, optimizer: tf.train.Optimizer, clip_norm: TensorLike) -> None:
        super().__init__(optimizer, False, f"ClipByNorm{optimizer.get_name()}")
        self._clip_norm = clip_norm

    def apply_gradients(self, grads_and_vars: GradientsAndVariables, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Applies the gradients, clipped; arguments as of `tf.train.Optimizer.apply_gradients`."""
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(list(gradients), self._clip_norm)
        return self._opt.apply_gradients(list(zip(clipped, variables, strict=True)), *args, **kwargs)


def clip_gradients_by_norm(optimizer: tf.train.Optimizer, clip_norm: TensorLike) -> ClippingOptimizer:
    """An optimizer that clips gradients by the norm of all of them (`tf.clip_by_global_norm`) and applies them.

    Args:
        optimizer: computes and applies them.
        clip_norm: float scalar: how long they are at most.
    """
    return ClippingOptimizer(optimizer, clip_norm)
