"""Replicas whose session ends: what a worker has learned is in the last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as tf


def built(make: Any) -> tuple[Any, Any, Any]:
    """The optimizer, the shared variable, and a step that adds 1 to the copy."""
    optimizer = make(tf.train.GradientDescentOptimizer(1.0))
    with optimizer.local_copies():
        copy = tf.get_variable("w", initializer=0.0, use_resource=True)
    (shared,) = tf.global_variables("w")
    return optimizer, shared, optimizer.minimize(-copy, tf.train.get_or_create_global_step())


@pytest.mark.parametrize(
    "how", [{"save_checkpoint_secs": "auto"}, {"save_checkpoint_secs": 1000}], ids=["auto", "saver"]
)
def test_the_last_checkpoint_has_the_last_push(tmp_path: Path, how: dict[str, Any]) -> None:
    optimizer, _, step = built(lambda opt: tf.train.replicas.downpour(opt, fetch=1, push=5))
    hooks = [optimizer.make_session_run_hook(True)]
    with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks, **how) as session:
        for _ in range(7):
            session.run(step)
    saved = tf.train.latest_checkpoint(str(tmp_path))
    assert tf.train.load_variable(saved, "w") == 7
    assert tf.train.load_variable(saved, "global_step") == 2
