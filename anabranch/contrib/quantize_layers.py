"""Which layers of a graph there are, as quantization sees them: from the weights to the activation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import anabranch as tf
from anabranch.contrib.quantize_steps import SUMS

LAYER_TYPES = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})
_RELUS = frozenset({"Relu", "Relu6"})
ACTIVATIONS = _RELUS | {"Identity"}
#: what a variable's value comes from; a variable of parts is put together
_READS = frozenset({"ReadVariableOp", "Variable", "VariableV2", "VarHandleOp"})
_FUSED = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})


@dataclass(frozen=True, slots=True)
class QuantizedLayer:
    """A layer: a convolution or a product with weights, and what follows it.

    `bias` adds to what it computes; `bypass` adds the result of another layer, before the activation, `late_bypass`
    after it; `end` is the activation, or what else its result is taken from; None: nothing is quantized there.
    """

    op: tf.Operation
    weights: tf.Tensor | None
    bias: tf.Operation | None = None
    bypass: tf.Operation | None = None
    end: tf.Operation | None = None
    late_bypass: tf.Operation | None = None


_Finder: TypeAlias = "Callable[[tf.Operation], QuantizedLayer | None]"


def layers_of(graph: tf.Graph) -> list[QuantizedLayer]:
    """The layers of a graph whose weights are variables, or variables times a factor; each once, the longest way."""
    found: dict[tf.Operation, QuantizedLayer] = {}
    operations = graph.get_operations()
    for longest_first in (_with_late_bypass, _with_activation, _last, _first_of_two):
        for op in operations:
            layer = longest_first(op)
            if layer is not None:
                found.setdefault(layer.op, layer)
    return list(found.values())


# ---------------------------------------------------------------------------------------- what ends at an operation
def _with_late_bypass(op: tf.Operation) -> QuantizedLayer | None:
    if op.type not in SUMS:
        return None
    for tensor in reversed(op.inputs):
        found = _activation(tensor.op)
        if found is not None:
            return dataclasses.replace(found, late_bypass=op)
    return None


def _with_activation(op: tf.Operation) -> QuantizedLayer | None:
    found = _activation(op)
    return None if found is None or _is_before_a_normalization(op) else found


def _last(op: tf.Operation) -> QuantizedLayer | None:
    """A last layer, without an activation."""
    found = _with_bias(op) or _folded(op)
    return None if found is None else dataclasses.replace(found, bias=None, end=op)


def _first_of_two(op: tf.Operation) -> QuantizedLayer | None:
    """A layer whose result another one takes as it is: the first part of a separable convolution."""
    found = next(_all(_spread, op), None) if op.type in LAYER_TYPES else None
    return None if found is None else dataclasses.replace(found, end=found.op)


def _activation(op: tf.Operation) -> QuantizedLayer | None:
    if op.type not in ACTIVATIONS or not op.inputs:
        return None
    before = op.inputs[0].op
    found = _with_bias(before) or _folded(before) or _forced(before) or _with_bypass(before) or _layer(before)
    return None if found is None else dataclasses.replace(found, end=op)


def _with_bypass(op: tf.Operation) -> QuantizedLayer | None:
    if op.type not in SUMS:
        return None
    for tensor in op.inputs:
        found = _with_bias(tensor.op) or _folded(tensor.op) or _forced(tensor.op)
        if found is not None:
            return dataclasses.replace(found, bypass=op)
    return None


def _forced(op: tf.Operation) -> QuantizedLayer | None:
    """A folded normalization that waits for the updates of its averages."""
    return _folded(op.inputs[0].op) if op.type == "Identity" else None


def _with_bias(op: tf.Operation) -> QuantizedLayer | None:
    found = next(_all(_spread, op), None) if op.type in SUMS or op.type == "BiasAdd" else None
    return None if found is None else dataclasses.replace(found, bias=op)


def _folded(op: tf.Operation) -> QuantizedLayer | None:
    """A normalization that was folded for training: what the layer computes * correction + correction + bias."""
    if op.type not in SUMS:
        return None
    for corrected in op.inputs:
        if corrected.op.type not in SUMS:
            continue
        for scaled in corrected.op.inputs:
            found = next(_all(_spread, scaled.op), None) if scaled.op.type == "Mul" else None
            if found is not None:
                return dataclasses.replace(found, bias=op)
    return None


def _all(what: _Finder, op: tf.Operation) -> Iterator[QuantizedLayer]:
    return (found for tensor in op.inputs if (found := what(tensor.op)) is not None)


def _spread(op: tf.Operation) -> QuantizedLayer | None:
    """A layer, and the BatchToSpaceND behind a dilated one."""
    return _layer(op.inputs[0].op if op.type == "BatchToSpaceND" else op)


def _layer(op: tf.Operation) -> QuantizedLayer | None:
    if op.type not in LAYER_TYPES:
        return None
    weights = next((tensor for tensor in reversed(op.inputs) if _are_weights(tensor)), None)
    return None if weights is None else QuantizedLayer(op, weights)


def _are_weights(tensor: tf.Tensor) -> bool:
    """Whether a tensor is the value of a variable, of a variable in parts, or such a value with a factor folded in."""
    return tensor.op.type == "Mul" or _is_read(tensor)


def _is_read(tensor: tf.Tensor) -> bool:
    op = tensor.op
    if op.type == "ConcatV2":
        return all(_is_read(part) for part in op.inputs[:-1])
    if op.type in ("Identity", "ReadVariableOp"):
        return op.inputs[0].op.type in _READS or _is_read(op.inputs[0])
    return False


def _is_before_a_normalization(op: tf.Operation) -> bool:
    """Whether an Identity stands between a layer and the statistics of a folded normalization: nothing else uses it."""
    if op.type != "Identity":
        return False
    consumers = op.outputs[0].consumers()
    return len(consumers) == 1 and consumers[0].type in _FUSED
