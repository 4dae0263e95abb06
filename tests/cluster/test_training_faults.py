"""Workers of a training are killed at a chosen point of a step, or stopped: it costs that step and no more."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed import links
from anabranch.distributed.links import PeerState
from tests.cluster.places import held_addresses, until
from tests.cluster.processes import DEADLINE
from tests.cluster.proxies import ProxiedCluster, proxied
from tests.cluster.trainings import Learned, Reader, Training, training

WORKERS = 3
VICTIM = "worker/2"
#: elements of a row: a gradient has 768 kB
COLUMNS = 1 << 16
BYTES = 4 * WORKERS * COLUMNS
#: seconds after which a process that says nothing is given up
SILENCE = 2.0


@contextlib.contextmanager
def behind_a_proxy(**options: Any) -> Iterator[tuple[ProxiedCluster, Training, Reader]]:
    """A parameter server of this process, behind a proxy, and three workers that are processes; the first is chief."""
    with contextlib.ExitStack() as stack:
        workers = stack.enter_context(held_addresses(worker=WORKERS))["worker"]
        cluster = stack.enter_context(proxied({f"worker/{i}": address for i, address in enumerate(workers)}, ps=1))
        addresses = {"ps": [cluster.addresses["/job:ps/replica:0/task:0"]], "worker": workers}
        options = {"columns": COLUMNS} | options
        trained = stack.enter_context(training(addresses, options, {"ANABRANCH_CLUSTER": "proxied"}))
        reader = Reader(cluster.target("ps/0"), trained.options)
        with reader.session:
            yield cluster, trained, reader


@pytest.mark.parametrize("aggregate", [None, 2], ids=["asynchronous", "synchronous"])
def test_a_worker_killed_at_any_point_of_a_step_costs_that_step_alone(aggregate: int | None) -> None:
    # two are enough for a round: nobody needs a token once more, however slow the machine is
    with behind_a_proxy(aggregate=aggregate, reissue=10 * DEADLINE) as (cluster, trained, reader):
        proxy, endpoint = cluster.proxies["ps/0"], cluster.tasks["ps/0"].endpoint
        killed = threading.Event()

        def kills() -> None:
            trained.kill(VICTIM)
            killed.set()

        trained.start("worker/0")
        trained.start("worker/1", "worker/2")
        ended = [0] * WORKERS
        for place in ("between", "compute", "send"):
            for _ in range(2):
                trained.run(1, 0, 1, 2)
            before = reader.read()
            ended = [count + 2 for count in ended]
            check(before, ended, aggregate)
            match place:
                case "between":
                    trained.kill(VICTIM)
                case "compute":
                    trained.hold(2)
                    trained.kill(VICTIM)
                case "send":
                    proxy.breaks = endpoint.peer(trained.addresses["worker"][2]).incarnation
                    proxy.when_broken = kills
                    passed, proxy.break_after = proxy.passed, BYTES // 2
                    trained.begin(1, 2)
                    assert killed.wait(DEADLINE)
                    assert proxy.broken == 1
                    assert BYTES // 2 <= proxy.passed - passed < BYTES
            assert VICTIM not in trained.running
            # what waits for the end of a round is the chief's
            until(lambda: cluster.tasks["ps/0"].steps <= (aggregate is not None), "the end of its step")
            # the others go on, and what was begun is there neither whole nor by half
            trained.run(10, 0, 1)
            ended = [ended[0] + 10, ended[1] + 10, ended[2]]
            after = reader.read()
            check(after, ended, aggregate)
            assert after.workers[2] == before.workers[2]
            each = 10 / (aggregate or 1)
            assert np.subtract(after.counts[0], before.counts[0]) == pytest.approx([each, each, 0])
            trained.start(VICTIM)


def check(learned: Learned, ended: list[int], aggregate: int | None) -> None:
    """Compares what was learned with the steps that have ended."""
    (counts,) = learned.counts
    assert [learned.workers[i].steps for i in range(WORKERS)] == ended
    assert learned.step == pytest.approx(sum(counts))
    if aggregate is None:
        assert counts == ended
    else:
        counted = [row.steps - row.dropped for _, row in sorted(learned.workers.items())]
        assert counts == pytest.approx([gradients / aggregate for gradients in counted])


def test_a_backup_takes_over_from_a_stopped_worker_which_takes_part_again_when_it_is_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with behind_a_proxy(aggregate=2, beat=SILENCE / 10) as (cluster, trained, reader):
        trained.start("worker/0")
        trained.start("worker/1", "worker/2")
        peer = cluster.tasks["ps/0"].endpoint.peer(trained.addresses["worker"][2])
        with asks(cluster.target("ps/0"), "/job:worker/task:2") as (session, asked):
            for is_given_up in (False, True):
                trained.run(1, 0, 1, 2)
                trained.hold(2)
                stopped = trained.running[VICTIM]
                stopped.signal(signal.SIGSTOP)
                try:
                    before = reader.read()
                    trained.run(10, 0, 1)
                    after = reader.read()
                    assert after.step == before.step + 10
                    assert np.subtract(after.counts[0], before.counts[0]) == pytest.approx([5, 5, 0])
                    assert after.workers[2] == before.workers[2]
                    if is_given_up:
                        monkeypatch.setattr(links, "SUSPECT_AFTER", SILENCE / 2)
                        monkeypatch.setattr(links, "LOST_AFTER", SILENCE)
                        with pytest.raises(tf.errors.UnavailableError, match=r"/job:worker/.*/task:2.* been silent"):
                            session.run(asked)
                        until(lambda: peer.state is PeerState.LOST, "the loss of the worker")
                    assert stopped.is_running
                finally:
                    stopped.signal(signal.SIGCONT)
                stopped.tell("go on")
                if is_given_up:
                    # it joins anew and does its step again, in a round that another has to end with it
                    with ThreadPoolExecutor(1) as pool:
                        again = pool.submit(trained.ended, 2)
                        while not again.done():
                            trained.run(1, 0, 1)
                    assert again.result() == [4]
                    assert trained.ask(2, "sessions") == "sessions 2"
                    woken = reader.read()
                    assert woken.workers[2].dropped <= after.workers[2].dropped + 1
                else:
                    # what it had begun is of a round that has ended
                    assert trained.ended(2) == [2]
                    assert trained.ask(2, "sessions") == "sessions 1"
                    woken = reader.read()
                    assert woken.counts == after.counts
                    assert woken.workers[2].steps == before.workers[2].steps + 1
                    assert woken.workers[2].dropped == before.workers[2].dropped + 1
                assert woken.step == pytest.approx(sum(woken.counts[0]))
        for _ in range(3):
            trained.run(1, 0, 1, 2)
        after = reader.read()
        assert after.workers[2].steps == woken.workers[2].steps + 3
        assert after.step == pytest.approx(sum(after.counts[0]))


@contextlib.contextmanager
def asks(target: str, device: str) -> Iterator[tuple[tf.Session, Any]]:
    """A step of a task, and a session that has run it."""
    with tf.Graph().as_default():
        with tf.device(device):
            doubled = 2 * tf.placeholder_with_default(1.0, [])
        config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * DEADLINE), device_filters=["/job:ps", device])
        with tf.Session(target, config=config) as session:
            assert session.run(doubled) == 2
            yield session, doubled
