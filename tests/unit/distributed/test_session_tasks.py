"""A task as one session knows it: lost, and back, while its session is opened there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from anabranch.distributed.session_tasks import Part, TaskOfSession
from anabranch.errors import AbortedError, CancelledError, NotFoundError, OpError, UnavailableError

LOST = UnavailableError(None, None, "lost")


class Master:
    """A master whose task may be lost just as its session is opened. See `session_tasks.MasterOfTasks`."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.reopens = True
        self.address = ""
        self.moves: list[tuple[str, str]] = []
        self.lost_tasks: list[str] = []
        self.opened = 0
        self.is_lost_meanwhile = False
        self.lose: Callable[[OpError], None] = lambda _: None

    def open_on(self, address: str, watcher: object) -> Any:
        self.opened += 1
        if self.is_lost_meanwhile:
            self.is_lost_meanwhile = False
            self.lose(LOST)
        return f"session {self.opened}"

    def find(self, name: str, address: str, left: Collection[int]) -> tuple[str, int]:
        self.left = set(left)
        return self.address or address, self.incarnation

    def moved(self, name: str, address: str) -> None:
        self.moves.append((name, address))

    def connection(self, address: str) -> Any:
        self.connected = address
        return self

    def on_lost(self, callback: Callable[[OpError], None]) -> Callable[[], None]:
        self.lose = callback
        return lambda: None

    def lost(self, task: str, error: OpError) -> None:
        self.lost_tasks.append(task)

    def parted(self, task: str, others: Sequence[str]) -> None: ...


def test_a_session_is_opened_once_for_each_time_that_its_task_is_lost() -> None:
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)
    assert task.session() == task.session() == (0, "session 1")
    master.lose(LOST)
    assert task.session() == task.session() == (1, "session 2")
    assert master.lost_tasks == ["ps"]


def test_a_session_whose_task_was_lost_while_it_was_opened_is_not_used() -> None:
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)
    master.lose(LOST)
    master.is_lost_meanwhile = True
    # whoever asked has it with the epoch that is over, and can tell
    assert task.session() == (1, "session 2")
    assert task.epoch == 2
    assert task.session() == (2, "session 3")


def test_that_another_process_has_become_the_task_is_told_once() -> None:
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)
    master.incarnation = 7
    master.lose(LOST)
    with pytest.raises(AbortedError, match="another process"):
        task.session()
    assert task.session() == (1, "session 2")


def test_a_session_that_stays_lost_is_never_opened_on_another_process() -> None:
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)
    master.reopens = False
    master.lose(LOST)
    # the same process, whose link failed
    assert task.session() == (1, "session 2")
    master.incarnation = 7
    master.lose(LOST)
    for _ in range(3):
        with pytest.raises(AbortedError, match="another process"):
            task.session()
    assert master.opened == 2


def test_a_task_that_has_moved_is_opened_where_it_is_and_the_others_are_told() -> None:
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)
    master.lose(LOST)
    master.incarnation, master.address = 7, "b:2"
    with pytest.raises(AbortedError, match="another process"):
        task.session()
    assert (task.address, master.connected) == ("b:2", "b:2")
    assert task.session() == (1, "session 2")
    # the one before is not to be taken for the task, if it wakes and somebody knows its address only
    assert master.left == {1}
    # told whenever it is looked for: who had to be told may have been lost just then
    assert master.moves == [("ps", "b:2")] * 2
    # the loss of the connection to the new address counts, and no other
    master.lose(LOST)
    assert task.session() == (2, "session 3")


class MasterBesideTheTask(Master):
    """A master whose task is a server of its own process."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = True
        self.errors: list[OpError] = []

    def open_on(self, address: str, watcher: Any) -> Any:
        self.tell = watcher
        return super().open_on(address, watcher)

    def connection(self, address: str) -> Any:
        return None if self.runs else self

    def lost(self, task: str, error: OpError) -> None:
        self.errors.append(error)


def test_steps_of_a_server_of_this_process_that_is_stopped_are_cancelled() -> None:
    master = MasterBesideTheTask()
    task: Any = TaskOfSession(master, "worker", "a:1", 1)
    late = master.tell
    master.runs = False
    # the session is over on the task
    master.tell([])
    (error,) = master.errors
    assert isinstance(error, CancelledError)
    assert "the server of worker" in str(error)
    for _ in range(2):
        with pytest.raises(CancelledError, match="the server of worker, one of this process, was stopped"):
            task.session()
    # another server of this process is the task now, of which the session is told as of any that has come back
    master.runs, master.incarnation = True, 7
    with pytest.raises(AbortedError, match="another process"):
        task.session()
    assert task.session() == (1, "session 2")
    late([])
    assert len(master.errors) == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_another_process_knows_no_session_for_is_run_again(is_lost: bool) -> None:
    """A step is prepared just as its task is lost and comes back: the new process gets what was meant for the old."""
    master = Master()
    task: Any = TaskOfSession(master, "ps", "a:1", 1)

    class OfAnother:
        def register(self, partition: object) -> Any:
            if is_lost:
                master.lose(LOST)
            raise NotFoundError(None, None, "this task does not work for a session")

    task._opened = 0, OfAnother()
    partition: Any = None
    part = Part(task, partition)
    with pytest.raises(AbortedError if is_lost else NotFoundError, match="the link to ps" if is_lost else "session"):
        part.ready()
    assert part.registered is None
