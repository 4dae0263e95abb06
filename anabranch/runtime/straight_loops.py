"""Loops of the executor's graph that can run straight through, each as one node (§3.4, WP4.4).

The executor takes an iteration apart: an instance for each Merge, Switch and NextIteration, a count of missing inputs
and a mark of deadness for each node. A loop whose work neither waits nor may be dead, but for the body in the last
test, needs none of that: it is a test and a body, one after the other. `straighten` finds these loops by their nodes
and replaces each by one node of work, which a `LoopProgram` describes. All others are left to the executor: those with
conditionals or further loops in them, and those of which something waits, takes long or belongs to another device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from anabranch.runtime.executor_graph import FrameSpec, Kind, Known, NodeSpec, Output

#: what may stand in such a loop
_KINDS: Final = frozenset({Kind.WORK, Kind.PASS, Kind.SWITCH, Kind.MERGE, Kind.NEXT_ITERATION, Kind.EXIT})
#: the side of a Switch on which the loop goes on
_TRUE: Final = 1


@dataclass(slots=True)
class LoopProgram:
    """A loop that runs straight through. Its values have slots of their own, the same ones in each iteration.

    Attributes:
        name: of the frame.
        members: the numbers of its nodes before it was replaced; those that lead into it are not among them.
        entering: the outputs that it takes, and the slot of each.
        awaited: outputs that it only waits for.
        known: what is the same in every run: slot -> value.
        slots: where the outputs of its nodes are.
        test, body: the numbers of the work of both, in the order in which it runs.
        condition: the slot of what decides whether it goes on.
        following: of each loop variable its slot, and that of its value in the next iteration.
        leaving: the slots of what it gives, in the order of `exits`.
        exits: the numbers of the nodes that gave it.
    """

    name: str
    members: set[int]
    entering: list[tuple[Output, int]] = field(default_factory=list)
    awaited: list[Output] = field(default_factory=list)
    known: dict[int, Any] = field(default_factory=dict)
    slots: dict[Output, int] = field(default_factory=dict)
    test: list[int] = field(default_factory=list)
    body: list[int] = field(default_factory=list)
    condition: int = -1
    following: list[tuple[int, int]] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Straightened:
    """A graph in which loops that run straight through are one node each.

    Attributes:
        numbers: of each node that is left, its number in the new graph.
        loops: number of a node in the new graph -> what it stands for. Its outputs are those of the loop, and one more
            for where a run of it stands while others have their turn.
        exits: of each node that gave what leaves such a loop, its output in the new graph.
    """

    specs: list[NodeSpec]
    frames: list[FrameSpec]
    numbers: dict[int, int]
    loops: dict[int, LoopProgram]
    exits: dict[int, Output]

    def has(self, output: Output) -> bool:
        """Whether an output is one of a node that is left, or of a loop."""
        return output[0] in self.exits or output[0] in self.numbers

    def output(self, output: Output) -> Output:
        """An output of a node that is left, or of a loop, in the new graph."""
        number, port = output
        return self.exits[number] if number in self.exits else (self.numbers[number], port)


def straighten(specs: Sequence[NodeSpec], frames: Sequence[FrameSpec], quick: Collection[int]) -> Straightened:
    """Finds the loops of a graph that can run straight through.

    Args:
        specs: in an order in which each node comes after those that it takes values of or waits for; loops whose nodes
            do not are left to the executor.
        quick: the numbers of the nodes whose work neither waits nor takes a thread.
    """
    programs: dict[int, LoopProgram] = {}
    for position in range(1, len(frames)):
        try:
            programs[position] = _Reading(specs, frames, position, quick).program
        except _NotStraightError:
            continue
    return _Replacing(specs, frames, programs).result


class _NotStraightError(Exception):
    """A loop has something in it that the executor has to look after."""


def _require(holds: bool) -> None:
    if not holds:
        raise _NotStraightError


def _behind(specs: Sequence[NodeSpec], numbers: Collection[int]) -> set[int]:
    """The nodes that take values of some nodes or wait for them, by way of any number of others."""
    followers: dict[int, list[int]] = {}
    for i, spec in enumerate(specs):
        for source in {*(s[0] for s in spec.inputs if not isinstance(s, Known)), *spec.controls, *spec.after}:
            followers.setdefault(source, []).append(i)
    behind: set[int] = set()
    stack = list(numbers)
    while stack:
        for follower in followers.get(stack.pop(), ()):
            if follower not in behind:
                behind.add(follower)
                stack.append(follower)
    return behind


class _Reading:
    """Makes a program of a frame.

    Raises (when made):
        _NotStraightError: it cannot run straight through.
    """

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        frames: Sequence[FrameSpec],
        position: int,
        quick: Collection[int],
    ) -> None:
        _require(all(frame.parent != position for frame in frames))
        self._specs = specs
        self._first_only = {i for i, spec in enumerate(specs) if spec.kind is Kind.ENTER and not spec.constant}
        self._enters = {i for i, spec in enumerate(specs) if spec.kind is Kind.ENTER and spec.child == position}
        members = {i for i, spec in enumerate(specs) if spec.frame == position}
        self.program = LoopProgram(frames[position].name, members)
        for i in sorted(members):
            spec = specs[i]
            _require(spec.kind in _KINDS and (spec.kind is not Kind.WORK or i in quick))
        self._check_edges(members)
        #: nodes that are alive only where the loop goes on
        self._inside: set[int] = set()
        #: the slots of the loop variables
        self._variables: set[int] = set()
        # what leaves a loop may enter it again, which then begins before all of it is there
        _require(self._enters.isdisjoint(_behind(specs, members)))
        for i in sorted(self._enters):
            self._read_enter(i)
        for i in sorted(members):
            self._read(i)
        self._close()

    def _check_edges(self, members: set[int]) -> None:
        """No edge crosses the frame but by its Enters and Exits."""
        for i, spec in enumerate(self._specs):
            inputs = [source for source in spec.inputs if not isinstance(source, Known)]
            if i in members:
                sources = {*(source for source, _ in inputs), *spec.controls, *spec.after}
                _require(sources <= members | self._enters)
            elif i not in self._enters:
                taken = {*(source for source, _ in inputs), *spec.controls, *spec.after} & (members | self._enters)
                _require(all(self._specs[source].kind is Kind.EXIT for source in taken))

    # ---- nodes
    def _read_enter(self, number: int) -> None:
        source, *more = self._specs[number].inputs
        # what a known value waits for
        self.program.awaited += [output for output in more if not isinstance(output, Known)]
        slot = self._new_slot((number, 0))
        if isinstance(source, Known):
            self.program.known[slot] = source.value
        else:
            self.program.entering.append((source, slot))

    def _read(self, number: int) -> None:
        spec, program = self._specs[number], self.program
        if spec.kind is Kind.MERGE:
            self._read_merge(number, spec)
            return
        # in the order of the nodes, in which all that a node takes has been read; what enters but is not constant is
        # there in the first iteration only, and only a Merge takes it
        for source in spec.inputs:
            _require(isinstance(source, Known) or (source in program.slots and source[0] not in self._first_only))
        _require(all(n in self._enters or n < number for n in (*spec.controls, *spec.after)))
        if self._depends_on_body(spec):
            self._inside.add(number)
        else:
            # it also runs in the last test, and would wait there for what does not
            _require(self._inside.isdisjoint(spec.after))
        if spec.kind is Kind.WORK:
            for port in range(spec.outputs):
                self._new_slot((number, port))
            (program.body if number in self._inside else program.test).append(number)
        elif spec.kind is Kind.SWITCH:
            self._read_switch(number, spec)
        elif spec.kind is Kind.PASS:
            self._read_pass(number, spec)
        elif spec.kind is Kind.EXIT:
            source, *more = spec.inputs
            _require(not more)
            if isinstance(source, Known) or self._specs[source[0]].kind is not Kind.SWITCH or source[1] == _TRUE:
                raise _NotStraightError
            program.leaving.append(program.slots[source])
            program.exits.append(number)

    def _read_merge(self, number: int, spec: NodeSpec) -> None:
        """A loop variable: it has the slot of what enters."""
        _require(len(spec.inputs) == 2 and not spec.controls and not spec.after)
        kinds: dict[Kind, Output] = {}
        for source in spec.inputs:
            if not isinstance(source, Known):
                kinds[self._specs[source[0]].kind] = source
        _require(set(kinds) == {Kind.ENTER, Kind.NEXT_ITERATION})
        entering = kinds[Kind.ENTER]
        # what is constant comes into each iteration by itself; and each variable needs a slot of its own
        _require(entering[0] in self._first_only and self.program.slots[entering] not in self._variables)
        self.program.slots[number, 0] = self.program.slots[entering]
        self._variables.add(self.program.slots[entering])

    def _read_switch(self, number: int, spec: NodeSpec) -> None:
        source, condition = spec.inputs
        if number in self._inside or isinstance(condition, Known):
            raise _NotStraightError
        condition_slot = self.program.slots[condition]
        _require(self.program.condition in (-1, condition_slot))
        self.program.condition = condition_slot
        # both sides are where the value is
        slot = self._slot_of((number, 0), source)
        self.program.slots[number, 0] = self.program.slots[number, _TRUE] = slot

    def _read_pass(self, number: int, spec: NodeSpec) -> None:
        if spec.outputs and spec.inputs:
            self.program.slots[number, 0] = self._slot_of((number, 0), spec.inputs[0])

    def _depends_on_body(self, spec: NodeSpec) -> bool:
        """Whether a node is alive only where the loop goes on.

        Raises:
            _NotStraightError: it is alive only where the loop ends, and no Exit.
        """
        inside = not self._inside.isdisjoint(spec.controls)
        for source in spec.inputs:
            if isinstance(source, Known):
                continue
            number, port = source
            if self._specs[number].kind is Kind.SWITCH:
                _require(port == _TRUE or spec.kind is Kind.EXIT)
                inside = inside or port == _TRUE
            inside = inside or number in self._inside
        return inside

    def _close(self) -> None:
        """Reads which value each loop variable has in the next iteration."""
        program = self.program
        _require(program.condition >= 0 and bool(program.exits) and bool(program.test or program.body))
        for number in sorted(program.members):
            spec = self._specs[number]
            if spec.kind is not Kind.MERGE:
                continue
            # an index of what a Merge took is nothing that such a loop has
            _require(not any((number, 1) in self._specs[i].inputs for i in program.members))
            back = next(s for s in spec.inputs if not isinstance(s, Known) and s[0] not in self._enters)
            # what else it waits for is in the iteration that ends here
            following = self._specs[back[0]].inputs[0]
            slot = self._slot_of(back, following)
            if slot != program.slots[number, 0]:
                program.following.append((program.slots[number, 0], slot))

    # ---- slots
    def _new_slot(self, output: Output) -> int:
        program = self.program
        slot = program.slots[output] = program.size
        program.size += 1
        return slot

    def _slot_of(self, output: Output, source: Output | Known) -> int:
        """Where the value is that a node hands on as its output."""
        if not isinstance(source, Known):
            return self.program.slots[source]
        slot = self._new_slot(output)
        self.program.known[slot] = source.value
        return slot


class _Replacing:
    """Makes a graph in which each program is one node, in the place of the last node that led into its loop."""

    def __init__(
        self, specs: Sequence[NodeSpec], frames: Sequence[FrameSpec], programs: dict[int, LoopProgram]
    ) -> None:
        self._specs = specs
        self._kept = [position for position in range(len(frames)) if position not in programs]
        self._positions = {position: number for number, position in enumerate(self._kept)}
        enters: dict[int, list[int]] = {position: [] for position in programs}
        for i, spec in enumerate(specs):
            if spec.kind is Kind.ENTER and spec.child in enters:
                enters[spec.child].append(i)
        removed = {i for program in programs.values() for i in program.members}
        removed.update(i for numbers in enters.values() for i in numbers)
        last = {numbers[-1]: position for position, numbers in enters.items()}
        self.result = Straightened(
            [], [replace(frames[p], parent=self._parent(frames[p])) for p in self._kept], {}, {}, {}
        )
        # all numbers first: a loop that is left to the executor takes values of nodes that come later
        order = [i for i in range(len(specs)) if i in last or i not in removed]
        for number, i in enumerate(order):
            if i in last:
                self._number_loop(number, programs[last[i]])
            else:
                self.result.numbers[i] = number
        for i in order:
            if i in last:
                spec = self._loop(programs[last[i]], [specs[number] for number in enters[last[i]]])
            else:
                spec = self._renumbered(specs[i])
            self.result.specs.append(spec)

    def _parent(self, frame: FrameSpec) -> int:
        return -1 if frame.parent < 0 else self._positions[frame.parent]

    def _number_loop(self, number: int, program: LoopProgram) -> None:
        self.result.loops[number] = program
        self.result.exits.update((i, (number, port)) for port, i in enumerate(program.exits))

    def _loop(self, program: LoopProgram, enters: list[NodeSpec]) -> NodeSpec:
        taken = [*(source for source, _ in program.entering), *program.awaited]
        inputs = list(dict.fromkeys(map(self.result.output, taken)))
        frame = self._positions[enters[0].frame]
        return NodeSpec(
            program.name,
            Kind.WORK,
            frame,
            inputs,
            self._nodes(n for spec in enters for n in spec.controls),
            self._nodes(n for spec in enters for n in spec.after),
            reads=inputs if frame == 0 else (),
            outputs=len(program.exits) + 1,
        )

    def _renumbered(self, spec: NodeSpec) -> NodeSpec:
        return replace(
            spec,
            frame=self._positions[spec.frame],
            child=self._positions[spec.child] if spec.kind is Kind.ENTER else spec.child,
            inputs=[s if isinstance(s, Known) else self.result.output(s) for s in spec.inputs],
            controls=self._nodes(spec.controls),
            after=self._nodes(spec.after),
            reads=[self.result.output(output) for output in spec.reads],
        )

    def _nodes(self, numbers: Iterable[int]) -> list[int]:
        return list(dict.fromkeys(self.result.output((number, 0))[0] for number in numbers))
