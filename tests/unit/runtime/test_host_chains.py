"""Calls of the host that only compute run as one; each still leaves nothing behind that nobody reads."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.host_chains import in_turns


class Call:
    """Stands for a call: adds one to the value of its slot and puts it into the next; or is no arithmetic."""

    def __init__(self, slot: int, only_computes: bool = True) -> None:
        self.slot, self.only_computes = slot, only_computes

    def arithmetic(self) -> Any:
        def compute(values: list[Any]) -> None:
            values[self.slot + 1] = values[self.slot] + 1

        return compute if self.only_computes else None


def test_neighbours_that_only_compute_are_together() -> None:
    calls: Any = [Call(0), Call(1), Call(2, only_computes=False), Call(3), Call(4)]
    turns = in_turns(calls, (), [(0,), (), (), (3, 1), ()])
    assert [(position, chain is None) for position, chain in turns] == [(0, False), (2, True), (3, False)]
    values = [0, None, None, None, None, None]
    turns[0][1](values)  # type: ignore[misc]
    assert values == [None, 1, 2, None, None, None]
    values[3] = 7
    turns[2][1](values)  # type: ignore[misc]
    assert values == [None, None, 2, None, 8, 9]


def test_what_may_wait_is_alone() -> None:
    calls: Any = [Call(0), Call(1), Call(2)]
    turns = in_turns(calls, {1}, [(), (), ()])
    assert [(position, chain is None) for position, chain in turns] == [(0, False), (1, True), (2, False)]
