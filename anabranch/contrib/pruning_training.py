"""`tf.contrib.model_pruning.train`: tf-slim's loop of training, with masks that are made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


def train(
    train_op: tf.Tensor,
    logdir: str | None,
    mask_update_op: tf.Operation,
    train_step_fn: Callable[..., Any] | None = None,
    **kwargs: PassedOn,
) -> PassedOn:
    """Trains, and runs `mask_update_op` after each step.

    Args:
        train_op: as `tf.contrib.slim.learning.create_train_op` gives it.
        logdir: where checkpoints and summaries go; None: nowhere.
        mask_update_op: as `Pruning.conditional_mask_update_op` gives it.
        train_step_fn: a step; default: that of `tf.contrib.slim.learning`.
        kwargs: the other arguments of `tf.contrib.slim.learning.train`.

    Returns:
        The loss of the last step.
    """
    learning = tf.contrib.slim.learning
    step = train_step_fn or learning.train_step

    def with_masks(session: PassedOn, *args: PassedOn, **settings: PassedOn) -> Any:
        result = step(session, *args, **settings)
        session.run(mask_update_op)
        return result

    return learning.train(train_op, logdir, train_step_fn=with_masks, **kwargs)
