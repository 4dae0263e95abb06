"""Which part an estimator's process has in a cluster, as TF_CONFIG tells it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

CHIEF: Final = "chief"
#: a chief of an older kind, which also evaluates
MASTER: Final = "master"
WORKER: Final = "worker"
PS: Final = "ps"
EVALUATOR: Final = "evaluator"
#: in the order of `global_id`
_TRAINING: Final = (CHIEF, MASTER, WORKER, PS)


@dataclass(frozen=True)
class TaskRole:
    """What TF_CONFIG says of this process.

    Attributes:
        cluster_spec: the tasks that train together; without tasks for a process that trains alone, or evaluates.
        task_type: the job of this process.
        task_id: its number in the job.
        global_id: its number in the cluster, the chief's being 0; None of an evaluator.
        is_chief: whether it initializes and saves the model.
        master: the target of its sessions; empty where its sessions are in this process.
        evaluation_master: likewise, of evaluations.
        num_ps_replicas: how many parameter servers there are.
        num_worker_replicas: how many tasks compute gradients, the chief among them.
        model_dir: where the model is, if TF_CONFIG says so.
    """

    cluster_spec: PassedOn  # a `ClusterSpec`
    task_type: str
    task_id: int
    global_id: int | None
    is_chief: bool
    master: str
    evaluation_master: str
    num_ps_replicas: int
    num_worker_replicas: int
    model_dir: str | None

    @property
    def is_alone(self) -> bool:
        """Whether the process needs no other to train."""
        return not self.master and self.task_type != EVALUATOR

    def session_config(self) -> tf.ConfigProto:
        """What sessions get where a program gives no configuration: other workers are not waited for, nor noticed."""
        config = tf.ConfigProto(allow_soft_placement=True)
        if self.num_worker_replicas > 1 or self.num_ps_replicas:
            own = f"/job:{self.task_type}/task:{self.task_id}"
            config.device_filters.extend([f"/job:{PS}"] if self.task_type == PS else [f"/job:{PS}", own])
        return config


def role_from_environment() -> TaskRole:
    """The part that TF_CONFIG gives this process; without it, to train alone.

    Raises:
        ValueError: it is malformed, names a cluster without a chief or with several, or does not say which task of the
            cluster this is.
    """
    told = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    cluster = told.cluster_spec()
    # by now it is known to be an object
    config: dict[str, Any] = json.loads(os.environ.get("TF_CONFIG", "").strip() or "{}") or {}
    model_dir = _string(config, "model_dir")
    evaluation_master = _string(config, "eval_session_master") or ""
    if not cluster.jobs:
        if told.task_type not in (None, WORKER) or told.task_id not in (None, 0):
            raise ValueError(
                f'TF_CONFIG says that this is {told.task_type}/{told.task_id}, and names no cluster; add "cluster", or '
                'take "task" away to train in one process'
            )
        master = _string(config, "session_master") or ""
        return TaskRole(cluster, WORKER, 0, 0, True, master, evaluation_master, 0, 1, model_dir)
    task_type, task_id = told.task_type, told.task_id
    chiefs = MASTER if MASTER in cluster.jobs else CHIEF
    if chiefs not in cluster.jobs or cluster.num_tasks(chiefs) != 1:
        raise ValueError(f'If "cluster" is set in TF_CONFIG, it must have one "chief" node; it has {cluster.as_dict()}')
    if task_type is None or task_id is None:
        missing = "type" if task_type is None else "index"
        raise ValueError(f'If "cluster" is set in TF_CONFIG, task {missing} must be set: which task is this process?')
    if task_type == EVALUATOR:
        if task_id != 0:
            raise ValueError(f"there can only be one `evaluator` task (with task id 0). Given task id {task_id}")
        alone = tf.train.ClusterSpec({})
        return TaskRole(alone, EVALUATOR, 0, None, False, "", "", 0, 0, model_dir)
    indices = cluster.task_indices(task_type) if task_type in cluster.jobs else []
    if task_type not in _TRAINING or task_id not in indices:
        raise ValueError(
            f"{task_type}/{task_id} is not a task of the cluster in TF_CONFIG, which has {cluster.as_dict()}; tasks "
            f"are {', '.join(_TRAINING)} or {EVALUATOR}"
        )
    return TaskRole(
        cluster,
        task_type,
        task_id,
        _global_id(cluster, task_type, task_id),
        task_type == chiefs,
        told.master(),
        evaluation_master,
        _count(cluster, PS),
        _count(cluster, chiefs) + _count(cluster, WORKER),
        model_dir,
    )


def _global_id(cluster: tf.train.ClusterSpec, task_type: str, task_id: int) -> int:
    numbered: list[tuple[str, int]] = [
        (job, index) for job in _TRAINING if job in cluster.jobs for index in cluster.task_indices(job)
    ]
    return numbered.index((task_type, task_id))


def _count(cluster: tf.train.ClusterSpec, job: str) -> int:
    return int(cluster.num_tasks(job)) if job in cluster.jobs else 0


def _string(config: dict[str, Any], key: str) -> str | None:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'TF_CONFIG["{key}"] must be a string, got {value!r}')
    return value
