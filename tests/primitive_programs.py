"""Random programs of loops and conditionals: written as graphs of Switch, Merge, Enter, Exit and NextIteration, and
interpreted in NumPy (§3.4).

A statement adds one or more values to the scope of its block; numbers are positions in the scope. All values are
float32 vectors of two elements. A loop's variables, then what is inside, come after the values around it; its results
are all of its variables.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: ("tanh", i), ("add", i, j), ("host", i), ("cond", i, then, else), ("loop", starts, rounds, body)
Statement = tuple[Any, ...]
Array = Any


# ---------------------------------------------------------------------- programs
def random_program(seed: int, inputs: int = 2, statements: int = 6) -> list[Statement]:
    """Statements for a scope of so many inputs."""
    rng = random.Random(seed)
    return _block(rng, inputs, statements, 0)


def _block(rng: random.Random, size: int, longest: int, depth: int) -> list[Statement]:
    block: list[Statement] = []
    kinds = ["tanh", "add"] + (["loop", "chained", "chained", "cond", "host"] if depth < 2 else [])
    for _ in range(rng.randint(min(longest, 2), longest)):
        kind, i, j = rng.choice(kinds), size - 1 if rng.random() < 0.5 else rng.randrange(size), rng.randrange(size)
        if kind == "loop":
            starts = [rng.randrange(size) for _ in range(rng.randint(1, 3))]
            body = _block(rng, size + len(starts), 3 - depth, depth + 1)
            block.append(("loop", starts, rng.randint(0, 3), body))
            size += len(starts)
        elif kind == "chained":  # a loop that begins with old values, and takes the newest one only as a constant
            body = [("add", size, size - 1), *_block(rng, size + 2, 2 - depth, depth + 1)]
            block += [("loop", [rng.randrange(2)], rng.randint(0, 3), body), ("tanh", size)]
            size += 2
        elif kind == "cond":
            block.append(("cond", i, *(_block(rng, size, 3 - depth, depth + 1) for _ in range(2))))
            size += 1
        else:
            block.append((kind, i, j) if kind == "add" else (kind, i))
            size += 1
    return block


def interpret(block: list[Statement], scope: list[Array]) -> list[Array]:
    """The scope after a block."""
    scope = list(scope)
    for statement in block:
        match statement:
            case "tanh", i:
                scope.append(np.tanh(scope[i]))
            case "host", i:
                scope.append(scope[i])
            case "add", i, j:
                scope.append(scope[i] + np.float32(0.5) * scope[j])
            case "cond", i, then, other:
                scope.append(interpret(then if scope[i].sum() > 0 else other, scope)[-1])
            case "loop", starts, rounds, body:
                variables = [scope[i] for i in starts]
                for _ in range(rounds):
                    variables = interpret(body, [*scope, *variables])[-len(variables) :]
                scope += variables
    return scope


# ---------------------------------------------------------------------- graphs
@dataclass(eq=False)
class Place:
    """Where operations stand: outside, in a loop, or on a side of a conditional.

    Attributes:
        entered: tensor from around it -> what stands for it here.
        pivot: an operation that runs whenever others do here; None outside of all loops and conditionals.
    """

    around: Place | None = None
    frame: str = ""
    predicate: Tensor | None = None
    side: int = 0
    pivot: Operation | None = None
    entered: dict[Tensor, Tensor] = field(default_factory=dict)


class Writer:
    """Writes a program as a graph. Values come into loops as constants of theirs, and only where they are used."""

    def __init__(self) -> None:
        self._place: dict[Tensor, Place] = {}
        self._frames = 0

    def write(self, block: list[Statement], scope: list[Tensor], place: Place) -> list[Tensor]:
        """The scope after a block; like `interpret`."""
        scope = list(scope)
        for tensor in scope:
            self._place.setdefault(tensor, place)
        for statement in block:
            match statement:
                case "tanh", i:
                    scope.append(self._put(raw.Tanh(self._here(scope[i], place)), place))
                case "host", i:
                    scope.append(self._on_host(self._here(scope[i], place), place))
                case "add", i, j:
                    half = raw.Mul(self._here(scope[j], place), self._constant(np.float32(0.5), place))
                    scope.append(self._put(raw.AddV2(self._here(scope[i], place), half), place))
                case "cond", i, then, other:
                    scope.append(self._conditional(self._here(scope[i], place), [other, then], scope, place))
                case "loop", starts, rounds, body:
                    variables = [self._here(scope[i], place) for i in starts]
                    scope += self._loop(variables, rounds, body, scope, place)
        return scope

    def _put(self, tensor: Tensor, place: Place) -> Tensor:
        self._place[tensor] = place
        return tensor

    def _here(self, tensor: Tensor, place: Place) -> Tensor:
        """What stands for a tensor from around a place, in it."""
        if self._place[tensor] is place:
            return tensor
        if tensor not in place.entered:
            assert place.around is not None
            outer = self._here(tensor, place.around)
            if place.predicate is not None:
                inside = raw.Switch(outer, place.predicate)[place.side]
            else:
                inside = raw.Enter(outer, frame_name=place.frame, is_constant=True)
            place.entered[tensor] = self._put(inside, place)
        return place.entered[tensor]

    def _constant(self, value: Any, place: Place) -> Tensor:
        with get_default_graph().control_dependencies([place.pivot] if place.pivot else []):
            return raw.Const(value=np.asarray(value), dtype=np.asarray(value).dtype)  # type: ignore[no-any-return]

    def _on_host(self, tensor: Tensor, place: Place) -> Tensor:
        nothing, size = self._constant(np.zeros(0, np.float32), place), self._constant(np.array([2], np.int32), place)
        return self._put(raw.Reshape(raw.ListDiff(tensor, nothing).out, size), place)

    def _conditional(self, value: Tensor, sides: list[list[Statement]], scope: list[Tensor], place: Place) -> Tensor:
        total = raw.Sum(value, self._constant(np.array([0], np.int32), place))
        predicate = raw.Greater(total, self._constant(np.float32(0), place))
        switch = raw.Switch(predicate, predicate)
        results = []
        for side, block in enumerate(sides):
            branch = Place(place, predicate=predicate, side=side, pivot=raw.Identity(switch[side]).op)
            results.append(self._here(self.write(block, scope, branch)[-1], branch))
        return self._put(raw.Merge(results).output, place)

    def _loop(
        self, starts: list[Tensor], rounds: int, body: list[Statement], scope: list[Tensor], place: Place
    ) -> list[Tensor]:
        self._frames += 1
        frame = f"loop_{self._frames}"
        entering = [raw.Enter(t, frame_name=frame) for t in (self._constant(np.int32(0), place), *starts)]
        merges = [raw.Merge([t, t]).output for t in entering]
        inside = Place(place, frame, pivot=merges[0].op)
        more = raw.LoopCond(raw.Less(merges[0], self._constant(np.int32(rounds), inside)))
        switches = [raw.Switch(t, more) for t in merges]
        inside.pivot = raw.Identity(switches[0].output_true).op
        variables = [self._put(switch.output_true, inside) for switch in switches[1:]]
        results = self.write(body, [*scope, *variables], inside)[-len(starts) :]
        following = [raw.AddV2(switches[0].output_true, self._constant(np.int32(1), inside))]
        with get_default_graph().control_dependencies([inside.pivot]):  # what only depends on constants ends, too
            following += [raw.Identity(self._here(t, inside)) for t in results]
        for merge, tensor in zip(merges, following, strict=True):
            merge.op._update_input(1, raw.NextIteration(tensor))
        leaving = [self._put(raw.Exit(switch.output_false), place) for switch in switches]
        return leaving[1:]


@dataclass
class Written:
    """A program as a graph: its feeds, and all values of its outermost scope."""

    graph: Graph
    feeds: list[Tensor]
    values: list[Tensor]


def written(program: list[Statement], inputs: int = 2) -> Written:
    """Writes a program down as a graph."""
    graph = Graph()
    with graph.as_default():
        feeds = [raw.Placeholder(dtype="float32", shape=[2], name=f"input_{i}") for i in range(inputs)]
        return Written(graph, feeds, Writer().write(program, feeds, Place()))


def random_values(seed: int, inputs: int = 2) -> list[Array]:
    """Values for the inputs of a program."""
    return list(np.random.default_rng(seed).normal(size=(inputs, 2)).astype(np.float32))
