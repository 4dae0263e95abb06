"""Whole clusters in a simulated network, whatever fails. `anabranch.testing.simulated_cluster` says what is checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.distributed import cluster_master
from anabranch.distributed.cluster_master import ClusterMaster
from anabranch.distributed.links import SUSPECT_AFTER, Instruction, Link, PeerState
from anabranch.distributed.peer_table import PeerTable
from anabranch.distributed.peers import Peer
from anabranch.distributed.wire import Header
from anabranch.runtime.messages import Frames
from anabranch.runtime.worker_service import WorkerService
from anabranch.testing import simulated_cluster
from anabranch.testing.simulated_cluster import Broken
from anabranch.testing.simulated_network import SimulatedPlace, SimulatedTime
from anabranch.testing.simulated_steps import SimulatedRun
from tests.cluster.places import Handler


# in 3, 9 and 12 the hello of a process that is over comes late, in 4 and 8 a task gets the address of another
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 8, 9, 12])
def test_what_must_hold_does(seed: int) -> None:
    cluster = simulated_cluster.run(seed)
    assert sum(cluster.faults.values()) > 3
    assert sum(client.outcomes.get("success", 0) for client in cluster.clients.values()) > 6


def test_a_seed_replays_exactly() -> None:
    traces = [(run.simulation.trace, run.simulation.events) for run in map(simulated_cluster.run, (7, 7, 8))]
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_a_fault_of_the_code_is_found_and_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose waits are not ended when it is given up never ends."""
    monkeypatch.setattr(SimulatedRun, "cancel", lambda self, error: None)
    with pytest.raises(Broken, match="seed [0-9]+: at .* s: "):
        list(map(simulated_cluster.run, range(5)))


@pytest.mark.parametrize("taken", [max, min], ids=["a gap", "a repeat"])
def test_a_link_that_overlooks_a_gap_or_a_repeat_is_found(
    monkeypatch: pytest.MonkeyPatch, taken: Callable[[int, int], int]
) -> None:
    heard = Link.heard

    def overlooking(self: Link, header: Header, size: int, now: float) -> list[Instruction]:
        if header.channel == self._heard_channel:
            self._expected[header.lane] = taken(header.sequence, self._expected[header.lane])
        return heard(self, header, size, now)

    monkeypatch.setattr(Link, "heard", overlooking)
    with pytest.raises(Broken, match="was delivered behind one of .* that was lost, or twice"):
        list(map(simulated_cluster.run, range(5)))


def never_fenced(self: Link) -> None:
    self._rivals.clear()


def fenced_unheard(self: Link, incarnation: int, know: Callable[[Link, int], None] = Link._know) -> None:
    know(self, incarnation)
    self._fence_rivals()


def heard_for_any(
    self: Link,
    header: Header,
    size: int,
    now: float,
    heard: Callable[[Link, Header, int, float], list[Instruction]] = Link.heard,
) -> list[Instruction]:
    return heard(self, header._replace(receiver=self._own_incarnation), size, now)


def handed_over_for_any(
    self: PeerTable,
    header: Header,
    frames: Frames,
    sender: Peer | None,
    hand_over: Callable[[PeerTable, Header, Frames, Peer | None], None] = PeerTable._hand_over,
) -> None:
    hand_over(self, header._replace(receiver=self.incarnation), frames, sender)


@pytest.mark.parametrize(
    ("wrong", "seeds", "found"),
    [
        ([(Link, "_fence_rivals", never_fenced)], range(1, 12), "went back to "),
        ([(Link, "_know", fenced_unheard)], range(3, 20), "steps do not succeed"),
        ([(Link, "_is_late", lambda self, header: False)], range(5, 12), "went back to an older channel"),
        (
            [(Link, "heard", heard_for_any), (PeerTable, "_hand_over", handed_over_for_any)],
            range(7, 23),
            "took a message for a process that was here before",
        ),
        ([(ClusterMaster, "parted", lambda self, task, others: None)], range(17, 42), "steps do not succeed"),
        ([(WorkerService, "watch", lambda self, name, watcher: None)], range(1, 5), "waits for answers"),
        (
            [
                (cluster_master, "check_task", lambda name, address, said: None),
                (WorkerService, "_own", lambda self, partition: partition),
            ],
            range(9, 15),
            "got what .* is to do",
        ),
    ],
    ids=[
        "nobody is shut out",
        "shut out by a hello alone",
        "late hellos are believed",
        "receivers are not compared",
        "masters ignore that tasks are parted",
        "who watches is not answered",
        "who answers is not compared",
    ],
)
def test_a_fault_of_links_sessions_or_masters_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: list[tuple[object, str, object]], seeds: range, found: str
) -> None:
    """The first of the seeds finds each, until what happens by them changes."""
    for where, name, replacement in wrong:
        monkeypatch.setattr(where, name, replacement)
    with pytest.raises(Broken, match=found):
        list(map(simulated_cluster.run, seeds))


def test_a_message_that_is_lost_is_the_next_where_none_is_under_way() -> None:
    simulation = SimulatedTime(3)
    places = [SimulatedPlace(simulation.process(f"{name}:1"), name, Handler()) for name in "ab"]
    a, b = (place.peer(other.hello.address) for place, other in (places, places[::-1]))
    assert simulation.run_until(lambda: a.state is b.state is PeerState.UP, 5)
    (connection,) = (one for one in simulation.network.connections if one.place is places[0])
    simulation.run_until(lambda: False, 0.5)
    connection.lose_one()
    lost: list[object] = []
    b.on_lost(lost.append)
    a.send([b"first"])
    a.send([b"second"])
    # the gap closes the link, and nothing of what follows is handed over
    assert simulation.run_until(lambda: bool(lost), 5)
    assert places[1].handler.messages.empty()


def test_a_cut_holds_what_goes_one_way_only() -> None:
    simulation = SimulatedTime(3)
    network = simulation.network
    places = [SimulatedPlace(simulation.process(f"{name}:1"), name, Handler()) for name in "ab"]
    a, b = (place.peer(other.hello.address) for place, other in (places, places[::-1]))
    assert simulation.run_until(lambda: a.state is b.state is PeerState.UP, 5)
    network.set_cut("a:1", "b:1", True)
    simulation.run_until(lambda: False, SUSPECT_AFTER + 1)
    assert (a.state, b.state) == (PeerState.UP, PeerState.SUSPECT)
    network.set_cut("a:1", "b:1", False)
    assert simulation.run_until(lambda: b.state is PeerState.UP, 1)


def test_time_passes_for_those_who_wait() -> None:
    simulation = SimulatedTime(0)
    process = simulation.process("a:1")
    process.pause(5)
    assert simulation.now == 5
    said: list[str] = []
    cancel = process.call_at(6, lambda: said.append("late"))
    process.call_at(7, lambda: said.append("in time"))
    cancel()
    assert process.wait(lambda: bool(said), 10)
    assert said == ["in time"]
