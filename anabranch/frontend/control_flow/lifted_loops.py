"""Loops of primitives, as programs of version 1 wrote them, made anew as `While`, so that they can be differentiated.

`tf.gradients` asks for this where such a loop lies between the xs and the ys. What took the loop's results takes those
of the new one from then on, so that a step runs one of the two. Conditionals inside become `If`.

An operation of a loop is in a *branch*: the predicates of the conditionals around it, with the sides taken. What is in
no branch is copied into the new body, what is in one into a function of the `If`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.errors import UnimplementedError
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.loop_structure import LIFTED, is_back_edge, lifted
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.rewiring import NewInput, add_control_inputs, remove_control_inputs, rewire
from anabranch.ops import raw

#: the conditionals around an operation, the outermost first: a predicate, and whether it is true
_Branch = tuple[tuple[Tensor, bool], ...]
#: what an operation waits for
_Sources = Callable[[Operation], Iterable[Operation]]


@dataclass(slots=True)
class _OldVariable:
    """A loop variable: what it enters with, its value in an iteration, its next value, and what leaves the loop."""

    enter: Operation
    merge: Operation
    following: Operation
    exits: list[Tensor] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _OldLoop:
    """A loop of primitives, found from one of its Exits."""

    name: str
    condition: Operation
    variables: list[_OldVariable] = field(default_factory=list)
    #: all that is inside, but for what is inside of inner loops
    operations: set[Operation] = field(default_factory=set)
    #: what leads into it; the values of variables, and others that stay
    enters: list[Operation] = field(default_factory=list)
    inner: dict[Tensor, _OldLoop] = field(default_factory=dict)

    @classmethod
    def of(cls, leaving: Tensor) -> _OldLoop:
        """The loop that an Exit's output leaves."""
        condition = leaving.op.inputs[0].op.inputs[1].op
        loop = cls(condition.name.rpartition("/")[0] or "while", condition)
        loop._add([condition, leaving.op.inputs[0].op])
        if any(op.op_def.stateful and not op.op_def.only_reads for op in loop.operations):
            # it must not run beside the new one: what else it counts, for gradients that were built before, moves too
            loop._add([op for op in condition.outputs[0].consumers() if op.op_def.role is Role.SWITCH])
        loop.variables.sort(key=lambda variable: variable.merge._id)
        return loop

    def _add(self, stack: list[Operation]) -> None:
        """Adds what operations of the loop are computed from."""
        while stack:
            op = stack.pop()
            if op in self.operations:
                continue
            role = op.op_def.role
            if role is Role.EXIT:
                inner = self._inner(op.outputs[0])
                stack.extend(enter.inputs[0].op for enter in inner.enters)
                continue
            self.operations.add(op)
            if role is Role.ENTER:
                self.enters.append(op)
                continue
            if any(is_back_edge(op, t) for t in op.inputs):
                self.variables.append(_variable(op, self.condition))
            stack.extend(t.op for t in op.inputs)
            stack.extend(_waited_for(op))

    def _inner(self, leaving: Tensor) -> _OldLoop:
        known = self.inner.get(leaving)
        if known is None:
            known = _known_by(leaving, self.inner.values())
            self.inner.update((tensor, known) for variable in known.variables for tensor in variable.exits)
        return known

    @property
    def exits(self) -> list[Tensor]:
        return [tensor for variable in self.variables for tensor in variable.exits]

    def holds(self, op: Operation) -> bool:
        """Whether an operation is inside, or inside of an inner loop."""
        return op in self.operations or any(inner.holds(op) for inner in set(self.inner.values()))

    def built(self, name: str, value_of: Callable[[Tensor], Tensor]) -> dict[Tensor, Tensor]:
        """Builds the loop anew in the graph that is open: for each Exit's output, what stands for it.

        Args:
            value_of: what stands for a tensor that enters.
        """
        entering = [value_of(variable.enter.inputs[0]) for variable in self.variables]

        def copies(values: Sequence[Tensor], graph: FunctionGraph, wanted: list[Tensor]) -> list[Tensor]:
            given = {v.merge.outputs[0]: value for v, value in zip(self.variables, values, strict=True)}
            return _PartCopy(self, graph, given, value_of).of(wanted)

        def condition(*values: Tensor) -> Tensor:
            return copies(values, _body(values[0]), [self.condition.inputs[0]])[0]

        def body(*values: Tensor) -> list[Tensor]:
            return copies(values, _body(values[0]), [variable.following.outputs[0] for variable in self.variables])

        def loop(shapes: list[TensorShape]) -> Any:
            return while_loop(condition, body, entering, shapes, name=name, return_same_structure=True)

        try:
            results = loop([tensor.shape for tensor in entering])
        except ValueError:  # a shape that an iteration changes
            results = loop([TensorShape(None)] * len(entering))
        return {
            tensor: result
            for variable, result in zip(self.variables, results, strict=True)
            for tensor in variable.exits
        }


