"""The page of a cluster: what tasks say of what they do, and who is told."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.activity import ActivityWatch
from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.tools.cluster.page import ClusterPage
from anabranch.train.replica_status import SECONDS, SECONDS_SUM, STEPS, TABLE_NAME, WAITS_IN
from anabranch.train.replicas import MAX_WORKERS

DEADLINE = 30.0


@pytest.fixture
def servers() -> Iterator[dict[str, Any]]:
    """A parameter server and a worker, in this process."""
    with contextlib.ExitStack() as stack:
        ps = stack.enter_context(tf.train.Server({"ps": ["localhost:0"], "worker": {}}, "ps", 0))
        address = ps.target.removeprefix("grpc://")
        worker = stack.enter_context(tf.train.Server({"ps": [address], "worker": ["localhost:0"]}, "worker", 0))
        yield {"ps/0": ps, "worker/0": worker}


def address_of(server: Any) -> str:
    return str(server.target.removeprefix("grpc://"))


def add_on_the_parameter_server(target: str, steps: int) -> None:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            with tf.variable_scope("model"):
                large = tf.Variable(tf.zeros([100_000]), name="global_step")  # of this name, but not small
        with tf.device("/job:worker/task:0"):
            more = tf.cast(tf.reduce_sum(large.read_value()), tf.int64) + 1
        add = tf.assign_add(step, more)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(steps):
                session.run(add)


def test_tasks_say_what_they_have_done(servers: dict[str, Any]) -> None:
    addresses = [address_of(server) for server in servers.values()]
    with ActivityWatch(("global_step",)) as watch:
        before = watch.look(addresses, DEADLINE)
        assert {rate.ended_steps for rate in before.values()} == {0}
        add_on_the_parameter_server(servers["worker/0"].target, 7)
        seen = watch.look(addresses, DEADLINE)
    ps, worker = (seen[address] for address in addresses)
    # and the initializer, which is a step of the parameter server alone
    assert (ps.ended_steps, worker.ended_steps) == (8, 7)
    assert (ps.running_steps, worker.running_steps) == (0, 0)
    assert [(name, value.shape, int(value)) for name, value in ps.variables.items()] == [("global_step", (), 7)]
    assert worker.variables == {}


def test_bytes_of_links_are_counted_on_both_sides(servers: dict[str, Any]) -> None:
    addresses = [address_of(server) for server in servers.values()]
    with ActivityWatch() as watch:
        watch.look(addresses, DEADLINE)
        add_on_the_parameter_server(servers["worker/0"].target, 1)
        started = time.monotonic()
        watch.look(addresses, DEADLINE)
        while time.monotonic() - started < 0.3:  # rates are of more time than this
            add_on_the_parameter_server(servers["worker/0"].target, 1)
        seen = watch.look(addresses, DEADLINE)
    ps, worker = (seen[address] for address in addresses)
    (sent,) = [link.sent for link in ps.links if "worker" in link.name]
    (received,) = [link.received for link in worker.links if "ps" in link.name]
    assert sent is not None
    assert received is not None
    # the model at least once, whichever way it went
    assert sent > 400_000
    assert received > 400_000


def test_a_silent_task_keeps_no_other_from_being_seen(servers: dict[str, Any]) -> None:
    known = address_of(servers["ps/0"])
    with ActivityWatch() as watch:
        assert list(watch.look([known, "localhost:1"], 0.5)) == [known]


@pytest.fixture
def folder(servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterFolder]:
    """A cluster as its supervisor would have written it; the worker is said to be ended."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        made = ClusterFolder("shown")
        with made.take():
            states = {"ps/0": "running", "worker/0": "failed (SIGKILL)"}
            made.write(
                "state.json",
                {
                    "name": "shown",
                    "tasks": [
                        {
                            "name": name,
                            "address": address_of(server),
                            "target": server.target,
                            "pid": 1,
                            "state": states[name],
                            "restarts": 0,
                            "started": time.time() - 60,
                        }
                        for name, server in servers.items()
                    ],
                },
            )
            yield made


