"""`tensorflow.python.training.evaluation`: runs a graph on a checkpoint for a number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike


def _get_or_create_eval_step() -> tf.Variable:
    """The counter of evaluation steps of the default graph, an int64 that starts at zero.

    Raises:
        ValueError: the graph has several.
    """
    steps = tf.get_collection(tf.GraphKeys.EVAL_STEP)
    if len(steps) > 1:
        raise ValueError(f"Multiple tensors added to tf.GraphKeys.EVAL_STEP: {steps}")
    if steps:
        step: tf.Variable = steps[0]
        return step
    return tf.get_variable(
        "eval_step",
        [],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.EVAL_STEP],
    )


class _StopAfterNEvalsHook(tf.train.SessionRunHook):
    """Ends an evaluation after a number of its steps.

    Args:
        num_evals: how many; None: until the input ends.
        log_progress: whether each tenth of them is told.
    """

    def __init__(self, num_evals: int | None, log_progress: bool = True) -> None:
        self._num_evals = num_evals
        self._evals_completed: Any = None
        self._log_every = max(1, num_evals // 10) if log_progress and num_evals else 0

    def _set_evals_completed_tensor(self, updated_eval_step: TensorLike) -> None:
        self._evals_completed = updated_eval_step

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs({"evals_completed": self._evals_completed})

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        completed = run_values.results["evals_completed"]
        if self._log_every and (completed % self._log_every == 0 or completed == self._num_evals):
            tf.logging.info("Evaluation [%d/%d]", completed, self._num_evals)
        if self._num_evals is not None and completed >= self._num_evals:
            run_context.request_stop()


def _evaluate_once(
    checkpoint_path: str | None,
    master: str = "",
    scaffold: tf.train.Scaffold | None = None,
    eval_ops: PassedOn = None,
    feed_dict: Mapping[Any, Any] | None = None,
    final_ops: PassedOn = None,
    final_ops_feed_dict: dict[Any, Any] | None = None,
    hooks: Sequence[tf.train.SessionRunHook] | None = None,
    config: tf.ConfigProto | None = None,
) -> Any:
    """Runs `eval_ops` on the variables of a checkpoint until a hook or the end of the input stops it.

    Args:
        checkpoint_path: of the checkpoint; None: the scaffold's init_op gives the values.
        eval_ops: an operation, tensor, or a list or dict of them, run once a step.
        final_ops: what is fetched after the last step.

    Returns:
        the values of `final_ops`; None where there are none.
    """
    eval_step = _get_or_create_eval_step()
    hooks = list(hooks or [])
    if eval_ops is not None:
        counted = tf.assign_add(eval_step, 1, use_locking=True, name="eval_step_counter")
        if isinstance(eval_ops, Mapping):
            eval_ops = {**eval_ops, "update_eval_step": counted}
        elif isinstance(eval_ops, list | tuple):
            eval_ops = [*eval_ops, counted]
        else:
            eval_ops = [eval_ops, counted]
        for hook in hooks:
            if isinstance(hook, _StopAfterNEvalsHook):
                hook._set_evals_completed_tensor(counted)
    last = tf.train.FinalOpsHook(final_ops, final_ops_feed_dict)
    creator = tf.train.ChiefSessionCreator(
        scaffold=scaffold, checkpoint_filename_with_path=checkpoint_path, master=master, config=config
    )
    with tf.train.MonitoredSession(session_creator=creator, hooks=[*hooks, last]) as session:
        if eval_ops is not None:
            while not session.should_stop():
                session.run(eval_ops, feed_dict)
    return last.final_ops_values
