"""The simulation of training is what queues and barriers say where that can be computed."""

from __future__ import annotations

import random
import statistics

import pytest

from anabranch.tools.cluster_simulation import Cluster, Costs, Model, percentile

#: nothing but the parameter servers' processors takes time
SERVERS_ONLY = Costs(worker=0.0, worker_per_server=0.0, server=0.01, under_way=0.0)
NOTHING = Costs(worker=0.0, worker_per_server=0.0, server=0.0, under_way=0.0)


def test_workers_that_compute_do_not_wait_for_each_other() -> None:
    rates = [Cluster(n, 2, NOTHING, Model(compute=lambda _: 0.5)).asynchronous(10).rate for n in (1, 8)]
    assert rates == pytest.approx([2, 16], rel=0.05)


def test_a_parameter_server_serves_no_more_than_it_can() -> None:
    rates = [Cluster(n, 1, SERVERS_ONLY, Model(compute=lambda _: 0.04)).asynchronous(20).rate for n in (1, 4, 100)]
    assert rates == pytest.approx([20, 80, 100], rel=0.06)


def test_several_parameter_servers_share_what_is_large() -> None:
    costs = Costs(worker=0.0, worker_per_server=0.0, server=0.0, under_way=0.0, bytes_per_second=1e8)
    model = Model(fetched=1e7, pushed=1e7)
    one, four = (Cluster(16, servers, costs, model).asynchronous(20).rate for servers in (1, 4))
    # the link of the one carries 0.1 s each way and step
    assert one == pytest.approx(10, rel=0.1)
    assert four == pytest.approx(4 * one, rel=0.15)


def test_processors_of_one_machine_are_shared() -> None:
    costs = Costs(worker=0.01, worker_per_server=0.0, server=0.0, under_way=0.0)
    rates = [Cluster(n, 1, costs, Model(), cores=2).asynchronous(5).rate for n in (1, 2, 8)]
    assert rates == pytest.approx([100, 200, 200], rel=0.05)


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
