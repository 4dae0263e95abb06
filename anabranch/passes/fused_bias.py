"""A convolution, the bias behind it and the ReLU behind that become one operation.

Between them nothing else may happen: what each gives goes to the next alone, is not fetched, and none of them waits for
anything besides, but the convolution, or runs elsewhere. The gradients stay as they are: they take the result, the data
and the filter, and none of what lies between.

(TensorFlow has the same in its remapper, `_FusedConv2D`.)
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from anabranch.core import dtypes
from anabranch.graph.graph import op_def_of
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

_FUSED: Final = "_Conv2DBiasRelu"
_TYPES: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64})


class _Layer(NamedTuple):
    convolution: StepNode
    bias: StepNode
    relu: StepNode


def fuse_bias(step: StepGraph) -> StepGraph:
    """A step in which convolutions are fused with what follows them; itself where there are none."""
    layers = _layers(step)
    if not layers:
        return step
    rewriting = Rewriting(step)
    of_bias = {layer.bias: layer for layer in layers}
    taken_in = {*(layer.convolution for layer in layers), *(layer.relu for layer in layers)}
    for op in step.operations:
        # where the bias is added, all that is taken is there
        if (layer := of_bias.get(op)) is not None:
            inputs = [rewriting.tensor(t) for t in (*layer.convolution.inputs, op.inputs[1])]
            outputs = [(layer.relu.outputs[0].dtype, layer.relu.outputs[0].shape)]
            attrs = {name: value for name, value in layer.convolution.attrs.items() if name in op_def_of(_FUSED).attrs}
            controls = rewriting.nodes(layer.convolution.control_inputs)
            node = added_node(_FUSED, layer.convolution, "relu", inputs, controls, op.device, outputs, **attrs)
            rewriting.add(node)
            rewriting.take_in(layer.convolution, node, {})
            rewriting.take_in(op, node, {})
            rewriting.take_in(layer.relu, node, {0: node.outputs[0]})
        elif op not in taken_in:
            rewriting.keep(op)
    return rewriting.result()


def _layers(step: StepGraph) -> list[_Layer]:
    members = set(step.operations)
    found = []
    for relu in step.operations:
        if relu.type != "Relu" or (bias := relu.inputs[0].op).type != "BiasAdd":
            continue
        # what is fed has a producer by name alone
        if bias in members and (convolution := bias.inputs[0].op) in members and convolution.type == "Conv2D":
            layer = _Layer(convolution, bias, relu)
            found += [layer] if _are_alike(layer) else []
    if not found:
        return []
    uses = Counter(t for op in step.operations for t in op.inputs)
    uses.update(step.fetches)
    awaited = {other for op in step.operations for other in (*op.control_inputs, *op.after)} | set(step.targets)
    return [
        layer
        for layer in found
        if uses[layer.convolution.outputs[0]] == uses[layer.bias.outputs[0]] == 1
        # what waits for it might stand before the bias
        and layer.convolution not in awaited
    ]


def _are_alike(layer: _Layer) -> bool:
    """Whether the three are of one kind, and nothing comes between them."""
    convolution, bias, relu = layer
    if any(op.after or op.device != convolution.device for op in layer) or bias.control_inputs or relu.control_inputs:
        return False
    formats = convolution.attrs["data_format"], bias.attrs["data_format"]
    return convolution.outputs[0].dtype in _TYPES and formats[0] == formats[1]
