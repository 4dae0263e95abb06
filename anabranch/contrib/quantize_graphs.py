"""Operations of fake quantization are put between the operations of a graph.

They stand behind the weights of layers, behind activations, around sums with the result of another layer, and behind
sums and products of what is quantized already: where a program for numbers of 8 bits rounds (Jacob et al. 2018).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import anabranch as tf
from anabranch.contrib.quantize_folding import fold_batch_norms
from anabranch.contrib.quantize_layers import ACTIVATIONS, LAYER_TYPES, QuantizedLayer, layers_of
from anabranch.contrib.quantize_ranges import last_value_quantize, moving_average_quantize
from anabranch.contrib.quantize_steps import SUMS, quantization_step, reroute, scope_of

_log = logging.getLogger(__name__)
_FAKE = frozenset({"FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVarsPerChannel"})
_RELUS = ACTIVATIONS - {"Identity"}
_SUMS_AND_PRODUCTS = SUMS | {"Mul"}
#: operations that give what they take, in another order or less of it
_PASSING_ON = frozenset({"Reshape", "Identity", "BatchToSpaceND", "SpaceToBatchND", "MaxPool", "Max"})
#: what is not looked at: gradients, optimizers and summaries
_SKIPPED = ("gradients/", "RMSProp/", "Adagrad/", "Const_", "HistogramSummary", "ScalarSummary")


def create_training_graph(input_graph: tf.Graph | None = None, quant_delay: int = 0) -> None:
    """Rewrites a graph for training that simulates numbers of 8 bits; called before gradients are added.

    Batch normalizations are folded into the layers before them, and operations of fake quantization inserted. Their
    ranges are variables, "min" and "max", in `GraphKeys.GLOBAL_VARIABLES`; weights take the range of the last step,
    activations a moving average.

    Args:
        input_graph: is changed; default: the default graph.
        quant_delay: how many steps are trained before quantization begins: as many as it takes to converge, where
            training begins anew.

    Raises:
        ValueError: the graph has operations of optimizers, or batch normalization without moving averages.
    """
    experimental_create_training_graph(input_graph, quant_delay=quant_delay)


def create_eval_graph(input_graph: tf.Graph | None = None) -> None:
    """Rewrites a graph that is used as `create_training_graph` does one for training; ranges stay as they are.

    Args:
        input_graph: is changed; default: the default graph.

    Raises:
        ValueError: the graph has operations of optimizers.
    """
    experimental_create_eval_graph(input_graph)


def experimental_create_training_graph(
    input_graph: tf.Graph | None = None,
    weight_bits: int = 8,
    activation_bits: int = 8,
    symmetric: bool = False,
    quant_delay: int = 0,
    freeze_bn_delay: int | None = None,
    scope: str | None = None,
) -> None:
    """`create_training_graph` with more to choose.

    Args:
        input_graph: is changed; default: the default graph.
        weight_bits, activation_bits: from 2 to 8.
        symmetric: whether ranges are the same on both sides of 0.
        quant_delay: how many steps are trained before quantization begins.
        freeze_bn_delay: after how many steps batch normalization uses its moving averages, and leaves them as they
            are; more than `quant_delay`. None: never.
        scope: only operations under this name are quantized.

    Raises:
        ValueError: the graph has operations of optimizers, or batch normalization without moving averages.
    """
    _rewrite(input_graph, True, weight_bits, activation_bits, symmetric, quant_delay, freeze_bn_delay, scope)


def experimental_create_eval_graph(
    input_graph: tf.Graph | None = None,
    weight_bits: int = 8,
    activation_bits: int = 8,
    symmetric: bool = False,
    quant_delay: int | None = None,
    scope: str | None = None,
) -> None:
    """`create_eval_graph` with more to choose; see `experimental_create_training_graph`.

    Args:
        quant_delay: as the graph that was trained has it: counts steps, so that the names of variables are the same.

    Raises:
        ValueError: the graph has operations of optimizers.
    """
    _rewrite(input_graph, False, weight_bits, activation_bits, symmetric, quant_delay, None, scope)


def _rewrite(
    graph: tf.Graph | None,
    is_training: bool,
    weight_bits: int,
    activation_bits: int,
    symmetric: bool,
    quant_delay: int | None,
    freeze_bn_delay: int | None,
    scope: str | None,
) -> None:
    graph = tf.get_default_graph() if graph is None else graph
    updates = {op.type for op in graph.get_operations() if "Apply" in op.type and op.type.startswith(_OF_OPTIMIZERS)}
    if updates:
        raise ValueError(
            f"Training op found in graph, exiting {updates}; rewrite the graph before an optimizer adds its operations"
        )
    with graph.as_default():
        fold_batch_norms(graph, is_training, freeze_bn_delay)
        insert_fake_quantization(
            graph,
            is_training,
            weight_bits=weight_bits,
            activation_bits=activation_bits,
            symmetric=symmetric,
            quant_delay=quant_delay,
            scope=scope,
        )


_OF_OPTIMIZERS = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply")


@dataclass(frozen=True, slots=True)
class _Inserting:
    """How operations are inserted; see `insert_fake_quantization`."""

    graph: tf.Graph
    is_training: bool
    bits: int
    symmetric: bool
    ema_decay: float
    delay: int | None
    collection: str
    scope: str

    def behind(
        self,
        producer: tf.Operation,
        name: str,
        kind: Literal["weights", "values"] = "values",
        init_min: float = -6.0,
        within: Literal["producer", "consumers", "both"] = "producer",
    ) -> bool:
        """Quantizes what an operation gives, unless that is done already or it is outside the scope.

        Args:
            producer: the operation, of which the first output is meant.
            name: of the scope of the new operations.
            kind: whether they are weights, whose range is that of the last step and narrow.
            init_min: where the range begins.
            within: who has to be inside the scope.

        Returns:
            Whether the operation is inside the scope.
        """
        values = producer.outputs[0]
        producers = _reads_like(producer) if kind == "weights" else [producer]
        consumers = [consumer for one in producers for consumer in _consumers(one)]
        if within != "consumers" and not producer.name.startswith(self.scope):
            return False
        if within != "producer" and not all(op.name.startswith(self.scope) for op in consumers):
            return False
        if any(_is_quantized(one.outputs[0]) for one in producers):
            return True
        current = self.graph.get_name_scope()
        prefix = name.removeprefix(f"{current}/") if current else name
        quantized = self._quantized(values, prefix, kind, init_min)
        if self.delay:
            active = tf.greater_equal(quantization_step(), self.delay, name=f"{prefix}/activate_quant")
            immediate = quantized
            quantized = tf.cond(active, lambda: immediate, lambda: values, name=f"{prefix}/delayed_quant")
        for one in producers:
            reroute(one.outputs[0], quantized, set(_consumers(one)).intersection(consumers))
        return True

    def _quantized(
        self, values: tf.Tensor, prefix: str, kind: Literal["weights", "values"], init_min: float
    ) -> tf.Tensor:
        if kind == "weights":
            return last_value_quantize(
                values,
                init_min=init_min,
                vars_collection=self.collection,
                name_prefix=prefix,
                is_training=self.is_training,
                num_bits=self.bits,
                narrow_range=True,
                symmetric=self.symmetric,
            )
        return moving_average_quantize(
            values,
            init_min=init_min,
            ema_decay=self.ema_decay,
            vars_collection=self.collection,
            name_prefix=prefix,
            is_training=self.is_training,
            num_bits=self.bits,
            symmetric=self.symmetric,
        )


def insert_fake_quantization(
    graph: tf.Graph,
    is_training: bool,
    weight_bits: int = 8,
    activation_bits: int = 8,
    symmetric: bool = False,
    ema_decay: float = 0.999,
    quant_delay: int | None = None,
    vars_collection: str = tf.GraphKeys.GLOBAL_VARIABLES,
    scope: str | None = None,
) -> None:
    """Inserts operations of fake quantization, with batch normalizations as they are.

    Args:
        graph: is changed.
        is_training: whether ranges are measured.
        weight_bits, activation_bits: from 2 to 8.
        symmetric: whether ranges are the same on both sides of 0.
        ema_decay: of the ranges of activations.
        quant_delay: after how many steps quantization begins.
        vars_collection: what the variables of ranges join.
        scope: only operations under this name are quantized.
    """
    inside = "" if not scope else f"{scope.rstrip('/')}/"
    values = _Inserting(graph, is_training, activation_bits, symmetric, ema_decay, quant_delay, vars_collection, inside)
    weights = _Inserting(graph, is_training, weight_bits, symmetric, ema_decay, quant_delay, vars_collection, inside)
    with graph.as_default():
        done: set[tf.Operation] = set()
        for layer in layers_of(graph):
            done |= _quantize_layer(layer, weights, values)
        for op in graph.get_operations():
            if _has_quantized_inputs(op, done):
                _log.info("inserting activation_%s_quant behind %s", op.type, op.name)
                values.behind(op, f"{op.name}/activation_{op.type}_quant")


def _quantize_layer(layer: QuantizedLayer, weights: _Inserting, values: _Inserting) -> set[tf.Operation]:
    """Quantizes around one layer; returns the operations whose results are quantized."""
    scope = scope_of(layer.op)
    outer = scope.rpartition("/")[0] if layer.bypass is not None else scope
    done: set[tf.Operation] = set()
    if layer.weights is not None:
        weights.behind(layer.weights.op, _join(scope, "weights_quant"), "weights", within="consumers")
    if layer.end is not None:
        values.behind(layer.end, _join(outer, "act_quant"), init_min=0.0)
        done.add(layer.end)
    if layer.bypass is not None and layer.bias is not None:
        values.behind(layer.bias, _join(scope, "conv_quant"), within="both")
        done.add(layer.bias)
        if not _is_followed_by(layer.bypass, ACTIVATIONS):  # which is computed with the sum, at once
            values.behind(layer.bypass, _join(outer, "add_quant"), within="both")
            done.add(layer.bypass)
    late = layer.late_bypass
    if late is not None and not _is_followed_by(late, _RELUS):
        values.behind(late, _join(scope_of(late), "post_activation_bypass_quant"))
        done.add(late)
    return done


def _join(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


def _reads_like(read: tf.Operation) -> list[tf.Operation]:
    """Reads of the variable that an operation reads, for layers that share it: here each layer reads for itself."""
    if read.type != "ReadVariableOp":
        return [read]
    others = (op for op in read.inputs[0].consumers() if op.type == read.type)
    of_layers = [op for op in others if _is_followed_by(op, LAYER_TYPES) or _is_quantized(op.outputs[0])]
    return list(dict.fromkeys([read, *of_layers]))


def _consumers(op: tf.Operation) -> list[tf.Operation]:
    consumers = (consumer for output in op.outputs for consumer in output.consumers())
    return [consumer for consumer in dict.fromkeys(consumers) if not consumer.name.startswith(_SKIPPED)]


def _is_followed_by(op: tf.Operation, types: Collection[str]) -> bool:
    return any(consumer.type in types for consumer in _consumers(op))


def _is_quantized(tensor: tf.Tensor) -> bool:
    """Whether an operation of fake quantization takes a tensor, as it is or reshaped."""
    waiting: list[tf.Operation] = list(tensor.consumers())
    while waiting:
        op = waiting.pop()
        if op.type in _FAKE:
            return True
        if op.type in ("Reshape", "Identity"):
            waiting.extend(consumer for output in op.outputs for consumer in output.consumers())
    return False


def _has_quantized_inputs(op: tf.Operation, done: Collection[tf.Operation]) -> bool:
    """Whether an operation adds or multiplies what is quantized, and its result is not yet."""
    if op.type not in _SUMS_AND_PRODUCTS or op in done:
        return False
    consumers = op.outputs[0].consumers()
    if len(consumers) == 1 and consumers[0].type in _RELUS:
        return False
    return any(_comes_from_quantized(tensor.op, done) for tensor in op.inputs)


def _comes_from_quantized(op: tf.Operation, done: Collection[tf.Operation]) -> bool:
    while op.type in _PASSING_ON:
        op = op.inputs[0].op
    if op.type in _FAKE or (op.type == "If" and "/delayed_quant" in op.name):
        return True
    return op.type in _SUMS_AND_PRODUCTS and any(_has_quantized_inputs(tensor.op, done) for tensor in op.inputs)
