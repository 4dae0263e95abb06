"""Threads of a simulated machine wait for cores as on a real one."""

from __future__ import annotations

import functools
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


@pytest.mark.parametrize(("free", "begins"), [(WARM * 0.9, 0.01), (WARM * 1.1, WARM * 1.1)])
def test_a_thread_that_has_just_run_waits_for_its_core_though_another_is_idle(free: float, begins: float) -> None:
    events, begun = Events(), list[float]()
    machine = Machine(events, cores=2)
    waiting, short, long = (MachineThread(machine) for _ in range(3))
    # it and the one that takes long are on one core
    assert waiting.core is long.core is not short.core
    waiting.do(0.0, lambda: None)
    events.run()
    long.do(0.01, lambda: None)
    short.do(free, lambda: None)
    # while both cores are busy
    events.after(free / 2, lambda: waiting.do(0.0, lambda: begun.append(events.now)))
    events.run()
    assert begun == [pytest.approx(begins)]


def test_a_thread_with_much_to_do_gives_way_after_its_slice() -> None:
    events, told = Events(), list[str]()
    machine = Machine(events, cores=1)
    for name in "ab":
        thread = MachineThread(machine)
        for _ in range(4):
            thread.do(SLICE * 0.6, functools.partial(told.append, name))
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
