"""How tensors of a functional model come from its inputs: the nodes between layers, and operations as layers.

A tensor that a layer gave has `_keras_history`, as in the package. One that was computed from such a tensor by
operations gets it when a layer or a model is given it: each operation in between becomes a layer of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn

#: makes a layer of an operation, from the inputs of it that are to be the layer's; filled in by `op_layers`
OPERATION_AS_LAYER: list[Callable[[tf.Operation, dict[int, tf.Tensor]], None]] = []
#: operations that come from no layer, by graph
_plain: weakref.WeakKeyDictionary[tf.Graph, set[tf.Operation]] = weakref.WeakKeyDictionary()


def is_known(structure: PassedOn) -> bool:
    """Whether every tensor is one that a layer gave."""
    tensors = tf.nest.flatten(structure)
    return bool(tensors) and all(hasattr(x, "_keras_history") for x in tensors)


def _tensors(structure: PassedOn) -> list[Any]:
    return [x for x in tf.nest.flatten(structure) if isinstance(x, tf.Tensor | tf.SparseTensor)]


def ensure(structure: PassedOn, *, all_of_them: bool = False) -> None:
    """Makes layers of the operations between layers and these tensors, where one of them comes from a layer.

    Args:
        all_of_them: make layers of what comes from none, too.
    """
    tensors = [x for x in _tensors(structure) if not hasattr(x, "_keras_history") and isinstance(x, tf.Tensor)]
    if not tensors:
        return
    mixed = any(hasattr(x, "_keras_history") for x in _tensors(structure))
    if all_of_them or mixed or any(_comes_from_a_layer(x) for x in tensors):
        for x in tensors:
            _make_layers(x)


def _comes_from_a_layer(tensor: tf.Tensor) -> bool:
    """Whether a layer's output, or a model's input, is among what a tensor is computed from."""
    plain = _plain.setdefault(tensor.graph, set())
    waiting, seen = [tensor], set()
    while waiting:
        one = waiting.pop()
        if hasattr(one, "_keras_history"):
            return True
        if one.op not in plain and one.op not in seen:
            seen.add(one.op)
            waiting.extend(one.op.inputs)
    plain |= seen
    return False


def _make_layers(tensor: tf.Tensor) -> None:
    """Makes layers of the operations between layers and a tensor, the first ones first."""
    waiting = [tensor.op]
    while waiting:
        op = waiting[-1]
        if hasattr(op.outputs[0], "_keras_history"):
            waiting.pop()
            continue
        mine = {i: x for i, x in enumerate(op.inputs) if _comes_from_a_layer(x)}
        before = [x.op for x in mine.values() if not hasattr(x, "_keras_history")]
        if before:
            waiting.extend(before)
        else:
            OPERATION_AS_LAYER[0](op, mine)
            waiting.pop()


def connect(layer: PassedOn, inputs: PassedOn, outputs: PassedOn, arguments: dict[str, Any]) -> None:
    """Notes that a layer gave outputs for inputs; tensors among the arguments that layers gave are inputs too."""
    more = [x for x in _tensors(arguments) if hasattr(x, "_keras_history")]
    flat = [*tf.nest.flatten(inputs), *more]
    given = tf.nest.flatten(outputs)
    layer._add_inbound_node(
        input_tensors=flat,
        output_tensors=given,
        input_masks=[getattr(x, "_keras_mask", None) for x in flat],
        output_masks=[getattr(x, "_keras_mask", None) for x in given],
        input_shapes=[_lengths(x) for x in flat],
        output_shapes=[_lengths(x) for x in given],
        arguments=arguments,
    )
    node = layer._inbound_nodes[-1]
    node.structure, node.kwargs = inputs, arguments
    node.output_structure = outputs


class NodeView:
    """A node as TensorFlow has it: what a call took and gave has the call's structure, one tensor is no list.

    Attributes:
        node: the package's, whose other attributes are this one's.
    """

    def __init__(self, node: PassedOn) -> None:
        self.node = node

    @property
    def input_tensors(self) -> Any:
        return vars(self.node).get("structure", _alone(self.node.input_tensors))

    @property
    def output_tensors(self) -> Any:
        return vars(self.node).get("output_structure", _alone(self.node.output_tensors))

    @property
    def input_shapes(self) -> Any:
        return _alone(self.node.input_shapes)

    @property
    def output_shapes(self) -> Any:
        return _alone(self.node.output_shapes)

    @property
    def inbound_layers(self) -> Any:
        return _alone(self.node.inbound_layers)

    @property
    def node_indices(self) -> Any:
        return _alone(self.node.node_indices)

    @property
    def tensor_indices(self) -> Any:
        return _alone(self.node.tensor_indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeView) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)


def _alone(listed: PassedOn) -> Any:
    return listed[0] if isinstance(listed, list) and len(listed) == 1 else listed


def _lengths(tensor: PassedOn) -> tuple[Any, ...] | None:
    shape = tensor.get_shape()
    return None if shape.ndims is None else tuple(shape.as_list())


def reached(items: Sequence[Any], sources: Iterable[Any]) -> list[Any]:
    """The operations and tensors among `items` that depend on one of `sources`."""
    targets = {_operation(x) for x in sources}
    known: dict[tf.Operation, bool] = dict.fromkeys(targets, True)
    return [item for item in items if _reaches(_operation(item), known)]


def _operation(item: PassedOn) -> Any:
    if isinstance(item, tf.Operation):
        return item
    return item.values.op if isinstance(item, tf.SparseTensor | tf.IndexedSlices) else item.op


def _reaches(op: tf.Operation, known: dict[tf.Operation, bool]) -> bool:
    """Whether what an operation depends on is known to reach; enters what it finds out."""
    waiting = [op]
    opened: set[tf.Operation] = set()
    while waiting:
        one = waiting[-1]
        if one in known:
            waiting.pop()
            continue
        before = [x.op for x in one.inputs] + one.control_inputs
        unknown = [x for x in before if x not in known and x not in opened]
        if one not in opened and unknown and not any(known.get(x) for x in before):
            opened.add(one)
            waiting.extend(unknown)
        else:
            known[one] = any(known.get(x, False) for x in before)
            waiting.pop()
    return known[op]
