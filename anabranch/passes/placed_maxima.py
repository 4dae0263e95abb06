"""Maximum pooling hands the places of its maxima on to its gradient, which need not find them again.

The gradient of pooling takes the data and the maxima, and not where they were found. Where both are in a step, they
become operations of which the first writes down the places. Whoever else takes the maxima takes them as before.
"""

from __future__ import annotations

from typing import Final

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import op_def_of
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: what makes the window, in both operations
_WINDOW: Final = ("ksize", "strides", "padding", "explicit_paddings", "data_format")
_TYPES: Final = frozenset({dtypes.float32, dtypes.bfloat16})
_FORMATS: Final = frozenset({b"NHWC", b"NCHW"})


def place_maxima(step: StepGraph) -> StepGraph:
    """A step in which gradients of maxima are told their places; itself where there are none."""
    members = set(step.operations)
    forward_of = {op: op.inputs[1].op for op in step.operations if op.type == "MaxPoolGrad" and _belongs(op, members)}
    if not forward_of:
        return step
    pooled = set(forward_of.values())
    rewriting = Rewriting(step)
    places: dict[StepNode, StepNode] = {}
    for op in step.operations:
        if op not in forward_of and op not in pooled:
            rewriting.keep(op)
            continue
        kind = "_MaxPoolWithPlaces" if op in pooled else "_MaxPoolGradAtPlaces"
        inputs = [rewriting.tensor(t) for t in op.inputs]
        outputs = [(t.dtype, t.shape) for t in op.outputs]
        if op in pooled:
            outputs.append((dtypes.uint8, TensorShape([None])))
        else:
            inputs.append(places[forward_of[op]].outputs[1])
        attrs = {name: value for name, value in op.attrs.items() if name in op_def_of(kind).attrs}
        controls = rewriting.nodes(op.control_inputs)
        node = rewriting.add(added_node(kind, op, "places", inputs, controls, op.device, outputs, **attrs))
        rewriting.take_in(op, node, {0: node.outputs[0]})
        places[op] = node
    return rewriting.result()


def _belongs(gradient: StepNode, members: set[StepNode]) -> bool:
    """Whether a gradient is that of the operation that gave its maxima, of the same data by the same window."""
    data, maxima = gradient.inputs[:2]
    forward = maxima.op
    if forward.type != "MaxPool" or forward not in members or data is not forward.inputs[0]:
        return False
    if forward.outputs[0].dtype not in _TYPES or forward.attrs["data_format"] not in _FORMATS:
        return False
    if gradient.after or forward.after or gradient.device != forward.device:
        return False
    return all(gradient.attrs[name] == forward.attrs[name] for name in _WINDOW)
