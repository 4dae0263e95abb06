"""The gradient of a loop  (§4.1, WP4.1; docs/decisions/0014-loops.md).

The gradient of a `While` is a loop that runs as often, backwards. What its body, the gradient of the forward body,
needs of an iteration is taken from lists that a `_LoopRecords` beside the forward loop gives. What follows from
constants, from parameters that never change, and from those that count is computed again instead.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import anabranch.ops.lists.items  # lists carry the records  # noqa: F401
from anabranch.autodiff.gradients import gradients
from anabranch.autodiff.loop_bounds import loop_bound
from anabranch.autodiff.zeros import zeros_like
from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import apply_op
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.inner_values import beside, inner_name, inner_tensor
from anabranch.graph.loop_bodies import (
    closure_of_parameters,
    fixed_parameters,
    operations_behind,
    parameters_behind,
)
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.control_flow.counters import counter_steps
from anabranch.ops.control_flow.loops import LoopRecords, RecordingWhile, StatelessWhile, While
from anabranch.ops.lists.tensor_list import TensorListAdd, TensorListAddItems, TensorListZeros, as_list_gradient

_SCALAR = TensorShape([])
#: an operation that stands beside a loop or a conditional, and the gradients of its outputs
Beside = tuple[Operation, list[Any]]


def _differentiable(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype is dtypes.variant


class _ForwardLoop:
    """A forward loop, as its gradient sees it."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.body: Any = op.graph.get_function(op.attrs["body"].name)
        #: where the loop variables are among the inputs: the gradient of a loop takes a bound before them
        self.first = 1 if op.op_def is RecordingWhile else 0
        self.inputs = op.inputs[self.first :]
        self.size = len(self.inputs)
        self.fixed = fixed_parameters(cast(FunctionGraph, self.body))
        self.steps = counter_steps(cast(FunctionGraph, self.body))

    @functools.cached_property
    def bound(self) -> Tensor:
        """How often the loop runs at most: found once for each loop."""
        if self.first:
            return self.op.inputs[0]
        earlier = beside(self.op)
        return earlier[0].inputs[0] if earlier else loop_bound(self.op)

    def given(self, grads: list[Any], others: list[Beside]) -> list[tuple[Tensor, Any]]:
        """The tensors of the body whose records have gradients, and these."""
        triples = []
        if self.first:
            own = self.op.outputs[self.size + 1 :]
            tensors = [self.body.outputs[position] for position in self.op.attrs["recorded"]]
            triples += list(zip(tensors, own, grads[self.size + 1 :], strict=True))
        for op, theirs in others:
            tensors = [inner_tensor(self.body, self.body.inputs, name) for name in op.attrs["tensors"]]
            triples += list(zip(tensors, op.outputs[1:], theirs[1:], strict=True))
        return [(tensor, as_list_gradient(g, output)) for tensor, output, g in triples if g is not None]

    def take(self, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Adds the operation that gives the number of iterations, and a list for each of some tensors of the body."""
        op, graph = self.op, self.op.graph
        attrs = {
            "T": op.attrs["T"],
            "cond": op.attrs["cond"],
            "body": op.attrs["body"],
            "N": len(tensors),
            "tensors": [inner_name(self.body.inputs, t) for t in tensors],
            "types": [t.dtype for t in tensors],
        }
        with graph.name_scope(None), graph.colocate_with(op, ignore_existing=True):
            name = graph.unique_name(f"{op.name}_records", mark_as_used=False)
            inputs = [self.bound, *self.inputs]
            made = graph.create_op(LoopRecords, inputs, attrs, name=f"{name}/", control_inputs=[op])
        return made.outputs[0], made.outputs[1:]


class _BackwardBody(FunctionGraph):
    """The body of the backward loop: the gradient of the forward body, on the values of one iteration."""

    def __init__(self, loop: _ForwardLoop, outer_graph: Graph) -> None:
        super().__init__(f"{loop.body.name}_grad", outer_graph)
        self.loop, self.forward = loop, loop.body
        self.number = self._placeholder(dtypes.int32, _SCALAR, "number")
        #: tensor of the forward body -> (the parameter for its record, its value in this iteration)
        self.taken: dict[Tensor, tuple[Tensor, Tensor]] = {}
        self._again: dict[Tensor, Tensor] = {}

    # ---- where values come from
    def _as_outer(self, tensor: Tensor) -> Tensor:
        assert self.outer_graph is not None
        return tensor if tensor.graph is self.outer_graph else self.outer_graph.capture(tensor)

    def capture(self, tensor: Tensor) -> Tensor:
        if tensor.graph is not self.forward:
            return super().capture(tensor)
        if tensor not in self._again:
            self._again[tensor] = self._of_forward(tensor)
        return self._again[tensor]

    def _of_forward(self, tensor: Tensor) -> Tensor:
        if tensor in self.forward.inputs:
            position = self.forward.inputs.index(tensor)
            if self.loop.fixed[position]:
                return super().capture(self.loop.inputs[position])
            if self.loop.steps[position]:
                return self._counted(position)
        elif self._can_be_computed_again(tensor.op):
            inputs = [self.capture(t) for t in tensor.op.inputs]
            attrs = {k: v for k, v in tensor.op.attrs.items() if k != "_class"}
            copy = self.create_op(tensor.op.op_def, inputs, attrs, name=_last_name(tensor), control_inputs=[])
            return copy.outputs[tensor.value_index]
        return self._recorded(tensor)

    def _counted(self, position: int) -> Tensor:
        """A counter of the forward loop: what it was at first, and what the iterations before have added."""
        start = super().capture(self.loop.inputs[position])
        with self.as_default():
            number = self.number if start.dtype is dtypes.int32 else raw.Cast(self.number, DstT=start.dtype)
            step = convert_to_tensor(self.loop.steps[position], start.dtype)
            return raw.AddV2(start, raw.Mul(number, step))  # type: ignore[no-any-return]

    def _can_be_computed_again(self, op: Operation) -> bool:
        """Whether an operation gives the same in every iteration, or depends on shapes only, and is cheap.

        Not one with a gradient of its own: that may use tensors of the forward body, which the copy is not in.
        """
        op_def = op.op_def
        if op._control_inputs or op_def.stateful or op_def.random or "_gradient_op_type" in op.attrs:
            return False
        if op.type == "Const" or op_def.shape_valued:
            return True
        if op.type == "TensorListGetItem":
            return self._is_fixed(op.inputs[0])
        return (op_def.portable or op_def.passes_on) and all(self._is_fixed(t) for t in op.inputs)

    def _is_fixed(self, tensor: Tensor) -> bool:
        """Whether a tensor is the same in every iteration, or counts them."""
        if tensor in self.forward.inputs:
            position = self.forward.inputs.index(tensor)
            return bool(self.loop.fixed[position] or self.loop.steps[position])
        return self._can_be_computed_again(tensor.op) and tensor.op.type != "TensorListGetItem"

    def _recorded(self, tensor: Tensor) -> Tensor:
        parameter = self._placeholder(dtypes.variant, _SCALAR, "record")
        dims = tensor.shape.as_list() if tensor.shape.ndims is not None else None
        shape = -1 if dims is None or tensor.dtype is dtypes.variant else [-1 if d is None else d for d in dims]
        with self.as_default():
            described = convert_to_tensor(shape, dtypes.int32)
            item: Tensor = raw.TensorListGetItem(parameter, self.number, described, element_dtype=tensor.dtype)
        if tensor.dtype in (dtypes.variant, dtypes.resource):
            item.set_attribute("handle_of", tensor.get_attribute("handle_of"))
        self.taken[tensor] = (parameter, item)
        return item

    # ---- the finished body
    def used_records(self, outputs: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """For each record that the outputs need: its parameter, and the tensor of the forward body that it lists."""
        needed = operations_behind(outputs)
        taken = {t for op in needed for t in op.inputs}.union(outputs)
        return [(parameter, tensor) for tensor, (parameter, item) in self.taken.items() if item in taken]


def _last_name(tensor: Tensor) -> str:
    return tensor.op.name.rsplit("/", 1)[-1].lstrip("_") or "x"


class _Gradient:
    """One backward loop being built."""

    def __init__(self, op: Operation, grads: list[Any], others: list[Beside]) -> None:
        self.loop = loop = _ForwardLoop(op)
        self.grads = grads
        self.body = _BackwardBody(loop, get_default_graph())
        self.record_grads = loop.given(grads, others)
        self.active = self._active()

    def _active(self) -> list[int]:
        """The changing loop variables that gradients reach, in any iteration."""
        loop = self.loop
        start = {i for i in range(loop.size) if not _is_zero(self.grads[i], loop.op.outputs[i])}
        start |= parameters_behind(loop.body, [t for t, _ in self.record_grads])
        reached = closure_of_parameters(loop.body, start)
        return sorted(i for i in reached if _differentiable(loop.body.inputs[i]) and not loop.fixed[i])

    def build(self) -> list[Any]:
        """The gradients of the loop's inputs."""
        loop, body = self.loop, self.body
        carried = [body._placeholder(t.dtype, t.shape, "grad") for t in (loop.body.outputs[i] for i in self.active)]
        lists = [(t, body._placeholder(dtypes.variant, _SCALAR, "record_grad")) for t, _ in self.record_grads]
        with body.as_default():
            differentiated = self._differentiate(carried, lists)
            new = [self._next(i, differentiated[i], g) for i, g in zip(self.active, carried, strict=True)]
        fixed = [
            i
            for i, grad in enumerate(differentiated)
            if loop.fixed[i] and grad is not None and (_differentiable(loop.inputs[i]) or _is_resource(loop.inputs[i]))
        ]
        starts = [self._start(i) for i in fixed]
        sums = [body._placeholder(t.dtype, t.shape, "sum") for t in starts]
        with body.as_default():
            new += [_added(s, differentiated[i]) for i, s in zip(fixed, sums, strict=True)]
            new = [body.capture(t) for t in new]
            following = raw.Sub(body.number, 1)
        seeds = [self._seed(i) for i in self.active]
        used = body.used_records(new)
        count, records = loop.take([tensor for _, tensor in used])
        varying = [(body.number, raw.Sub(count, 1)), *zip([*carried, *sums], [*seeds, *starts], strict=True)]
        passed = [(p, g) for (_, p), (_, g) in zip(lists, self.record_grads, strict=True)]
        passed += [(parameter, record) for (parameter, _), record in zip(used, records, strict=True)]
        passed += list(zip(body.captured_parameters, body.captures, strict=True))
        results = self._loop(varying, [following, *new], passed)
        return self._by_input(fixed, results[1:])

    def _differentiate(self, carried: list[Tensor], lists: list[tuple[Tensor, Tensor]]) -> list[Any]:
        forward, body = self.loop.body, self.body
        ys: list[Tensor] = [forward.outputs[i] for i in self.active]
        seeds: list[Any] = list(carried)
        for tensor, parameter in lists:
            shape = _described_shape(body, tensor)
            ys.append(tensor)
            seeds.append(raw.TensorListGetItem(parameter, body.number, shape, element_dtype=tensor.dtype))
        return gradients(ys, forward.inputs, seeds) if ys else [None] * self.loop.size

    def _next(self, position: int, grad: Gradient | None, carried: Tensor) -> Tensor:
        """The gradient of a loop variable, for the iteration before."""
        parameter = self.loop.body.inputs[position]
        if parameter.dtype is dtypes.variant:
            return TensorListZeros(carried) if grad is None else as_list_gradient(grad, carried)
        if grad is None:
            return raw.ZerosLike(self.body.capture(parameter))  # type: ignore[no-any-return]
        return convert_to_tensor(grad)

    def passed_on(self) -> list[Any]:
        """The gradients of what leaves the loop as it entered."""
        loop = self.loop
        return [
            self.grads[i] if loop.fixed[i] and not _is_zero(self.grads[i], loop.op.outputs[i]) else None
            for i in range(loop.size)
        ]

    def _start(self, position: int) -> Tensor:
        """The start of the sum of a fixed parameter's gradients: the gradient of the result that it is."""
        outer = self.loop.inputs[position]
        given = self.passed_on()[position]
        if given is not None:
            return as_list_gradient(given, outer) if outer.dtype is dtypes.variant else convert_to_tensor(given)
        return zeros_like(get_default_graph().capture(outer))

    def _seed(self, position: int) -> Tensor:
        output = self.loop.op.outputs[position]
        grad = self.grads[position]
        if grad is None:
            return zeros_like(output)
        return as_list_gradient(grad, output) if output.dtype is dtypes.variant else convert_to_tensor(grad)

    def _loop(
        self, varying: list[tuple[Tensor, Tensor]], new: list[Tensor], passed: list[tuple[Tensor, Tensor]]
    ) -> list[Tensor]:
        body, op = self.body, self.loop.op
        parameters = [p for p, _ in (*varying, *passed)]
        body.inputs = parameters
        body.outputs = [*new, *(p for p, _ in passed)]
        condition = FunctionGraph(f"{body.name}_cond", body.outer_graph)
        mine = [condition.add_parameter(p.dtype, p.shape, "x") for p in parameters]
        for parameter, own in zip(parameters, mine, strict=True):
            if parameter.dtype in (dtypes.variant, dtypes.resource):
                own.set_attribute("handle_of", parameter.get_attribute("handle_of"))
        with condition.as_default():
            condition.outputs = [raw.GreaterEqual(mine[0], 0)]
        bound = {
            "bound": self.loop.bound,
            "input": [t for _, t in (*varying, *passed)],
            "cond": FuncAttr(op.graph.add_function(condition.name, condition)),
            "body": FuncAttr(op.graph.add_function(body.name, body)),
            "output_shapes": [p.shape for p in parameters],
            "parallel_iterations": op.attrs["parallel_iterations"],
            "record": [],
            "N": 0,
            "recorded": [],
            "only_shapes": [],
        }
        return apply_op(RecordingWhile, bound, "gradient").outputs[: len(varying)]

    def _by_input(self, fixed: list[int], results: list[Tensor]) -> list[Any]:
        full = self.passed_on()
        for position, grad in zip([*self.active, *fixed], results, strict=True):
            full[position] = grad
        return full


def _described_shape(body: _BackwardBody, tensor: Tensor) -> Any:
    if tensor.dtype is dtypes.variant:
        return convert_to_tensor(-1, dtypes.int32)
    if tensor.shape.is_fully_defined():
        return convert_to_tensor(tensor.shape.as_list(), dtypes.int32)
    return raw.Shape(body.capture(tensor))


def _is_zero(grad: Gradient | None, output: Tensor) -> bool:
    """Whether a gradient stands for none at all."""
    if not _differentiable(output):
        return True
    return grad is None or (isinstance(grad, Tensor) and grad.op.type == "ZerosLike" and grad.op.inputs[0] is output)


def _is_resource(tensor: Tensor) -> bool:
    return tensor.dtype is dtypes.resource


def _added(total: Tensor, grad: Gradient | None) -> Tensor:
    """A sum of gradients, with one more; few rows are added in place."""
    if total.dtype is dtypes.variant:
        if isinstance(grad, IndexedSlices):
            return TensorListAddItems(total, grad.indices, grad.values)  # type: ignore[no-any-return]
        return TensorListAdd(total, grad)  # type: ignore[no-any-return]
    if isinstance(grad, IndexedSlices):
        rows = raw.ExpandDims(grad.indices, -1)
        return raw.TensorScatterAdd(total, rows, grad.values)  # type: ignore[no-any-return]
    return raw.AddV2(total, grad)  # type: ignore[no-any-return]


def _while_gradient(op: Operation, *grads: Gradient | None, others: Sequence[Beside] = ()) -> list[Any]:
    gradient = _Gradient(op, list(grads), list(others))
    needed = gradient.active or gradient.record_grads
    return [None] * gradient.loop.first + (gradient.build() if needed else gradient.passed_on())


While.gradient(_while_gradient)
StatelessWhile.gradient(_while_gradient)
RecordingWhile.gradient(_while_gradient)


@LoopRecords.gradient
def _(op: Operation, *grads: Gradient | None) -> list[Any]:
    raise LookupError(f"operation {op.name!r} has a gradient together with its loop only")
