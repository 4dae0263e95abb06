"""The graph that the executor runs: nodes, edges and frames as numbers, worked out once for all runs of a step.

It is described by `NodeSpec`s and `FrameSpec`s. For each node an `ExecutorGraph` then knows which nodes learn that it
has run, how many such messages each of them waits for, and where its inputs and outputs are among the values of an
iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Kind(IntEnum):
    """What an instance does when it is ready; see the table in `runtime.executor`."""

    WORK = 0
    PASS = 1
    TRIGGER = 2
    SWITCH = 3
    MERGE = 4
    ENTER = 5
    NEXT_ITERATION = 6
    EXIT = 7
    FEED = 8
    SEND = 9


# the same as plain integers, which are compared in a fraction of the time
WORK, PASS, TRIGGER, SWITCH, MERGE, ENTER, NEXT_ITERATION, EXIT, FEED, SEND = map(int, Kind)


@dataclass(frozen=True, slots=True)
class Known:
    """An input whose value is the same in every step."""

    value: Any


#: (node, output): an output of another node, named by its position in the list of nodes
Output = tuple[int, int]


@dataclass(slots=True)
class FrameSpec:
    """A static frame. Frame 0 is the root; `parent` is the position of the frame around it."""

    name: str
    parent: int = -1
    parallel_iterations: int = 10


@dataclass(slots=True)
class NodeSpec:
    """A node as it is described to `ExecutorGraph`.

    Attributes:
        frame: the static frame in which it runs; the outputs of an Enter live in frame `child`, those of an Exit in the
            parent of `frame`.
        inputs: data inputs; a Switch has its input and its predicate. Work needs them listed only to wait for them.
        controls: nodes to wait for, dead if one of them is.
        after: nodes to wait for, whether they are dead or not.
        reads: of work in the root, the outputs whose values it takes from their slots. A value that only such nodes
            take is released once all of them have run.
        constant: an Enter whose value every iteration sees.
        payload: for the dispatcher.
    """

    name: str
    kind: Kind = Kind.WORK
    frame: int = 0
    inputs: Sequence[Output | Known] = ()
    controls: Sequence[int] = ()
    after: Sequence[int] = ()
    reads: Sequence[Output] = ()
    outputs: int = 1
    child: int = -1
    constant: bool = False
    payload: Any = None


# ---------------------------------------------------------------------- the graph
Merges = tuple[tuple[int, int, int], ...]
_Side = tuple[tuple[int, ...], Merges]


class Node:
    """A node as the executor runs it: everything that can be known beforehand, as numbers.

    Attributes:
        index: its position in its frame.
        edges: positions of the nodes that wait for it, in the frame where its outputs live, once per edge.
        orders: the same for edges that do not pass deadness on.
        merges: (position of a Merge, number of its input, slot of the value).
        sides: for a Switch, edges and merges of the outputs false and true.
        source, predicate: slots of a primitive's inputs; -1: `known` has the value.
        slots: where its outputs are, in the frame where they live.
        dead_inputs: how many dead inputs make a Merge dead.
        reads: slots that it reads and that are emptied after their last reader.
    """

    __slots__ = (
        *("child", "constant", "dead_inputs", "edges", "frame", "index", "kind", "known", "merges", "name"),
        *("orders", "payload", "predicate", "predicate_known", "reads", "sides", "slots", "source", "woken"),
    )

    def __init__(self, spec: NodeSpec, frame: StaticFrame, index: int) -> None:
        self.name, self.kind, self.payload, self.constant = spec.name, int(spec.kind), spec.payload, spec.constant
        self.frame, self.index, self.child = frame, index, spec.child
        self.edges: tuple[int, ...] = ()
        self.orders: tuple[int, ...] = ()
        #: `edges` and `orders`: who learns that it ran
        self.woken: tuple[int, ...] = ()
        self.merges: Merges = ()
        self.sides: tuple[_Side, _Side] = (((), ()), ((), ()))
        self.slots: tuple[int, ...] = ()
        self.reads: tuple[int, ...] = ()
        self.source = self.predicate = -1
        self.known: Any = None
        self.predicate_known: Any = None
        self.dead_inputs = 0

    def __repr__(self) -> str:
        return f"<Node {self.name} {Kind(self.kind).name}>"


class StaticFrame:
    """A frame of the graph: its nodes, and what a new iteration looks like."""

    __slots__ = ("enters", "exits", "missing", "name", "nodes", "parallel_iterations", "parent", "position", "size")

    def __init__(self, spec: FrameSpec, position: int) -> None:
        self.name, self.parent, self.position = spec.name, spec.parent, position
        self.parallel_iterations = max(spec.parallel_iterations, 1)
        self.nodes: list[Node] = []
        self.missing: list[int] = []
        self.enters = 0
        self.exits: list[Node] = []
        #: number of value slots
        self.size = 0


class ExecutorGraph:
    """The nodes of a step, immutable once made, shared by all of its runs.

    Args:
        nodes: in any order.
        fetches: the outputs, of nodes of the root frame, that a run returns.
        frames: default: a root without loops.
        has_loops: whether work of the root may go on for ever.
    """

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        fetches: Sequence[Output] = (),
        frames: Sequence[FrameSpec] = (FrameSpec(""),),
        has_loops: bool = False,
    ) -> None:
        self.frames = [StaticFrame(spec, position) for position, spec in enumerate(frames)]
        self.nodes = [self._place(spec) for spec in nodes]
        for node, spec in zip(self.nodes, nodes, strict=True):
            self._give_slots(node, spec)
        self.feeds = [node.slots[0] for node in self.nodes if node.kind == FEED]
        self._connect(nodes)
        self.fetches = [self.slot(output) for output in fetches]
        self.fetched_names = [f"{nodes[node].name}:{port}" for node, port in fetches]
        #: how many nodes read each slot of the root before it is emptied
        self.readers = self._count_readers(nodes)
        #: whether a run may go on for ever
        self.has_loops = has_loops or len(self.frames) > 1
        self.roots = [n for n in self.frames[0].nodes if not self.frames[0].missing[n.index] and n.kind != FEED]

    def slot(self, output: Output) -> int:
        """Where an output is among the values of an iteration of the frame in which it lives."""
        return self.nodes[output[0]].slots[output[1]]

    # ---- construction
    def _place(self, spec: NodeSpec) -> Node:
        frame = self.frames[spec.frame]
        node = Node(spec, frame, len(frame.nodes))
        frame.nodes.append(node)
        frame.missing.append(0)
        if spec.kind is Kind.ENTER:
            self.frames[spec.child].enters += 1
        elif spec.kind is Kind.EXIT:
            frame.exits.append(node)
        return node

    def _home(self, node: Node) -> StaticFrame:
        """The frame in which the outputs of a node live."""
        if node.kind == ENTER:
            return self.frames[node.child]
        return self.frames[node.frame.parent] if node.kind == EXIT else node.frame

    def _give_slots(self, node: Node, spec: NodeSpec) -> None:
        home = self._home(node)
        count = 2 if spec.kind in (Kind.SWITCH, Kind.MERGE) else spec.outputs
        node.slots = tuple(range(home.size, home.size + count))
        home.size += count

    def _connect(self, specs: Sequence[NodeSpec]) -> None:
        edges = _Edges(self.nodes)
        for node, spec in zip(self.nodes, specs, strict=True):
            if spec.kind is Kind.MERGE:
                self._connect_merge(node, spec, edges)
            else:
                edges.add_all(node, spec)
            self._find_sources(node, spec)
        edges.store()
        for frame in self.frames:
            for node in frame.nodes:
                if node.kind == MERGE:
                    frame.missing[node.index] += 1  # all data inputs together count once

    def _connect_merge(self, node: Node, spec: NodeSpec, edges: _Edges) -> None:
        for position, source in enumerate(spec.inputs):
            assert not isinstance(source, Known), f"{spec.name}: an input of a Merge must be computed"
            edges.add_merge(source, node, position, self.slot(source))
            # a dead NextIteration sends nothing, so that a Merge cannot wait for one
            node.dead_inputs += self.nodes[source[0]].kind != NEXT_ITERATION
        for earlier in dict.fromkeys((*spec.controls, *spec.after)):
            edges.add_order(earlier, node)

    def _count_readers(self, specs: Sequence[NodeSpec]) -> list[int]:
        readers, kept = [0] * self.frames[0].size, set(self.fetches)
        # what is fetched or fed stays, and so does what a primitive reads: only the reads of work are counted when they
        # happen
        for node, spec in zip(self.nodes, specs, strict=True):
            if node.kind == FEED:
                kept.update(node.slots)
            elif node.kind not in (WORK, SEND) and node.frame.parent < 0:
                kept.update(self.slot(source) for source in spec.inputs if not isinstance(source, Known))
        for node, spec in zip(self.nodes, specs, strict=True):
            if node.kind in (WORK, SEND) and node.frame.parent < 0:
                node.reads = tuple({self.slot(output) for output in spec.reads} - kept)
                for slot in node.reads:
                    readers[slot] += 1
        return readers

    def _find_sources(self, node: Node, spec: NodeSpec) -> None:
        if spec.kind in (Kind.WORK, Kind.SEND, Kind.MERGE, Kind.TRIGGER, Kind.FEED) or not spec.inputs:
            return
        node.source, node.known = self._source(spec.inputs[0])
        if spec.kind is Kind.SWITCH:
            node.predicate, node.predicate_known = self._source(spec.inputs[1])

    def _source(self, source: Output | Known) -> tuple[int, Any]:
        return (-1, source.value) if isinstance(source, Known) else (self.slot(source), None)


class _Edges:
    """The edges of a graph while it is made, and the counts of missing inputs that they add up to."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._plain: list[list[int]] = [[] for _ in nodes]
        self._orders: list[list[int]] = [[] for _ in nodes]
        self._merges: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
        self._sides: dict[int, tuple[list[int], list[int]]] = {}
        self._side_merges: dict[int, tuple[list[Any], list[Any]]] = {}

    def add_all(self, node: Node, spec: NodeSpec) -> None:
        """The edges into any node but a Merge: one per source, and one per side of a Switch."""
        outputs = [source for source in spec.inputs if not isinstance(source, Known)]
        # one message per source however many of its outputs are taken; the sides of a Switch may differ in being dead
        sources: dict[tuple[int, int], None] = {}
        for source, port in outputs:
            sources[source, port if self._nodes[source].kind == SWITCH else -1] = None
        sources.update(((control, -1), None) for control in spec.controls)
        for source, port in sources:
            self._add(source, port, node)
        # a plain edge from the same node says that it has run as well
        seen = {source for source, _ in sources}
        for earlier in dict.fromkeys(spec.after):
            if earlier not in seen:
                self.add_order(earlier, node)

    def _add(self, source: int, port: int, node: Node) -> None:
        # feeds are there before the step begins, and send nothing
        if self._nodes[source].kind == FEED:
            return
        if node.kind == TRIGGER:  # deadness does not concern it
            self.add_order(source, node)
            return
        if port >= 0:
            self._sides.setdefault(source, ([], []))[port].append(node.index)
        else:
            self._plain[source].append(node.index)
        node.frame.missing[node.index] += 1

    def add_order(self, source: int, node: Node) -> None:
        """An edge that does not pass deadness on."""
        if self._nodes[source].kind != FEED:
            self._orders[source].append(node.index)
            node.frame.missing[node.index] += 1

    def add_merge(self, output: Output, node: Node, position: int, slot: int) -> None:
        """A data edge into a Merge."""
        source, port = output
        edge = (node.index, position, slot)
        if self._nodes[source].kind == SWITCH:
            self._side_merges.setdefault(source, ([], []))[port].append(edge)
        else:
            self._merges[source].append(edge)

    def store(self) -> None:
        """Gives every node its edges."""
        for i, node in enumerate(self._nodes):
            node.edges, node.orders = tuple(self._plain[i]), tuple(self._orders[i])
            node.woken, node.merges = node.edges + node.orders, tuple(self._merges[i])
            plain, merges = self._sides.get(i, ([], [])), self._side_merges.get(i, ([], []))
            node.sides = ((tuple(plain[0]), tuple(merges[0])), (tuple(plain[1]), tuple(merges[1])))
