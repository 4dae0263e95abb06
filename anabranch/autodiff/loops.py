"""The gradient of a loop  (§4.1, WP4.1; docs/decisions/0014-loops.md).

The gradient of a `While` is a loop that runs as often, backwards. What its body, the gradient of the forward body,
needs of an iteration is taken from lists that the forward loop writes: it becomes a `_RecordingWhile`. What follows
from constants and from parameters that never change is computed again instead.
"""

from __future__ import annotations

from typing import Any, cast

import anabranch.ops.lists.items  # lists carry the records  # noqa: F401
from anabranch.autodiff.gradients import gradients
from anabranch.autodiff.loop_bounds import loop_bound
from anabranch.autodiff.zeros import zeros_like
from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import apply_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.loop_bodies import closure_of_parameters, fixed_parameters, operations_behind, parameters_behind
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.control_flow.loops import RecordingWhile, StatelessWhile, While
from anabranch.ops.lists.tensor_list import TensorListAdd, TensorListAddItems, TensorListZeros, as_list_gradient

_SCALAR = TensorShape([])

#: besides the operations that are `shape_valued`


def _differentiable(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype is dtypes.variant


class _ForwardLoop:
    """A forward loop, as its gradient sees it."""

    def __init__(self, op: Operation) -> None:
        make_recording(op)
        self.op = op
        self.body: Any = op.graph.get_function(op.attrs["body"].name)
        self.inputs = op.inputs[1:]
        self.size = len(self.inputs)
        self.count = op.outputs[self.size]
        self.fixed = fixed_parameters(cast(FunctionGraph, self.body))

    @property
    def bound(self) -> Tensor:
        return self.op.inputs[0]

    @property
    def records(self) -> list[tuple[int, Tensor]]:
        """For each record output, the position of its tensor among the body's results, and the output."""
        return list(zip(self.op.attrs["recorded"], self.op.outputs[self.size + 1 :], strict=True))

    def record(self, tensor: Tensor, only_shape: bool) -> Tensor:
        """The output that lists a tensor of the body; made if it is not there yet."""
        attrs = self.op.attrs
        for k, (position, output) in enumerate(self.records):
            if self.body.outputs[position] is tensor:
                if not only_shape:
                    attrs["only_shapes"] = [s and j != k for j, s in enumerate(attrs["only_shapes"])]
                    self.op.graph._changed()
                return output
        self.body.outputs.append(tensor)
        attrs["N"] += 1
        attrs["recorded"] = [*attrs["recorded"], len(self.body.outputs) - 1]
        attrs["only_shapes"] = [*attrs["only_shapes"], only_shape]
        return self.op.graph._append_output(self.op, dtypes.variant, _SCALAR)


def make_recording(op: Operation) -> None:
    """Turns a loop into one that counts its iterations and can record; nothing is recorded yet."""
    if op.op_def is RecordingWhile:
        return
    bound = loop_bound(op)
    attrs: dict[str, Any] = {"N": 0, "recorded": [], "only_shapes": []}
    op.graph._become(op, RecordingWhile, bound, attrs, [dtypes.int32])


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
        elif self._can_be_computed_again(tensor.op):
            inputs = [self.capture(t) for t in tensor.op.inputs]
            attrs = {k: v for k, v in tensor.op.attrs.items() if k != "_class"}
            copy = self.create_op(tensor.op.op_def, inputs, attrs, name=_last_name(tensor), control_inputs=[])
            return copy.outputs[tensor.value_index]
        return self._recorded(tensor)

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
        if tensor in self.forward.inputs:
            return bool(self.loop.fixed[self.forward.inputs.index(tensor)])
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
        """For each record that the outputs need: its parameter, and the list that the caller passes for it."""
        needed = operations_behind(outputs)
        pairs = []
        for tensor, (parameter, item) in self.taken.items():
            users = [op for op in needed if item in op._inputs]
            if users or item in outputs:
                only_shape = item not in outputs and all(
                    op.op_def.shape_valued or op.op_def.ignores_values for op in users
                )
                pairs.append((parameter, self.loop.record(tensor, only_shape)))
        return pairs


def _last_name(tensor: Tensor) -> str:
    return tensor.op.name.rsplit("/", 1)[-1].lstrip("_") or "x"


class _Gradient:
    """One backward loop being built."""

    def __init__(self, op: Operation, grads: list[Any]) -> None:
        self.loop = loop = _ForwardLoop(op)
        self.grads = grads
        _need_values_of_records(loop)
        self.body = _BackwardBody(loop, get_default_graph())
        self.record_grads = [
            (loop.body.outputs[position], as_list_gradient(g, output))
            for (position, output), g in zip(loop.records, grads[loop.size + 1 :], strict=False)
            if g is not None
        ]
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
            found = self._differentiate(carried, lists)
            new = [self._next(i, found[i], g) for i, g in zip(self.active, carried, strict=True)]
        fixed = [
            i
            for i, grad in enumerate(found)
            if loop.fixed[i] and grad is not None and (_differentiable(loop.inputs[i]) or _is_resource(loop.inputs[i]))
        ]
        starts = [self._start(i) for i in fixed]
        sums = [body._placeholder(t.dtype, t.shape, "sum") for t in starts]
        with body.as_default():
            new += [_added(s, found[i]) for i, s in zip(fixed, sums, strict=True)]
            new = [body.capture(t) for t in new]
            following = raw.Sub(body.number, 1)
        seeds = [self._seed(i) for i in self.active]
        varying = [(body.number, raw.Sub(loop.count, 1)), *zip([*carried, *sums], [*seeds, *starts], strict=True)]
        passed = [(p, g) for (_, p), (_, g) in zip(lists, self.record_grads, strict=True)]
        passed += body.used_records(new)
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

    def _next(self, position: int, found: Any, carried: Tensor) -> Tensor:
        """The gradient of a loop variable, for the iteration before."""
        parameter = self.loop.body.inputs[position]
        if parameter.dtype is dtypes.variant:
            return TensorListZeros(carried) if found is None else as_list_gradient(found, carried)
        if found is None:
            return raw.ZerosLike(self.body.capture(parameter))  # type: ignore[no-any-return]
        return convert_to_tensor(found)

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
        return [None, *full]


def _described_shape(body: _BackwardBody, tensor: Tensor) -> Any:
    if tensor.dtype is dtypes.variant:
        return convert_to_tensor(-1, dtypes.int32)
    if tensor.shape.is_fully_defined():
        return convert_to_tensor(tensor.shape.as_list(), dtypes.int32)
    return raw.Shape(body.capture(tensor))


def _is_zero(grad: Any, output: Tensor) -> bool:
    """Whether a gradient stands for none at all."""
    if not _differentiable(output):
        return True
    return grad is None or (isinstance(grad, Tensor) and grad.op.type == "ZerosLike" and grad.op.inputs[0] is output)


def _is_resource(tensor: Tensor) -> bool:
    return tensor.dtype is dtypes.resource


def _added(total: Tensor, grad: Any) -> Tensor:
    """A sum of gradients, with one more; few rows are added in place."""
    if total.dtype is dtypes.variant:
        if isinstance(grad, IndexedSlices):
            return TensorListAddItems(total, grad.indices, grad.values)  # type: ignore[no-any-return]
        return TensorListAdd(total, grad)  # type: ignore[no-any-return]
    if isinstance(grad, IndexedSlices):
        rows = raw.ExpandDims(grad.indices, -1)
        return raw.TensorScatterAdd(total, rows, grad.values)  # type: ignore[no-any-return]
    return raw.AddV2(total, grad)  # type: ignore[no-any-return]


def _need_values_of_records(loop: _ForwardLoop) -> None:
    """Where a backward loop is itself differentiated, records of which it used the shape only must hold values."""
    for tensor in loop.inputs:
        if tensor.dtype is dtypes.variant:
            _need_values(tensor)


def _need_values(tensor: Tensor) -> None:
    op = tensor.op
    if op.op_def is RecordingWhile:
        position = tensor.value_index - (len(op.inputs) - 1) - 1
        if position >= 0:
            only_shapes = [s and k != position for k, s in enumerate(op.attrs["only_shapes"])]
            op.attrs = {**op.attrs, "only_shapes": only_shapes}
            op.graph._changed()
            body: Any = op.graph.get_function(op.attrs["body"].name)
            inner = body.outputs[op.attrs["recorded"][position]]
            if inner.dtype is dtypes.variant:
                _need_values(inner)
    elif op.type == "TensorListGetItem":
        _need_values(op.inputs[0])
    elif op.type == "Placeholder" and isinstance(op.graph, FunctionGraph):
        source = _passed_for(op.graph, tensor)
        if source is not None:
            _need_values(source)


def _passed_for(body: FunctionGraph, parameter: Tensor) -> Tensor | None:
    """What a caller passes for a parameter of a backward loop's body, or of one that captured it."""
    for outer, mine in body._captured.items():
        if mine is parameter:
            return outer
    for tensor, (record, _) in getattr(body, "taken", {}).items():
        if record is parameter:
            return body.loop.record(tensor, False)  # type: ignore[attr-defined, no-any-return]
    return None


def _while_gradient(op: Operation, *grads: Any) -> list[Any]:
    gradient = _Gradient(op, list(grads))
    return gradient.build() if gradient.active or gradient.record_grads else [None, *gradient.passed_on()]


While.gradient(_while_gradient)
StatelessWhile.gradient(_while_gradient)
RecordingWhile.gradient(_while_gradient)
