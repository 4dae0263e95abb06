"""How an estimator runs: directories, how often it saves and logs, its session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: what an estimator saves by where a program says nothing
_SECONDS = 600
_ALONE = (
    "anabranch's estimators run in one process; tf.train.MonitoredTrainingSession trains on clusters (docs/clusters.md)"
)


@dataclass(frozen=True, init=False)
class RunConfig:
    """How an estimator runs.

    Args:
        model_dir: where checkpoints and summaries go; None: the estimator's.
        tf_random_seed: of the graph.
        save_summary_steps: steps between summaries.
        save_checkpoints_steps: steps between checkpoints; None: by time.
        save_checkpoints_secs: seconds between checkpoints, 600 where neither is given; None: by steps.
        session_config: a `ConfigProto`.
        keep_checkpoint_max: how many checkpoints are kept; 0 or None: all.
        keep_checkpoint_every_n_hours: one checkpoint in so many hours is kept beside them.
        log_step_count_steps: steps between two logs of the loss and the speed; None: never.
        device_fn: a device for each operation.
        train_distribute, eval_distribute, experimental_distribute: None, since there are no strategies.
        protocol, experimental_max_worker_delay_secs, session_creation_timeout_secs: accepted.

    Raises:
        ValueError: a number is not positive, both ways of saving are given, or TF_CONFIG names a cluster.
        NotImplementedError: a strategy is given.
    """

    model_dir: str | None
    tf_random_seed: int | None
    save_summary_steps: int | None
    save_checkpoints_steps: int | None
    save_checkpoints_secs: float | None
    session_config: tf.ConfigProto | None
    keep_checkpoint_max: int | None
    keep_checkpoint_every_n_hours: float
    log_step_count_steps: int | None
    device_fn: Callable[[tf.Operation], str] | None = field(repr=False)
    protocol: str | None

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: PassedOn = ...,
        save_checkpoints_secs: PassedOn = ...,
        session_config: tf.ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: None = None,
        device_fn: Callable[[tf.Operation], str] | None = None,
        protocol: str | None = None,
        eval_distribute: None = None,
        experimental_distribute: None = None,
        experimental_max_worker_delay_secs: float | None = None,
        session_creation_timeout_secs: float = 7200,
    ) -> None:
        if not (train_distribute is eval_distribute is experimental_distribute is None):
            raise NotImplementedError(f"anabranch has no distribution strategies; {_ALONE}")
        if save_checkpoints_steps is ... and save_checkpoints_secs is ...:
            save_checkpoints_steps, save_checkpoints_secs = None, _SECONDS
        save_checkpoints_steps = None if save_checkpoints_steps is ... else save_checkpoints_steps
        save_checkpoints_secs = None if save_checkpoints_secs is ... else save_checkpoints_secs
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        _refuse_clusters()
        values: dict[str, Any] = {
            "model_dir": None if model_dir is None else os.fspath(model_dir),
            "tf_random_seed": tf_random_seed,
            "save_summary_steps": save_summary_steps,
            "save_checkpoints_steps": save_checkpoints_steps,
            "save_checkpoints_secs": save_checkpoints_secs,
            "session_config": session_config,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps,
            "device_fn": device_fn,
            "protocol": protocol,
        }
        for name, value in values.items():
            if name.startswith(("save_", "log_", "keep_checkpoint_every")) and value is not None and value <= 0:
                raise ValueError(f"{name} should be > 0, got {value}")
            object.__setattr__(self, name, value)

    # one process is all the cluster that there is
    @property
    def cluster_spec(self) -> tf.train.ClusterSpec:
        """An empty cluster."""
        return tf.train.ClusterSpec({})

    @property
    def task_type(self) -> str:
        """The job of this process."""
        return "worker"

    @property
    def task_id(self) -> int:
        """The number of this process in its job."""
        return 0

    @property
    def global_id_in_cluster(self) -> int:
        """The number of this process in the cluster."""
        return 0

    @property
    def is_chief(self) -> bool:
        """Whether this process initializes and saves the model."""
        return True

    @property
    def master(self) -> str:
        """The target of sessions."""
        return ""

    @property
    def evaluation_master(self) -> str:
        """The target of the sessions of evaluations."""
        return ""

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers."""
        return 0

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers."""
        return 1

    @property
    def train_distribute(self) -> None:
        """No strategy."""
        return

    @property
    def eval_distribute(self) -> None:
        """No strategy."""
        return

    def replace(self, **kwargs: PassedOn) -> RunConfig:
        """A copy with other values of some arguments.

        Raises:
            ValueError: an argument cannot be replaced, or has a wrong value.
        """
        known = set(self.__dataclass_fields__)
        if wrong := sorted(set(kwargs) - known):
            raise ValueError(f"cannot replace {wrong} of a RunConfig; it has {sorted(known)}")
        values = {name: getattr(self, name) for name in known}
        if kwargs.get("save_checkpoints_steps") is not None:
            values["save_checkpoints_secs"] = None
        elif kwargs.get("save_checkpoints_secs") is not None:
            values["save_checkpoints_steps"] = None
        return type(self)(**{**values, **kwargs})


def _refuse_clusters(environ: Mapping[str, str] = os.environ) -> None:
    """Raises ValueError where TF_CONFIG says that this process is one of several."""
    text = environ.get("TF_CONFIG")
    if not text:
        return
    cluster = json.loads(text).get("cluster", {})
    tasks = sum(len(addresses) for addresses in cluster.values())
    if tasks > 1:
        raise ValueError(f"TF_CONFIG names a cluster of {tasks} tasks; {_ALONE}")
