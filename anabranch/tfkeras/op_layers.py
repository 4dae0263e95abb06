"""Operations, losses and metrics as layers of functional models."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.node_inputs import data_inputs
from anabranch.tfkeras import history, package
from anabranch.tfkeras.layer import KerasLayer

_backend = package.module("backend")


class TensorFlowOpLayer(KerasLayer):
    """An operation of the graph as a layer: called on other tensors, it adds such an operation for them.

    Args:
        node_def: the operation, as the text of a NodeDef.
        name: of the layer.
        constants: index -> value of the inputs that are not the layer's.
        trainable: kept.
    """

    def __init__(
        self,
        node_def: str,
        name: str,
        constants: PassedOn = None,
        trainable: bool = True,
        **kwargs: PassedOn,
    ) -> None:
        prefix = "tf_op_layer_"
        super().__init__(name=name if name.startswith(prefix) else prefix + name, trainable=trainable, **kwargs)
        self.node_def = node_def
        self.constants = {int(index): value for index, value in (constants or {}).items()}
        self.operation: tf.Operation | None = None
        self.built = True

    def call(self, inputs: PassedOn) -> Any:
        given = tf.nest.flatten(inputs) if inputs is not None else []
        op = self.operation
        if op is not None and op.graph is tf.get_default_graph():
            left = iter(given)
            tensors = [self.constants[i] if i in self.constants else next(left) for i in range(len(op.inputs))]
            made = op.graph.create_op(op.op_def, tensors, dict(op.attrs), op.name.rpartition("/")[2])
            outputs = made.outputs
        else:
            outputs = self._imported(given)
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def _imported(self, given: list[Any]) -> list[Any]:
        graph = GraphDef()
        node = text_format.Parse(self.node_def, graph.node.add())
        count = len(data_inputs(node))
        left = iter(given)
        feeds: dict[str, Any] = {}
        del node.input[:]
        for index in range(count):
            value = self.constants[index] if index in self.constants else next(left)
            feeds[f"input_{index}"] = tf.convert_to_tensor(value)
            placeholder: Any = graph.node.add(name=f"input_{index}", op="Placeholder")
            placeholder.attr["dtype"].type = feeds[f"input_{index}"].dtype.as_datatype_enum
            node.input.append(f"input_{index}")
        for name in [key for key in node.attr if key.startswith("_class")]:
            del node.attr[name]
        made: Any = tf.import_graph_def(graph, input_map=feeds, return_elements=[node.name], name="")
        return list(made[0].outputs)

    def get_config(self) -> dict[str, Any]:
        values = {}
        for index, value in self.constants.items():
            known = _backend.get_value(value) if isinstance(value, tf.Tensor) else value
            values[index] = known.tolist() if hasattr(known, "tolist") else known
        return {"name": self.name, "trainable": self.trainable, "node_def": self.node_def, "constants": values}


def _as_layer(op: tf.Operation, inputs: dict[int, tf.Tensor]) -> None:
    """Makes a layer of an operation, and enters that it gave the operation's outputs."""
    layer = TensorFlowOpLayer(str(op.node_def), op.name.replace("/", "_"))
    layer.operation = op
    layer.constants = {i: x for i, x in enumerate(op.inputs) if i not in inputs}
    given = list(inputs.values())
    outputs = list(op.outputs)
    history.connect(layer, given[0] if len(given) == 1 else given, outputs[0] if len(outputs) == 1 else outputs, {})


history.OPERATION_AS_LAYER[:] = [_as_layer]


class AddLoss(KerasLayer):
    """Hands its input on, and adds it to the losses.

    Args:
        unconditional: whether it counts wherever the model is used.
    """

    def __init__(self, unconditional: bool, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.unconditional = unconditional

    def call(self, inputs: PassedOn) -> Any:
        self.add_loss(inputs, inputs=None if self.unconditional else inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "unconditional": self.unconditional}


class AddMetric(KerasLayer):
    """Hands its input on, and reports it as a metric.

    Args:
        aggregation: "mean", or None for the result of a metric's object.
        metric_name: under which it is reported.
    """

    def __init__(self, aggregation: str | None = None, metric_name: str | None = None, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.aggregation = aggregation
        self.metric_name = metric_name

    def call(self, inputs: PassedOn) -> Any:
        self.add_metric(inputs, self.aggregation, self.metric_name)
        return inputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "aggregation": self.aggregation, "metric_name": self.metric_name}