def fetched(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
        return json.loads(answer.read())


def test_the_page_shows_tasks_steps_and_replicas(folder: ClusterFolder, servers: dict[str, Any]) -> None:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            weights = tf.Variable(np.zeros(3, np.float32))
        optimizer = tf.train.replicas.asynchronous(tf.train.GradientDescentOptimizer(0.1))
        with tf.device("/job:worker/task:0"):
            loss = tf.reduce_sum(tf.square(weights - 1.0))
            train = optimizer.minimize(loss, global_step=step)
        hooks = [optimizer.make_session_run_hook(True)]
        with (
            tf.train.MonitoredTrainingSession(servers["worker/0"].target, hooks=hooks) as session,
            contextlib.closing(ClusterPage(folder)) as page,
        ):
            for _ in range(5):
                session.run(train)
            shown = fetched(f"{page.address}state")
            with urllib.request.urlopen(page.address, timeout=DEADLINE) as answer:
                document = answer.read().decode()
    assert shown["global_step"] == 5
    assert [(row["worker"], row["steps"]) for row in shown["replicas"]] == [(0, 5)]
    ps, worker = shown["tasks"]
    assert (ps["name"], ps["state"]) == ("ps/0", "running")
    assert ps["ended_steps"] >= 5
    assert 59 < ps["uptime"] < 90
    # who does not run is not asked
    assert (worker["state"], "links" in worker) == ("failed (SIGKILL)", False)
    assert "<title>anabranch cluster</title>" in document


def test_the_page_marks_stragglers(folder: ClusterFolder, servers: dict[str, Any]) -> None:
    measured = np.zeros((MAX_WORKERS, WAITS_IN + 1))
    # steps of a tenth of a second, but those of the second worker
    for worker, seconds in enumerate((0.1, 0.3, 0.12)):
        measured[worker, [STEPS, SECONDS, SECONDS_SUM]] = 10, seconds, 10 * seconds
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            table = tf.Variable(measured, name=TABLE_NAME, use_resource=True)
        with tf.Session(servers["worker/0"].target) as session, contextlib.closing(ClusterPage(folder)) as page:
            session.run(table.initializer)
            rows = fetched(f"{page.address}state")["replicas"]
            with urllib.request.urlopen(page.address, timeout=DEADLINE) as answer:
                document = answer.read().decode()
    assert [(row["worker"], row["is_straggler"]) for row in rows] == [(1, True), (2, False), (0, False)]
    # the document shows what it is given, by its names, and a straggler as one
    (shown,) = re.findall(r"state\.replicas\.map\(one => row\(\[(.*?)\]\)\)\);", document, re.DOTALL)
    assert set(re.findall(r"one\.(\w+)", shown)) == set(rows[0])
    assert '`worker/${one.worker}${one.is_straggler ? " (straggler)" : ""}`, one.is_straggler ? "bad" : ""' in shown


def test_nobody_without_the_secret_sees_anything(folder: ClusterFolder) -> None:
    with contextlib.closing(ClusterPage(folder)) as page:
        base, secret = page.address.removesuffix("/").rsplit("/", 1)
        assert len(secret) >= 20
        for path in ("", "state", f"{secret[:-1]}/state", f"{secret}/../state", f"{secret}/other", "%2e%2e/etc/passwd"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetched(f"{base}/{path}")


def test_a_cluster_that_has_ended_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with contextlib.closing(ClusterPage(ClusterFolder("gone"))) as page:
        assert fetched(f"{page.address}state") == {"ended": True}


def test_a_port_that_is_taken_is_named(folder: ClusterFolder) -> None:
    with contextlib.closing(ClusterPage(folder)) as page:
        port = int(page.address.split(":")[2].split("/")[0])
        with pytest.raises(tf.errors.UnavailableError, match=f"port {port}: .*take another"):
            ClusterPage(folder, port)
