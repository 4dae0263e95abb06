"""Levels: a number for every operation of a step that never falls along a path, also through loops (§3.4; design D7).

The *level* of an operation is the weight of the heaviest path that leads to it; an edge weighs 1 where what it connects
must not be in one island, else 0. `xla.islands` needs of levels that a path cannot leave an operation and come back to
the same level in the same iteration, once it has gone over an edge of weight 1. In a graph with loops, paths also go
along back edges, from one iteration to the next. So a loop counts as a whole for what is around it:

* nothing in a loop has a lower level than any of its Enters (the loop *begins* after all of them);
* what takes the value of an Exit comes after everything in the loop (when the loop *ends*).

**Why it is right.** Take a path, along edges of all kinds and through any number of iterations, from an instance of an
operation back to the same iteration of the same frame. An iteration leads to later ones and to nothing earlier, so a
path comes back to an iteration only from the iterations around it. Let T be the outermost iteration that the path
visits; there is one, since to come back to T it would have to leave it for one further out. In T the path goes along
edges between operations of T, and through loops that are entered and left in T. The order computed here puts the begin
of such a loop after its Enters, its end after all that is in it, and who takes its Exits after its end. In this order
the path only goes forward. So it cannot go through one of the loops twice, which means that it did not start within one
of them: it started in T. And on its way in T levels do not fall: along an edge by definition; through a loop because
the loop begins at or above the level of the Enter, and ends at or above all levels in it.

Where an Exit of a loop leads to another Enter of the same loop (the executor can run that), there is no such order.
What is in such a loop, and what comes after it, is *tangled*: it has a level in the order of the step, about which
nothing is promised, and each operation has to be an island of its own. No path leads from there to what is not tangled.

Example: in ``a = loop(x); b = tanh(a); c = loop(x, invariant=b); d = tanh(c)`` no edge but the back edge of the second
loop leads from ``b`` to ``d``: from Enter(b) over the loop's body to the Merge and the Exit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.frames import Frame, Frames

#: for an operation, those that it comes after with the weight of the edge; back edges left out
Edges = Mapping[StepNode, Sequence[tuple[StepNode, int]]]


@dataclass(slots=True)
class Levels:
    """The level of each operation, and those of which nothing is promised; see the module docstring."""

    of: dict[StepNode, int] = field(default_factory=dict)
    tangled: set[StepNode] = field(default_factory=set)


def find_levels(operations: Sequence[StepNode], edges: Edges, frames: Frames) -> Levels:
    """The levels of a step's operations, which come in an order that respects `edges`."""
    if len(frames.all) == 1:
        levels = Levels()
        for op in operations:
            levels.of[op] = max((levels.of[earlier] + weight for earlier, weight in edges[op]), default=0)
        return levels
    return _Loops(operations, edges, frames).levels()


@dataclass(frozen=True, slots=True)
class _Begin:
    frame: int


@dataclass(frozen=True, slots=True)
class _End:
    frame: int


_Point = StepNode | _Begin | _End


class _Loops:
    """The levels of a step with loops: of its operations, and of the begin and the end of each loop."""

    def __init__(self, operations: Sequence[StepNode], edges: Edges, frames: Frames) -> None:
        self._operations, self._frames = operations, frames
        self._before: dict[_Point, list[tuple[_Point, int]]] = {op: [] for op in operations}
        for frame in frames.all[1:]:
            self._before[_Begin(frame.position)] = []
            self._before[_End(frame.position)] = [(_Begin(frame.position), 0)]
        for frame in frames.all[1:]:
            # the root has no parent, and neither begins nor ends
            if frame.parent is not None and frame.parent.parent is not None:
                self._before[_End(frame.parent.position)].append((_End(frame.position), 0))
        for op in operations:
            self._add(op, edges[op])

    def _add(self, op: StepNode, edges: Iterable[tuple[StepNode, int]]) -> None:
        frame: Frame = self._frames.of[op]
        before = self._before[op]
        for earlier, weight in edges:
            before.append((earlier, weight))
            # who takes a value of a loop comes after the whole loop, and not only after what the value depends on
            if earlier.op_def.role is Role.EXIT:
                before.append((_End(self._frames.of[earlier].position), weight))
        if frame.parent is not None:
            before.append((_Begin(frame.position), 0))
            self._before[_End(frame.position)].append((op, 0))
        if op.op_def.role is Role.ENTER:
            self._before[_Begin(self._frames.entered(op).position)].append((op, 0))

    def levels(self) -> Levels:
        level_of: dict[_Point, int] = {}
        for point in _in_order(self._before, lambda point: (earlier for earlier, _ in self._before[point])):
            level_of[point] = self._level(point, level_of)
        levels = Levels(tangled={op for op in self._operations if op not in level_of})
        for op in self._operations:
            if op in levels.tangled:
                level_of[op] = self._level(op, level_of)
            levels.of[op] = level_of[op]
        return levels

    def _level(self, point: _Point, level_of: Mapping[_Point, int]) -> int:
        # of what a tangled operation comes after, some has no level yet; nothing is promised of it
        return max(
            (level_of[earlier] + weight for earlier, weight in self._before[point] if earlier in level_of), default=0
        )


def _in_order(points: Iterable[_Point], before: Callable[[_Point], Iterable[_Point]]) -> list[_Point]:
    """The points that can be put in an order in which each comes after those before it; cycles are left out."""
    points = list(points)
    waiting: dict[_Point, int] = {}
    after: dict[_Point, list[_Point]] = {point: [] for point in points}
    for point in points:
        earlier = list(before(point))
        waiting[point] = len(earlier)
        for other in earlier:
            after[other].append(point)
    # what is on a cycle, or behind one, keeps an earlier point to wait for and is never added
    ordered = [point for point in points if not waiting[point]]
    for point in ordered:  # grows meanwhile
        for other in after[point]:
            waiting[other] -= 1
            if not waiting[other]:
                ordered.append(other)
    return ordered
