"""What the sides say of a program: their graphs, what running these gave, and what comparing that found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.differences import Disagreement
from tests.fuzz.sides import Side
from tests.fuzz.wire import Array


@dataclass
class Graph:
    """A graph of the program on one side, and the names that the program's tensors have in it."""

    side: Side
    number: int
    initializer: str
    names: dict[str, str]
    genuine: bool


@dataclass
class Outcome:
    """What running the steps gave: values by reference for each step, refusals by node, and nodes left undecided."""

    values: list[dict[str, Array]]
    refusals: dict[str, str] = field(default_factory=dict)
    undecided: bool = False


@dataclass
class Examined:
    """What an examination found, and how much it compared."""

    disagreements: list[Disagreement] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def refused_type(message: str) -> str | None:
    """The type of the operation in the body of a loop or a branch that TensorFlow refused to build, or we to run."""
    found = re.search(r"\{\{node [^}]*\}\} = (\w+)\[|Error: (\w+) cannot take these inputs: ", message)
    return found and (found[1] or found[2])


def names_of(built: dict[str, Any]) -> dict[str, str]:
    """The names that the program's tensors have in the graph that a side says it built."""
    return {ref: tensor["name"] for ref, tensor in built["tensors"].items() if tensor is not None}


def compatible(ours: list[int | None] | None, other: list[int | None] | None) -> bool:
    """Whether two static shapes can be those of one value."""
    if ours is None or other is None:
        return True
    return len(ours) == len(other) and all(a is None or b is None or a == b for a, b in zip(ours, other, strict=True))
