"""Threads of a simulated machine wait for cores as on a real one."""

from __future__ import annotations

import random
import statistics

import pytest

from anabranch.tools.simulated_machines import SLICE, WARM, Events, Machine, MachineThread, PythonLock, Wire, differing


def ends(machine: Machine, events: Events, threads: list[MachineThread], seconds: float = 1.0) -> list[float]:
    """When each of these threads has done a piece of work, all of which come now."""
    ended: list[float] = []
    for thread in threads:
        thread.do(seconds, lambda: ended.append(events.now))
    events.run()
    return ended


def test_threads_share_cores() -> None:
    events = Events()
    machine = Machine(events, cores=2)
    assert ends(machine, events, [MachineThread(machine) for _ in range(4)]) == [1.0, 1.0, 2.0, 2.0]


def test_threads_that_share_pythons_lock_run_one_at_a_time() -> None:
    events = Events()
    machine, lock = Machine(events, cores=4), PythonLock()
    assert ends(machine, events, [MachineThread(machine, lock) for _ in range(3)]) == [1.0, 2.0, 3.0]


def test_to_wake_a_thread_on_an_idle_core_takes_time_and_on_one_that_is_busy_none() -> None:
    events = Events()
    machine = Machine(events, cores=1, wake=0.25)
    assert ends(machine, events, [MachineThread(machine) for _ in range(2)]) == [1.25, 2.25]


def test_what_comes_after_a_result_holds_up_the_thread_and_not_the_result() -> None:
    events, told = Events(), list[float]()
    thread = MachineThread(Machine(events, cores=1))
    for _ in range(2):
        thread.do(1.0, lambda: told.append(events.now), after=0.5)
    events.run()
    assert told == [1.0, 2.5]


@pytest.mark.parametrize(("rested", "begins"), [(WARM * 0.9, 0.01), (WARM * 1.1, 0.0)])
def test_a_thread_that_has_just_run_waits_for_its_core_though_another_is_idle(rested: float, begins: float) -> None:
    events = Events()
    machine = Machine(events, cores=2)
    waiting, long, short = (MachineThread(machine) for _ in range(3))
    for thread in (waiting, long):
        thread.core = machine.any_core()
    # `waiting` and `long` belong to one core, `short` to the other
    long.core = waiting.core
    started = list[float]()
    waiting.do(1e-6, lambda: None)
    events.run()
    ran, hand_over = events.now, rested / 2
    long.do(0.01, lambda: None)
    short.do(hand_over, lambda: None)
    # it comes while both are busy, and before the other core looks for something to do
    events.after(rested / 4, lambda: waiting.do(0.0, lambda: started.append(events.now - ran)))
    events.after(rested / 4, lambda: short.do(rested - hand_over, lambda: None))
    events.run()
    assert started == [pytest.approx(rested if begins == 0.0 else begins, rel=0.05)]


def test_a_thread_with_much_to_do_gives_way_after_its_slice() -> None:
    events, told = Events(), list[str]()
    machine = Machine(events, cores=1)
    for name in "ab":
        thread = MachineThread(machine)
        for _ in range(4):
            thread.do(SLICE * 0.6, lambda name=name: told.append(name))  # type: ignore[misc]
    events.run()
    assert "".join(told) == "aabbaabb"


def test_a_machine_that_is_stopped_begins_nothing() -> None:
    events = Events()
    machine = Machine(events, cores=1)
    machine.stop(3.0)
    assert ends(machine, events, [MachineThread(machine)]) == [4.0]


def test_a_wire_carries_one_after_the_other() -> None:
    events, came = Events(), list[float]()
    wire = Wire(events, bytes_per_second=10.0, under_way=0.5)
    for _ in range(2):
        wire.carry(10.0, lambda: came.append(events.now))
    events.run()
    assert came == [1.5, 2.5]


def test_work_differs_as_much_as_is_asked_for() -> None:
    numbers = differing(0.4, random.Random(3))
    some = [next(numbers) for _ in range(4000)]
    assert statistics.mean(some) == pytest.approx(1.0, abs=0.02)
    assert statistics.stdev(some) == pytest.approx(0.4, abs=0.03)
