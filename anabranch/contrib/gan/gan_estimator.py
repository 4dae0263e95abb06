"""An Estimator whose inputs are those of a generator and whose labels are real data."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.gan import building, picture_summaries, steps
from anabranch.contrib.gan.gan_head import loss_metrics
from anabranch.contrib.gan.namedtuples import GANLoss, GANModel, HooksFunction


class SummaryType(enum.IntEnum):
    """What is written beside losses."""

    NONE = 0
    VARIABLES = 1
    IMAGES = 2
    IMAGE_COMPARISON = 3


_SUMMARIES: dict[SummaryType, Callable[[GANModel], None]] = {
    SummaryType.VARIABLES: picture_summaries.add_gan_model_summaries,
    SummaryType.IMAGES: picture_summaries.add_gan_model_image_summaries,
    SummaryType.IMAGE_COMPARISON: picture_summaries.add_image_comparison_summaries,
}


class GANEstimator(tf.estimator.Estimator):
    """Trains, evaluates and samples a generator and its discriminator; predictions are generated data.

    Args:
        model_dir: the folder of checkpoints and summaries.
        generator_fn, discriminator_fn: as for `gan_model`; an argument `mode` gets the Estimator's.
        generator_loss_fn, discriminator_loss_fn: losses of models.
        generator_optimizer, discriminator_optimizer: optimizers, or functions without arguments that make them.
        get_hooks_fn: makes hooks of the operations of training; default: `get_sequential_train_hooks()`.
        get_eval_metric_ops_fn: gives a dictionary of further metrics of a `GANModel`.
        add_summaries: a `SummaryType`, or a list of such.
        use_loss_summaries: whether losses are written; None for the losses' default.
        config, warm_start_from: as for every Estimator.
        is_chief: whether this process starts the others, for `SyncReplicasOptimizer`s.

    Raises:
        ValueError: a loss is not callable, or `use_loss_summaries` is something else.
        TypeError: `get_hooks_fn` is not callable.
    """

    def __init__(
        self,
        model_dir: str | None = None,
        generator_fn: Callable[..., Any] | None = None,
        discriminator_fn: Callable[..., Any] | None = None,
        generator_loss_fn: Callable[..., Any] | None = None,
        discriminator_loss_fn: Callable[..., Any] | None = None,
        generator_optimizer: PassedOn = None,
        discriminator_optimizer: PassedOn = None,
        get_hooks_fn: HooksFunction | None = None,
        get_eval_metric_ops_fn: Callable[[GANModel], dict[str, Any]] | None = None,
        add_summaries: SummaryType | Sequence[SummaryType] | None = None,
        use_loss_summaries: bool | None = True,
        config: tf.estimator.RunConfig | None = None,
        warm_start_from: PassedOn = None,
        is_chief: bool = True,
    ) -> None:
        if generator_loss_fn is None or not callable(generator_loss_fn):
            raise ValueError("generator_loss_fn must be callable.")
        if discriminator_loss_fn is None or not callable(discriminator_loss_fn):
            raise ValueError("discriminator_loss_fn must be callable.")
        if use_loss_summaries not in (True, False, None):
            raise ValueError("use_loss_summaries must be True, False or None.")
        if get_hooks_fn is not None and not callable(get_hooks_fn):
            raise TypeError("get_hooks_fn must be callable.")
        if generator_fn is None or discriminator_fn is None:
            raise ValueError("a GANEstimator needs `generator_fn` and `discriminator_fn`")
        make_generator, make_discriminator = generator_fn, discriminator_fn
        losses = generator_loss_fn, discriminator_loss_fn
        wanted = [] if not add_summaries else [add_summaries] if isinstance(add_summaries, int) else add_summaries
        told = {} if use_loss_summaries is None else {"add_summaries": use_loss_summaries}

        def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> Any:
            generator = _with_mode(make_generator, mode)
            if mode == tf.estimator.ModeKeys.PREDICT:
                if labels is not None:
                    raise ValueError(f"`labels` must be `None` when mode is `predict`. Instead, found {labels}")
                with tf.variable_scope("Generator"):
                    data = generator(building.converted(features))
                return tf.estimator.EstimatorSpec(mode, predictions=data)
            model = building.gan_model(
                generator, _with_mode(make_discriminator, mode), labels, features, check_shapes=False
            )
            with tf.name_scope(None):
                for kind in wanted:
                    if kind != SummaryType.NONE:
                        _SUMMARIES[SummaryType(kind)](model)
            loss = GANLoss(*(function(model, **told) for function in losses))
            total = loss.generator_loss + loss.discriminator_loss
            if mode == tf.estimator.ModeKeys.EVAL:
                metrics = loss_metrics(model, loss, get_eval_metric_ops_fn)
                return tf.estimator.EstimatorSpec(
                    mode, predictions=model.generated_data, loss=total, eval_metric_ops=metrics
                )
            operations = steps.gan_train_ops(
                model, loss, _made(generator_optimizer), _made(discriminator_optimizer), is_chief=is_chief
            )
            hooks = (get_hooks_fn or steps.get_sequential_train_hooks())(operations)
            return tf.estimator.EstimatorSpec(
                mode, loss=total, train_op=operations.global_step_inc_op, training_hooks=hooks
            )

        super().__init__(model_fn, model_dir=model_dir, config=config, warm_start_from=warm_start_from)


def _with_mode(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    return functools.partial(function, mode=mode) if "mode" in inspect.signature(function).parameters else function


def _made(optimizer: PassedOn) -> Any:
    return optimizer() if callable(optimizer) else optimizer
