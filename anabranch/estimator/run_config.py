"""How an estimator runs: directories, how often it saves and logs, its session."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.task_role import TaskRole, role_from_environment

#: what an estimator saves by where a program says nothing
_SECONDS = 600
_NO_STRATEGIES = (
    "anabranch has no distribution strategies; a TF_CONFIG with parameter servers and workers trains on a cluster "
    "(docs/clusters.md#estimators), as tf.train.MonitoredTrainingSession does"
)


@dataclass(frozen=True, init=False)
class RunConfig:
    """How an estimator runs, and as which task of a cluster: the environment variable TF_CONFIG says that.

    Args:
        model_dir: where checkpoints and summaries go; None: what TF_CONFIG says, or the estimator's.
        tf_random_seed: of the graph.
        save_summary_steps: steps between summaries.
        save_checkpoints_steps: steps between checkpoints; None: by time.
        save_checkpoints_secs: seconds between checkpoints, 600 where neither is given; None: by steps.
        session_config: a `ConfigProto`.
        keep_checkpoint_max: how many checkpoints are kept; 0 or None: all.
        keep_checkpoint_every_n_hours: one checkpoint in so many hours is kept beside them.
        log_step_count_steps: steps between two logs of the loss and the speed; None: never.
        device_fn: a device for each operation; None: on a cluster, variables are spread over its parameter servers.
        train_distribute, eval_distribute, experimental_distribute: None, since there are no strategies.
        protocol: of the task's server; None: the one that there is.
        experimental_max_worker_delay_secs: accepted; workers wait until the model is initialized, and not longer.
        session_creation_timeout_secs: how long a worker waits for that.

    Raises:
        ValueError: a number is not positive, both ways of saving are given, directories differ, or TF_CONFIG is
            malformed (see `role_from_environment`).
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
    session_creation_timeout_secs: float
    task_role: TaskRole = field(repr=False)

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
            raise NotImplementedError(_NO_STRATEGIES)
        if save_checkpoints_steps is ... and save_checkpoints_secs is ...:
            save_checkpoints_steps, save_checkpoints_secs = None, _SECONDS
        save_checkpoints_steps = None if save_checkpoints_steps is ... else save_checkpoints_steps
        save_checkpoints_secs = None if save_checkpoints_secs is ... else save_checkpoints_secs
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        role = role_from_environment()
        directory = None if model_dir is None else os.fsdecode(model_dir)
        if None not in (directory, role.model_dir) and directory != role.model_dir:
            raise ValueError(
                "`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in "
                f"TF_CONFIG: {directory!r} is not {role.model_dir!r}"
            )
        values: dict[str, Any] = {
            "model_dir": directory or role.model_dir,
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
            "session_creation_timeout_secs": session_creation_timeout_secs,
            "task_role": role,
        }
        for name, value in values.items():
            if (
                name.startswith(("save_", "log_", "keep_checkpoint_every", "session_creation"))
                and value is not None
                and value <= 0
            ):
                raise ValueError(f"{name} should be > 0, got {value}")
            object.__setattr__(self, name, value)

    @property
    def cluster_spec(self) -> tf.train.ClusterSpec:
        """The tasks that train together; none where this process trains alone, or evaluates."""
        spec: tf.train.ClusterSpec = self.task_role.cluster_spec
        return spec

    @property
    def task_type(self) -> str:
        """The job of this process: "chief", "worker", "ps", "evaluator"; "worker" where it trains alone."""
        return self.task_role.task_type

    @property
    def task_id(self) -> int:
        """The number of this process in its job."""
        return self.task_role.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this process in the cluster, from the chief, which is 0; None of an evaluator."""
        return self.task_role.global_id

    @property
    def is_chief(self) -> bool:
        """Whether this process initializes and saves the model."""
        return self.task_role.is_chief

    @property
    def master(self) -> str:
        """The target of sessions."""
        return self.task_role.master

    @property
    def evaluation_master(self) -> str:
        """The target of the sessions of evaluations."""
        return self.task_role.evaluation_master

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers."""
        return self.task_role.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers, the chief among them."""
        return self.task_role.num_worker_replicas

    @property
    def service(self) -> None:
        """None: TF_CONFIG's "service" is not used."""
        return

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
        known = set(self.__dataclass_fields__) - {"task_role"}
        if wrong := sorted(set(kwargs) - known):
            raise ValueError(f"cannot replace {wrong} of a RunConfig; it has {sorted(known)}")
        values = {name: getattr(self, name) for name in known}
        if kwargs.get("save_checkpoints_steps") is not None:
            values["save_checkpoints_secs"] = None
        elif kwargs.get("save_checkpoints_secs") is not None:
            values["save_checkpoints_steps"] = None
        made = type(self)(**{**values, **kwargs})
        # what this process is does not change with the environment
        object.__setattr__(made, "task_role", self.task_role)
        return made
