"""What the sides say of a program: their graphs, what running these gave, and what comparing that found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

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
