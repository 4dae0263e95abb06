"""Batch normalization and the ReLU behind it become one operation, and so do their gradients.

Between the two nothing else may happen, but that something is added, as in a residual network: what is normalized goes
to the ReLU alone, and neither is fetched, waits for anything besides, or runs elsewhere. The gradients follow where the
ReLU's goes to the normalization's alone, or to whatever was added as well. Only in training: elsewhere the compiler
puts both into what is around them.

(TensorFlow has the same in its remapper, `_FusedBatchNormEx`, for inference and for GPUs, and in training where oneDNN
computes.)
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import op_def_of
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: of a sum
_OPERANDS: Final = 2
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
    taken_in |= {add for add, _ in found.sums.values()}
    taken_in.update(*((one.gradient, *one.copies) for one in found.side_gradients.values()))
    for op in step.operations:
        if op in found.relu_of:
            outputs = [(t.dtype, t.shape) for t in op.outputs[:5]]
            outputs += [(op.outputs[1].dtype, _SCALAR), (dtypes.uint8, _UNKNOWN)]
            inputs, kind = [rewriting.tensor(t) for t in op.inputs], "_FusedBatchNormRelu"
            if op in found.sums:
                inputs.append(rewriting.tensor(found.sums[op][1]))
                kind = "_FusedBatchNormAddRelu"
            node = fused[op] = _added(rewriting, kind, op, inputs, outputs)
            rewriting.take_in(op, node, dict(enumerate(node.outputs[: len(op.outputs)])))
            if op in found.sums:
                rewriting.take_in(found.sums[op][0], node, {0: node.outputs[0]})
            rewriting.take_in(found.relu_of[op], node, {0: node.outputs[0]})
        elif op in found.gradients:
            relu_gradient, forward = found.gradients[op]
            node = _added_gradient(rewriting, "_FusedBatchNormReluGrad", op, op, relu_gradient, fused[forward])
            rewriting.take_in(op, node, dict(enumerate(node.outputs)))
            rewriting.take_in(relu_gradient, node, {})
        elif op in found.side_gradients:
            gradient, forward, copies = found.side_gradients[op]
            node = _added_gradient(rewriting, "_FusedBatchNormAddReluGrad", gradient, op, op, fused[forward])
            *of_normalization, to_side = node.outputs
            for passed_on in (op, *copies):
                rewriting.take_in(passed_on, node, dict.fromkeys(range(len(passed_on.outputs)), to_side))
            rewriting.take_in(gradient, node, dict(enumerate(of_normalization)))
        elif op not in taken_in:
            rewriting.keep(op)
    return rewriting.result()


def _added_gradient(
    rewriting: Rewriting, kind: str, gradient: StepNode, beside: StepNode, relu_gradient: StepNode, fused: StepNode
) -> StepNode:
    """What takes the place of a normalization's gradient and the ReLU's.

    Args:
        beside: in whose place of the two it stands.
        fused: what has taken the place of the normalization.
    """
    # x, the scale, the mean and the variance; the second reserved output of V3 is empty
    inputs = [rewriting.tensor(t) for t in (relu_gradient.inputs[0], *gradient.inputs[1:5])]
    inputs += [fused.outputs[0], fused.outputs[-1]]
    outputs = [(t.dtype, t.shape) for t in gradient.outputs]
    if beside is relu_gradient:
        outputs.append((relu_gradient.outputs[0].dtype, relu_gradient.outputs[0].shape))
    return _added(rewriting, kind, gradient, inputs, outputs, beside)


def _added(
    rewriting: Rewriting,
    kind: str,
    op: StepNode,
    inputs: list[StepTensor],
    outputs: list[tuple[DType, TensorShape]],
    beside: StepNode | None = None,
) -> StepNode:
    """The operation that takes the place of a normalization, or of its gradient, and of what is fused with it.

    Args:
        beside: where it stands, if not in the normalization's place.
    """
    attrs = {name: value for name, value in op.attrs.items() if name in op_def_of(kind).attrs}
    attrs.setdefault("U", op.outputs[1].dtype)
    controls = rewriting.nodes(op.control_inputs)
    return rewriting.add(added_node(kind, beside or op, "relu", inputs, controls, op.device, outputs, **attrs))


class _SideGradient(NamedTuple):
    """What is fused with the gradient of a ReLU behind a sum.

    Attributes:
        gradient: that of the normalization.
        forward: the normalization.
        copies: what passes on to it what the ReLU's gradient gives, as it is.
    """

    gradient: StepNode
    forward: StepNode
    copies: tuple[StepNode, ...]


class _Pairs:
    """What is to be fused.

    Attributes:
        relu_of: a normalization -> the ReLU that alone takes what it gives, or what a sum makes of it.
        sums: such a normalization -> the sum between the two, and what is added, which is there before it.
        gradients: the gradient of such a normalization -> the ReLU's gradient, which it alone takes, and the
            normalization.
        side_gradients: the gradient of a ReLU behind a sum -> what is fused with it.
    """

    def __init__(self, step: StepGraph) -> None:
        self._uses = Counter(t for op in step.operations for t in op.inputs)
        self._uses.update(step.fetches)
        #: where an operation stands; what is fed has a producer by name alone
        self._place = {op: place for place, op in enumerate(step.operations)}
        self.relu_of: dict[StepNode, StepNode] = {}
        self.sums: dict[StepNode, tuple[StepNode, StepTensor]] = {}
        self.gradients: dict[StepNode, tuple[StepNode, StepNode]] = {}
        self.side_gradients: dict[StepNode, _SideGradient] = {}
        for op in step.operations:
            if op.type == "Relu":
                self._find_before(op)
        forward_of = {relu.outputs[0]: forward for forward, relu in self.relu_of.items()}
        awaited = {other for op in step.operations for other in (*op.control_inputs, *op.after)} if forward_of else ()
        for op in step.operations:
            if _kind(op) != "FusedBatchNormGrad":
                continue
            relu_gradient, copies = self._origin(op.inputs[0].op)
            if relu_gradient.type != "ReluGrad" or relu_gradient in awaited or relu_gradient not in self._place:
                continue
            normalized = forward_of.get(relu_gradient.inputs[1])
            if normalized is None or not _is_gradient_of(op, normalized):
                continue
            if normalized in self.sums:
                if self._can_come_earlier(op, relu_gradient):
                    self.side_gradients[relu_gradient] = _SideGradient(op, normalized, copies)
            elif self._are_one(relu_gradient, op, relu_gradient):
                self.gradients[op] = relu_gradient, normalized

    def _origin(self, op: StepNode) -> tuple[StepNode, tuple[StepNode, ...]]:
        """What gives what an operation passes on, and what passes it on: a sum's gradient is handed to each operand."""
        copies: list[StepNode] = []
        while _copies(op) and op in self._place and not op.control_inputs and not op.after:
            before = op.inputs[0]
            if any(given is not before for given in op.inputs) or before.op.device != op.device:
                return op, ()
            copies.append(op)
            op = before.op
        return op, tuple(copies)

    def _find_before(self, relu: StepNode) -> None:
        """Finds what is normalized for a ReLU."""
        before = relu.inputs[0].op
        if before not in self._place or not self._are_one(before, relu, relu):
            return
        if self._normalizes(before):
            self.relu_of[before] = relu
        elif _is_sum_of_two(before) and not before.control_inputs:
            for at, other in ((0, 1), (1, 0)):
                forward, side = before.inputs[at].op, before.inputs[other]
                if self._normalizes(forward) and self._is_added(forward, before, at, side):
                    self.relu_of[forward], self.sums[forward] = relu, (before, side)
                    return

    def _is_added(self, forward: StepNode, add: StepNode, at: int, side: StepTensor) -> bool:
        """Whether a sum takes what is normalized, alone, and something of that shape that is there before."""
        between = forward.outputs[0]
        if add.inputs[at] is not between or self._uses[between] != 1 or forward.after or forward.device != add.device:
            return False
        alike = side.dtype is between.dtype and side.shape == between.shape and side.shape.rank is not None
        return alike and self._place.get(side.op, -1) < self._place[forward]

    def _can_come_earlier(self, gradient: StepNode, relu_gradient: StepNode) -> bool:
        """Whether the gradient of a normalization may be computed where the ReLU's is."""
        if gradient.control_inputs or gradient.after or relu_gradient.after or relu_gradient.control_inputs:
            return False
        place = self._place[relu_gradient]
        needs = (self._place.get(t.op, -1) for t in gradient.inputs[1:5])
        return gradient.device == relu_gradient.device and all(other < place for other in needs)

    def _normalizes(self, op: StepNode) -> bool:
        if op not in self._place or _kind(op) != "FusedBatchNorm":
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


def _is_sum_of_two(op: StepNode) -> bool:
    return _kind(op) == "Add" or (op.type == "AddN" and len(op.inputs) == _OPERANDS)


def _copies(op: StepNode) -> bool:
    """Whether an operation does nothing but pass on what it is given."""
    op_def = op.op_def
    is_plain = op_def.role is Role.COMPUTATION and not op_def.stateful
    return op_def.passes_on and is_plain and 0 < len(op.outputs) == len(op.inputs)


def _is_gradient_of(op: StepNode, forward: StepNode) -> bool:
    """Whether the gradient of a normalization is that of this one: it takes its data, and what it has reserved."""
    alike = all(op.attrs[name] == forward.attrs[name] for name in ("data_format", "is_training"))
    return alike and op.inputs[1] is forward.inputs[0] and op.inputs[3:5] == forward.outputs[3:5]


def _kind(op: StepNode) -> str:
    return op.type.removesuffix("V2").removesuffix("V3")
