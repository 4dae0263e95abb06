"""Training of models of `tf.contrib.gan`: operations, the hooks that run them in turns, and the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.api.train import SessionRunContext, SessionRunHook
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.gan.namedtuples import CycleGANModel, GANTrainOps, GANTrainSteps, HooksFunction

_ONE_EACH = GANTrainSteps(1, 1)


def _train_op(
    total_loss: tf.Tensor,
    optimizer: tf.train.Optimizer,
    variables: Sequence[tf.Variable],
    global_step: tf.Variable | None,
    update_ops: Sequence[Any],
    summarize_gradients: bool = False,
    transform_grads_fn: Callable[..., Any] | None = None,
    gate_gradients: int = tf.train.Optimizer.GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: bool = True,
) -> tf.Tensor:
    """A tensor whose value is the loss of a step, which is made for it: first the updates, then the variables."""
    if update_ops:
        with tf.control_dependencies(list(update_ops)):
            total_loss = tf.identity(total_loss)
    pairs = optimizer.compute_gradients(
        total_loss,
        list(variables),
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if transform_grads_fn is not None:
        pairs = transform_grads_fn(pairs)
    if summarize_gradients:
        for gradient, variable in pairs:
            if gradient is not None:
                tf.summary.histogram(f"gradients/{variable.op.name}", tf.convert_to_tensor(gradient))
    update = optimizer.apply_gradients(pairs, global_step=global_step)
    if check_numerics:
        total_loss = tf.check_numerics(total_loss, "LossTensor is inf or nan")
    with tf.control_dependencies([update]):
        return tf.identity(total_loss, name="train_op")


def _updates(
    given: Sequence[Any] | None, generator_scope: str, discriminator_scope: str, check: bool
) -> tuple[list[Any], list[Any]]:
    """The updates of the generator and of the discriminator, among those given or all that are collected."""
    collected = tf.GraphKeys.UPDATE_OPS
    wanted = list(tf.get_collection(collected) if given is None else given)
    parts = [
        [op for op in tf.get_collection(collected, scope) if any(op is one for one in wanted)]
        for scope in (generator_scope, discriminator_scope)
    ]
    unused = [op for op in wanted if not any(op is one for part in parts for one in part)]
    if check and unused:
        raise ValueError(f"There are unused update ops: {unused}")
    return parts[0], parts[1]


def gan_train_ops(
    model: PassedOn,
    loss: PassedOn,
    generator_optimizer: tf.train.Optimizer,
    discriminator_optimizer: tf.train.Optimizer,
    check_for_unused_update_ops: bool = True,
    is_chief: bool = True,
    **kwargs: PassedOn,
) -> GANTrainOps:
    """The operations that train the generator and the discriminator of a model.

    Args:
        model, loss: of one kind; those of a `CycleGANModel` give pairs of operations.
        generator_optimizer, discriminator_optimizer: of the two. `SyncReplicasOptimizer`s get variables that count
            their steps, and the hooks that they need.
        check_for_unused_update_ops: whether all updates have to be those of the generator or the discriminator.
        is_chief: whether this process starts the others, for such optimizers.
        kwargs: `update_ops`, and as for `tf.contrib.training.create_train_op` `summarize_gradients`,
            `transform_grads_fn`, `gate_gradients`, `aggregation_method`, `colocate_gradients_with_ops`,
            `check_numerics`.

    Raises:
        ValueError: there are other updates.
    """
    optimizers = generator_optimizer, discriminator_optimizer
    counted = tf.train.get_or_create_global_step()
    if isinstance(model, CycleGANModel):
        given = {"check_for_unused_update_ops": check_for_unused_update_ops, "is_chief": is_chief, **kwargs}
        with tf.name_scope("cyclegan_x2y_train"):
            x2y = gan_train_ops(model.model_x2y, loss.loss_x2y, *optimizers, **given)
        with tf.name_scope("cyclegan_y2x_train"):
            y2x = gan_train_ops(model.model_y2x, loss.loss_y2x, *optimizers, **given)
        return GANTrainOps(
            (x2y.generator_train_op, y2x.generator_train_op),
            (x2y.discriminator_train_op, y2x.discriminator_train_op),
            counted.assign_add(1),
        )
    count = counted.assign_add(1)
    updates = _updates(
        kwargs.pop("update_ops", None),
        model.generator_scope.name,
        model.discriminator_scope.name,
        check_for_unused_update_ops,
    )
    hooks: list[SessionRunHook] = []
    made = []
    losses = loss.generator_loss, loss.discriminator_loss
    variables = model.generator_variables, model.discriminator_variables
    for index, part in enumerate(("generator", "discriminator")):
        optimizer, own, step = optimizers[index], list(updates[index]), None
        if isinstance(optimizer, tf.train.SyncReplicasOptimizer):
            step = tf.get_variable(
                f"dummy_global_step_{part}",
                shape=[],
                dtype=counted.dtype.base_dtype,
                initializer=tf.zeros_initializer(),
                trainable=False,
                collections=[tf.GraphKeys.GLOBAL_VARIABLES],
            )
            own.append(step.assign(counted))
            hooks.append(optimizer.make_session_run_hook(is_chief))
        with tf.name_scope(f"{part}_train"):
            made.append(_train_op(losses[index], optimizer, variables[index], step, own, **kwargs))
    return GANTrainOps(made[0], made[1], count, hooks)


class RunTrainOpsHook(SessionRunHook):
    """Runs operations so many times before each step.

    Args:
        train_ops: an operation, or a list of such that are run together.
        train_steps: how many times.
    """

    def __init__(self, train_ops: PassedOn, train_steps: int) -> None:
        self._train_ops = list(train_ops) if isinstance(train_ops, list | tuple) else [train_ops]
        self._train_steps = train_steps

    def before_run(self, run_context: SessionRunContext) -> None:
        for _ in range(self._train_steps):
            run_context.session.run(self._train_ops)


def get_sequential_train_hooks(train_steps: GANTrainSteps = _ONE_EACH) -> HooksFunction:
    """A function that makes hooks of a `GANTrainOps`: first the generator's steps, then the discriminator's."""

    def get_hooks(train_ops: GANTrainOps) -> list[SessionRunHook]:
        return [
            RunTrainOpsHook(train_ops.generator_train_op, train_steps.generator_train_steps),
            RunTrainOpsHook(train_ops.discriminator_train_op, train_steps.discriminator_train_steps),
            *train_ops.train_hooks,
        ]

    return get_hooks


def get_joint_train_hooks(train_steps: GANTrainSteps = _ONE_EACH) -> HooksFunction:
    """A function that makes hooks of a `GANTrainOps`: steps of both at once as far as there are, then the others.

    The optimizers should have `use_locking=True`.
    """
    of_generator, of_discriminator = train_steps
    both = min(of_generator, of_discriminator)

    def get_hooks(train_ops: GANTrainOps) -> list[SessionRunHook]:
        generator, discriminator = train_ops.generator_train_op, train_ops.discriminator_train_op
        return [
            RunTrainOpsHook([generator, discriminator], both),
            RunTrainOpsHook(generator, of_generator - both),
            RunTrainOpsHook(discriminator, of_discriminator - both),
            *train_ops.train_hooks,
        ]

    return get_hooks


def gan_train(
    train_ops: GANTrainOps,
    logdir: str | None,
    get_hooks_fn: HooksFunction | None = None,
    master: str = "",
    is_chief: bool = True,
    scaffold: tf.train.Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: int | None = 600,
    save_summaries_steps: int | None = 100,
    config: tf.ConfigProto | None = None,
) -> np.integer[Any] | None:
    """Trains until a hook stops it; returns the last global step.

    Args:
        train_ops: what `gan_train_ops` gave.
        logdir: the folder of checkpoints and summaries.
        get_hooks_fn: makes hooks of the operations; default: `get_sequential_train_hooks()`.
        hooks: of the program; without one that stops, training has no end.
        master, is_chief, scaffold, chief_only_hooks, save_checkpoint_secs, save_summaries_steps, config: as for
            `tf.train.MonitoredTrainingSession`.

    Raises:
        ValueError: no folder, where checkpoints or summaries are to be written.
    """
    if logdir is None and is_chief and (save_summaries_steps or save_checkpoint_secs):
        raise ValueError("logdir cannot be None when save_summaries_steps or save_checkpoint_secs is not None")
    own = (get_hooks_fn or get_sequential_train_hooks())(train_ops)
    last: np.integer[Any] | None = None
    with tf.train.MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=[*(hooks or ()), *own],
        chief_only_hooks=list(chief_only_hooks or ()),
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
    ) as session:
        while not session.should_stop():
            last = session.run(train_ops.global_step_inc_op)
    return last


def get_sequential_train_steps(train_steps: GANTrainSteps = _ONE_EACH) -> Callable[..., tuple[Any, Any]]:
    """A function for `train_step_fn` of `slim.learning.train`: steps of the generator, then of the discriminator.

    It is called with a session, a `GANTrainOps`, the global step and a dictionary, whose `should_stop` says whether
    training ends, and returns the sum of the losses and that.
    """

    def steps(session: tf.Session, train_ops: GANTrainOps, global_step: PassedOn, given: dict[str, Any]) -> Any:
        total: Any = 0
        for operation, count in zip(train_ops[:2], train_steps, strict=True):
            for _ in range(count):
                total += session.run(operation)
        session.run(train_ops.global_step_inc_op)
        should_stop = given.get("should_stop")
        return total, False if should_stop is None else session.run(should_stop)

    return steps
