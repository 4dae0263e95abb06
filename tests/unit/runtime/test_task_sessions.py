"""Leases of a task: one of a name at a time, each begins and ends once, whoever asks and whoever is lost meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence

from anabranch.runtime.task_sessions import (
    BeginLease,
    EndLease,
    Instruction,
    LeaseState,
    Refuse,
    SessionLease,
    TaskSessions,
    Tell,
)
from tests.each_case import each_case

TASKS = {"ps": "ps:1", "worker": "worker:1"}


def lease(name: str = "s", owner: str = "client:1") -> SessionLease[str]:
    return SessionLease(name, owner, TASKS)


def opened(sessions: TaskSessions[str], one: SessionLease[str]) -> None:
    assert sessions.asked(one) == [BeginLease(one)]
    assert sessions.begun(one, "held") == []


def test_a_session_begins_and_ends() -> None:
    sessions, one = TaskSessions[str](), lease()
    assert sessions.asked(one) == [BeginLease(one)]
    assert sessions.at("s") is None
    assert sessions.begun(one, "held") == []
    assert sessions.at("s") == "held"
    assert sessions.give_up("s") == [EndLease(one)]
    assert sessions.at("s") is None
    assert sessions.give_up("s") == []
    assert sessions.ended(one) == []
    assert len(sessions) == 0


def test_one_that_is_asked_for_again_waits_until_the_one_before_has_ended() -> None:
    sessions, before, after = TaskSessions[str](), lease(), lease()
    opened(sessions, before)
    assert sessions.lost("client:1", "") == [EndLease(before)]
    assert sessions.asked(after) == []
    assert sessions.ended(before) == [BeginLease(after)]
    assert sessions.begun(after, "held") == []


def test_one_whose_owner_is_lost_while_it_is_opened_ends_after_that() -> None:
    sessions, one, waiting = TaskSessions[str](), lease(), lease()
    sessions.asked(one)
    assert sessions.lost("client:1", "") == []
    assert sessions.asked(waiting) == []
    assert sessions.lost("client:1", "") == [Refuse(waiting)]
    assert sessions.begun(one, "held") == [EndLease(one)]
    assert sessions.ended(one) == []
    assert len(sessions) == 0


def test_a_task_that_leaves_and_one_that_moves_are_known_to_open_sessions() -> None:
    sessions, one, opening = TaskSessions[str](), lease(), lease("t")
    opened(sessions, one)
    sessions.asked(opening)
    told: list[tuple[str, ...]] = []

    def watcher(tasks: Sequence[str]) -> None:
        told.append(tuple(tasks))

    # noted for who watches later
    assert sessions.leaving("ps") == []
    assert sessions.watch("s", watcher) == [Tell(watcher, ("ps",))]
    assert sessions.watch("s", watcher) == []
    assert sessions.leaving("ps") == [Tell(watcher, ("ps",))]
    # a loss is known by the new address, and by the one before no more
    assert sessions.relocate("s", "worker", "worker:2") == "held"
    assert sessions.relocate("t", "worker", "worker:2") is None
    assert sessions.watch("s", watcher) == []
    assert sessions.lost("worker:1", "") == []
    assert sessions.lost("worker:2", "") == [Tell(watcher, ("worker",))]
    assert TASKS["worker"] == "worker:1"


def test_one_that_cannot_be_opened_leaves_nothing() -> None:
    sessions, one = TaskSessions[str](), lease()
    sessions.asked(one)
    assert sessions.not_begun(one) == []
    assert len(sessions) == 0


def test_masters_are_told_of_tasks_that_are_lost_once_and_of_none_in_between() -> None:
    sessions, one, told = TaskSessions[str](), lease(), list[tuple[str, ...]]()

    def watcher(tasks: object) -> None:
        assert isinstance(tasks, tuple)
        told.append(tasks)

    opened(sessions, one)
    assert sessions.watch("s", watcher) == []
    assert sessions.lost("elsewhere:1", "another") == []
    assert sessions.lost("ps:1", "ps") == [Tell(watcher, ("ps",))]
    # nobody watches: it is noted, by its address where it never said its name
    assert sessions.lost("worker:1", "") == []
    assert sessions.watch("s", watcher) == [Tell(watcher, ("worker",))]
    assert sessions.watch("s", watcher) == []
    assert sessions.give_up("s") == [Tell(watcher, ()), EndLease(one)]
    assert sessions.watch("s", watcher) == [Tell(watcher, ())]


class Life:
    """Leases of two names, as somebody asks for them, and what their instructions come to."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.sessions = TaskSessions[str]()
        self.begins: list[SessionLease[str]] = []
        self.ends: list[SessionLease[str]] = []
        self.leases: list[SessionLease[str]] = []
        self.stories: dict[int, list[str]] = {}

    def follow(self, instructions: list[Instruction[str]]) -> None:
        for instruction in instructions:
            assert not isinstance(instruction, Tell)
            match instruction:
                case BeginLease(one):
                    self.begins.append(one)
                case EndLease(one):
                    self.ends.append(one)
            self.stories[id(instruction.lease)].append(type(instruction).__name__)

    def ask(self) -> None:
        one = lease(self.dice.choice("st"), self.dice.choice(("a:1", "b:1")))
        self.leases.append(one)
        self.stories[id(one)] = []
        self.follow(self.sessions.asked(one))

    def lose(self) -> None:
        self.follow(self.sessions.lost(self.dice.choice(("a:1", "b:1")), ""))

    def give_up(self) -> None:
        self.follow(self.sessions.give_up(self.dice.choice("st")))

    def begin(self) -> None:
        if self.begins:
            one = self.begins.pop(self.dice.randrange(len(self.begins)))
            is_well = self.dice.random() < 0.9
            self.follow(self.sessions.begun(one, "held") if is_well else self.sessions.not_begun(one))

    def end(self) -> None:
        if self.ends:
            self.follow(self.sessions.ended(self.ends.pop(self.dice.randrange(len(self.ends)))))


@each_case("seed", range(100))
def test_whatever_happens_of_one_name_there_is_one(seed: int) -> None:
    life = Life(seed)
    for _ in range(100):
        life.dice.choice((life.ask, life.ask, life.lose, life.give_up, life.begin, life.begin, life.end))()
        for name in "st":
            there = [one.state for one in life.leases if one.name == name and one.state is not LeaseState.OVER]
            assert there.count(LeaseState.WAITING) <= 1
            assert len(there) - there.count(LeaseState.WAITING) <= 1
    # all that was begun ends once everybody is lost
    while len(life.sessions):
        life.lose()
        life.begin()
        life.end()
    assert {tuple(story) for story in life.stories.values()} <= {
        ("BeginLease", "EndLease"),
        ("BeginLease",),
        ("Refuse",),
    }
