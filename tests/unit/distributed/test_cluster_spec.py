"""Cluster specs: what TensorFlow's do, and what servers ask of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import anabranch as tf
from anabranch.distributed.addresses import Address, AddressMap, address_map, address_of_target, parse_address
from anabranch.distributed.cluster_spec import ClusterSpec, matches_filters, parse_task_name, task_name

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,5}", fullmatch=True)
addresses = st.builds(
    lambda host, port: f"{host}:{port}", st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), st.integers(0, 65535)
)
clusters = st.dictionaries(names, st.dictionaries(st.integers(0, 20), addresses, max_size=4), max_size=4)


@given(clusters)
def test_all_ways_to_state_a_cluster_are_one(jobs: dict[str, dict[int, str]]) -> None:
    cluster = ClusterSpec(jobs)
    assert cluster == jobs
    assert cluster == ClusterSpec(cluster) == ClusterSpec(cluster.as_dict()) == ClusterSpec(cluster.as_cluster_def())
    assert hash(cluster) == hash(ClusterSpec(cluster.as_dict()))
    assert ClusterSpec(tf.train.ClusterDef.FromString(cluster.as_cluster_def().SerializeToString())) == cluster
    assert bool(cluster) == bool(jobs)
    assert cluster.jobs == list(jobs)
    for job, tasks in jobs.items():
        assert cluster.num_tasks(job) == len(tasks)
        assert cluster.task_indices(job) == sorted(tasks)
        assert [a for a in cluster.job_tasks(job) if a is not None] == [tasks[i] for i in sorted(tasks)]
        assert all(cluster.task_address(job, i) == cluster.job_tasks(job)[i] == tasks[i] for i in tasks)


def test_dense_jobs_are_lists_and_sparse_ones_dictionaries() -> None:
    cluster = tf.train.ClusterSpec({b"worker": (b"w0:1", "w1:1"), "ps": {"1": "p1:1"}, "none": []})
    assert cluster.as_dict() == {"worker": ["w0:1", "w1:1"], "ps": {1: "p1:1"}, "none": {}}  # type: ignore[comparison-overlap]
    assert cluster.job_tasks("ps") == [None, "p1:1"]
    assert repr(cluster) == "ClusterSpec({'none': {}, 'ps': {1: 'p1:1'}, 'worker': ['w0:1', 'w1:1']})"
    assert [job.name for job in cluster.as_cluster_def().job] == ["none", "ps", "worker"]
    assert cluster != {"worker": ["w0:1", "w1:1"]}
    assert cluster != 3
    cluster.as_cluster_def().job.add(name="late")
    assert cluster.jobs == ["worker", "ps", "none"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda cluster: cluster.num_tasks("chief"), "No such job in cluster: 'chief'; there are ps, worker"),
        (lambda cluster: cluster.task_indices("chief"), "No such job in cluster: 'chief'"),
        (lambda cluster: cluster.job_tasks("chief"), "No such job in cluster: 'chief'"),
        (lambda cluster: cluster.task_address("chief", 0), "No such job in cluster: 'chief'"),
        (lambda cluster: cluster.task_address("ps", 1), "No task with index 1 in job 'ps', which has 0"),
    ],
)
def test_what_is_not_there_is_named(ask: Callable[[ClusterSpec], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(ClusterSpec({"ps": ["a:1"], "worker": ["b:1"]}))


def repeated() -> tf.train.ClusterDef:
    cluster = tf.train.ClusterDef()
    cluster.job.add(name="ps")
    cluster.job.add(name="ps")
    return cluster


@pytest.mark.parametrize(
    ("cluster", "error", "message"),
    [
        (3, TypeError, "`cluster` must be a dictionary mapping one or more job names to lists .* got int"),
        (["a:1"], TypeError, "`cluster` must be a dictionary"),
        ({"ps": "a:1"}, TypeError, "The tasks for job 'ps' must be a list or a dictionary from integers to strings"),
        ({"ps": [3]}, TypeError, "Address of task 0 of job 'ps' 3 must be bytes or unicode"),
        ({3: ["a:1"]}, TypeError, "Job name 3 must be bytes or unicode"),
        ({"ps": {"x": "a:1"}}, ValueError, "Task 'x' of job 'ps' is not a number"),
        ({"ps": {-1: "a:1"}}, ValueError, "numbered from 0 to 99999, got -1 in job 'ps'"),
        ({"ps": {1 << 31: "a:1"}}, ValueError, "numbered from 0 to 99999, got 2147483648"),
        ({"ps": ["a:1"] * 60_000, "w": ["a:1"] * 60_000}, ValueError, "at most 100000 tasks, got 120000"),
        ({"ps": ["a" * 2000]}, ValueError, "more than 1024 characters"),
        (repeated(), ValueError, "two jobs named 'ps'"),
    ],
    ids=range(11),
)
def test_malformed_clusters_are_refused(cluster: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ClusterSpec(cluster)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({}, "no tasks"),
        ({"ps": []}, "no tasks"),
        ({"a b": ["a:1"]}, "Task 0 of job 'a b': Unknown part"),
        ({"ps": ["a"]}, "Task 0 of job 'ps': Address 'a' needs a port from 0 to 65535"),
        (
            {"ps": ["a:1"], "worker": ["b:1", "a:1"]},
            "ps/replica:0/task:0 and /job:worker/.*/task:1 have one address, a:1",
        ),
    ],
)
def test_a_server_checks_its_cluster(cluster: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterSpec(cluster).check()
    ClusterSpec({"local": ["localhost:0", "localhost:0"], "ps": {3: "[::1]:7"}}).check()


def test_tasks_have_full_names() -> None:
    cluster = ClusterSpec({"worker": ["w0:1", "w1:1"], "ps": {2: "p:1"}})
    assert cluster.task_names() == [
        "/job:ps/replica:0/task:2",
        "/job:worker/replica:0/task:0",
        "/job:worker/replica:0/task:1",
    ]
    assert all(task_name(*parse_task_name(name)) == name for name in cluster.task_names())
    assert parse_task_name("/job:ps/task:2/cpu:0") == ("ps", 2)
    assert cluster.address_of("/job:ps/task:2") == Address("p", 1)
    with pytest.raises(ValueError, match="not a task's name"):
        parse_task_name("/job:ps")


def test_a_session_sees_what_its_filters_match() -> None:
    cluster = ClusterSpec({"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]})
    own = "/job:worker/replica:0/task:1"
    assert cluster.visible([], own) == cluster
    assert cluster.visible(["/job:ps"], own).as_dict() == {"ps": ["p0:1", "p1:1"], "worker": {1: "w1:1"}}
    assert cluster.visible(["/task:0/cpu:0"], own).as_dict() == {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]}
    assert cluster.visible(["/job:chief"], own).as_dict() == {"worker": {1: "w1:1"}}
    assert matches_filters("/job:ps/replica:0/task:0/device:CPU:0", ["/job:ps/cpu:0"])
    assert not matches_filters("/job:ps/replica:0/task:0/device:CPU:1", ["/job:ps/cpu:0"])
    with pytest.raises(ValueError, match="ConfigProto.device_filters: Unknown part 'ps'"):
        cluster.visible(["ps"], own)


@pytest.mark.parametrize(
    "text", ["a:1", "ps0.example.com:2222", "10.0.0.1:65535", "[::1]:0", "my_host-1:80", "host.:1"]
)
def test_addresses_are_read_and_written(text: str) -> None:
    assert str(parse_address(text)) == text
    assert address_of_target(f"grpc://{text}") == parse_address(text)


@pytest.mark.parametrize(
    "text",
    ["", "a", ":1", "a:", "a:-1", "a:65536", "a:999999999999", "a:1:2", "::1:2", "[::1]", "[x]:1", "a b:1", "-a:1"]
    + ["a/b:1", "grpc://a:1", "a:١", "a" * 300 + ":1", "a:1\n"],
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^Address "):
        parse_address(text)


def test_addresses_of_this_machine_are_known() -> None:
    assert all(parse_address(text).is_loopback for text in ("localhost:1", "127.0.0.9:1", "[::1]:1"))
    assert not any(parse_address(text).is_loopback for text in ("0.0.0.0:1", "example.com:1", "[::]:1"))
    with pytest.raises(ValueError, match="names no task"):
        address_of_target("local")


def test_written_addresses_stand_for_real_ones(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text("# the old cluster\nps0:2222 = localhost:4000  # here\n\nold.example.com = [::1]\n")
    found = address_map({"ANABRANCH_ADDRESS_MAP": str(file)})
    assert len(found) == 2
    cluster = ClusterSpec({"ps": ["ps0:2222", "ps0:2223"], "worker": ["old.example.com:5"]})
    assert cluster.real(found).as_dict() == {"ps": ["localhost:4000", "ps0:2223"], "worker": ["[::1]:5"]}
    assert cluster.address_of("/job:ps/task:0", found) == Address("localhost", 4000)
    assert cluster.real(address_map({})) == cluster
    listed = address_map({"ANABRANCH_ADDRESS_MAP": "a:1=b:2, c=d"})
    assert listed.real(Address("a", 1)) == Address("b", 2)
    assert listed.real(Address("c", 9)) == Address("d", 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:1 = b:2, c", "X, line 1: 'c' is not of the form 'written = real'"),
        ("a:1 = b:2\n= b:1", "X, line 2: '= b:1' is not"),
        ("a:1 = b:2\na:1 = c:2", "X, line 2: 'a:1' is already mapped to 'b:2'"),
        ("a:1 = b", "X: 'a:1 = b' maps an address with a port to one without"),
        ("a:1 = b:x", "X: Address 'b:x' needs a port"),
        ("\n".join(f"a:{i} = b:1" for i in range(10_001)), "X has more than 10000 entries"),
    ],
    ids=range(6),
)
def test_malformed_maps_say_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        AddressMap.from_text(text, "X")


def test_files_with_maps_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        address_map({"ANABRANCH_ADDRESS_MAP": str(file)})
    file.write_bytes(b"\xff = \xff")
    with pytest.raises(ValueError, match="not text in UTF-8"):
        address_map({"ANABRANCH_ADDRESS_MAP": str(file)})
    with pytest.raises(FileNotFoundError):
        address_map({"ANABRANCH_ADDRESS_MAP": str(tmp_path / "none")})
