"""When tasks are started again: single transitions, and whatever a random sequence of events leads to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from anabranch.distributed.restarts import (
    ENDED,
    WITH_PROCESS,
    Kill,
    RestartInstruction,
    RestartLimits,
    RestartRule,
    Restarts,
    Start,
    TaskState,
    Terminate,
)

LIMITS = RestartLimits(first_pause=1.0, longest_pause=6.0, restarts=5, within=100.0, grace=10.0)


def machine(rule: RestartRule = RestartRule.ALWAYS, limits: RestartLimits = LIMITS) -> Restarts:
    made = Restarts(limits)
    assert made.add("ps/0", rule) == [Start("ps/0")]
    return made


def test_pauses_double_up_to_the_longest() -> None:
    tasks = machine()
    now, pauses = 0.0, []
    for _ in range(LIMITS.restarts):
        assert tasks.exited("ps/0", -9, now) == []
        until = tasks.next_time()
        assert until is not None
        assert tasks.time_passed(until - 0.001) == []
        assert tasks.time_passed(until) == [Start("ps/0")]
        pauses.append(until - now)
        now = until
    assert pauses == [1, 2, 4, 6, 6]
    assert tasks.exited("ps/0", -9, now) == []
    assert tasks.state("ps/0") is TaskState.FAILED
    assert (tasks.restarts("ps/0"), tasks.status("ps/0"), tasks.next_time()) == (5, -9, None)


def test_restarts_long_ago_are_forgotten() -> None:
    tasks = machine()
    for now in range(0, 5000, 150):
        tasks.exited("ps/0", 1, float(now))
        assert tasks.next_time() == now + LIMITS.first_pause
        assert tasks.time_passed(now + 1.0) == [Start("ps/0")]


@pytest.mark.parametrize(
    ("rule", "status", "state"),
    [
        (RestartRule.ALWAYS, 0, TaskState.WAITING),
        (RestartRule.ON_FAILURE, 0, TaskState.FINISHED),
        (RestartRule.ON_FAILURE, 3, TaskState.WAITING),
        (RestartRule.ON_FAILURE, -9, TaskState.WAITING),
        (RestartRule.NEVER, 0, TaskState.FINISHED),
        (RestartRule.NEVER, 3, TaskState.FAILED),
    ],
)
def test_the_rule_says_who_is_started_again(rule: RestartRule, status: int, state: TaskState) -> None:
    tasks = machine(rule)
    tasks.exited("ps/0", status, 0.0)
    assert tasks.state("ps/0") is state


def test_one_that_does_not_end_is_killed_once() -> None:
    tasks = machine()
    assert tasks.ask_stop("ps/0", 5.0) == [Terminate("ps/0")]
    assert tasks.time_passed(14.9) == []
    assert tasks.time_passed(15.0) == [Kill("ps/0")]
    assert tasks.time_passed(99.0) == []
    assert tasks.exited("ps/0", -9, 99.0) == []
    assert (tasks.state("ps/0"), tasks.is_over) == (TaskState.STOPPED, True)


def test_asked_for_restarts_do_not_count() -> None:
    tasks = machine(RestartRule.NEVER, RestartLimits(restarts=0))
    assert tasks.ask_restart("ps/0", 0.0) == [Terminate("ps/0")]
    assert tasks.exited("ps/0", 0, 1.0) == [Start("ps/0")]
    tasks.exited("ps/0", 0, 2.0)
    assert tasks.ask_restart("ps/0", 3.0) == [Start("ps/0")]
    assert tasks.restarts("ps/0") == 2


def test_the_last_wish_counts() -> None:
    tasks = machine()
    tasks.ask_restart("ps/0", 0.0)
    assert tasks.ask_stop("ps/0", 1.0) == []
    tasks.ask_restart("ps/0", 2.0)
    tasks.ask_stop("ps/0", 3.0)
    assert tasks.exited("ps/0", 0, 4.0) == []
    assert tasks.state("ps/0") is TaskState.STOPPED


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="already"):
        machine().add("ps/0", RestartRule.NEVER)


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["exit", "stop", "restart", "time"]),
        st.integers(0, 2),
        st.sampled_from([0, 1, -9]),
        st.floats(0, 30),
    ),
    max_size=80,
)


@settings(max_examples=100, deadline=None)
@given(_EVENTS)
def test_any_sequence_of_events_leaves_each_task_with_one_process_at_most(
    events: list[tuple[str, int, int, float]],
) -> None:
    tasks = Restarts(LIMITS)
    alive: set[str] = set()
    now = 0.0

    def follow(instructions: list[RestartInstruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                assert instruction.task not in alive
                alive.add(instruction.task)
            else:
                assert instruction.task in alive
        for task in tasks.tasks():
            assert (tasks.state(task) in WITH_PROCESS) == (task in alive)

    for index, rule in enumerate(RestartRule):
        alive.add(f"t/{index}")
        tasks.add(f"t/{index}", rule)
    for event, index, status, passed in events:
        now += passed
        task = f"t/{index}"
        if event == "exit" and task in alive:
            alive.discard(task)
            follow(tasks.exited(task, status, now))
        elif event == "stop":
            follow(tasks.ask_stop(task, now))
        elif event == "restart":
            follow(tasks.ask_restart(task, now))
        follow(tasks.time_passed(now))
        until = tasks.next_time()
        assert until is None or until > now
    for task in tasks.tasks():
        follow(tasks.ask_stop(task, now))
    follow(tasks.time_passed(now + LIMITS.grace))
    for task in sorted(alive):
        alive.discard(task)
        follow(tasks.exited(task, -9, now + LIMITS.grace))
    assert tasks.is_over
    assert not alive
    assert all(tasks.state(task) in ENDED for task in tasks.tasks())
