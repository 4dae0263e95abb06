"""The gradient of `If` and `Case`: see `ops.control_flow.conditionals` for the idea  (§4.1, WP4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.autodiff.gradients import gradients
from anabranch.autodiff.zeros import zeros_like
from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import apply_op
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph, is_small_constant
from anabranch.graph.graph import Graph, get_default_graph, op_def_of
from anabranch.graph.inner_values import inner_name, inner_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops.control_flow.conditionals import BranchValues, Case, If, StatelessCase, StatelessIf
from anabranch.ops.lists.tensor_list import as_list_gradient
from anabranch.ops.resources.variables import variable_shape


class _GradientBody(FunctionGraph):
    """The gradient of one branch; it captures tensors of the branch itself."""

    def __init__(self, forward: FunctionGraph, outer_graph: Graph) -> None:
        super().__init__(f"{forward.name}_grad", outer_graph)
        self.forward = forward

    def _as_outer(self, tensor: Tensor) -> Tensor:
        if tensor.graph is self.forward:
            return tensor
        held = self.forward._held(tensor) if isinstance(self.forward, _GradientBody) else None
        return super()._as_outer(tensor) if held is None else held

    def _held(self, tensor: Tensor) -> Tensor | None:
        """What stands here already for a tensor of the branch, or of the branch that this is the gradient of.

        The gradient function of a `custom_gradient` has such tensors in its closure, and is called for a gradient of
        the gradient, too.
        """
        below = self.forward
        inner = below._held(tensor) if isinstance(below, _GradientBody) and tensor.graph is not below else tensor
        return None if inner is None else self._captured.get(inner, self._constants.get(inner))

    def _is_copied(self, tensor: Tensor) -> bool:
        """Also numbers of the branch: outside of it, where they would be intermediates, no gradient can name them."""
        return (tensor.graph is self.forward and is_small_constant(tensor)) or super()._is_copied(tensor)

    def differentiate(self, results: list[Tensor | None], out_grads: list[Tensor | None]) -> list[Any]:
        """Builds the gradients of some of the branch's tensors with respect to its parameters.

        Args:
            results: None where the gradient is that of a tensor of another branch.
        """
        ys, seeds = [], []
        for y, grad in zip(results, out_grads, strict=True):
            if grad is not None:
                seed = self.add_parameter(grad.dtype, grad.shape, "grad")
                if y is not None and y.op.type != "FakeParam":
                    ys.append(y)
                    seeds.append(seed)
        with self.as_default():
            return gradients(ys, self.forward.inputs, seeds) if ys else [None] * len(self.forward.inputs)


_IF_BRANCHES = ("then_branch", "else_branch")


def _branches(op: Operation) -> list[Any]:
    """The function graphs of an `If` or a `Case`."""
    named = op.attrs["branches"] if "branches" in op.attrs else [op.attrs[name] for name in _IF_BRANCHES]
    return [op.graph.get_function(f.name) for f in named]


def _gradient(op: Operation, *grads: Gradient | None, others: Sequence[tuple[Operation, list[Any]]] = ()) -> list[Any]:
    branches = _branches(op)
    dense = [_seed(g, t) for g, t in zip(grads, op.outputs, strict=True)]
    results: list[list[Tensor | None]] = [list(branch.outputs) for branch in branches]
    for values, theirs in others:
        dense += [_seed(g, t) for g, t in zip(theirs, values.outputs, strict=True)]
        for name, which in zip(values.attrs["tensors"], values.attrs["which"], strict=True):
            for number, (branch, tensors) in enumerate(zip(branches, results, strict=True)):
                tensors.append(inner_tensor(branch, branch.inputs, name) if number == which else None)
    bodies = [_GradientBody(branch, get_default_graph()) for branch in branches]
    grads_of_bodies = [body.differentiate(tensors, dense) for body, tensors in zip(bodies, results, strict=True)]
    wanted = [i for i in range(len(op.inputs) - 1) if any(f[i] is not None for f in grads_of_bodies)]
    if not wanted:
        return [None] * len(op.inputs)
    for body, in_grads in zip(bodies, grads_of_bodies, strict=True):
        body.outputs = _outputs(body, [in_grads[i] for i in wanted], [body.forward.inputs[i] for i in wanted])
    captured = _outer_values(op, bodies)
    _give_same_parameters(bodies)
    seeds = [g for g in dense if g is not None]
    result = _build(op, bodies, [*seeds, *captured])
    full: list[Any] = [None] * len(op.inputs)
    for i, grad in zip(wanted, result, strict=True):
        full[i + 1] = grad
    return full


def _seed(grad: Gradient | None, tensor: Tensor) -> Tensor | None:
    """The gradient of a result as a tensor; None where there is none."""
    if grad is None:
        return None
    if tensor.dtype is dtypes.variant:
        return as_list_gradient(grad, tensor)
    return convert_to_tensor(grad) if tensor.dtype.is_floating or tensor.dtype.is_complex else None


def _outputs(body: _GradientBody, grads: list[Any], parameters: list[Tensor]) -> list[Tensor]:
    """The gradients as tensors of the body; zeros where this branch does not depend on a parameter."""
    with body.as_default():
        return [body.capture(_as_tensor(g, p)) for g, p in zip(grads, parameters, strict=True)]


def _as_tensor(grad: Gradient | None, parameter: Tensor) -> Tensor:
    if grad is None:
        return zeros_like(parameter)
    if parameter.dtype is dtypes.variant:
        return as_list_gradient(grad, parameter)
    if isinstance(grad, IndexedSlices) and grad.dense_shape is None and parameter.dtype is dtypes.resource:
        grad = IndexedSlices(grad.values, grad.indices, variable_shape(parameter))
    return convert_to_tensor(grad)


def _outer_values(op: Operation, bodies: list[_GradientBody]) -> list[Tensor]:
    """What the caller passes for the captures of all bodies: inputs and outputs of the `If`, or what it has inside."""
    inside = {t: which for which, body in enumerate(bodies) for t in body.captures if _is_inside(op, body, t)}
    values = dict(zip(inside, _inner_values(op, [b.forward for b in bodies], inside), strict=True)) if inside else {}
    return [values[t] if t in values else _given(op, body, t) for body in bodies for t in body.captures]


def _is_inside(op: Operation, body: _GradientBody, tensor: Tensor) -> bool:
    forward = body.forward
    return tensor.graph is forward and tensor not in forward.inputs and tensor not in forward.outputs


def _given(op: Operation, body: _GradientBody, tensor: Tensor) -> Tensor:
    forward = body.forward
    if tensor.graph is not forward:
        return tensor
    if tensor in forward.inputs:
        return op.inputs[1 + forward.inputs.index(tensor)]
    return op.outputs[forward.outputs.index(tensor)]


def _inner_values(op: Operation, branches: list[FunctionGraph], tensors: dict[Tensor, int]) -> list[Tensor]:
    """Adds the operation that gives some tensors of the branches; `tensors`: with the numbers of their branches."""
    graph = op.graph
    attrs = {
        "S": op.inputs[0].dtype,
        "Tin": op.attrs["Tin"],
        "Tout": [t.dtype for t in tensors],
        "branches": op.attrs["branches"] if "branches" in op.attrs else [op.attrs[name] for name in _IF_BRANCHES],
        "output_shapes": [t.shape for t in tensors],
        "tensors": [inner_name(branches[which].inputs, t) for t, which in tensors.items()],
        "which": list(tensors.values()),
    }
    with graph.name_scope(None), graph.colocate_with(op, ignore_existing=True):
        name = graph.unique_name(f"{op.name}_values", mark_as_used=False)
        made = graph.create_op(BranchValues, list(op.inputs), attrs, name=f"{name}/", control_inputs=[op])
    return list(made.outputs)


def _give_same_parameters(bodies: list[_GradientBody]) -> None:
    """All bodies get the captures of all, in the same order: those of the first branch, then of the second, ..."""
    captures = [list(body.captured_parameters) for body in bodies]
    seeds = len(bodies[0].inputs) - len(captures[0])
    for which, body in enumerate(bodies):
        parameters = body.inputs[:seeds]
        for i, theirs in enumerate(captures):
            parameters += theirs if i == which else [_stand_in(body, parameter) for parameter in theirs]
        body.inputs = parameters


def _stand_in(body: _GradientBody, parameter: Tensor) -> Tensor:
    """A parameter of a body for what another branch captured."""
    made = body.add_parameter(parameter.dtype, parameter.shape, "unused")
    made.set_attribute("handle_of", parameter.get_attribute("handle_of"))
    return made


def _build(op: Operation, bodies: list[_GradientBody], inputs: list[Tensor]) -> list[Tensor]:
    functions = [FuncAttr(op.graph.add_function(body.name, body)) for body in bodies]
    selector = op.op_def.inputs[0].name
    bound: dict[str, Any] = {
        selector: op.inputs[0],
        "input": inputs,
        "Tout": [t.dtype for t in bodies[0].outputs],
        "output_shapes": [
            _merged(shapes) for shapes in zip(*([t.shape for t in b.outputs] for b in bodies), strict=True)
        ],
    }
    bound |= {"branches": functions} if "branches" in op.attrs else dict(zip(_IF_BRANCHES, functions, strict=True))
    return apply_op(op_def_of(op.type), bound, "gradient").outputs


def _merged(shapes: tuple[TensorShape, ...]) -> TensorShape:
    """What is known of the shape of a gradient, whichever branch computes it."""
    merged = shapes[0]
    for shape in shapes[1:]:
        merged = merged.merge_with(shape) if merged.is_compatible_with(shape) else merged
    return merged


for _op in (If, StatelessIf, Case, StatelessCase):
    _op.gradient(_gradient)


@BranchValues.gradient
def _(op: Operation, *grads: Gradient | None) -> list[Any]:
    raise LookupError(f"operation {op.name!r} has a gradient together with its conditional only")
