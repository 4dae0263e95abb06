"""A step ends once, with its cause, after every task has answered or has had the time to."""

from __future__ import annotations

import random

from anabranch.distributed.step_protocol import Abort, End, Instruction, StepProtocol
from anabranch.errors import AbortedError
from tests.each_case import each_case

TASKS = ["ps/0", "ps/1", "worker/0"]


def failure(text: str) -> AbortedError:
    return AbortedError(None, None, text)


def begun(tasks: list[str]) -> StepProtocol:
    protocol = StepProtocol(tasks)
    assert all(protocol.begin(task) for task in range(len(tasks)))
    return protocol


def test_a_step_succeeds_when_all_tasks_have_answered() -> None:
    protocol = begun(TASKS)
    assert protocol.answered(2) == []
    assert protocol.answered(0) == []
    assert protocol.unanswered == ["ps/1"]
    assert protocol.answered(1) == [End(None)]
    assert protocol.has_ended
    assert protocol.answered(1) == []
    assert protocol.give_up(failure("late")) == []


def test_the_first_error_is_the_cause() -> None:
    protocol, cause = begun(TASKS), failure("cause")
    assert protocol.answered(1, cause) == [Abort((0, 2), cause)]
    assert protocol.answered(0, failure("consequence")) == []
    assert protocol.answered(2) == [End(cause)]


def test_the_only_task_of_a_step_is_not_told_of_its_own_error() -> None:
    cause = failure("cause")
    assert begun(["ps/0"]).answered(0, cause) == [End(cause)]


def test_who_does_not_answer_is_named() -> None:
    protocol, cause = begun(TASKS), failure("given up")
    assert protocol.grace_is_over() == []
    assert protocol.give_up(cause) == [Abort((0, 1, 2), cause)]
    protocol.answered(0)
    assert protocol.grace_is_over() == [End(cause)]
    assert "ps/1, worker/0 did not say" in cause.__notes__[0]
    assert protocol.grace_is_over() == []


def test_who_has_not_begun_never_does_once_the_step_has_failed() -> None:
    protocol, cause = StepProtocol(TASKS), failure("cause")
    assert protocol.begin(0)
    # the two others are told, since the first may have sent them something, and are not waited for
    assert protocol.give_up(cause) == [Abort((0, 1, 2), cause)]
    assert not protocol.begin(1)
    assert protocol.answered(0, failure("consequence")) == [End(cause)]
    assert not protocol.begin(2)


def test_a_step_that_nobody_has_begun_ends_at_once() -> None:
    protocol, cause = StepProtocol(TASKS), failure("cause")
    assert protocol.give_up(cause) == [Abort((0, 1, 2), cause), End(cause)]


@each_case("seed", range(200))
def test_in_any_order_a_step_ends_once(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 5)
    protocol = begun([str(task) for task in range(count)])
    answers, left = [(task, rng.random() < 0.3) for task in range(count)], set(range(count))
    rng.shuffle(answers)
    causes: list[BaseException] = []
    seen: list[Instruction] = []

    def follow(instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Abort):
                assert set(instruction.tasks) == left, "those are told that may still run"
                assert not any(isinstance(one, Abort) for one in seen)
            else:
                assert instruction.error is (causes[0] if causes else None)
            seen.append(instruction)

    while not any(isinstance(instruction, End) for instruction in seen):
        if answers and rng.random() < 0.8:
            task, fails = answers.pop()
            left.discard(task)
            error = failure(f"of {task}") if fails else None
            causes += [error] if error is not None else []
            follow(protocol.answered(task, error))
        elif rng.random() < 0.3:
            causes.append(failure("given up"))
            follow(protocol.give_up(causes[-1]))
        elif causes and rng.random() < 0.5:
            follow(protocol.grace_is_over())
            assert protocol.has_ended
    assert protocol.has_ended
    if not causes:
        assert not left
    assert sum(isinstance(instruction, End) for instruction in seen) == 1
    assert protocol.answered(0, failure("after the end")) == []
