"""Mixed precision: what profits from half precision computes in it, between casts (Micikevicius et al., 2018).

Each operation on float32 has a category (`ops.half_precision`). Four rules choose those that are converted:

1. What profits is converted, always.
2. What needs float32 passes this on, through what stands half precision or is indifferent, as far as some other
   operation follows that does not merely pass values on: the tail of a softmax is not cast back and forth.
3. What stands half precision is converted between two operations that are converted: on a path from one to another
   through nothing but what stands it or is indifferent.
4. What is indifferent is converted where a neighbour is, so that a cast stands where fewer values pass.

Between converted operations and others stand casts, one for each tensor and direction, in front of the first that
takes it; constants are converted here. Variables, feeds and fetches keep their dtype: weights are float32, and a
product reads a cast of them. An operation keeps its place, edges and name, so that the order of effects is what it was,
and a cast is alive where, and as often as, what it casts is: loops and conditionals of primitive operations need no
rule of their own. The bodies of functional ones are converted like steps of their own: what they take and give keeps
its dtype. A loop that decides by what would be converted whether it goes on stays float32, since how often it runs may
be found by running its condition alone. All that is not listed stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import AttributeValue, FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.op_def import ArgDef
from anabranch.core.roles import FUNCTIONAL_ROLES, Role
from anabranch.graph.loop_bodies import bodies_of, closure_of_parameters, operations_behind, parameters_behind
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.half_precision import HalfPrecision, half_precision_of
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.untied import untied

#: the attribute that says in which dtype an operation computes
_TYPE: Final = "T"
#: the annotation of an operation that a user keeps in float32
MAY_BE_HALF: Final = "_AutoMixedPrecisionSegmentInclude"


@dataclass(frozen=True, slots=True)
class HalfRequest:
    """What is asked of a session.

    Attributes:
        dtype: float16, bfloat16, or None: everything stays float32.
        why: who asked, or why it is None, for explanations.
    """

    dtype: DType | None
    why: str


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """In which dtype an operation on floats computes, and why."""

    name: str
    op_type: str
    dtype: DType
    why: str


def convert_to_half(step: StepGraph, half: DType) -> tuple[StepGraph, list[TypeChoice]]:
    """Lets operations of a step compute in half precision.

    Args:
        half: float16 or bfloat16.

    Returns:
        The step, and what was chosen for each operation that works on float32, in step order.
    """
    step = untied(step)
    colours = _Colours(step, half)
    choices = colours.choices()
    converted = _with_converted_bodies(_Converting(step, half, colours.converted).result(), half, choices)
    return converted, choices


class _Colours:
    """Which operations are converted. Work is linear in the edges of the step."""

    def __init__(self, step: StepGraph, half: DType) -> None:
        self._half = half
        self._operations = [op for op in step.operations if _computes_in_float32(op)]
        self._category = {op: _category(op, half) for op in self._operations}
        members = set(step.operations)
        self._before: dict[StepNode, list[StepNode]] = {}
        self._behind: dict[StepNode, list[StepNode]] = {op: [] for op in self._operations}
        for op in self._operations:
            taken = (op.inputs[i] for i in _converted_inputs(op))
            # only along float32: what a comparison says is no matter of precision
            self._before[op] = [
                t.op for t in taken if t.op in members and t.op in self._category and t.dtype is dtypes.float32
            ]
            for earlier in self._before[op]:
                self._behind[earlier].append(op)
        self.converted: set[StepNode] = {op for op in self._operations if self._is(op, HalfPrecision.PROFITS)}
        self._kept = self._kept_in_float32()
        passing = self._free(HalfPrecision.STANDS, HalfPrecision.INDIFFERENT)
        profiting = frozenset(self.converted)
        after = self._reached(profiting, self._behind, passing)
        ahead = self._reached(profiting, self._before, passing)
        self.converted |= after & ahead
        self.converted |= self._reached(self.converted, self._behind, self._free(HalfPrecision.INDIFFERENT))
        self.converted |= self._reached(self.converted, self._before, self._free(HalfPrecision.INDIFFERENT))

    def _is(self, op: StepNode, *categories: HalfPrecision) -> bool:
        return self._category[op] in categories

    def _free(self, *categories: HalfPrecision) -> Callable[[StepNode], bool]:
        """Operations of some categories that nothing keeps in float32."""
        return lambda op: self._category[op] in categories and op not in self._kept

    def _kept_in_float32(self) -> set[StepNode]:
        """What stands half precision, or is indifferent, but works on results of what needs float32."""
        needing = {op for op in self._operations if self._is(op, HalfPrecision.NEEDS_FLOAT32)}
        standing = {op for op in self._operations if self._is(op, HalfPrecision.STANDS)}
        # of what is indifferent, only what leads on to an operation that is not
        leading = self._reached(needing | standing, self._before, lambda op: self._is(op, HalfPrecision.INDIFFERENT))
        return self._reached(needing, self._behind, lambda op: op in leading or op in standing)

    def _reached(
        self,
        start: Iterable[StepNode],
        edges: dict[StepNode, list[StepNode]],
        through: Callable[[StepNode], bool],
    ) -> set[StepNode]:
        """The operations that a walk from some others reaches, over none but those that `through` allows."""
        reached: set[StepNode] = set()
        stack = list(start)
        while stack:
            for op in edges[stack.pop()]:
                if op not in reached and through(op):
                    reached.add(op)
                    stack.append(op)
        return reached

    def choices(self) -> list[TypeChoice]:
        return [
            TypeChoice(op.name, op.type, self._half if op in self.converted else dtypes.float32, self._why(op))
            for op in self._operations
        ]

    def _why(self, op: StepNode) -> str:
        category = self._category[op]
        meaning: str = category.value
        if category in (HalfPrecision.PROFITS, HalfPrecision.NEEDS_FLOAT32, HalfPrecision.UNKNOWN):
            return meaning
        if op in self.converted:
            return f"{meaning}, beside what is converted"
        return f"{meaning}, {'after what needs float32' if op in self._kept else 'not between what is converted'}"


class _Converting:
    """The step with some operations converted, and casts between them and others."""

    def __init__(self, step: StepGraph, half: DType, converted: set[StepNode]) -> None:
        self._step = step
        self._half = half
        self._converted = converted
        self._members = set(step.operations)
        self._feeds = set(step.feeds)
        self._rewriting = Rewriting(step)
        #: tensor of the old graph -> the same values in the dtype that its operation does not have
        self._casts: dict[StepTensor, StepTensor] = {}

    def result(self) -> StepGraph:
        if not self._converted:
            return self._step
        for op in self._step.operations:
            if op in self._converted:
                self._convert(op)
            else:
                self._rewriting.keep(op, inputs=[self._in_float32(t, op) for t in op.inputs])
        fetches = [self._in_float32(t, t.op) for t in self._step.fetches]
        return self._rewriting.result(fetches=fetches)

    def _convert(self, op: StepNode) -> None:
        halved = set(_converted_inputs(op))
        inputs = [self._in_half(t, op) if i in halved else self._in_float32(t, op) for i, t in enumerate(op.inputs)]
        node = op.copied(inputs, self._rewriting.nodes(op.control_inputs), self._rewriting.nodes(op.after))
        node.attrs = {**op.attrs, _TYPE: self._half}
        changed = set(_converted_outputs(op))
        node.outputs = [
            StepTensor(node, i, self._half if i in changed else t.dtype, t.shape, t.known)
            for i, t in enumerate(op.outputs)
        ]
        self._rewriting.replace(op, node)

    def _is_half(self, tensor: StepTensor) -> bool:
        return (
            not tensor.is_known
            and tensor.op in self._converted
            and tensor not in self._feeds
            and tensor.value_index in _converted_outputs(tensor.op)
        )

    def _in_half(self, tensor: StepTensor, taker: StepNode) -> StepTensor:
        return self._rewriting.tensor(tensor) if self._is_half(tensor) else self._cast(tensor, self._half, taker)

    def _in_float32(self, tensor: StepTensor, taker: StepNode) -> StepTensor:
        return self._cast(tensor, dtypes.float32, taker) if self._is_half(tensor) else self._rewriting.tensor(tensor)

    def _cast(self, tensor: StepTensor, dtype: DType, taker: StepNode) -> StepTensor:
        cast = self._casts.get(tensor)
        if cast is None:
            cast = self._casts[tensor] = self._known_cast(tensor, dtype) or self._computed_cast(tensor, dtype, taker)
        return cast

    def _known_cast(self, tensor: StepTensor, dtype: DType) -> StepTensor | None:
        if not isinstance(tensor.known, np.ndarray):
            return None
        with np.errstate(over="ignore"):
            value = tensor.known.astype(dtype.as_numpy_dtype)
        # a copy without inputs lends its name (0032), as in `Rewriting.knows`
        return StepTensor(tensor.op.copied([], ()), tensor.value_index, dtype, tensor.shape, value)

    def _computed_cast(self, tensor: StepTensor, dtype: DType, taker: StepNode) -> StepTensor:
        # beside what computes the values if that is part of the step; a feed is cast where it is taken
        source = tensor.op if tensor.op in self._members else taker
        node = added_node(
            "Cast",
            source,
            f"as_{dtype.name}",
            [self._rewriting.tensor(tensor)],
            device=source.device,
            outputs=[(dtype, tensor.shape)],
            SrcT=dtypes.float32 if dtype is not dtypes.float32 else self._half,
            DstT=dtype,
        )
        return self._rewriting.add(node).outputs[0]


# ---------------------------------------------------------------------- bodies of loops and conditionals
def _with_converted_bodies(step: StepGraph, half: DType, choices: list[TypeChoice]) -> StepGraph:
    """A step whose loops and conditionals call functions that compute in half precision; adds what was chosen there."""
    converted = {op: new for op in step.operations if (new := _converted_functions(op, half, choices))}
    if not converted:
        return step
    rewriting = Rewriting(step)
    for op in step.operations:
        if op not in converted:
            rewriting.keep(op)
            continue
        inputs = [rewriting.tensor(t) for t in op.inputs]
        node = op.copied(inputs, rewriting.nodes(op.control_inputs), rewriting.nodes(op.after))
        node.outputs = [StepTensor(node, i, t.dtype, t.shape, t.known) for i, t in enumerate(op.outputs)]
        node.functions = {function.name: function for function in converted[op].values()}
        node.attrs = {name: _renamed(value, converted[op]) for name, value in op.attrs.items()}
        rewriting.replace(op, node)
    return rewriting.result()


def _converted_functions(op: StepNode, half: DType, choices: list[TypeChoice]) -> dict[str, StepFunction]:
    """The functions of a loop or conditional, by the names of those whose place they take; empty if all stay."""
    if op.op_def.role not in FUNCTIONAL_ROLES:
        return {}
    functions = bodies_of(op)
    changing = functions
    if op.op_def.role is Role.LOOP:
        condition, body = functions
        changing = [] if _decides_by_products(condition, body, half) else [body]
    found: dict[str, StepFunction] = {}
    for function in functions:
        found[function.name], chosen = _half_function(function, half) if function in changing else (function, ())
        choices.extend(replace(choice, name=f"{op.name}/{choice.name}") for choice in chosen)
    return found if any(found[function.name] is not function for function in functions) else {}


def _half_function(function: StepFunction, half: DType) -> tuple[StepFunction, list[TypeChoice]]:
    """A function that computes in half precision between its parameters and results, found once: steps share them."""
    question = (_half_function, half.name)
    if question not in function.facts:
        step = StepGraph(function.operations, function.outputs, [], function.inputs)
        new, choices = convert_to_half(step, half)
        made = function
        if new is not step:
            name = f"{function.name}[{half.name}]"
            made = StepFunction(name, function.inputs, new.fetches, list(new.operations), function.colocated)
        function.facts[question] = made, choices
    found: tuple[StepFunction, list[TypeChoice]] = function.facts[question]
    return found


def _decides_by_products(condition: StepFunction, body: StepFunction, half: DType) -> bool:
    """Whether something that would be converted decides, in this or a later iteration, whether a loop goes on."""
    asked = closure_of_parameters(body, parameters_behind(condition, condition.outputs))
    deciding = operations_behind([*condition.outputs, *(body.outputs[i] for i in asked)])
    return any(
        op.op_def.role in FUNCTIONAL_ROLES
        or (_computes_in_float32(op) and _category(op, half) is HalfPrecision.PROFITS)
        for op in deciding
    )


def _renamed(value: AttributeValue, functions: Mapping[str, StepFunction]) -> Any:
    if isinstance(value, list):
        return [_renamed(one, functions) for one in value]
    return FuncAttr(functions[value.name].name) if isinstance(value, FuncAttr) and value.name in functions else value


# ---------------------------------------------------------------------- signatures
def _computes_in_float32(op: StepNode) -> bool:
    return op.attrs.get(_TYPE) is dtypes.float32


def _category(op: StepNode, half: DType) -> HalfPrecision:
    if op.attrs.get(MAY_BE_HALF) is False:
        return HalfPrecision.NEEDS_FLOAT32
    allowed = op.op_def.attrs[_TYPE].allowed
    known = allowed is None or half in allowed
    return half_precision_of(op.op_def) if known else HalfPrecision.UNKNOWN


def _converted_inputs(op: StepNode) -> list[int]:
    """The positions of the inputs whose dtype is the one in which the operation computes."""
    return _positions(op, op.op_def.inputs)


def _converted_outputs(op: StepNode) -> list[int]:
    return _positions(op, op.op_def.outputs)


def _positions(op: StepNode, arguments: Sequence[ArgDef]) -> list[int]:
    positions: list[int] = []
    end = 0
    for argument in arguments:
        begin = end
        if argument.number_attr is not None:
            end += op.attrs[argument.number_attr]
        elif argument.type_list_attr is not None:
            end += len(op.attrs[argument.type_list_attr])
        else:
            end += 1
        if argument.type_attr == _TYPE:
            positions.extend(range(begin, end))
    return positions
