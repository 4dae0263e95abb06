"""The head of a model function whose logits are a `GANModel`: losses, training operations and metrics of both parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.gan import steps
from anabranch.contrib.gan.namedtuples import GANLoss, GANModel, HooksFunction


class GANLossSpec(NamedTuple):
    """What `GANHead.create_loss` gives: the losses of both parts, and Nones where other heads have more."""

    training_loss: GANLoss
    unreduced_loss: None = None
    weights: None = None
    processed_labels: None = None


class GANHead:
    """Makes an `EstimatorSpec` of a `GANModel`.

    Args:
        generator_loss_fn, discriminator_loss_fn: losses of models.
        generator_optimizer, discriminator_optimizer: optimizers, or functions without arguments that make them.
        use_loss_summaries: whether losses are written; None for the losses' default.
        get_hooks_fn: makes hooks of the operations of training; default: `get_sequential_train_hooks()`.
        get_eval_metric_ops_fn: gives a dictionary of further metrics of a `GANModel`.
        name: of the head, in whose scope operations are.

    Raises:
        TypeError: a loss or `get_hooks_fn` is not callable.
        ValueError: `use_loss_summaries` is something else.
    """

    def __init__(
        self,
        generator_loss_fn: Callable[..., Any],
        discriminator_loss_fn: Callable[..., Any],
        generator_optimizer: PassedOn,
        discriminator_optimizer: PassedOn,
        use_loss_summaries: bool | None = True,
        get_hooks_fn: HooksFunction | None = None,
        get_eval_metric_ops_fn: Callable[[GANModel], dict[str, Any]] | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(generator_loss_fn):
            raise TypeError("generator_loss_fn must be callable.")
        if not callable(discriminator_loss_fn):
            raise TypeError("discriminator_loss_fn must be callable.")
        if use_loss_summaries not in (True, False, None):
            raise ValueError("use_loss_summaries must be True, False or None.")
        if get_hooks_fn is not None and not callable(get_hooks_fn):
            raise TypeError("get_hooks_fn must be callable.")
        self._losses = generator_loss_fn, discriminator_loss_fn
        self._optimizers = generator_optimizer, discriminator_optimizer
        self._told = {} if use_loss_summaries is None else {"add_summaries": use_loss_summaries}
        self._hooks, self._metrics, self._name = get_hooks_fn, get_eval_metric_ops_fn, name

    @property
    def name(self) -> str | None:
        """The head's name."""
        return self._name

    @property
    def logits_dimension(self) -> None:
        """None: a model is no tensor."""
        return None

    def create_loss(self, features: None, mode: str, logits: GANModel, labels: None) -> GANLossSpec:
        """The losses of a model.

        Args:
            features, labels: not used: the model holds them.
            mode: not used.
            logits: the model.

        Raises:
            ValueError: it is no `GANModel`, or has labels.
        """
        _check(logits)
        return GANLossSpec(GANLoss(*(loss(logits, **self._told) for loss in self._losses)))

    def create_estimator_spec(
        self,
        features: None,
        mode: str,
        logits: GANModel,
        labels: None = None,
        train_op_fn: PassedOn = None,
    ) -> tf.estimator.EstimatorSpec:
        """What a model function returns; predictions are generated data.

        Args:
            features, labels: as for `create_loss`.
            mode: of `tf.estimator.ModeKeys`.
            logits: the model.
            train_op_fn: makes `GANTrainOps` of the model and its losses; None: `gan_train_ops`.

        Raises:
            ValueError: `logits` is no `GANModel`.
        """
        _check(logits)
        with tf.name_scope(self._name, "GANHead"):
            if mode == tf.estimator.ModeKeys.PREDICT:
                outputs = tf.estimator.export.PredictOutput(logits.generated_data)
                key = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
                return tf.estimator.EstimatorSpec(mode, logits.generated_data, export_outputs={key: outputs})
            losses = self.create_loss(None, mode, logits, None).training_loss
            total = losses.generator_loss + losses.discriminator_loss
            if mode == tf.estimator.ModeKeys.EVAL:
                metrics = loss_metrics(logits, losses, self._metrics, self._name)
                return tf.estimator.EstimatorSpec(mode, logits.generated_data, total, eval_metric_ops=metrics)
            made = train_op_fn or self._train_ops
            operations = made(logits, losses)
            hooks = (self._hooks or steps.get_sequential_train_hooks())(operations)
            return tf.estimator.EstimatorSpec(
                mode, loss=total, train_op=operations.global_step_inc_op, training_hooks=hooks
            )

    def _train_ops(self, model: GANModel, losses: GANLoss) -> Any:
        generator, discriminator = (one() if callable(one) else one for one in self._optimizers)
        return steps.gan_train_ops(model, losses, generator, discriminator)


gan_head = GANHead


def loss_metrics(
    model: GANModel,
    loss: GANLoss,
    further: Callable[[GANModel], dict[str, Any]] | None,
    name: str | None = None,
) -> dict[str, Any]:
    """The mean losses of both parts, and what a function gives beside them.

    Args:
        model: is evaluated.
        loss: of it.
        further: gives metrics by name.
        name: ends the names of the losses' means.

    Raises:
        TypeError: the function gives something else.
    """
    with tf.name_scope(None, "metrics", list(loss)):
        ending = f"/{name}" if name else ""
        metrics = {f"{part}{ending}": tf.metrics.mean(getattr(loss, part)) for part in loss._fields}
        more = {} if further is None else further(model)
    if not isinstance(more, dict):
        raise TypeError(f"get_eval_metric_ops_fn must return a dict, received: {more}")
    return metrics | more


def _check(model: GANModel) -> None:
    if not isinstance(model, GANModel):
        raise ValueError(f"logits must be a GANModel, got {type(model).__name__}: tf.contrib.gan.gan_model makes one")
