"""What starts parts again and again is read by its layout, and whatever is another is read as before."""

from __future__ import annotations

import math
import queue
import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from anabranch.core.resources import ResourceHandle
from anabranch.errors import CancelledError, InternalError, NotFoundError
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime import pace, worker_service
from anabranch.runtime.local_worker import LocalTask
from anabranch.runtime.remote_worker import RemotePartition, RemoteWorkerSession
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.runtime.served_sessions import ServedTask
from anabranch.runtime.worker_service import WorkerService
from anabranch.testing.copied_messages import CopiedMessages
from tests.unit.runtime.test_one_sided_reads import SERVER, WORKER, plain, servers_part
from tests.unit.runtime.test_published_values import Memory

DEADLINE = 60.0


class Served:
    """A server's part of a step, which a worker starts by messages, and what they were read by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned, self.task = servers_part(plain), LocalTask(SERVER)
        addresses = {SERVER: "localhost:1", WORKER: "localhost:2"}
        served = ServedTask(SERVER, self.task, addresses, ConfigProto(), 1)
        self.service = WorkerService(served, make_board=Memory)
        transport = CopiedMessages(self.service)
        self.session = RemoteWorkerSession(transport, "s", SERVER, PlacementPolicy(), ConfigProto(), addresses)
        self.decoded = 0
        decode = worker_service.decode_start

        def counted(frames: Any) -> Any:
            self.decoded += 1
            return decode(frames)

        monkeypatch.setattr(worker_service, "decode_start", counted)
        for handle in {t.known for op in self.planned.operations for t in op.inputs if t.is_known}:
            if isinstance(handle, ResourceHandle):
                self.task.containers.variable(handle).value = jnp.zeros(handle.shape.as_list(), jnp.float32)
        self.partition = self.register()

    def register(self) -> RemotePartition:
        partition, published = self.session.register(self.planned), threading.Event()
        partition.publish(WORKER, lambda _: published.set())
        assert published.wait(DEADLINE)
        return partition

    def run(self, step: int, value: float, *, backwards: bool = False) -> Any:
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        sent = []
        for end in self.planned.receives:
            array = np.full([size or 0 for size in end.shape.as_list()], value, np.float32)
            key = Key(StepId("s", step), end.source, end.destination, end.tensor)
            sent.append((key, array))
        sent = sent[::-1] if backwards else sent
        self.partition.start_later(step, [], outcome.put, None)(sent, 0)
        return outcome.get(timeout=DEADLINE)

    def value(self) -> float:
        (handle,) = {
            t.known
            for op in self.planned.operations
            for t in op.inputs
            if t.is_known and isinstance(t.known, ResourceHandle) and t.known.name == "w"
        }
        return float(self.task.containers.variable(handle).value)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """One whose next step is known."""
    one = Served(monkeypatch)
    monkeypatch.setattr(pace._threads, "takes_turns", True, raising=False)
    # how long a run takes is not the point: one that a collection of garbage met would be long
    monkeypatch.setattr(pace, "SHORT", math.inf)
    run_until_known(one, 1)
    return one


def run_until_known(served: Served, first: int) -> None:
    for step in range(first, first + 60):
        before = served.decoded
        assert served.run(step, 0.0) == []
        if served.decoded == before:
            return
    pytest.fail("no step was known")


def test_steps_that_are_alike_are_known(served: Served) -> None:
    before = served.decoded
    for step in range(100, 110):
        assert served.run(step, 1.0) == []
    assert served.decoded == before
    assert served.value() == -10


def test_a_known_step_begins_once_as_any_other(served: Served) -> None:
    assert served.run(100, 1.0) == []
    again = served.run(100, 1.0)
    assert isinstance(again, InternalError)
    assert "begun already" in str(again)
    assert served.value() == -1


def test_what_is_another_is_read_as_before(served: Served) -> None:
    before = served.decoded
    # as many bytes, and other names where the first tensor stands
    assert served.run(100, 1.0, backwards=True) == []
    assert served.decoded == before + 1
    assert served.run(101, 1.0) == []
    assert served.value() == -2


def test_where_a_lock_is_held_the_part_is_started_as_any_other(served: Served) -> None:
    (lock,) = {state.lock for state in served.task.containers._variables.values() if state.handle.name == "w"}
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
    before = served.decoded
    with lock:
        thread = threading.Thread(target=lambda: outcome.put(served.run(100, 1.0)))
        thread.start()
        with pytest.raises(queue.Empty):
            outcome.get(timeout=0.2)
    assert outcome.get(timeout=DEADLINE) == []
    thread.join()
    assert served.decoded == before + 1
    assert served.value() == -1


def test_a_session_that_is_closed_knows_nothing(served: Served) -> None:
    served.session.close()
    assert isinstance(served.run(100, 1.0), CancelledError)
    served.session.forget()
    outcome = served.run(101, 1.0)
    assert isinstance(outcome, CancelledError | NotFoundError)
    assert served.value() == 0


def test_a_partition_that_is_registered_anew_is_learnt_anew(served: Served) -> None:
    served.session.release(served.partition._number, True)
    served.session.forget_collected()
    assert isinstance(served.run(100, 1.0), NotFoundError)
    served.partition = served.register()
    before = served.decoded
    run_until_known(served, 101)
    assert served.decoded > before
    assert served.run(200, 1.0) == []
    assert served.value() == -1
