"""What TF_CONFIG makes of an estimator's process."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch as tf

CLUSTER = {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1"]}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    def configured(config: Any, **arguments: Any) -> Any:
        monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
        return tf.estimator.RunConfig(**arguments)

    return configured


def as_task(job: str, index: int, cluster: Any = CLUSTER, **more: Any) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": job, "index": index}, **more}


@pytest.mark.parametrize(
    ("job", "index", "global_id", "is_chief", "master"),
    [
        ("chief", 0, 0, True, "grpc://c:1"),
        ("worker", 0, 1, False, "grpc://w0:1"),
        ("worker", 1, 2, False, "grpc://w1:1"),
        ("ps", 1, 4, False, "grpc://p1:1"),
    ],
)
def test_tasks_of_a_cluster(told: Any, job: str, index: int, global_id: int, is_chief: bool, master: str) -> None:
    config = told(as_task(job, index))
    assert (config.task_type, config.task_id, config.global_id_in_cluster) == (job, index, global_id)
    assert (config.is_chief, config.master, config.evaluation_master) == (is_chief, master, "")
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, 3)
    assert config.cluster_spec.as_dict() == CLUSTER
    # a copy is the same task, whatever the environment says by then
    copy = config.replace(tf_random_seed=1)
    assert (copy.task_type, copy.task_id, copy.master, copy.tf_random_seed) == (job, index, master, 1)


def test_an_evaluator_belongs_to_no_cluster(told: Any) -> None:
    config = told(as_task("evaluator", 0))
    assert (config.task_type, config.is_chief, config.master) == ("evaluator", False, "")
    assert (config.global_id_in_cluster, config.num_ps_replicas, config.num_worker_replicas) == (None, 0, 0)
    assert config.cluster_spec.as_dict() == {}


def test_a_lone_chief_trains_in_its_process(told: Any) -> None:
    config = told(as_task("chief", 0, {"chief": ["c:1"]}))
    assert (config.task_type, config.is_chief, config.master, config.num_worker_replicas) == ("chief", True, "", 1)
    assert told("").task_type == told({}).task_type == "worker"


def test_a_master_is_a_chief_by_its_older_name(told: Any) -> None:
    config = told(as_task("worker", 0, {"master": ["m:1"], "worker": ["w:1"], "ps": ["p:1"]}))
    assert (config.is_chief, config.global_id_in_cluster, config.num_worker_replicas) == (False, 1, 2)
    assert told(as_task("master", 0, {"master": ["m:1"], "ps": ["p:1"]})).is_chief


def test_targets_and_the_directory_can_be_told(told: Any) -> None:
    config = told(
        as_task("chief", 0, session_master="grpc://other:1", eval_session_master="grpc://more:1", model_dir="there")
    )
    assert (config.master, config.evaluation_master, config.model_dir) == ("grpc://other:1", "grpc://more:1", "there")
    with pytest.raises(ValueError, match="`model_dir` provided in RunConfig construct.*'here' is not 'there'"):
        told(as_task("chief", 0, model_dir="there"), model_dir="here")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (as_task("worker", 0, {"worker": ["w:1"]}), 'must have one "chief" node'),
        (as_task("chief", 0, {"chief": ["c:1", "d:1"]}), 'must have one "chief" node'),
        ({"cluster": CLUSTER}, "task type must be set"),
        ({"cluster": CLUSTER, "task": {"type": "worker"}}, "task index must be set"),
        (as_task("worker", 2), "worker/2 is not a task of the cluster"),
        (as_task("helper", 0), "helper/0 is not a task of the cluster"),
        (as_task("evaluator", 1), "there can only be one `evaluator` task"),
        ({"task": {"type": "ps", "index": 0}}, "names no cluster"),
        ({"cluster": CLUSTER, "task": {"type": 3}}, "must be a string"),
        (as_task("chief", 0, model_dir=3), r'TF_CONFIG\["model_dir"\] must be a string'),
        ("{", "not JSON"),
        ("[1]", "must be an object"),
    ],
)
def test_what_is_wrong_is_told(told: Any, config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        told(config)
