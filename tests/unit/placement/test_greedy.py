"""The simulation and the greedy placer: the documented example, and promises on random steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from anabranch.placement.greedy import place_greedily
from anabranch.placement.simulation import Input, Job, Simulation


def flat(cost: float) -> Any:
    return lambda source, destination, size: cost


def two_chains() -> list[Job]:
    jobs = []
    for _ in range(2):
        for i in range(3):
            at = len(jobs)
            jobs.append(Job([1.0, 1.0], [Input(at - 1, 0, 8)] if i else [], group=at))
    return [*jobs, Job([1.0, 1.0], [Input(2, 0, 8), Input(5, 0, 8)], group=6)]


def test_the_example_of_the_docstring() -> None:
    simulation = Simulation(two_chains(), 2, flat(0.1))
    found = place_greedily(simulation, [[0, 1]] * 7)
    assert found.seconds == pytest.approx(4.1)
    assert found.single_device_seconds == pytest.approx(7.0)
    assert len(set(found.device_of_group[:3])) == len(set(found.device_of_group[3:6])) == 1
    assert found.device_of_group[0] != found.device_of_group[3]


def test_dear_transfers_keep_everything_together() -> None:
    found = place_greedily(Simulation(two_chains(), 2, flat(100.0)), [[0, 1]] * 7)
    assert found.device_of_group == [0] * 7


def test_a_tensor_is_sent_once() -> None:
    """Two consumers on one device wait for one transfer."""
    jobs = [Job([1.0, 1.0], [], 0), Job([1.0, 1.0], [Input(0, 0, 1)], 1), Job([1.0, 1.0], [Input(0, 0, 1)], 2)]
    assert Simulation(jobs, 2, flat(5.0)).makespan([0, 1, 1]) == pytest.approx(1 + 5 + 2)


def test_a_faster_device_is_used() -> None:
    jobs = [Job([4.0, 1.0], [], 0), Job([4.0, 1.0], [Input(0, 0, 1)], 1)]
    found = place_greedily(Simulation(jobs, 2, flat(0.5)), [[0, 1], [0, 1]])
    assert found.device_of_group == [1, 1]
    assert found.seconds == pytest.approx(2.0)


@st.composite
def steps(draw: Any) -> tuple[Simulation, list[list[int]]]:
    devices = draw(st.integers(1, 3))
    count = draw(st.integers(1, 9))
    seconds = st.floats(1e-6, 10, allow_nan=False)
    groups = draw(st.integers(1, count))
    jobs = []
    for at in range(count):
        producers = draw(st.lists(st.integers(0, at - 1), max_size=3, unique=True)) if at else []
        inputs = [Input(p, 0, draw(st.integers(0, 100))) for p in producers]
        jobs.append(Job([draw(seconds) for _ in range(devices)], inputs, draw(st.integers(0, groups - 1))))
    feasible = [draw(st.permutations(range(devices))) for _ in range(groups)]
    feasible = [order[: draw(st.integers(1, devices))] for order in feasible]
    latency, per_byte = draw(st.floats(0, 1)), draw(st.floats(0, 0.1))
    return Simulation(jobs, devices, lambda s, d, size: latency + per_byte * size), feasible


@given(steps())
def test_greedy_is_feasible_and_never_worse_than_one_device(case: tuple[Simulation, list[list[int]]]) -> None:
    simulation, feasible = case
    found = place_greedily(simulation, feasible)
    assert all(device in choices for device, choices in zip(found.device_of_group, feasible, strict=True))
    assert found.seconds == simulation.makespan(found.device_of_group)
    for device in range(simulation.devices):
        if all(device in choices for choices in feasible):
            assert found.seconds <= simulation.makespan([device] * len(feasible))


@given(steps())
def test_no_placement_beats_the_lower_bounds(case: tuple[Simulation, list[list[int]]]) -> None:
    """The simulation is no faster than its longest path, nor than its work shared evenly."""
    simulation, feasible = case
    quickest = [min(job.seconds) for job in simulation.jobs]
    path = [0.0] * len(quickest)
    for at, job in enumerate(simulation.jobs):
        path[at] = quickest[at] + max((path[i.producer] for i in job.inputs), default=0.0)
    bound = max(*path, sum(quickest) / simulation.devices)
    for candidate in itertools.islice(itertools.product(*feasible), 20):
        assert simulation.makespan(candidate) >= bound * (1 - 1e-9)


@given(steps())
def test_the_order_respects_every_edge(case: tuple[Simulation, list[list[int]]]) -> None:
    position = {at: i for i, at in enumerate(case[0].order)}
    for at, job in enumerate(case[0].jobs):
        assert all(position[taken.producer] < position[at] for taken in job.inputs)