def _known_by(leaving: Tensor, loops: Iterable[_OldLoop]) -> _OldLoop:
    """The loop that an Exit's output leaves: one of these, which gets the variable as well, or another."""
    condition = leaving.op.inputs[0].op.inputs[1].op
    for loop in loops:
        if loop.condition is condition:
            loop._add([leaving.op.inputs[0].op])
            loop.variables.sort(key=lambda variable: variable.merge._id)
            return loop
    return _OldLoop.of(leaving)


def _body(parameter: Tensor) -> FunctionGraph:
    assert isinstance(parameter.graph, FunctionGraph)
    return parameter.graph


def _variable(merge: Operation, condition: Operation) -> _OldVariable:
    (following,) = (t.op for t in merge.inputs if is_back_edge(merge, t))
    (enter,) = (t.op for t in merge.inputs if not is_back_edge(merge, t))
    switches = [
        op for op in merge.outputs[0].consumers() if op.op_def.role is Role.SWITCH and op.inputs[1].op is condition
    ]
    leaving = (op for switch in switches for op in switch.outputs[0].consumers() if op.op_def.role is Role.EXIT)
    return _OldVariable(enter, merge, following, [op.outputs[0] for op in leaving])


class _PartCopy:
    """A part of a loop, its condition or its body, copied into a function graph.

    Args:
        graph: where what is in no branch goes.
        given: what stands for the values of the loop variables.
        outside: what stands for a tensor that enters.
    """

    def __init__(
        self, loop: _OldLoop, graph: FunctionGraph, given: dict[Tensor, Tensor], outside: Callable[[Tensor], Tensor]
    ) -> None:
        self._loop = loop
        self._made = dict(given)
        self._copies: dict[Operation, Operation] = {}
        self._outside = outside
        #: for each depth of branches, the function graph that is open
        self._graphs: list[Graph] = [graph]
        self._branches: dict[Operation, _Branch] = {}
        self._merges: dict[tuple[Tensor, str], list[Operation]] = {}

    def of(self, wanted: Sequence[Tensor]) -> list[Tensor]:
        """What stands for tensors of the loop that are in no branch."""
        self._find_branches(wanted)
        return [self._value(tensor) for tensor in wanted]

    # ---- branches
    def _find_branches(self, wanted: Sequence[Tensor]) -> None:
        for op in self._in_order([t.op for t in wanted], self._sources):
            if op.outputs and op.outputs[0] in self._made:
                continue
            branch = self._branches[op] = self._branch_of(op)
            if op.op_def.role is Role.MERGE:
                predicate, _ = _longest(self._branch(t) for t in op.inputs)[len(branch)]
                self._merges.setdefault((predicate, op.name.rpartition("/")[0]), []).append(op)

    def _branch_of(self, op: Operation) -> _Branch:
        waited = (self._branches.get(c, ()) for c in op.control_inputs)
        branch = _longest([*(self._branch(t) for t in op.inputs), *waited])
        return branch[:-1] if op.op_def.role is Role.MERGE else branch

    def _branch(self, tensor: Tensor) -> _Branch:
        """The branch in which a tensor is alive."""
        op = tensor.op
        if tensor in self._made or op.op_def.role is Role.ENTER:
            return ()
        branch = self._branches.get(op, ())
        if op.op_def.role is Role.SWITCH and not self._is_variable(op):
            return (*branch, (op.inputs[1], tensor.value_index == 1))
        return branch

    def _is_variable(self, switch: Operation) -> bool:
        """Whether a Switch tells whether the loop goes on, and not a side of a conditional."""
        return switch.inputs[1].op.op_def.role is Role.LOOP_CONDITION

    # ---- order
    def _sources(self, op: Operation) -> Iterable[Operation]:
        """What an operation waits for, inside of the loop."""
        role = op.op_def.role
        if role is Role.ENTER or (op.outputs and op.outputs[0] in self._made):
            return []
        if role is Role.EXIT:
            return [enter.inputs[0].op for enter in self._loop.inner[op.outputs[0]].enters]
        if role is Role.SWITCH and self._is_variable(op):
            return [op.inputs[0].op]
        return [*(t.op for t in op.inputs), *_waited_for(op)]

    @staticmethod
    def _in_order(
        ends: Iterable[Operation], sources: Callable[[Operation], Iterable[Operation]]
    ) -> Iterator[Operation]:
        """Operations after those that they wait for, without recursion."""
        entered: set[Operation] = set()
        stack = [(op, False) for op in ends]
        while stack:
            op, left = stack.pop()
            if left:
                yield op
            elif op not in entered:
                entered.add(op)
                stack.append((op, True))
                stack.extend((source, False) for source in sources(op) if source not in entered)

    # ---- copies
    def _value(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor in the innermost graph that is open."""
        if tensor not in self._made:
            depth = len(self._graphs) - 1
            for op in self._in_order([tensor.op], self._undone):
                if op not in self._copies and not (op.outputs and op.outputs[0] in self._made):
                    self._make(op, min(depth, len(self._branches.get(op, ()))))
        return self._graphs[-1].capture(self._made[tensor])

    def _undone(self, op: Operation) -> Iterable[Operation]:
        """What has to be copied before an operation; what is inside of a conditional is copied with it."""
        if op in self._copies:
            return []
        if op.op_def.role is Role.MERGE and op.outputs[0] not in self._made:
            return []
        return self._sources(op)

    def _make(self, op: Operation, depth: int) -> None:
        role = op.op_def.role
        graphs = self._graphs
        self._graphs = graphs[: depth + 1]
        try:
            with self._graphs[-1].as_default():
                if role is Role.ENTER:
                    self._made[op.outputs[0]] = self._outside(op.inputs[0])
                elif role is Role.SWITCH:
                    self._made.update((tensor, self._value(op.inputs[0])) for tensor in op.outputs)
                elif role is Role.NEXT_ITERATION:
                    with self._graphs[-1].control_dependencies(self._waited_for(op)):
                        self._made[op.outputs[0]] = raw.Identity(self._value(op.inputs[0]))
                elif role is Role.MERGE:
                    self._make_conditional(op)
                elif role is Role.EXIT:
                    inner = self._loop.inner[op.outputs[0]]
                    self._made.update(inner.built(inner.name.rpartition("/")[2], self._value))
                else:
                    self._make_copy(op)
        finally:
            self._graphs = graphs

    def _waited_for(self, op: Operation) -> list[Operation]:
        copies = (self._copies[c] for c in _waited_for(op) if c in self._copies)
        return [copy for copy in copies if copy.graph is self._graphs[-1]]

    def _make_copy(self, op: Operation) -> None:
        graph = self._graphs[-1]
        copy = self._copies[op] = graph.create_op(
            op.op_def,
            [self._value(t) for t in op.inputs],
            {key: value for key, value in op.attrs.items() if key != "_class"},
            name=op.name.rpartition("/")[2],
            site=op.site,
            control_inputs=self._waited_for(op),
        )
        for old, new in zip(op.outputs, copy.outputs, strict=True):
            if new.shape.is_compatible_with(old.shape):
                new.set_shape(old.shape)
            self._made[old] = new

    def _make_conditional(self, merge: Operation) -> None:
        """An `If` for all Merges of a conditional: those of one predicate, whose names are in one scope."""
        depth = len(self._branches[merge])
        predicate, _ = _longest(self._branch(t) for t in merge.inputs)[depth]
        merges = [
            op for op in self._merges[predicate, merge.name.rpartition("/")[0]] if len(self._branches[op]) == depth
        ]

        def side(taken: bool) -> list[Tensor]:
            graphs, known, copies = self._graphs, dict(self._made), dict(self._copies)
            self._graphs = [*graphs, get_default_graph()]
            try:
                return [self._value(self._side(op, depth, taken)) for op in merges]
            finally:
                # what was copied into this side is of no use anywhere else
                inside = self._graphs[-1]
                kept = {t: new for t, new in self._made.items() if new.graph is not inside}
                self._made = known | kept
                self._copies = copies | {o: new for o, new in self._copies.items() if new.graph is not inside}
                self._graphs = graphs

        results = cond(self._value(predicate), lambda: side(True), lambda: side(False), strict=True, name="cond")
        self._made.update((op.outputs[0], value) for op, value in zip(merges, results, strict=True))

    def _side(self, merge: Operation, depth: int, taken: bool) -> Tensor:
        """The input of a Merge for one value of the predicate; a constant may be in no branch."""
        sides = [self._branch(t)[depth : depth + 1] for t in merge.inputs]
        for tensor, (*known,) in zip(merge.inputs, sides, strict=True):
            if known and known[0][1] is taken:
                return tensor
        (unknown,) = (tensor for tensor, known in zip(merge.inputs, sides, strict=True) if not known)
        return unknown


def _waited_for(op: Operation) -> list[Operation]:
    """The control inputs that may stand for effects. Others say only in which loop or branch an operation is."""
    if op.op_def.role is Role.CONSTANT:
        return []
    return [c for c in op.control_inputs if c.op_def.stateful or c.control_inputs or not c.outputs]


def _longest(branches: Iterable[_Branch]) -> _Branch:
    return max(branches, key=len, default=())


def lift(exits: Sequence[Operation], xs: Sequence[Tensor]) -> None:
    """Makes the loops anew that some Exits leave, and lets what took their results take the new ones.

    Raises:
        UnimplementedError: a loop is of a kind that cannot be made anew, or an x is inside of one.
    """
    loops: dict[Tensor, _OldLoop] = {}
    for op in exits:
        if op.outputs[0] not in loops:
            loop = _known_by(op.outputs[0], loops.values())
            loops.update((tensor, loop) for tensor in loop.exits)
    every = list(dict.fromkeys(loops.values()))
    outermost = [loop for loop in every if not any(other.holds(loop.condition) for other in every if other is not loop)]
    # those that others take something of come first
    for loop in sorted(outermost, key=lambda loop: loop.condition._id):
        inside = next((x for x in xs if loop.holds(x.op)), None)
        if inside is not None:
            raise _refusal(loop, f"{inside.name} is inside of it")
        _replace(loop)


def _replace(loop: _OldLoop) -> None:
    graph = loop.condition.graph
    with graph.as_default(), graph.name_scope(None), graph.control_dependencies(None):
        try:
            made = loop.built(f"{loop.name}_lifted", lifted)
        except (ValueError, TypeError, KeyError) as error:
            raise _refusal(loop, f"it cannot be made anew: {error}") from error
    for old, new in made.items():
        old.set_attribute(LIFTED, new)
    rewire(
        NewInput(op, place, made[tensor])
        for tensor in made
        for op in tensor.consumers()
        for place, taken in enumerate(op.inputs)
        if taken is tensor
    )
    by_operation = {tensor.op: new.op for tensor, new in made.items()}
    for op in graph.get_operations():
        waited = [c for c in op.control_inputs if c in by_operation]
        if waited:
            remove_control_inputs(op, waited)
            add_control_inputs(op, [by_operation[c] for c in waited])


def _refusal(loop: _OldLoop, why: str) -> UnimplementedError:
    return UnimplementedError(
        None,
        loop.exits[0].op,
        f"no gradient can be built through {loop.exits[0].op.name!r} (Exit): its loop is made of Switch and Merge, as "
        f"an older program wrote it, and {why}. Let that program write the gradient too, or build the loop with "
        "tf.while_loop",
    )
