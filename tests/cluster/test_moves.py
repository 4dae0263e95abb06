"""Tasks that come back at other addresses: real processes, and a file that says where they are."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed import address_book
from anabranch.distributed.addresses import ADDRESS_MAP_VARIABLE
from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.links import PeerState
from anabranch.errors import FailedPreconditionError
from tests.cluster.places import Places, until
from tests.cluster.processes import DEADLINE, Process

#: as a program has them written into it
WRITTEN = {"ps": ["ps0.example.com:1", "ps1.example.com:1"], "worker": ["worker0.example.com:1"]}


class MovingCluster:
    """Two parameter servers as processes, a worker in this process, and a session; who is where stands in a file.

    Args:
        path: that file.
        look_every: how often (s) the processes look whether it has changed.
    """

    def __init__(self, path: Path, look_every: float) -> None:
        self.path, self.look_every = path, look_every
        self._held = HeldPorts(5)
        ports = self._held.ports
        self.free = ports[3:]
        self.where = dict(zip(("ps0", "ps1", "worker0"), ports, strict=False))
        self.write()
        os.environ[ADDRESS_MAP_VARIABLE] = str(path)
        self.processes = {index: self.process(index) for index in (0, 1)}
        self.left: list[Process] = []
        self.worker = tf.train.Server(WRITTEN, "worker", 0)
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                a = tf.get_variable("a", initializer=1.0, use_resource=True)
            with tf.device("/job:ps/task:1"):
                b = tf.get_variable("b", initializer=1.0, use_resource=True)
            # values go from each of the two to the other, and not by this process
            with tf.device("/job:ps/task:1"):
                added = b.assign_add(a + 1)
            with tf.device("/job:ps/task:0"):
                self.step = a.assign_add(added)
            self.begin = [a.initializer, b.initializer]
            config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
            self.session = tf.Session(self.worker.target, config=config)
        self.session.run(self.begin)

    def write(self) -> None:
        lines = [f"{name}.example.com:1 = 127.0.0.1:{port}" for name, port in self.where.items()]
        written = self.path.with_suffix(".new")
        written.write_text("\n".join(lines))
        os.replace(written, self.path)

    def process(self, index: int) -> Process:
        return Process("task_process.py", json.dumps(WRITTEN), "ps", str(index), str(self.look_every))

    def move(self, index: int) -> int:
        """Starts a task anew at another address; returns the port that it had."""
        before = self.where[f"ps{index}"]
        self.where[f"ps{index}"] = self.free.pop()
        self.write()
        self.left.append(self.processes[index])
        self.processes[index] = self.process(index)
        return before

    def errors_until_it_goes_on(self) -> list[type[Exception]]:
        """What steps fail with until the model could be initialized again."""
        seen: list[type[Exception]] = []
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self.session.run(self.begin)
                assert self.session.run(self.step) == 4.0
                assert self.session.run(self.step) == 12.0
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
                assert time.monotonic() < deadline, seen
                seen.append(type(error))
                # nothing tells a client that a task is back but an answer
                time.sleep(0.05)
            else:
                return seen

    def close(self) -> None:
        self.session.close()
        self.worker.stop()
        for process in (*self.processes.values(), *self.left):
            process.kill()
        self._held.close()


#: never, as far as a test lasts: such a process goes on to say that a task is where it was
NEVER = 1000.0


# a parameter server may hear of a move from the file, or from the session only
@pytest.fixture(params=[0.1, NEVER], ids=["all_look", "only_the_worker_looks"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingCluster]:
    monkeypatch.setenv(ADDRESS_MAP_VARIABLE, "")
    monkeypatch.setattr(address_book, "LOOK_EVERY", 0.1)
    made = MovingCluster(tmp_path / "addresses", request.param)
    try:
        yield made
    finally:
        made.close()


def test_a_killed_task_comes_back_at_another_address_and_the_session_goes_on(cluster: MovingCluster) -> None:
    assert cluster.session.run(cluster.step) == 4.0
    for index in (0, 1):
        cluster.processes[index].kill()
        cluster.move(index)
        seen = cluster.errors_until_it_goes_on()
        # the program is told that the values are gone, once
        assert seen.count(tf.errors.AbortedError) == 1
    # a session that is made now knows nothing of the addresses before
    with tf.Session(cluster.worker.target, graph=cluster.session.graph) as session:
        assert session.run(cluster.step) > 12


def test_a_task_that_was_stopped_and_replaced_elsewhere_is_shut_out_when_it_wakes(cluster: MovingCluster) -> None:
    assert cluster.session.run(cluster.step) == 4.0
    stopped = cluster.processes[0]
    stopped.signal(signal.SIGSTOP)
    before = f"127.0.0.1:{cluster.move(0)}"
    seen = cluster.errors_until_it_goes_on()
    assert seen.count(tf.errors.AbortedError) == 1
    endpoint: Any = cluster.worker._endpoint
    peer = endpoint._peers[before]
    assert peer.state is PeerState.LOST
    stopped.signal(signal.SIGCONT)
    # what it says of the steps before is not heard, and the others go on with the new one
    expected = [1.0, 1.0]
    cluster.session.run(cluster.begin)
    for _ in range(20):
        expected[1] += expected[0] + 1
        expected[0] = float(np.float32(expected[0] + expected[1]))
        assert cluster.session.run(cluster.step) == pytest.approx(expected[0])
        assert peer.state is PeerState.LOST


def test_who_has_moved_is_not_heard_at_the_address_before(places: Places) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    a.moved("b", b.address, "127.0.0.1:1")
    assert a.has_left("b", b.address)
    # what is for the task does not wait here for whoever is there now
    with pytest.raises(tf.errors.UnavailableError, match="has moved to another address"):
        peer.send([b"x"])
    assert peer.state is PeerState.LOST
    until(lambda: b.peer(a.address).state is not PeerState.UP, "the farewell")
    back = b.peer(a.address)
    assert not back.wait_until_up(DEADLINE)
    assert isinstance(back.error, FailedPreconditionError)
    assert "b is at 127.0.0.1:1 now" in str(back.error)
    # a client at the same address is somebody else
    assert not peer.wait_until_up(0.5)
    a.moved("b", "127.0.0.1:1", b.address)
    assert not a.has_left("b", b.address)
    assert peer.wait_until_up(DEADLINE)
    assert peer.call([b"x"], DEADLINE) == [b"x"]
