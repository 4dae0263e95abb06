"""A program's own graphs: trained, evaluated, or run a few times, each in a session of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.learn.step_monitors import as_hooks

#: values by the names of what is run
Results: TypeAlias = dict[str, Any]
#: a number, or None
Loss: TypeAlias = Any
#: gives what is fed in the next step
FeedFunction: TypeAlias = Callable[[], Mapping[Any, Any]]


def train(
    graph: tf.Graph,
    output_dir: str,
    train_op: TensorLike,
    loss_op: TensorLike,
    global_step_tensor: TensorLike = None,
    init_op: TensorLike = None,
    init_feed_dict: Mapping[Any, Any] | None = None,
    init_fn: Callable[[Any], None] | None = None,
    log_every_steps: int = 10,
    supervisor_is_chief: bool = True,
    supervisor_master: str = "",
    supervisor_save_model_secs: float = 600,
    keep_checkpoint_max: int = 5,
    supervisor_save_summaries_steps: int = 100,
    feed_fn: FeedFunction | None = None,
    steps: int | None = None,
    fail_on_nan_loss: bool = True,
    monitors: Sequence[PassedOn] | None = None,
    max_steps: int | None = None,
) -> Loss:
    """Trains a graph, from the latest checkpoint on.

    Args:
        graph: that is trained.
        output_dir: the folder of checkpoints and summaries.
        train_op: makes a step, and counts it.
        loss_op: float scalar.
        global_step_tensor: counts steps; None: the graph's.
        init_op, init_feed_dict, init_fn: initialize variables; as for `tf.train.Scaffold`.
        log_every_steps: how many steps lie between two lines of the log.
        supervisor_is_chief, supervisor_master: as for `tf.train.MonitoredTrainingSession`.
        supervisor_save_model_secs, keep_checkpoint_max: how often checkpoints are written, and how many stay.
        supervisor_save_summaries_steps: how often summaries are written.
        feed_fn: gives what is fed in the next step.
        steps: how many to make.
        fail_on_nan_loss: whether a loss that is no number is an error.
        monitors: monitors and hooks.
        max_steps: the global step to stop at; not both.

    Returns:
        The last loss; None: there was no step.

    Raises:
        ValueError: something that is needed is not given, or both numbers of steps are.
        NanLossDuringTrainingError: the loss is no number.
    """
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps.")
    if not output_dir:
        raise ValueError(f"Output directory should be non-empty {output_dir}.")
    if train_op is None or loss_op is None:
        raise ValueError(f"Missing {'train_op' if train_op is None else 'loss_op'}.")
    with graph.as_default():
        if _global_step(global_step_tensor) is None:
            raise ValueError('No "global_step" was provided or found in the graph.')
        hooks = [*as_hooks(monitors, None), tf.train.NanTensorHook(loss_op, fail_on_nan_loss)]
        if steps is not None or max_steps is not None:
            hooks.append(tf.train.StopAtStepHook(steps, max_steps))
        scaffold = tf.train.Scaffold(
            init_op,
            None if init_feed_dict is None else dict(init_feed_dict),
            None if init_fn is None else lambda scaffold, session: init_fn(session),
            saver=tf.train.Saver(max_to_keep=keep_checkpoint_max, sharded=True),
        )
        loss: Any = None
        with tf.train.MonitoredTrainingSession(
            supervisor_master,
            supervisor_is_chief,
            output_dir,
            scaffold,
            hooks,
            save_checkpoint_secs=supervisor_save_model_secs,
            save_summaries_steps=supervisor_save_summaries_steps,
            save_summaries_secs=None,
        ) as session:
            for count in itertools.count(1):
                if session.should_stop():
                    break
                _, loss = session.run([train_op, loss_op], None if feed_fn is None else feed_fn())
                if count % log_every_steps == 0:
                    tf.logging.info("training step %d of this session, loss = %.5f", count, loss)
        return loss


def evaluate(
    graph: tf.Graph,
    output_dir: str,
    checkpoint_path: str | None,
    eval_dict: Mapping[str, TensorLike],
    update_op: TensorLike = None,
    global_step_tensor: TensorLike = None,
    supervisor_master: str = "",
    log_every_steps: int = 10,
    feed_fn: FeedFunction | None = None,
    max_steps: int | None = None,
) -> tuple[Results | None, int]:
    """Evaluates a graph at a checkpoint.

    Args:
        graph: that is evaluated.
        output_dir: the folder of the summary.
        checkpoint_path: a checkpoint, or a folder of such; None: variables are initialized.
        eval_dict: tensors by name, whose last values are the result.
        update_op: is run in each step; None: the tensors are.
        global_step_tensor: counts steps; None: the graph's.
        supervisor_master: of the session.
        log_every_steps: how many steps lie between two lines of the log.
        feed_fn: gives what is fed in the next step.
        max_steps: how many steps; None: until the input ends.

    Returns:
        Values by name, and the global step of the checkpoint.

    Raises:
        ValueError: there is no `output_dir`.
    """
    if not output_dir:
        raise ValueError(f"Output directory should be non-empty {output_dir}.")
    with graph.as_default():
        counter = _global_step(global_step_tensor)
        newest = checkpoint_path and (tf.train.latest_checkpoint(checkpoint_path) or checkpoint_path)
        with tf.Session(supervisor_master) as session:
            _start_variables(session, newest)
            step = 0 if counter is None else int(session.run(counter))
            coordinator = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(session, coordinator)
            try:
                results = _evaluate_steps(session, eval_dict, update_op, feed_fn, max_steps, log_every_steps)
            finally:
                coordinator.request_stop()
                coordinator.join(threads, stop_grace_period_secs=120)
    _write_results(output_dir, results or {}, step)
    return results, step


def _evaluate_steps(
    session: tf.Session,
    eval_dict: Mapping[str, TensorLike],
    update_op: TensorLike,
    feed_fn: FeedFunction | None,
    max_steps: int | None,
    log_every_steps: int,
) -> Results | None:
    wanted, results, feeds = dict(eval_dict), None, None
    try:
        for count in itertools.count(1) if max_steps is None else range(1, max_steps + 1):
            feeds = None if feed_fn is None else feed_fn()
            if update_op is None:
                results = session.run(wanted, feeds)
            else:
                session.run(update_op, feeds)
            if count % log_every_steps == 0:
                tf.logging.info("Results after %d steps: %s", count, results or session.run(wanted, feeds))
    except (tf.errors.OutOfRangeError, StopIteration):
        tf.logging.info("Input queue is exhausted.")
    return results if update_op is None else session.run(wanted, feeds)


def _write_results(output_dir: str, results: Results, step: int) -> None:
    values = [
        tf.Summary.Value(tag=name, simple_value=float(value))
        for name, value in results.items()
        if isinstance(value, float | np.floating)
    ]
    writer = tf.summary.FileWriterCache.get(output_dir)
    writer.add_summary(tf.Summary(value=values), step)
    writer.flush()


def _global_step(given: TensorLike) -> Any:
    return tf.train.get_global_step() if given is None else given


def _start_variables(session: tf.Session, checkpoint: str | None) -> None:
    if checkpoint:
        tf.train.Saver().restore(session, checkpoint)
    else:
        session.run(tf.global_variables_initializer())
    session.run([tf.local_variables_initializer(), tf.tables_initializer()])


def run_feeds(
    output_dict: Mapping[str, PassedOn],
    feed_dicts: Iterable[Mapping[Any, Any] | None],
    restore_checkpoint_path: str | None = None,
) -> list[Results]:
    """Runs tensors once for each dictionary of feeds.

    Args:
        output_dict: tensors and operations by name.
        feed_dicts: what is fed; None: nothing.
        restore_checkpoint_path: of the variables' values; None: they are initialized.

    Returns:
        For each, the values by the same names.

    Raises:
        ValueError: nothing is to be run, or the tensors are of several graphs.
    """
    if not output_dict:
        raise ValueError("output_dict is invalid: there is nothing to run")
    graphs = {id(one.graph): one.graph for one in output_dict.values()}
    if len(graphs) != 1:
        raise ValueError(f"the tensors of output_dict are of {len(graphs)} graphs")
    (graph,) = graphs.values()
    with graph.as_default(), tf.Session() as session:
        _start_variables(session, restore_checkpoint_path)
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            return [session.run(dict(output_dict), feeds) for feeds in feed_dicts]
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=120)


def run_n(
    output_dict: Mapping[str, PassedOn],
    feed_dict: Mapping[Any, Any] | None = None,
    restore_checkpoint_path: str | None = None,
    n: int = 1,
) -> list[Results]:
    """Runs tensors `n` times with the same feeds; see `run_feeds`."""
    return run_feeds(output_dict, itertools.repeat(feed_dict, n), restore_checkpoint_path)


def infer(
    restore_checkpoint_path: str | None,
    output_dict: Mapping[str, PassedOn],
    feed_dict: Mapping[Any, Any] | None = None,
) -> Results:
    """Runs tensors once; see `run_feeds`."""
    return run_feeds(output_dict, [feed_dict], restore_checkpoint_path)[0]
