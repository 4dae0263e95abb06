"""What the other side makes of a node when it is given our values for all that comes before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fuzz.comparison import ROUNDING, rounded
from tests.fuzz.outcomes import Graph, Outcome
from tests.fuzz.programs import Node, needed, producer, used
from tests.fuzz.wire import Array, decode_array, encode_array

#: kinds of nodes whose values depend on the steps before
_STATE = {"update", "variable"}


class GivenValues:
    """Of one program; `random` decides how values are rounded."""

    def __init__(self, program: dict[str, Any], random: np.random.Generator) -> None:
        self.program = program
        self.random = random
        self.nodes: dict[str, Node] = {node["id"]: node for node in program["nodes"]}

    def answers(self, there: Graph, full: Outcome, ref: str, step: int) -> list[Array] | str:
        """The tensor on the other side, given our values; then, thrice, given these values rounded otherwise.

        What a variable holds is given as well, but where a change or a read of a variable is asked: this comes behind
        the steps before.
        """
        state = self._is_state(ref)
        found = []
        for trial in range(4):
            session = there.side.ask("open", graph=there.number)["session"]
            there.side.ask("run", session=session, fetches=[there.initializer], feeds={})
            for k in range(step + 1) if state else (step,):
                # what a variable holds comes of rounded values in the steps before as well
                changes = [r for r in self._changes(there) if r in full.values[k]] if state else []
                asked = [ref] if k == step else []
                feeds = dict(self._feeds(there, full.values[k], k, asked, changes, trial > 0))
                fetched = [there.names[r] for r in [*asked, *changes]]
                answer = there.side.ask("run", session=session, fetches=fetched, feeds=feeds)
            if "error" in answer:
                return ": ".join(answer["error"])
            found.append(decode_array(answer["values"][0]))
        return found

    def _is_state(self, ref: str) -> bool:
        return self.nodes[producer(ref)]["kind"] in _STATE

    def _changes(self, there: Graph) -> list[str]:
        return [
            f"{name}:0" for name, node in self.nodes.items() if node["kind"] == "update" and f"{name}:0" in there.names
        ]

    def _feeds(
        self, there: Graph, values: dict[str, Array], step: int, asked: list[str], changes: list[str], vary: bool
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the program feeds, and our values of all that comes before what is asked and the changes.

        Where the state is asked, changes and reads are not fed: they happen.
        """
        coarsest = precisions(self.program, values, step)
        state = bool(changes) or any(map(self._is_state, asked))
        before = needed(self.program, {*asked, *changes}) - {producer(r) for r in asked}
        for name, value in self.program["feeds"][step].items():
            if f"{name}:0" in there.names:
                yield there.names[f"{name}:0"], self._varied(decode_array(value)) if vary else value
        for other, value in values.items():
            kind = self.nodes[producer(other)]["kind"]
            given = producer(other) in before and kind != "placeholder" and not (state and kind in _STATE)
            if given and other in there.names:
                unit = ROUNDING.get(coarsest.get(producer(other), ""), 0.0)
                yield there.names[other], self._varied(value, unit) if vary else encode_array(value)

    def _varied(self, value: Array, unit: float = 0.0) -> dict[str, Any]:
        return encode_array(rounded(value, self.random, unit))


def precisions(program: dict[str, Any], values: dict[str, Array], step: int) -> dict[str, str]:
    """For the nodes that come of a `Cast`, the dtype of the lowest precision that was cast from or to before them.

    A float64 that comes of a float32 is as rounded as that. It need not even be the same number wherever it is used:
    a compiler may compute it twice, in two ways, where two of its loops need it.
    """
    nodes: dict[str, Node] = {node["id"]: node for node in program["nodes"]}

    def dtype(ref: str) -> str:
        node = nodes[producer(ref)]
        if node["kind"] == "const":
            return str(node["value"]["dtype"])
        if node["kind"] == "placeholder":
            return str(program["feeds"][step][node["id"]]["dtype"])
        return values[ref].dtype.name if ref in values else ""

    found: dict[str, str] = {}
    for name, node in nodes.items():
        taken = [ref for ref in used(node) if producer(ref) in nodes]
        met = [found[producer(ref)] for ref in taken if producer(ref) in found]
        if node.get("op") == "Cast":
            met += filter(ROUNDING.__contains__, map(dtype, [*taken, f"{name}:0"]))
        if met:
            found[name] = max(met, key=ROUNDING.__getitem__)
    return found
