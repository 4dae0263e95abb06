"""What loops and conditionals take and give although nobody uses it  (§3.2, §3.4).

A conditional takes every tensor from outside that one of its branches mentions, and a loop carries all of its
variables. Built of Switch and Merge, as in the paper, they would be pruned operation by operation. So are functions
here: a result that is not used goes, with what only that result needs, in functions within functions as well; then the
parameters that nothing takes go, and the operations of the step that computed these. What changes state stays: a result
that depends on such an operation counts as used.

Which values are used is found from the ends backwards. A loop variable is used if the loop's result is, if the
condition takes it, or if the next value of a used one is computed from it. More uses never make another value unused,
so that in whatever order values are looked at, cycles of a graph included, the same set is found.

Example: of ``x, y = while_loop(lambda x, y: x < 9, lambda x, y: (x + 1, y * check(y)), [a, b])`` a step that fetches
``x`` runs a loop of one variable, and neither ``check`` nor what gives ``b``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from anabranch.core.attrs import FuncAttr
from anabranch.core.roles import FUNCTIONAL_ROLES, Role
from anabranch.graph.loop_bodies import bodies_of, nesting, operations_behind, remembered
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: how deep functions are looked into (`nesting`): what holds more stays as it is, and what is inside of it does not
_DEEPEST: Final = 40
Found = TypeVar("Found")  #: what is asked about a function
_BRANCHES: Final = ("then_branch", "else_branch")


def drop_unneeded_values(step: StepGraph) -> StepGraph:
    """A step that computes nothing for results of loops and conditionals that nobody uses."""
    if not any(_can_shrink(op) for op in step.operations):
        return step
    uses = _Uses(step.operations, step.fetches, step.targets)
    return uses.rewritten(step) if uses.leave_something else step


class _Uses:
    """What the results of a step or of a function use.

    Args:
        operations: what can run.
        results: tensors that are used.
        targets: operations that are to run though none of their results is used.
    """

    def __init__(
        self, operations: Sequence[StepNode], results: Iterable[StepTensor], targets: Iterable[StepNode] = ()
    ) -> None:
        self._operations = operations
        self._members = set(operations)
        #: positions of used outputs and inputs of the loops and conditionals that can shrink
        self._outputs: dict[StepNode, set[int]] = {}
        self._inputs: dict[StepNode, set[int]] = {}
        self.tensors: set[StepTensor] = set()
        self.nodes: set[StepNode] = set()
        self._stack: list[StepTensor | StepNode] = [*results, *targets]
        while self._stack:
            item = self._stack.pop()
            if isinstance(item, StepTensor):
                self._use_tensor(item)
            else:
                self._use_node(item)

    @property
    def leave_something(self) -> bool:
        """Whether something is not used."""
        return len(self.nodes & self._members) < len(self._operations) or any(map(self._shrinks, self._inputs))

    def _use_tensor(self, tensor: StepTensor) -> None:
        if tensor in self.tensors:
            return
        self.tensors.add(tensor)
        node = tensor.op
        if node not in self._members or not _can_shrink(node):
            self._use_node(node)
            return
        self._run(node)
        if node not in self._outputs:
            self._outputs[node] = _acting_results(node)
        self._outputs[node].add(tensor.value_index)
        self._use_inputs(node)

    def _use_node(self, node: StepNode) -> None:
        """Whoever waits for an operation, or fetches nothing of it, wants all that it does."""
        if node not in self._members:
            self.nodes.add(node)
        elif _can_shrink(node):
            if len(self._outputs.get(node, ())) < len(node.outputs) or node not in self._inputs:
                self._run(node)
                self._outputs[node] = set(range(len(node.outputs)))
                self._use_inputs(node)
        elif node not in self.nodes:
            self._run(node)
            self._stack.extend(t for t in node.inputs if t not in self.tensors)

    def _run(self, node: StepNode) -> None:
        self.nodes.add(node)
        self._stack.extend(n for n in (*node.control_inputs, *node.after) if n not in self.nodes or _can_shrink(n))

    def _use_inputs(self, node: StepNode) -> None:
        inputs = _used_inputs(node, self._outputs[node])
        if node.op_def.role is Role.LOOP:
            self._outputs[node] = set(inputs)
        self._stack.extend(node.inputs[i] for i in inputs - self._inputs.get(node, set()))
        self._inputs[node] = inputs

    def _shrinks(self, node: StepNode) -> bool:
        if len(self._inputs[node]) < len(node.inputs) or len(self._outputs[node]) < len(node.outputs):
            return True
        return any(name != function.name for name, function in self._functions(node))

    def _functions(self, node: StepNode) -> list[tuple[str, StepFunction]]:
        """The functions of a loop or conditional as they are left, with their names before."""
        loop = node.op_def.role is Role.LOOP
        parameters = sorted(i - (not loop) for i in self._inputs[node] if loop or i)
        results = sorted(self._outputs[node])
        functions = bodies_of(node)
        return [
            (function.name, part_of(function, [0] if loop and number == 0 else results, parameters))
            for number, function in enumerate(functions)
        ]

    # ---- what is left
    def rewritten(self, step: StepGraph) -> StepGraph:
        """The step without what is not used."""
        rewriting = Rewriting(step)
        for op in step.operations:
            if op in self.nodes:
                if op in self._inputs and self._shrinks(op):
                    rewriting.replace(op, self._small(op, rewriting), sorted(self._outputs[op]))
                else:
                    rewriting.keep(op)
        return rewriting.result()

    def _small(self, op: StepNode, rewriting: Rewriting) -> StepNode:
        """A loop or a conditional that takes and gives only what is used."""
        loop = op.op_def.role is Role.LOOP
        taken, given = sorted(self._inputs[op]), sorted(self._outputs[op])
        controls, after = rewriting.nodes(op.control_inputs), rewriting.nodes(op.after)
        node = op.copied([rewriting.tensor(op.inputs[i]) for i in taken], controls, after)
        node.outputs = [StepTensor(node, n, op.outputs[i].dtype, op.outputs[i].shape) for n, i in enumerate(given)]
        functions = [function for _, function in self._functions(op)]
        node.functions = {function.name: function for function in functions}
        names = [FuncAttr(function.name) for function in functions]
        changed: dict[str, Any]
        if loop:
            changed = {"T": [op.attrs["T"][i] for i in given], "cond": names[0], "body": names[1]}
        else:
            branches = {"branches": names} if op.op_def.role is Role.CASE else dict(zip(_BRANCHES, names, strict=True))
            changed = {
                "Tin": [op.attrs["Tin"][i - 1] for i in taken if i],
                "Tout": [op.attrs["Tout"][i] for i in given],
                **branches,
            }
        shapes = op.attrs["output_shapes"]
        node.attrs = {**op.attrs, **changed, "output_shapes": [shapes[i] for i in given] if shapes else []}
        return node


def _can_shrink(node: StepNode) -> bool:
    """Whether a node is a loop or a conditional whose functions are known, fit it, and keep no records."""
    role, attrs = node.op_def.role, node.attrs
    if role not in FUNCTIONAL_ROLES or len(node.functions) == 0 or nesting(node) > _DEEPEST:
        return False
    if role is Role.LOOP:
        taken, given = len(attrs["T"]), len(attrs["T"])
        fits = len(node.inputs) == taken
    else:
        taken, given = len(attrs["Tin"]), len(attrs["Tout"])
        fits = len(node.inputs) == taken + 1
    # those of a damaged graph may not fit, which is said where they are taken apart
    functions = bodies_of(node)
    fits &= all(len(function.inputs) == taken for function in functions)
    fits &= all(len(f.outputs) == given for f in (functions[1:] if role is Role.LOOP else functions))
    return fits and len(node.outputs) == given


def _used_inputs(node: StepNode, outputs: set[int]) -> set[int]:
    """The positions of the inputs from which the outputs at some positions are computed."""
    functions = bodies_of(node)
    if node.op_def.role is not Role.LOOP:
        return {0, *(i + 1 for function in functions for i in _parameters_of(function, outputs))}
    condition, body = functions
    used = outputs | _parameters_of(condition, {0})
    while True:
        more = used | _parameters_of(body, used)
        if more == used:
            return used
        used = more


def _parameters_of(function: StepFunction, results: Iterable[int]) -> set[int]:
    """The positions of the parameters from which the results at some positions are computed."""
    uses = _uses_in(function, results)
    return {i for i, p in enumerate(function.inputs) if p in uses.tensors or p.op in uses.nodes}


def _uses_in(function: StepFunction, results: Iterable[int]) -> _Uses:
    positions = tuple(sorted(results))
    return _fact(
        function, (_Uses, positions), lambda: _Uses(function.operations, [function.outputs[i] for i in positions])
    )


def part_of(function: StepFunction, results: Sequence[int], parameters: Sequence[int]) -> StepFunction:
    """A function with some of its results and parameters; its name says which, as the bits of two numbers."""
    uses = _uses_in(function, results)
    everything = len(results) == len(function.outputs) and len(parameters) == len(function.inputs)
    if everything and not uses.leave_something:
        return function

    def shrink() -> StepFunction:
        kept, taken = (sum(1 << i for i in positions) for positions in (results, parameters))
        wanted = [function.outputs[i] for i in results]
        left = uses.rewritten(StepGraph(function.operations, wanted, [], []))
        inputs = [function.inputs[i] for i in parameters]
        name = f"{function.name}[{kept:x} of {taken:x}]"
        return StepFunction(name, inputs, left.fetches, left.operations, function.colocated)

    return _fact(function, (part_of, tuple(results), tuple(parameters)), shrink)


def _fact(function: StepFunction, question: object, find: Callable[[], Found]) -> Found:
    """The answer to a question about a function, found once: steps share functions."""
    if question not in function.facts:
        function.facts[question] = find()
    return function.facts[question]  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- what changes state
def _acts(node: StepNode) -> bool:
    """Whether more comes of an operation than its outputs."""
    if node.op_def.role in FUNCTIONAL_ROLES:
        return any(map(_function_acts, bodies_of(node)))
    return node.op_def.stateful


@remembered
def _function_acts(function: StepFunction) -> bool:
    return any(map(_acts, function.operations))


def _acting_results(node: StepNode) -> set[int]:
    """The positions of the outputs of a loop or a conditional that depend on operations which change state."""
    functions = bodies_of(node)[1:] if node.op_def.role is Role.LOOP else bodies_of(node)
    return {
        i
        for function in functions
        if _function_acts(function)
        for i, result in enumerate(function.outputs)
        if any(_acts(op) for op in operations_behind([result]))
    }
