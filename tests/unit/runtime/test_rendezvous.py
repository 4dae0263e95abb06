"""The rendezvous: in whatever order things happen, a value arrives once, or whoever waits for it is told why not."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.errors import AbortedError, CancelledError, InternalError, ResourceExhaustedError
from anabranch.runtime import rendezvous_table
from anabranch.runtime.held_start import HeldStart
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import DEAD, NOTHING, Key, RendezvousTable, StepId

A, B = "/device:CPU:0", "/device:CPU:1"


#: two sessions number their steps alike
STEPS = st.builds(StepId, st.sampled_from(["s", "t"]), st.integers(1, 2))


class RendezvousTableMachine(RuleBasedStateMachine):
    """Random events beside a plain account of what was sent and asked for."""

    keys = st.builds(Key, STEPS, st.just(A), st.just(B), st.sampled_from("xy"), st.just(""), st.integers(0, 1))

    def __init__(self) -> None:
        super().__init__()
        self.table = RendezvousTable()
        self.begun: set[StepId] = set()
        self.ended: set[StepId] = set()
        self.aborted: set[StepId] = set()
        self.sent: dict[Key, int] = {}
        self.asked: dict[Key, str] = {}
        self.settled: dict[str, Any] = {}
        self.count = 0

    def deliver(self, deliveries: list[Any]) -> None:
        for waiter, value, error in deliveries:
            assert waiter not in self.settled, "a waiter is told once"
            self.settled[waiter] = error or value

    def runs(self, step: StepId) -> bool:
        return step in self.begun and step not in self.ended

    @rule(step=STEPS)
    def begin(self, step: StepId) -> None:
        if step not in self.begun:
            self.begun.add(step)
            self.table.begin(step)

    @rule(key=keys)
    def send(self, key: Key) -> None:
        self.count += 1
        alive = self.runs(key.step) and key.step not in self.aborted
        if alive and key in self.sent:
            with pytest.raises(InternalError, match="sent twice"):
                self.table.send(key, self.count)
            return
        self.deliver(self.table.send(key, self.count))
        if alive:
            self.sent[key] = self.count

    @rule(key=keys)
    def receive(self, key: Key) -> None:
        self.count += 1
        waiter = f"waiter {self.count}"
        alive = self.runs(key.step) and key.step not in self.aborted
        if alive and key in self.asked:
            with pytest.raises(InternalError, match="asked for twice"):
                self.table.receive(key, waiter)
            return
        self.deliver(self.table.receive(key, waiter))
        if alive:
            self.asked[key] = waiter
        else:
            assert isinstance(self.settled[waiter], AbortedError | CancelledError)

    @rule(key=keys)
    def take(self, key: Key) -> None:
        got = self.table.take(key)
        if self.runs(key.step) and key.step not in self.aborted and key in self.sent and key not in self.asked:
            assert got == self.sent[key]
            self.asked[key] = f"consumer of {key!r}"
            self.settled[self.asked[key]] = got
        else:
            assert got is NOTHING

    @rule(step=STEPS)
    def abort(self, step: StepId) -> None:
        self.deliver(self.table.abort(step, AbortedError(None, None, "enough")))
        if self.runs(step):
            self.aborted.add(step)

    @rule(step=STEPS)
    def finish(self, step: StepId) -> None:
        self.deliver(self.table.finish(step))
        if step in self.begun:
            self.ended.add(step)

    @invariant()
    def values_meet_their_waiters(self) -> None:
        for key, waiter in self.asked.items():
            if key in self.sent:
                assert self.settled[waiter] == self.sent[key]
            elif key.step in self.ended or key.step in self.aborted:
                assert isinstance(self.settled[waiter], AbortedError | CancelledError)
            else:
                assert waiter not in self.settled
                assert key in self.table.waiting(key.step)

    @invariant()
    def nothing_is_kept_of_steps_that_ended(self) -> None:
        assert self.table.steps == len(self.begun - self.ended)


TestRendezvousTable = RendezvousTableMachine.TestCase


def test_either_may_come_first() -> None:
    rendezvous = Rendezvous()
    with rendezvous.step(StepId("s", 1)) as exchange:
        pending = exchange.receive(A, B, "x")
        assert not pending.is_settled
        exchange.send(A, B, "x", 3)
        assert pending.wait() == [3]
        exchange.send(A, B, "y", 4)
        assert exchange.receive(A, B, "y").wait() == [4]
    assert rendezvous.steps == 0


def test_steps_frames_and_iterations_are_kept_apart() -> None:
    rendezvous = Rendezvous()
    with rendezvous.step(StepId("s", 1)) as first, rendezvous.step(StepId("s", 2)) as second:
        views = [
            first,
            second,
            first.within("loop", 0),
            first.within("loop", 1),
            first.within("loop", 1).within("inner", 1),
        ]
        for number, view in enumerate(views):
            view.send(A, B, "x", number)
        assert [view.receive(A, B, "x").wait()[0] for view in views] == [0, 1, 2, 3, 4]


def test_what_starts_another_part_is_offered_what_is_sent_there_once_the_step_begins() -> None:
    rendezvous, away, started = Rendezvous(), list[str](), list[list[str]]()
    rendezvous.outlet = lambda key, _: away.append(key.tensor)
    start = HeldStart(lambda kept, _: started.append([key.tensor for key, _ in kept]), {}, 2, True, lambda: 0.0)
    for number in (1, 3):
        rendezvous.hold(StepId("s", number), {B: start})
    with rendezvous.step(StepId("s", 2)) as another, rendezvous.step(StepId("s", 1)) as exchange:
        another.send_away(A, B, "of another step", np.zeros(1))
        exchange.send_away(A, B, "x", np.zeros(1))
        exchange.send_away(A, "/device:CPU:2", "to another task", np.zeros(1))
        assert (away, started) == (["of another step", "to another task"], [])
        exchange.send_away(A, B, "y", np.zeros(1))
        assert started == [["x", "y"]]
        exchange.send_away(A, B, "after the beginning", np.zeros(1))
        assert away[2:] == ["after the beginning"]
    rendezvous.let_go(StepId("s", 3))
    with rendezvous.step(StepId("s", 3)) as exchange:
        assert exchange.held is None


def test_a_dead_tensor_starts_another_part_at_once() -> None:
    rendezvous, started = Rendezvous(), list[list[Any]]()
    start = HeldStart(lambda kept, _: started.append([value for _, value in kept]), {}, 2, True, lambda: 0.0)
    rendezvous.hold(StepId("s", 1), {B: start})
    with rendezvous.step(StepId("s", 1)) as exchange:
        exchange.send_away(A, B, "x", DEAD)
    assert started == [[None]]


def test_rows_that_are_taken_are_there_for_their_receiver() -> None:
    class Taker:
        number, is_alone, way = 0, True, (B, A, "rows")

        def take(self, indices: Any) -> Any:
            return indices * 10

    rendezvous, started = Rendezvous(), list[tuple[int, int]]()
    rows: Any = {"indices": [Taker()]}
    start = HeldStart(lambda kept, taken: started.append((len(kept), taken)), rows, 2, True, lambda: 0.0)
    rendezvous.hold(StepId("s", 1), {B: start})
    with rendezvous.step(StepId("s", 1)) as exchange:
        exchange.send_away(A, B, "indices", np.array([2, 3]))
        ((way, value),) = exchange.taken.items()
        assert way == (B, A, "rows")
        np.testing.assert_array_equal(value, [20, 30])
        exchange.send_away(A, B, "update", np.zeros(1))
    assert started == [(1, 1)], "the indices stay here, since nobody there needs them"


def test_dead_values_arrive_as_such() -> None:
    with Rendezvous().step(StepId("s", 1)) as exchange:
        exchange.send(A, B, "x", DEAD)
        assert exchange.receive(A, B, "x").wait() == [DEAD]


def test_an_abort_wakes_every_waiter() -> None:
    rendezvous = Rendezvous()
    woken: list[str] = []

    def wait(exchange: Any, name: str) -> None:
        try:
            exchange.receive(A, B, name).wait()
        except AbortedError as error:
            woken.append(f"{name}: {error.message}")

    exchange = rendezvous.begin(StepId("s", 1))
    threads = [threading.Thread(target=wait, args=(exchange, name)) for name in "abc"]
    for thread in threads:
        thread.start()
    exchange.send(A, B, "unclaimed", 1)
    exchange.abort(AbortedError(None, None, "a peer failed"))
    for thread in threads:
        thread.join(30)
    assert sorted(woken) == [f"{name}: a peer failed" for name in "abc"]
    with pytest.raises(AbortedError, match="a peer failed"):
        exchange.receive(A, B, "late").wait()
    exchange.finish()
    assert rendezvous.steps == 0
    with pytest.raises(CancelledError, match="after its step had ended"):
        exchange.receive(A, B, "later").wait()


def test_who_cancels_is_forgotten() -> None:
    rendezvous = Rendezvous()
    with rendezvous.step(StepId("s", 1)) as exchange:
        pending = exchange.receive(A, B, "x")
        assert [key.tensor for key in rendezvous.waiting(exchange.step)] == ["x"]
        pending.cancel(CancelledError(None, None, "no longer wanted"))
        assert rendezvous.waiting(exchange.step) == []
        exchange.send(A, B, "x", 5)
        assert exchange.receive(A, B, "x").wait() == [5]


def test_a_failing_step_tells_its_waiters_why() -> None:
    rendezvous = Rendezvous()
    pending: Any = None

    def fail() -> Any:
        nonlocal pending
        with rendezvous.step(StepId("s", 1)) as exchange:
            pending = exchange.receive(A, B, "x")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert isinstance(pending.error, ValueError)
    assert (
        str(Key(StepId("s", 7), A, B, "edge_1_x:0", "loop", 3))
        == f"edge_1_x:0 from {A} to {B} in step 7 in iteration 3 of loop"
    )


# ---------------------------------------------------------------------- between tasks
class EarlyValuesMachine(RuleBasedStateMachine):
    """Random events of steps that other tasks run too, beside a plain account.

    Values and the news that a step was given up come by other links than the order to start it, in any order.
    """

    numbers = st.integers(1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.table = RendezvousTable()
        self.table.open_session("s", 0)
        self.state: dict[int, str] = {}
        self.arrived: dict[Key, int] = {}
        self.delivered: dict[int, Any] = {}
        self.count = 0

    def deliver(self, deliveries: list[Any]) -> None:
        for waiter, value, error in deliveries:
            assert waiter not in self.delivered
            self.delivered[waiter] = value if error is None else error

    @staticmethod
    def key(number: int, tensor: str) -> Key:
        return Key(StepId("s", number), A, B, tensor)

    @rule(number=numbers, tensor=st.sampled_from("xy"))
    def arrive(self, number: int, tensor: str) -> None:
        key = self.key(number, tensor)
        if key in self.arrived:
            return
        self.count += 1
        state = self.state.get(number, "early")
        self.deliver(self.table.arrive(key, self.count, 8))
        if state in ("early", "begun"):
            self.arrived[key] = self.count

    @rule(number=numbers)
    def begin(self, number: int) -> None:
        state = self.state.get(number, "early")
        step = StepId("s", number)
        if state == "early":
            self.table.begin(step)
            self.state[number] = "begun"
        elif state == "given up":
            with pytest.raises(AbortedError):
                self.table.begin(step)
            self.state[number] = "ended"
        else:
            with pytest.raises(InternalError, match="begun already"):
                self.table.begin(step)

    @rule(number=numbers, tensor=st.sampled_from("xy"))
    def receive(self, number: int, tensor: str) -> None:
        key = self.key(number, tensor)
        if self.state.get(number) != "begun" or ("asked", key) in self.delivered:
            return
        self.count += 1
        self.delivered["asked", key] = self.count  # type: ignore[index]
        self.deliver(self.table.receive(key, self.count))

    @rule(number=numbers)
    def abort(self, number: int) -> None:
        self.deliver(self.table.abort(StepId("s", number), AbortedError(None, None, "given up")))
        state = self.state.get(number, "early")
        if state == "early":
            self.state[number] = "given up"
        elif state == "begun":
            self.state[number] = "begun and given up"

    @rule(number=numbers)
    def finish(self, number: int) -> None:
        if self.state.get(number, "").startswith("begun"):
            self.deliver(self.table.finish(StepId("s", number)))
            self.state[number] = "ended"

    @invariant()
    def what_came_early_is_there_when_it_is_asked_for(self) -> None:
        for waiter, value in self.delivered.items():
            if isinstance(waiter, tuple) or isinstance(value, Exception):
                continue
            assert value in self.arrived.values()
        begun = [n for n, state in self.state.items() if state == "begun"]
        for key, value in self.arrived.items():
            asked = self.delivered.get(("asked", key))  # type: ignore[call-overload]
            if key.step.number in begun and asked is not None:
                assert self.delivered[asked] == value

    @invariant()
    def nothing_is_kept_of_steps_that_have_ended(self) -> None:
        ended = [n for n, state in self.state.items() if state == "ended"]
        assert not any(step.number in ended for step in self.table._steps)
        early = sum(not state.begun for state in self.table._steps.values())
        assert self.table._early_steps == early


TestEarlyValues = EarlyValuesMachine.TestCase


def test_what_comes_for_steps_that_have_not_begun_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_table, "MAX_EARLY_BYTES", 100)
    monkeypatch.setattr(rendezvous_table, "MAX_EARLY_STEPS", 2)
    table = RendezvousTable()
    key = EarlyValuesMachine.key
    table.arrive(key(1, "x"), 1, 50)
    assert table.steps == 0, "what comes for a session that is not open is dropped"
    table.open_session("s", 0)
    table.arrive(key(1, "x"), 1, 60)
    table.arrive(key(2, "x"), 1, 60)
    table.begin(StepId("s", 1))
    with pytest.raises(ResourceExhaustedError, match="have not begun"):
        table.begin(StepId("s", 2))
    assert table.take(key(1, "x")) == 1
    table.finish(StepId("s", 1))
    for number in (3, 4, 5):  # one too many: the oldest was given up before it began here
        table.arrive(key(number, "x"), number, 1)
    assert table.steps == 2
    table.begin(StepId("s", 5))
    assert table.take(key(5, "x")) == 5
    table.finish(StepId("s", 5))
    table.forget_session("s")
    assert table.steps == 0


def test_a_session_that_is_over_keeps_nothing() -> None:
    table = RendezvousTable()
    table.open_session("s", 0)
    table.arrive(EarlyValuesMachine.key(1, "x"), 1, 8)
    table.forget_session("s")
    table.arrive(EarlyValuesMachine.key(2, "x"), 1, 8)
    assert table.steps == 0


def test_steps_of_before_a_session_was_opened_anew_have_ended() -> None:
    table = RendezvousTable()
    table.open_session("s", 7)
    table.arrive(EarlyValuesMachine.key(6, "x"), 1, 8)
    assert table.steps == 0
    table.arrive(EarlyValuesMachine.key(7, "x"), 1, 8)
    assert table.steps == 1


def test_steps_that_functions_are_may_begin_after_many_others() -> None:
    table = RendezvousTable()
    table.open_session("s", 1)
    for number in (1, 3 * rendezvous_table.REMEMBERED_STEPS, -1):
        table.begin(StepId("s", number))
        table.finish(StepId("s", number))
    table.begin(StepId("s", -2))
    assert not table.is_idle("s")
    with pytest.raises(InternalError, match="has begun already"):
        table.begin(StepId("s", 2))


def test_who_waits_for_the_end_of_a_sessions_steps_is_told_once() -> None:
    rendezvous_of_task, told = Rendezvous(), list[str]()
    rendezvous_of_task.when_idle("s", lambda: told.append("at once"))
    exchanges = [rendezvous_of_task.begin(StepId("s", number)) for number in (1, 2)]
    rendezvous_of_task.when_idle("s", lambda: told.append("at the end"))
    exchanges[0].finish()
    assert told == ["at once"]
    exchanges[1].finish()
    assert told == ["at once", "at the end"]


def test_what_came_for_steps_that_never_begin_is_dropped_with_the_next_step() -> None:
    table = RendezvousTable()
    table.open_session("s", 1)
    for number in (3, 4, 5):
        table.arrive(EarlyValuesMachine.key(number, "x"), 1, 8)
    table.begin(StepId("s", 3))
    table.end_below("s", 5)
    assert table.steps == 2, "one that has begun, and one that may"
    assert table._early_bytes == 8
    table.arrive(EarlyValuesMachine.key(4, "y"), 1, 8)
    assert table.steps == 2


def test_a_turn_is_a_step_that_has_ended_as_it_begins() -> None:
    table = RendezvousTable()
    assert not table.begin_turn("s", 1, 0), "nobody works for the session"
    table.open_session("s", 5)
    assert not table.begin_turn("s", 4, 0), "it has ended"
    assert table.begin_turn("s", 6, 0)
    assert not table.begin_turn("s", 6, 0)
    assert (table.steps, table.is_idle("s"), table.is_idle("t")) == (1, False, True)
    with pytest.raises(InternalError, match="step 6 has begun already"):
        table.begin(StepId("s", 6))
    assert table.arrive(EarlyValuesMachine.key(6, "x"), 1, 8) == [], "it comes too late"
    assert table.abort(StepId("s", 6), KeyError()) == []
    assert table.begin_turn("s", 8, 0)
    table.end_turn("s")
    assert not table.is_idle("s")
    table.end_turn("s")
    assert (table.steps, table.is_idle("s"), table.ended_steps) == (0, True, 2)


def test_a_step_that_was_heard_of_is_no_turn() -> None:
    table = RendezvousTable()
    table.open_session("s", 1)
    table.arrive(EarlyValuesMachine.key(2, "x"), 1, 8)
    table.abort(StepId("s", 3), KeyError())
    assert not table.begin_turn("s", 2, 0)
    assert not table.begin_turn("s", 3, 0)
    # which steps have ended is said along: what came for them is dropped
    assert table.begin_turn("s", 5, 4)
    table.end_turn("s")
    assert table.steps == 0
