"""Batch normalization and the ReLU behind it become one operation, and so do their gradients.

Between the two nothing else may happen: what is normalized goes to the ReLU alone, and neither is fetched, waits for
anything besides, or runs elsewhere. The gradients follow where the ReLU's goes to the normalization's alone. Only in
training: elsewhere the compiler puts both into what is around them.

(TensorFlow has the same in its remapper, `_FusedBatchNormEx`, for inference and for GPUs, and in training where oneDNN
computes.)
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import op_def_of
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

_SCALAR: Final = TensorShape([])
_UNKNOWN: Final = TensorShape([None])


def fuse_relu(step: StepGraph) -> StepGraph:
    """A step in which normalizations of batches are fused with what follows them; itself where there are none."""
    found = _Pairs(step)
    if not found.relu_of:
        return step
    rewriting = Rewriting(step)
    fused: dict[StepNode, StepNode] = {}
    taken_in = {*found.relu_of.values(), *(gradient for gradient, _ in found.gradients.values())}
    for op in step.operations:
        if op in found.relu_of:
            outputs = [(t.dtype, t.shape) for t in op.outputs[:5]]
            outputs += [(op.outputs[1].dtype, _SCALAR), (dtypes.uint8, _UNKNOWN)]
            inputs = [rewriting.tensor(t) for t in op.inputs]
            node = fused[op] = _added(rewriting, "_FusedBatchNormRelu", op, inputs, outputs)
            rewriting.take_in(op, node, dict(enumerate(node.outputs[: len(op.outputs)])))
            rewriting.take_in(found.relu_of[op], node, {0: node.outputs[0]})
        elif op in found.gradients:
            relu_gradient, forward = found.gradients[op]
            # x, the scale, the mean and the variance; the second reserved output of V3 is empty
            inputs = [rewriting.tensor(t) for t in (relu_gradient.inputs[0], *op.inputs[1:5])]
            inputs += [fused[forward].outputs[0], fused[forward].outputs[-1]]
            outputs = [(t.dtype, t.shape) for t in op.outputs]
            node = _added(rewriting, "_FusedBatchNormReluGrad", op, inputs, outputs)
            rewriting.take_in(op, node, dict(enumerate(node.outputs)))
            rewriting.take_in(relu_gradient, node, {})
        elif op not in taken_in:
            rewriting.keep(op)
    return rewriting.result()


def _added(
    rewriting: Rewriting,
    kind: str,
    op: StepNode,
    inputs: list[StepTensor],
    outputs: list[tuple[DType, TensorShape]],
) -> StepNode:
    """The operation that takes the place of a normalization, or of its gradient, and of what is fused with it."""
    attrs = {name: value for name, value in op.attrs.items() if name in op_def_of(kind).attrs}
    attrs.setdefault("U", op.outputs[1].dtype)
    controls = rewriting.nodes(op.control_inputs)
    return rewriting.add(added_node(kind, op, "relu", inputs, controls, op.device, outputs, **attrs))


class _Pairs:
    """What is to be fused.

    Attributes:
        relu_of: a normalization -> the ReLU that alone takes what it gives.
        gradients: the gradient of such a normalization -> the ReLU's gradient, which it alone takes, and the
            normalization.
    """

    def __init__(self, step: StepGraph) -> None:
        self._uses = Counter(t for op in step.operations for t in op.inputs)
        self._uses.update(step.fetches)
        #: what is fed has a producer by name alone
        self._members = set(step.operations)
        self.relu_of: dict[StepNode, StepNode] = {}
        self.gradients: dict[StepNode, tuple[StepNode, StepNode]] = {}
        for op in step.operations:
            if op.type == "Relu" and self._normalizes(forward := op.inputs[0].op) and self._are_one(forward, op, op):
                self.relu_of[forward] = op
        forward_of = {relu.outputs[0]: forward for forward, relu in self.relu_of.items()}
        awaited = {other for op in step.operations for other in (*op.control_inputs, *op.after)} if forward_of else ()
        for op in step.operations:
            if _kind(op) != "FusedBatchNormGrad":
                continue
            relu_gradient = op.inputs[0].op
            if relu_gradient.type != "ReluGrad" or relu_gradient in awaited or relu_gradient not in self._members:
                continue
            normalized = forward_of.get(relu_gradient.inputs[1])
            if normalized is None or not _is_gradient_of(op, normalized):
                continue
            if self._are_one(relu_gradient, op, relu_gradient):
                self.gradients[op] = relu_gradient, normalized

    def _normalizes(self, op: StepNode) -> bool:
        if op not in self._members or _kind(op) != "FusedBatchNorm":
            return False
        return bool(op.attrs["is_training"]) and op.outputs[1].dtype is dtypes.float32

    def _are_one(self, earlier: StepNode, later: StepNode, taken_in: StepNode) -> bool:
        """Whether nothing but the later operation takes what the earlier one gives, nor comes between them.

        Args:
            taken_in: the one of them in whose place nothing will stand.
        """
        between = earlier.outputs[0]
        if later.inputs[0] is not between or self._uses[between] != 1 or earlier.after or later.after:
            return False
        return earlier.device == later.device and not taken_in.control_inputs


def _is_gradient_of(op: StepNode, forward: StepNode) -> bool:
    """Whether the gradient of a normalization is that of this one: it takes its data, and what it has reserved."""
    alike = all(op.attrs[name] == forward.attrs[name] for name in ("data_format", "is_training"))
    return alike and op.inputs[1] is forward.inputs[0] and op.inputs[3:5] == forward.outputs[3:5]


def _kind(op: StepNode) -> str:
    return op.type.removesuffix("V2").removesuffix("V3")
