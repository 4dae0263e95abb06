"""When a computation runs on one thread, and when on all: with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.kernels.crowding import Crowding, SparingComputation


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Form:
    """A computation that takes as long as it is told to."""

    def __init__(self, time: Time, scratch_bytes: int) -> None:
        self.time, self.scratch_bytes = time, scratch_bytes
        self.takes, self.runs = 0.0, 0

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        self.runs += 1
        self.time.now += self.takes


class Machine:
    """A computation in both forms."""

    def __init__(self, crowding: Crowding | None = None, time: Time | None = None, spins: bool = False) -> None:
        self.time = time or Time()
        self.crowding = crowding or Crowding(self.time)
        self.wide, self.narrow = Form(self.time, 64), Form(self.time, 32)
        self.made = 0
        self.computation = SparingComputation(self.wide, self.make, self.crowding, spins, self.time)

    def make(self) -> Form:
        self.made += 1
        return self.narrow

    def run(self, takes: float) -> tuple[int, int]:
        """Runs it once; returns how often each form ran so far."""
        self.wide.takes = takes
        self.computation.run([1, 2], 3, 64)
        return self.wide.runs, self.narrow.runs


def test_calls_of_usual_length_run_on_all_cores() -> None:
    machine = Machine()
    for count, takes in enumerate((0.3, 0.001, 0.002, 0.005), 1):  # the first prepares what it needs
        assert machine.run(takes) == (count, 0)
    assert machine.made == 0
    assert machine.computation.scratch_bytes == 64


def test_where_calls_lose_much_they_run_on_one_core_for_a_while() -> None:
    machine = Machine()
    machine.run(0.001)
    for count in range(2, 6):  # 29 ms are lost by each
        assert machine.run(0.030) == (count, 0)
    assert machine.run(0.030) == (5, 1)
    assert machine.run(0.030) == (5, 2)
    assert machine.made == 1
    machine.time.now += 1.1
    assert machine.run(0.001) == (6, 2)  # the cores are free again
    assert machine.run(0.001) == (7, 2)


def test_a_call_that_waits_now_and_then_changes_nothing() -> None:
    machine = Machine()
    machine.run(0.001)
    for count in range(2, 50):
        assert machine.run(0.030) == (count, 0)
        machine.time.now += 0.4
    assert machine.made == 0


def test_what_one_finds_out_others_know_that_suffer() -> None:
    one = Machine()
    other, calm = Machine(one.crowding, one.time), Machine(one.crowding, one.time)
    for machine in (one, other, calm):
        machine.run(0.001)
    other.run(0.030)
    one.time.now += 1.1
    one.run(0.150)
    assert one.crowding.is_known
    assert other.run(0.001) == (2, 1)
    assert calm.run(0.001) == (2, 0)  # it never waited


def test_a_pause_that_is_followed_by_the_same_is_twice_as_long() -> None:
    time = Time()
    crowding = Crowding(time)
    for pause in (1.0, 2.0, 4.0, 4.0):
        crowding.lost(0.2)
        time.now += pause - 0.1
        assert crowding.is_known
        time.now += 0.2
        assert not crowding.is_known
    time.now += 2.0
    crowding.lost(0.2)
    time.now += 1.1
    assert not crowding.is_known


def test_what_began_before_the_cores_were_known_to_be_crowded_makes_no_pause_longer() -> None:
    time = Time()
    crowding = Crowding(time)
    crowding.lost(0.2)
    time.now += 0.5
    crowding.lost(0.2)
    time.now += 0.6
    assert not crowding.is_known
    crowding.lost(0.05)
    assert not crowding.is_known


def test_beside_other_work_of_the_process_what_spins_runs_on_one_core_at_once() -> None:
    machine = Machine(spins=True)
    calm = Machine(machine.crowding, machine.time)
    assert machine.run(0.001) == (1, 0)
    with machine.crowding.taken():
        with machine.crowding.taken():
            assert machine.run(0.001) == (1, 1)
        assert machine.run(0.001) == (1, 2)
        assert calm.run(0.001) == (1, 0)
        for count in range(2, 12):  # why it waits is known, and says nothing of later
            assert calm.run(0.030)[0] == min(count, 2)
    assert not machine.crowding.is_known
    assert machine.run(0.001) == (2, 2)
    assert calm.run(0.001)[0] == 3
