"""Resolvers: what TF_CONFIG and programs say of a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch as tf
from anabranch.distributed.tf_config import read_tf_config

resolvers = tf.distribute.cluster_resolver
CLUSTER = {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]}


def of_environment(monkeypatch: pytest.MonkeyPatch, config: Any, **arguments: Any) -> Any:
    monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
    return resolvers.TFConfigClusterResolver(**arguments)


def test_the_environment_says_which_task_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}
    resolver = of_environment(monkeypatch, config)
    assert resolver.cluster_spec() == tf.train.ClusterSpec(CLUSTER)
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 1, "grpc")
    assert resolver.master() == "grpc://w1:1"
    assert resolver.master("ps", 0, "other") == "other://p0:1"
    assert resolver.environment == ""
    monkeypatch.setenv("TF_CONFIG", json.dumps({**config, "session_master": "grpc://x:1", "task": {"index": "2"}}))
    assert (resolver.master(), resolver.task_type, resolver.task_id) == ("grpc://x:1", None, 2)
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "ps", 7, "mine"
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("ps", 7, "mine")
    assert of_environment(monkeypatch, config, task_id=0, rpc_layer="x", environment="e").master() == "x://w0:1"


@pytest.mark.parametrize("config", ["", "{}", "null", '{"cluster": {"worker": ["w0:1"]}}'])
def test_a_program_alone_needs_no_target(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    resolver = of_environment(monkeypatch, config)
    assert resolver.master() == ""
    assert resolver.task_type is None
    assert resolver.num_accelerators() == {}


def test_the_missing_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r'TF_CONFIG\["task"\]\["index"\] is missing'):
        of_environment(monkeypatch, {"cluster": CLUSTER, "task": {"type": "ps"}}).master()
    with pytest.raises(ValueError, match="No task with index 3 in job 'ps', which has 0"):
        of_environment(monkeypatch, {"cluster": CLUSTER, "task": {"type": "ps", "index": 3}}).master()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'a': 1}", "TF_CONFIG is not JSON: Expecting property name .* at line 1, column 2, near"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 10_000 + "}", "a number is too long"),
        (" " * (1 << 24) + " ", "at most 16777216 are read"),
        ("[]", r"TF_CONFIG must be an object, such as {...}, got \[\]"),
        ('{"task": "worker"}', r"TF_CONFIG\[\"task\"\] must be an object, .* got 'worker'"),
        ('{"task": {"type": 1}}', r"TF_CONFIG\[\"task\"\]\[\"type\"\] must be a string, got 1"),
        ('{"task": {"index": -1}}', r"TF_CONFIG\[\"task\"\]\[\"index\"\] must be a number from 0 to 99999, got -1"),
        ('{"task": {"index": true}}', "got True"),
        ('{"task": {"index": 1.5}}', "got 1.5"),
        ('{"task": {"index": 1e999}}', "got inf"),
        ('{"cluster": ["w0:1"]}', r"TF_CONFIG\[\"cluster\"\] must be an object"),
        ('{"cluster": {"ps": "a:1"}}', r"TF_CONFIG\[\"cluster\"\]: The tasks for job 'ps' must be a list"),
        ('{"cluster": {"ps": [null]}}', r"TF_CONFIG\[\"cluster\"\]: Address of task 0 of job 'ps' None must be"),
        ('{"cluster": {"ps": {"4000000000": "a:1"}}}', "numbered from 0 to 99999, got 4000000000"),
        ('{"rpc_layer": {}}', r"TF_CONFIG\[\"rpc_layer\"\] must be a string"),
    ],
    ids=range(16),
)
def test_malformed_variables_say_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tf_config({"TF_CONFIG": text})


def test_a_simple_resolver_tells_what_it_was_given() -> None:
    cluster = tf.train.ClusterSpec(CLUSTER)
    resolver = resolvers.SimpleClusterResolver(cluster, "here", "ps", 0, "google", {"GPU": 4}, "grpc")
    assert resolver.cluster_spec() is cluster
    assert (resolver.task_type, resolver.task_id, resolver.environment) == ("ps", 0, "google")
    assert (resolver.master(), resolver.master("worker", 0)) == ("grpc://here", "grpc://w0:1")
    assert resolver.num_accelerators("ps", 0) == {"GPU": 4}
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "worker", 1, None
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("worker", 1, "here")
    with pytest.raises(TypeError, match=r"must be a `tf.train.ClusterSpec`, got dict"):
        resolvers.SimpleClusterResolver(CLUSTER)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="master must be a string, got int"):
        resolvers.SimpleClusterResolver(cluster, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        resolvers.ClusterResolver()  # type: ignore[abstract]


def simple(jobs: dict[str, Any], **arguments: Any) -> Any:
    return resolvers.SimpleClusterResolver(tf.train.ClusterSpec(jobs), **arguments)


def test_clusters_are_joined() -> None:
    first = simple({"ps": ["p0:1"], "worker": ["w0:1"]}, task_type="ps", task_id=0, master="m", rpc_layer="grpc")
    union = resolvers.UnionResolver(first, simple({"worker": ["w1:1"]}))
    assert union.cluster_spec() == tf.train.ClusterSpec(CLUSTER)
    assert (union.task_type, union.task_id, union.rpc_layer, union.environment) == ("ps", 0, "grpc", "")
    assert (union.master(), union.master("worker", 1)) == ("grpc://m", "w1:1")
    assert union.num_accelerators() == {}
    sparse = resolvers.UnionResolver(simple({"w": ["a:1"]}), simple({"w": {3: "b:1"}}), task_type="w", task_id=0)
    assert sparse.cluster_spec().as_dict() == {"w": {0: "a:1", 3: "b:1"}}
    assert (sparse.task_type, sparse.task_id) == ("w", 0)
    sparse.task_type, sparse.task_id, sparse.rpc_layer = "v", 3, "grpc"
    assert (sparse.task_type, sparse.task_id, sparse.master("w", 3)) == ("v", 3, "grpc://b:1")
    with pytest.raises(KeyError, match=r"Duplicate keys detected .*: \[1\] of job 'w'"):
        resolvers.UnionResolver(simple({"w": {1: "a:1"}}), simple({"w": ["b:1", "c:1"]})).cluster_spec()
    with pytest.raises(ValueError, match="At least one"):
        resolvers.UnionResolver()
    with pytest.raises(TypeError, match="sub-class of"):
        resolvers.UnionResolver(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unexpected kwargs"):
        resolvers.UnionResolver(first, job="x")


def test_what_of_distribute_is_not_here_says_so() -> None:
    for path, way_out in (
        ("MirroredStrategy", "SyncReplicasOptimizer"),
        ("cluster_resolver.SlurmClusterResolver", "SimpleClusterResolver"),
    ):
        absent = getattr(resolvers if "." in path else tf.distribute, path.rpartition(".")[2])
        with pytest.raises(NotImplementedError, match=f"anabranch has no tf.distribute.{path}; .*{way_out}"):
            absent()
