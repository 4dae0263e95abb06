"""Lower: conditionals and loops that XLA cannot take whole become Switch, Merge, Enter, NextIteration and Exit (§3.4).

An `If` becomes one Switch per input, copies of both branches on its two sides, and one Merge per output; a `Case` what
an `If` in the else branch of an `If`, and so on, would become. A `While` becomes a frame: Enter and Merge per loop
variable, a copy of the condition, a Switch per variable on its result, a copy of the body behind the sides on which it
is true, NextIterations, and Exits on the other sides.

* **Gates.** Everything of the node waits for a `_Gate`, which takes all of its inputs and control inputs: it starts
  when they are there and is dead if one of them is, although some of its inputs may be constants.
* **Pivots.** A copy that takes nothing from its branch or iteration (a constant, a random number) waits for the branch
  or the iteration itself, so that it runs exactly when the others do.
* **Order.** What came before or after the node because of a variable comes before its gate, or after its *done* node,
  and what waited for the node, or takes a value from before a loop as a result of it, waits for *done*.
  A loop whose body has effects runs its iterations one after the other, as it does compiled.
* What a loop never changes enters it as a constant; handles do not enter at all, since they are known.
* **Records.** The lists that a `_RecordingWhile` makes are further loop variables, which grow by an item per iteration.

Bodies may hold conditionals and loops again: the pipeline lowers until none is left that has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import AttributeValue
from anabranch.core.colocation import colocation_group, colocation_leader
from anabranch.core.device import DeviceSpec
from anabranch.core.dtypes import DType
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.loop_bodies import bodies_of, fixed_parameters, remembered
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.control_edges import side_of
from anabranch.passes.rewriting import Rewriting, needed_by_ends
from anabranch.passes.step_graph import StepGraph

_SCALAR: Final = TensorShape([])


def lower_control_flow(
    step: StepGraph,
    chosen: set[StepNode],
    order: Mapping[StepNode, list[StepNode]],
    inner: Callable[[StepNode, StepNode], bool],
) -> StepGraph:
    """Replaces conditionals and loops by primitives.

    Args:
        chosen: which.
        order: for each operation of the step, those that come before it to a variable.
        inner: of a conditional in a body, and of the operation replaced that the body belongs to, whether it is
            replaced as well; no order of operations on variables may concern it.
    """
    return _Lowering(step, chosen, order, inner).run()


def has_effects(op: StepNode) -> bool:
    """Whether somebody notices that an operation runs, besides by its outputs."""
    bodies = bodies_of(op)
    if bodies:
        return any(map(_call_has_effects, bodies))
    op_def = op.op_def
    quiet = op_def.random or op_def.reads or op_def.unnoticed
    return bool(op_def.writes) or (op_def.stateful and not quiet)


@remembered
def _call_has_effects(body: StepFunction) -> bool:
    return any(map(has_effects, body.operations))


@remembered
def _keeps_order(body: StepFunction) -> bool:
    """Whether somebody notices in which order the calls of a body run; where operations wait, the graph says so."""
    return any(
        any(map(_keeps_order, bodies_of(op))) if bodies_of(op) else has_effects(op) and not op.op_def.asynchronous
        for op in body.operations
    )


class _Lowering(Rewriting):
    """One round of lowering."""

    def __init__(
        self,
        step: StepGraph,
        chosen: set[StepNode],
        order: Mapping[StepNode, list[StepNode]],
        inner: Callable[[StepNode, StepNode], bool],
    ) -> None:
        super().__init__(step)
        # a copy, for conditionals in the bodies of those that were chosen join them on the way
        self.chosen, self.order, self.inner = set(chosen), order, inner
        #: operation that was lowered -> the last node of what it became, as dead or alive as it would be
        self.done: dict[StepNode, StepNode] = {}
        #: results of lowered loops for which something from before the loop stands
        self.unchanged: set[StepTensor] = set()
        # of the step as it was: what is not taken there needs no record, however many nodes this pass adds
        self.used = {t for op in step.operations for t in op.inputs}.union(step.fetches)
        #: result of a lowered conditional -> what its branches give
        self.sides: dict[StepTensor, _Sides] = {}
        #: output of a Switch into a branch -> the tensor outside of all conditionals that it is
        self.outside: dict[StepTensor, StepTensor] = {}
        #: what a Merge takes has to be dead where its producer is
        self.merged = {t for op in step.operations if op.op_def.role is Role.MERGE for t in op.inputs}
        self.colocated = dict(step.colocated)

    def run(self) -> StepGraph:
        # a stack and no recursion: conditionals may be nested deeper than Python's own stack allows
        pending = [(iter(self.step.operations), False)]
        while pending:
            operations, are_new = pending[-1]
            op = next(operations, None)
            if op is None:
                pending.pop()
            elif op in self.chosen:
                pending.append((self._lower(op), True))
            elif are_new:
                self._complete(op)
            else:
                # what is lowered of these is in `order` too, and is waited for by its end
                after = self.nodes(a for a in op.after if a not in self.chosen)
                self.keep(op, control_inputs=self.controls_of(op), after=after + self._earlier(op))
        # to run a conditional or loop that is gone is to run it to its end
        targets = [self.done.get(op) or self.node(op) for op in self.step.targets]
        lowered = self.result(targets=targets, colocated=self.colocated)
        # nobody takes the sides of a Switch that a branch has no use for, nor what only these need
        needed = needed_by_ends(lowered, also=[op for op in lowered.operations if has_effects(op)])
        return lowered.with_operations([op for op in lowered.operations if op in needed])

    def _lower(self, op: StepNode) -> Iterator[StepNode]:
        """Lowers an operation; gives what it becomes, where conditionals in its bodies are still to be lowered.

        To lower these at once, and not in a round of their own, matters where conditionals are nested deeply.
        """
        first = len(self.operations)
        parts = _LoweredLoop(self, op) if op.op_def.role is Role.LOOP else _Conditional(self, op)
        parts.lower()
        # of the gate, since all that the operation becomes waits for it; `after`, since an order between operations on
        # a variable holds also where one of them is dead
        parts.gate.after = self._earlier(op) + self.nodes(e for e in self.order.get(op, ()) if e not in self.chosen)
        copies = self.operations[first:]
        # they go through `run` once more, where those are lowered that have to be
        del self.operations[first:]
        self.chosen.update(
            copy for copy in copies if copy.op_def.role in (Role.CONDITIONAL, Role.CASE) and self.inner(copy, op)
        )
        return iter(copies)

    def _complete(self, op: StepNode) -> None:
        """Takes a node that this pass has made, and that nobody else knows, into the new graph."""
        # the copy was made in this pass: what it names may have been lowered since, and nobody else holds it
        op.control_inputs = self.controls_of(op)
        op.inputs = [self.tensor(t) for t in op.inputs]
        self.operations.append(op)

    def controls_of(self, op: StepNode) -> tuple[StepNode, ...]:
        """What an operation waits for in the lowered step, besides what it takes.

        A loop may give back what it was given. Who takes that waits for the end of the loop.
        """
        controls = dict.fromkeys(self.done.get(c) or self.node(c) for c in op.control_inputs)
        # the value is there from before the loop, and whoever took it as a result counted on what the loop has done
        controls.update((self.done[t.op], None) for t in op.inputs if t in self.unchanged)
        return tuple(controls)

    def _earlier(self, op: StepNode) -> tuple[StepNode, ...]:
        """Of what comes before an operation to a variable, the ends of what was lowered."""
        return tuple([self.done[earlier] for earlier in self.order.get(op, ()) if earlier in self.chosen])


class _LoweredOperation:
    """What one conditional or loop becomes."""

    def __init__(self, lowering: _Lowering, op: StepNode) -> None:
        self.lowering, self.op = lowering, op
        self.inputs = [lowering.tensor(t) for t in op.inputs]
        # what is known is there from the start, and never dead
        computed = self.awaited([t for t in self.inputs if not t.is_known])
        types = [t.dtype for t in computed]
        self.gate = self.add("_Gate", computed, "gate", lowering.controls_of(op), T=types)
        self._sides: dict[StepTensor, StepNode] = {}
        #: tensors that exist only in the branch, or the iteration, in which they are computed
        self.gated: set[StepTensor] = set()

    def awaited(self, computed: list[StepTensor]) -> list[StepTensor]:
        """Of the inputs that are computed, those that the gate takes."""
        return computed

    # ---- making nodes
    def add(
        self,
        kind: str,
        inputs: list[StepTensor],
        name: str,
        controls: Sequence[StepNode] = (),
        outputs: Sequence[tuple[DType, TensorShape]] = (),
        **attrs: AttributeValue,
    ) -> StepNode:
        """Adds a node."""
        return self.lowering.add(added_node(kind, self.op, name, inputs, controls, self.op.device, outputs, **attrs))

    def primitive(
        self, kind: str, inputs: list[StepTensor], name: str, controls: Sequence[StepNode] = (), **attrs: AttributeValue
    ) -> StepNode:
        """Adds a primitive: its outputs are like its first input, but for the index of a Merge."""
        like = (inputs[0].dtype, inputs[0].shape)
        more = [like] if kind == "Switch" else [(dtypes.int32, _SCALAR)] if kind == "Merge" else []
        return self.add(kind, inputs, name, controls, [like, *more], T=inputs[0].dtype, **attrs)

    def constant(self, value: int, after: StepNode) -> StepTensor:
        """Adds an int32 scalar."""
        # a constant waits for nothing of its own accord: without `after` it would be alive where the branch or
        # loop is not
        held = np.array(value, np.int32)
        kind = (dtypes.int32, _SCALAR)
        return self.add("Const", [], f"number_{value}", [after], [kind], value=held, dtype=dtypes.int32).outputs[0]

    def computed(
        self,
        kind: str,
        inputs: list[StepTensor],
        name: str,
        dtype: DType,
        controls: Sequence[StepNode] = (),
        **attrs: AttributeValue,
    ) -> StepTensor:
        """Adds an operation with a scalar result."""
        return self.add(kind, inputs, name, controls, [(dtype, _SCALAR)], **attrs).outputs[0]

    def truth(self, tensor: StepTensor, name: str, controls: Sequence[StepNode] = ()) -> StepTensor:
        """The boolean scalar that decides: conditionals and loops take other tensors too, a Switch does not."""
        if tensor.dtype is dtypes.bool and tensor.shape.ndims == 0:
            return tensor
        return self.computed("ToBool", [tensor], name, dtypes.bool, controls, T=tensor.dtype)

    def copy_body(
        self, body: StepFunction, values: dict[StepTensor, StepTensor], label: str, pivot: StepNode
    ) -> list[StepTensor]:
        """Copies the operations of a function; returns its results."""
        prefix = f"{self.op.name}/{label}/"
        copies: dict[StepNode, StepNode] = {}
        # by the names of this copy: each copy of a body is placed by itself
        self.lowering.colocated.update((prefix + name, op) for name, op in body.colocated.items())
        for inner in body.operations:
            inputs = [values[t] for t in inner.inputs]
            # a function's operations come in an order that respects their edges, so that what is no copy yet is a
            # parameter
            controls = [copies[c] for c in inner.control_inputs if c in copies]
            parameters = [values[t] for c in inner.control_inputs if c not in copies for t in c.outputs]
            # nothing else ties it to its branch or iteration: it would run when that is not taken
            if not controls and not any(t in self.gated for t in (*inputs, *parameters)):
                controls = [pivot]
            controls += [self._producer_of(t) for t in parameters if not t.is_known]
            copies[inner] = self._copy(inner, inputs, controls, prefix)
            values.update(zip(inner.outputs, copies[inner].outputs, strict=True))
            self.gated.update(copies[inner].outputs)
        return [values[t] for t in body.outputs]

    def _producer_of(self, tensor: StepTensor) -> StepNode:
        """What to wait for until a parameter is there."""
        if tensor.op.op_def.role is not Role.SWITCH:
            return tensor.op
        if tensor not in self._sides:
            # the Switch runs whichever side is alive; a node on the one side runs only with it
            self._sides[tensor] = self.lowering.add(side_of(tensor))
        return self._sides[tensor]

    def _copy(self, inner: StepNode, inputs: list[StepTensor], controls: list[StepNode], prefix: str) -> StepNode:
        node = inner.copied(inputs, tuple(controls))
        # the origin stays that of the function's operation: by it random counters and private queues are found, whether
        # the body is compiled or lowered (0032)
        node.name = prefix + inner.name
        # as if the body had been built inside of the device scope that its caller was built in
        node.device = _merged_devices(self.op.device, inner.device)
        if "_class" in inner.attrs:
            node.attrs = inner.attrs | {"_class": [_colocated_inside(group, prefix) for group in inner.attrs["_class"]]}
        return self.lowering.add(node)

    def finish(self, results: list[StepTensor | None], last: list[StepNode]) -> None:
        """Lets results stand for the outputs, and a node after `last` for the end."""
        for out, result in zip(self.op.outputs, results, strict=True):
            if result is not None:
                self.lowering.stand_for(out, result)
        # nothing runs in the branches of a conditional without results (`StepFunction.operations`): its end is
        # its beginning
        self.lowering.done[self.op] = self.add("NoOp", [], "done", last or [self.gate])


# ---------------------------------------------------------------------- conditionals
@dataclass(frozen=True, slots=True)
class _Sides:
    """What the branches of a conditional give for one result, what chooses among them, and what they wait for."""

    selector: StepTensor
    gate: StepNode
    results: list[StepTensor]


class _Conditional(_LoweredOperation):
    """What an `If` or a `Case` becomes: the branches behind a chain of tests.

    The first test that is true chooses its branch; the last branch is taken where none is.

    What the branches of one conditional gave, the branches of another one with the same predicate take as it is, and
    not by way of a Merge and a Switch: so does a gradient with what it needs of the forward computation. (Both are
    alive where this branch is; an operation that takes nothing else waits for the pivot.) Otherwise what is computed
    inside of many conditionals would go through each of them on its way out, and again on its way in.
    """

    def awaited(self, computed: list[StepTensor]) -> list[StepTensor]:
        """All, but of the results of a conditional with the same predicate only one: they are there or not together."""
        lowering = self.lowering
        self.selector = lowering.outside.get(self.inputs[0], self.inputs[0])
        # an If and a Case may have the same predicate: what one branch of the one gave is not for a branch of the other
        count = len(self.op.attrs["branches"]) if self.op.op_def.role is Role.CASE else 2
        known_sides = {t: lowering.sides[t] for t in computed if t in lowering.sides}
        self.sides = {t: s for t, s in known_sides.items() if s.selector is self.selector and len(s.results) == count}
        # taking the others as well, the gate would have an input for every result that is handed on, and wait no longer
        first: dict[StepNode, StepTensor] = {}
        return [t for t in computed if t not in self.sides or first.setdefault(self.sides[t].gate, t) is t]

    def lower(self) -> None:
        # behind the gate, like all that the branches take: nothing of the conditional begins before it
        self.chooser = self.primitive("Identity", [self.inputs[0]], "chooser", [self.gate]).outputs[0]
        self.tests, branches = self._case() if self.op.op_def.role is Role.CASE else self._if()
        self.switches: dict[tuple[int, StepTensor], StepNode] = {}
        sides = []
        for number, (label, function) in enumerate(branches.items()):
            body = self.op.function(function.name)
            # any value would do that is alive in this branch only; the chooser is one that each conditional has
            pivot = self.primitive("Identity", [self._in_branch(self.chooser, number)], f"{label}/pivot")
            sides.append(self.copy_body(body, self._parameters(body, number), label, pivot))
        merges = [self._merge(i, list(results)) for i, results in enumerate(zip(*sides, strict=True))]
        # all of them, also those that nobody takes: what a branch does may stand behind one of these
        self.finish([merge.outputs[0] for merge in merges[: len(self.op.outputs)]], merges)

    def _if(self) -> tuple[list[StepTensor], dict[str, Any]]:
        attrs = self.op.attrs
        return [self.truth(self.chooser, "test")], {"then": attrs["then_branch"], "else": attrs["else_branch"]}

    def _case(self) -> tuple[list[StepTensor], dict[str, Any]]:
        """A test for each branch but the last, which is also taken where no branch has the number."""
        # numbers that no branch has fall through all tests, and reach the last branch, as TensorFlow has it
        branches = {f"branch{i}": function for i, function in enumerate(self.op.attrs["branches"])}
        tests = [
            self.computed("Equal", [self.chooser, self.constant(i, self.gate)], f"is_{i}", dtypes.bool, T=dtypes.int32)
            for i in range(len(branches) - 1)
        ]
        return tests, branches

    def _in_branch(self, tensor: StepTensor, number: int) -> StepTensor:
        """A tensor from outside as a branch sees it: what comes through the tests before."""
        last = number == len(self.tests)
        # on the false side of each: a branch is taken only where none before it was
        for test in range(number):
            tensor = self._switch(tensor, test).outputs[0]
        return tensor if last else self._switch(tensor, number).outputs[1]

    def _switch(self, tensor: StepTensor, test: int) -> StepNode:
        # one Switch for both sides, however many branches and parameters take the tensor
        key = test, tensor
        if key not in self.switches:
            name = f"switch_{len(self.switches)}"
            self.switches[key] = self.primitive("Switch", [tensor, self.tests[test]], name)
            # of a Switch behind a Switch the first tensor counts, so that nested conditionals know a predicate
            # that they share
            source = self.lowering.outside.get(tensor, tensor)
            self.lowering.outside.update(dict.fromkeys(self.switches[key].outputs, source))
        return self.switches[key]

    def _parameters(self, body: StepFunction, number: int) -> dict[StepTensor, StepTensor]:
        values: dict[StepTensor, StepTensor] = {}
        for parameter, tensor in zip(body.inputs, self.inputs[1:], strict=True):
            values[parameter] = tensor
            if tensor in self.sides:
                # not gated: it hangs on the other conditional, so that a copy that takes nothing else waits for
                # this one's pivot
                values[parameter] = self.lowering.tensor(self.sides[tensor].results[number])
            # a constant of an enclosing branch that is lowered in the same round is known soon
            elif not tensor.is_known and tensor.op.type != "Const":
                values[parameter] = self._in_branch(tensor, number)
                self.gated.add(values[parameter])
        return values

    def _merge(self, position: int, results: list[StepTensor]) -> StepNode:
        """The result of the branch taken; of two branches at a time, so that it shows which test they differ in."""
        # what a branch gives back as it took it goes through its Switches too, so that it is dead where the branch is
        alive = [t if t in self.gated else self._in_branch(t, number) for number, t in enumerate(results)]
        sides = _Sides(self.selector, self.gate, list(alive))
        merged = alive.pop()
        # a Case of one branch has nothing to merge
        if not alive:
            merged = self.primitive("Identity", [merged], f"merge_{position}", [self.gate]).outputs[0]
        while alive:
            label = f"merge_{position}" if len(alive) == 1 else f"merge_{position}_{len(alive)}"
            # from the last branch backwards, against the chain of tests: at each Merge the sides differ in one test
            merge = self.primitive("Merge", [merged, alive.pop()], label, N=2)
            merged = merge.outputs[0]
        # a Merge has the shape of its first input, which the other branch need not have
        if position < len(self.op.outputs):
            merged.shape = self.op.outputs[position].shape
        self.lowering.sides[merged] = sides
        return merged.op


# ---------------------------------------------------------------------- loops
class _Variable:
    """A loop variable that changes: its Merge, its Switch, and its Exit."""

    def __init__(self, loop: _LoweredLoop, tensor: StepTensor, name: str, shape: TensorShape) -> None:
        self._loop, self._name = loop, name
        enter = loop.enter(tensor, f"enter_{name}", False)
        # what the body says of its parameter holds in all iterations; what enters may have a shape of the first
        # one only
        enter.outputs[0].shape = shape
        # the second input comes in `next`, when there is a body to compute it
        self.merge = loop.primitive("Merge", [enter.outputs[0]], f"merge_{name}", N=2)

    def switch(self, condition: StepTensor) -> None:
        self.sides = self._loop.primitive("Switch", [self.merge.outputs[0], condition], f"switch_{self._name}").outputs

    def next(self, tensor: StepTensor, pivot: StepNode) -> None:
        """Closes the loop."""
        # what comes from outside of the body is alive in the last test as well, and would begin one iteration more
        controls = [] if tensor in self._loop.gated else [pivot]
        following = self._loop.primitive("NextIteration", [tensor], f"next_{self._name}", controls)
        # in place: nobody but this pass has the Merge yet
        self.merge.inputs = [self.merge.inputs[0], following.outputs[0]]

    def leave(self) -> StepNode:
        return self._loop.primitive("Exit", [self.sides[0]], f"exit_{self._name}")


class _LoweredLoop(_LoweredOperation):
    """What a `While` or a `_RecordingWhile` becomes."""

    def lower(self) -> None:
        op, attrs = self.op, self.op.attrs
        self.condition = op.function(attrs["cond"].name)
        self.body = op.function(attrs["body"].name)
        self.records = attrs.get("recorded", ())
        # the first input bounds the number of iterations, for those who need room beforehand; lists grow
        if op.type == "_RecordingWhile":
            self.inputs = self.inputs[1:]
        # of the condition, too: it runs once more than the body, and its effects have a place in the order as well
        ordered = _keeps_order(self.condition) or _keeps_order(self.body)
        self.parallel_iterations = 1 if ordered else max(attrs["parallel_iterations"], 1)
        self._enter_all()
        self._trace_condition()
        results = self._trace_body()
        for position, variable in self.variables.items():
            variable.next(results[position], self.pivot)
        self._leave_all()

    def enter(self, tensor: StepTensor, name: str, constant: bool) -> StepNode:
        """An Enter into the loop's frame."""
        return self.primitive(
            "Enter",
            [tensor],
            name,
            [self.gate],
            frame_name=self.op.name.encode(),
            is_constant=constant,
            parallel_iterations=self.parallel_iterations,
        )

    def _enter_all(self) -> None:
        # a body gives a fixed parameter back as it came, so that it needs no Merge, Switch and NextIteration in
        # each iteration
        fixed = fixed_parameters(self.body)
        shapes = [p.shape for p in self.body.inputs]
        # one at least: an iteration begins with the Merge, and goes on by the Switch, of the first
        changing = [i for i in range(len(self.inputs)) if not fixed[i]] or list(range(len(self.inputs)))[:1]
        self.outside = dict(enumerate(self.inputs))
        for i, tensor in enumerate(self.inputs):
            if i not in changing and not tensor.is_known:
                # an Enter that is constant gives its value to every iteration
                self.outside[i] = self.enter(tensor, f"constant_{i}", True).outputs[0]
        self.variables = {i: _Variable(self, self.inputs[i], str(i), shapes[i]) for i in changing}
        #: where there are none at all: one that carries nothing
        self.turns = [] if self.inputs else [_Variable(self, self.constant(0, self.gate), "turn", _SCALAR)]
        self._enter_records()

    def _enter_records(self) -> None:
        """The number of iterations and the records, as far as somebody takes them, at positions after all others."""
        self.count: _Variable | None = None
        self.lists: dict[int, _Variable] = {}
        if self.op.type != "_RecordingWhile":
            return
        self.count = _Variable(self, self.constant(0, self.gate), "count", _SCALAR)
        size = len(self.inputs)
        for k in range(len(self.records)):
            # behind the loop variables and the count; a record that nobody takes would hold memory of every iteration
            if self.op.outputs[size + 1 + k] in self.lowering.used:
                start = self.add("_RecordStart", [], f"record_{k}", [self.gate], [(dtypes.variant, _SCALAR)])
                self.lists[k] = _Variable(self, start.outputs[0], f"record_{k}", _SCALAR)

    @property
    def _all_variables(self) -> list[_Variable]:
        count = [self.count] if self.count else []
        return [*self.variables.values(), *self.turns, *count, *self.lists.values()]

    def _trace_condition(self) -> None:
        # any of them: all Merges of a loop are alive in each iteration, and in the last test
        first = self._all_variables[0].merge
        inside = dict(self.outside)
        inside.update((i, v.merge.outputs[0]) for i, v in self.variables.items())
        self.gated.update(v.merge.outputs[0] for v in self._all_variables)
        values = {p: inside[i] for i, p in enumerate(self.condition.inputs)}
        truth = self.copy_body(self.condition, values, "cond", first)[0]
        # a condition that takes nothing of the iteration, such as a constant, would be there once and not in each
        controls = [] if truth in self.gated else [first]
        truth = self.truth(truth, "cond/truth", controls)
        self.going_on = self.primitive("LoopCond", [truth], "loop_cond", controls)
        for variable in self._all_variables:
            variable.switch(self.going_on.outputs[0])

    def _trace_body(self) -> list[StepTensor]:
        first = self._all_variables[0]
        self.pivot = self.primitive("Identity", [first.sides[1]], "body/pivot")
        inside = dict(self.outside)
        inside.update((i, v.sides[1]) for i, v in self.variables.items())
        # in the last iteration the condition is computed and the body is not: what the condition gated is alive there
        self.gated = {v.sides[1] for v in self._all_variables}
        results = self.copy_body(self.body, {p: inside[i] for i, p in enumerate(self.body.inputs)}, "body", self.pivot)
        for variable in self.turns:
            variable.next(variable.sides[1], self.pivot)
        if self.count is not None:
            one = self.constant(1, self.pivot)
            more = self.computed("AddV2", [self.count.sides[1], one], "count", dtypes.int32, T=dtypes.int32)
            self.gated.add(more)
            self.count.next(more, self.pivot)
        for k, variable in self.lists.items():
            item = results[self.records[k]]
            longer = self.computed("_RecordAdd", [variable.sides[1], item], f"add_{k}", dtypes.variant, T=item.dtype)
            self.gated.add(longer)
            variable.next(longer, self.pivot)
        return results

    def _leave_all(self) -> None:
        exits = {i: v.leave() for i, v in self.variables.items()}
        last = [*exits.values(), *(variable.leave() for variable in self.turns)]
        # no Exit for what never changes: the value before the loop is the one after it
        results: list[StepTensor | None] = [
            exits[i].outputs[0] if i in exits else self._unchanged(i, last[0]) for i in range(len(self.inputs))
        ]
        for i, leaving in exits.items():
            # an Exit made here has the shape of the Enter; what the loop says of its results was found with all
            # iterations in view
            leaving.outputs[0].shape = self.op.outputs[i].shape
        if self.count is not None:
            last.append(self.count.leave())
            results.append(last[-1].outputs[0])
            results += [self._record(k) for k in range(len(self.records))]
        self.finish(results, last)

    def _unchanged(self, position: int, leaving: StepNode) -> StepTensor:
        """The result of a loop variable that the loop never changes."""
        tensor = self.inputs[position]
        self.lowering.unchanged.add(self.op.outputs[position])
        if self.op.outputs[position] in self.lowering.merged and tensor.is_known:
            return self.primitive("Identity", [tensor], f"result_{position}", [leaving]).outputs[0]
        return tensor

    def _record(self, number: int) -> StepTensor | None:
        if number not in self.lists:
            return None
        last = self.lists[number].leave().outputs[0]
        dtype = self.body.outputs[self.records[number]].dtype
        return self.computed("_RecordEnd", [last], f"end_{number}", dtypes.variant, element_dtype=dtype)


def _merged_devices(outer: str, inner: str) -> str:
    """What an operation of a body asks for; what it leaves open the operation that the body belongs to says."""
    if not outer or not inner:
        return inner or outer
    return DeviceSpec.from_string(outer).make_merged_spec(DeviceSpec.from_string(inner)).to_string()


def _colocated_inside(group: bytes, prefix: str) -> bytes:
    """A colocation group of a body, in a copy of the body whose names begin with `prefix`."""
    leader = colocation_leader(group)
    return group if leader is None else colocation_group(prefix + leader)
