"""The simulation of training is what queues and barriers say where that can be computed."""

from __future__ import annotations

import random
import statistics

import pytest

from anabranch.distributed.links import PeerState
from anabranch.tools.cluster_simulation import Cluster, Costs, Model, percentile
from anabranch.tools.linked_places import MessageCosts

#: nothing but the parameter servers' processors takes time: of a step, they take two messages
SERVERS_ONLY = Costs(server=MessageCosts(receive=0.005))
NOTHING = Costs()


def test_workers_that_compute_do_not_wait_for_each_other() -> None:
    rates = [Cluster(n, 2, NOTHING, Model(compute=lambda _: 0.5)).asynchronous(10).rate for n in (1, 8)]
    assert rates == pytest.approx([2, 16], rel=0.05)


def test_a_parameter_server_serves_no_more_than_it_can() -> None:
    one, four, many = (
        Cluster(n, 1, SERVERS_ONLY, Model(compute=lambda _: 0.04)).asynchronous(20).rate for n in (1, 4, 100)
    )
    assert [one, many] == pytest.approx([20, 100], rel=0.06)
    # what comes for one worker waits for what is done for another: for nothing at best, and for half of the others'
    # messages of a step, 5 ms each, if they come at any time
    assert 4 / (0.05 + 0.015) < four <= 80


def test_several_parameter_servers_share_what_is_large() -> None:
    links = MessageCosts(bytes_per_second=1e8)
    costs = Costs(worker=links, server=links)
    model = Model(fetched=1e7, pushed=1e7)
    one, four = (Cluster(16, servers, costs, model).asynchronous(20).rate for servers in (1, 4))
    # the link of the one carries 0.1 s each way and step
    assert one == pytest.approx(10, rel=0.1)
    assert four == pytest.approx(4 * one, rel=0.15)


def test_processors_of_one_machine_are_shared() -> None:
    costs = Costs(program=0.01)
    rates = [Cluster(n, 1, costs, Model(), cores=2).asynchronous(5).rate for n in (1, 2, 8)]
    assert rates == pytest.approx([100, 200, 200], rel=0.05)


def test_processes_that_talk_much_do_not_get_all_of_a_machine() -> None:
    messages = MessageCosts(receive=0.0002, network=0.00002, rest=0.5)
    costs = Costs(program=0.0002, worker=messages, server=messages, wake=0.00001, spread=0.3)
    rates = [Cluster(n, 1, costs, Model(), cores=2).asynchronous(2).rate for n in (1, 2, 8)]
    # processor seconds of a step
    needed = 0.0002 + 4 * 0.0002 + 8 * 0.00002
    used = [rate * needed for rate in rates]
    assert 0.8 < used[0] < 1.2
    assert 1.3 < used[1] < 1.8
    # the more there are, the more seldom a core has nothing to do
    assert used[1] + 0.1 < used[2] < 2.0


def spread(dice: random.Random) -> float:
    return dice.uniform(1.0, 2.0)


def test_a_synchronous_step_lasts_as_long_as_its_slowest_worker() -> None:
    outcome = Cluster(10, 1, NOTHING, Model(compute=spread)).synchronous(10, 150)
    # the mean of the largest of n numbers between 1 and 2 is 1 + n / (n + 1)
    assert statistics.mean(outcome.durations) == pytest.approx(1 + 10 / 11, abs=0.03)
    assert outcome.dropped == 0


def test_backup_workers_cut_the_tail_and_what_they_hand_in_late_is_dropped() -> None:
    plain = Cluster(10, 1, NOTHING, Model(compute=spread)).synchronous(10, 80)
    backed = Cluster(14, 1, NOTHING, Model(compute=spread)).synchronous(10, 80)
    assert percentile(backed.durations, 0.9) < percentile(plain.durations, 0.9) - 0.1
    assert statistics.mean(backed.durations) < statistics.mean(plain.durations) - 0.1
    assert backed.dropped > 80


def test_the_same_seed_is_the_same_run() -> None:
    runs = [Cluster(5, 2, SERVERS_ONLY, Model(compute=spread), seed=s).synchronous(4, 20).steps for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def waiting(cluster: Cluster) -> int:
    """How many steps are under way at the parameter servers."""
    return sum(len(server.running) for server in cluster.servers)


def test_a_step_that_takes_too_long_is_given_up_on_all_tasks_and_run_again() -> None:
    model = Model(compute=lambda dice: dice.choice((0.1, 3.0)), timeout=1.0)
    cluster = Cluster(4, 2, SERVERS_ONLY, model, seed=2)
    outcome = cluster.asynchronous(60)
    # half of them last a second, and count for nothing
    assert set(outcome.failed) == {"DeadlineExceededError"}
    assert outcome.failed["DeadlineExceededError"] == pytest.approx(66 * 4 / 1.1, rel=0.15)
    assert outcome.rate == pytest.approx(4 / 1.1, rel=0.15)
    # what was given up is nowhere any more; each worker has one step under way at most, on each server
    assert waiting(cluster) <= 4 * 2


def test_a_server_that_stops_for_a_while_is_waited_for() -> None:
    cluster = Cluster(3, 2, SERVERS_ONLY, Model(compute=lambda _: 0.1))
    cluster.stop_server(0, when=20.0, seconds=8.0)
    outcome = cluster.asynchronous(60)
    assert not outcome.failed
    assert max(outcome.durations) == pytest.approx(8, abs=0.3)


def test_a_server_that_is_silent_for_long_is_lost_and_steps_go_on_when_it_is_back() -> None:
    cluster = Cluster(3, 2, SERVERS_ONLY, Model(compute=lambda _: 0.1))
    cluster.stop_server(0, when=20.0, seconds=50.0)
    outcome = cluster.asynchronous(100)
    assert outcome.failed["UnavailableError"] >= 3
    assert not [step for step in outcome.steps if 21 < step < 69]
    assert len([step for step in outcome.steps if step > 75]) > 3 * 25 * 8
    links = [link for server in cluster.servers for link in server.place.links.values()]
    assert {link.state for link in links} == {PeerState.UP}


def test_links_stand_while_a_large_cluster_trains() -> None:
    links = MessageCosts(bytes_per_second=2e9)
    cluster = Cluster(60, 4, Costs(worker=links, server=links), Model(1e9, 1e9))
    outcome = cluster.synchronous(60, 2)
    # each server sends a quarter of the model to all, 7.5 s of its link for each step, and gets as much meanwhile
    assert 15 < outcome.seconds < 18
    assert not outcome.failed
    assert [server.place.suspects() for server in cluster.servers] == [[]] * 4
