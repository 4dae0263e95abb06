"""Calls of the host that follow one another and only compute, as one function of a step's values.

NumPy's warnings are put off once for all of them, and no call looks for what might happen besides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from anabranch.runtime.item_call import Arithmetic, ItemCall

#: of a partition that runs straight through, what comes next: the position of a call, or a chain of them
Turn = tuple[int, Arithmetic | None]


def in_turns(calls: Sequence[ItemCall], slow: Collection[int], emptied: Sequence[tuple[int, ...]]) -> list[Turn]:
    """The calls of a partition, those together that only compute on the host.

    Args:
        slow: the positions of calls that may wait.
        emptied: for each call the slots that nothing after it reads; a chain empties them itself.
    """
    turns: list[Turn] = []
    chain: list[tuple[Arithmetic, tuple[int, ...]]] = []
    for position, call in enumerate(calls):
        arithmetic = None if position in slow else call.arithmetic()
        if arithmetic is not None:
            if not chain:
                turns.append((position, _together(chain)))
            chain.append((arithmetic, emptied[position]))
        else:
            turns.append((position, None))
            chain = []
    return turns


def _together(chain: list[tuple[Arithmetic, tuple[int, ...]]]) -> Arithmetic:
    def compute(values: list[Any]) -> None:
        for one, emptied in chain:
            one(values)
            for slot in emptied:
                values[slot] = None

    return compute
