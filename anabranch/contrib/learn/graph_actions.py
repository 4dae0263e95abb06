"""Graphs that are run a few times, each in a session of its own: `run_feeds`, `run_n`, `infer`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: values by the names of what is run
Results: TypeAlias = dict[str, Any]


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
        if restore_checkpoint_path:
            tf.train.Saver().restore(session, restore_checkpoint_path)
        else:
            session.run(tf.global_variables_initializer())
        session.run([tf.local_variables_initializer(), tf.tables_initializer()])
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
