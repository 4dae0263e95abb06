"""Meetings of operations on several devices: each brings a value, and all go on once everybody is there (WP5).

Those who are to meet name a group, how many belong to it, and which of its meetings they come to. Nobody waits on a
thread. Who comes a second time before the others, in another step, comes to the meeting after this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, InvalidArgumentError, OpError

#: values in the order of the members' names -> what each is given
Combine = Callable[[Sequence[Any]], Sequence[Any]]


class _Member(NamedTuple):
    value: Any
    pending: Pending


class Meetings:
    """The meetings of one group under one key. Thread-safe; never blocks.

    #: a round is complete when it has as many members as the group; then it is answered, without the lock
    """

    def __init__(self, name: str, size: int) -> None:
        self._lock = threading.Lock()
        self._rounds: list[dict[str, _Member]] = []
        self._closed = False
        self.name, self.size = name, size

    def join(self, member: str, value: object, size: int, combine: Combine) -> Pending:
        """Comes to the first meeting that has no such member yet.

        Args:
            member: its name, unique in the group; the order of the names is that of the values.
            size: how many the group has, as this member knows it.
            combine: what the last one to come does with all values.

        Returns:
            A result that has what this member is given.

        Raises:
            InvalidArgumentError: the others know another size.
        """
        if size != self.size:
            message = f"{member} says that the group of {self.name} has {size} members; others say {self.size}"
            raise InvalidArgumentError(None, None, message)
        pending = Pending(self._left, f"the other {size - 1} members of {self.name}")
        with self._lock:
            if self._closed:
                raise CancelledError(None, None, f"the session of {self.name} was closed")
            number = next((i for i, known in enumerate(self._rounds) if member not in known), len(self._rounds))
            if number == len(self._rounds):
                self._rounds.append({})
            self._rounds[number][member] = _Member(value, pending)
            complete = self._rounds.pop(number) if len(self._rounds[number]) == self.size else None
        if complete is not None:
            _answer(complete, combine)
        return pending

    def _left(self, pending: Pending) -> None:
        with self._lock:
            for known in self._rounds:
                for member in [name for name, entry in known.items() if entry.pending is pending]:
                    del known[member]
            self._rounds = [known for known in self._rounds if known]

    def close(self) -> None:
        """Ends all waiting."""
        with self._lock:
            self._closed = True
            waiting = [entry.pending for known in self._rounds for entry in known.values()]
            self._rounds = []
        for pending in waiting:
            pending.fail(CancelledError(None, None, f"the session of {self.name} was closed"))


def _answer(members: dict[str, _Member], combine: Combine) -> None:
    ordered = [members[name] for name in sorted(members)]
    try:
        results = combine([entry.value for entry in ordered])
    except OpError as error:
        for entry in ordered:
            entry.pending.fail(type(error)(None, None, error.message))
        return
    for entry, result in zip(ordered, results, strict=True):
        entry.pending.complete([result])
