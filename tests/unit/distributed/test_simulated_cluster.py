"""Whole clusters in a simulated network, whatever fails. `anabranch.testing.simulated_cluster` says what is checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.distributed.links import SUSPECT_AFTER, Instruction, Link, PeerState
from anabranch.distributed.wire import Header
from anabranch.testing import simulated_cluster
from anabranch.testing.simulated_cluster import Broken
from anabranch.testing.simulated_network import SimulatedPlace, SimulatedTime
from anabranch.testing.simulated_steps import SimulatedRun
from tests.cluster.places import Handler


@pytest.mark.parametrize("seed", range(3))
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
