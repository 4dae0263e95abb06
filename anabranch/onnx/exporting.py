"""Writes frozen graphs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import checker, helper, numpy_helper

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import element_types
from anabranch.onnx.rules import rank_of

OPSET = 21
#: The intermediate representation that came with that operator set.
IR_VERSION = 10


class _ModelWriter:
    """The nodes and initializers of a model while they are made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count = 0

    def constant(self, array: HostArray, name: str | None = None) -> str:
        name = name or self._fresh("constant")
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: object) -> str:
        output = output or self._fresh(kind)
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=f"{output}/{kind}", **attributes))
        return output

    def transposed(self, value: str, order: Sequence[int], output: str | None = None) -> str:
        return self.add("Transpose", [value], output, perm=list(order))

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"onnx_{kind}_{self._count}"


Exporter = Callable[[_ModelWriter, tf.Operation], None]
_EXPORTERS: dict[str, Exporter] = {}


def _exports(*types: str) -> Callable[[Exporter], Exporter]:
    def register(function: Exporter) -> Exporter:
        _EXPORTERS.update(dict.fromkeys(types, function))
        return function

    return register


#: Operators that are one in ONNX, with the same inputs.
_SAME = {
    "Abs": "Abs", "Acos": "Acos", "Acosh": "Acosh", "Add": "Add", "AddV2": "Add", "AddN": "Sum", "Asin": "Asin",
    "Asinh": "Asinh", "Atan": "Atan", "Atanh": "Atanh", "BatchMatMulV2": "MatMul", "BiasAdd": "Add", "Ceil": "Ceil",
    "Cos": "Cos", "Cosh": "Cosh", "Elu": "Elu", "Equal": "Equal", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Identity": "Identity", "IsNan": "IsNaN", "Less": "Less",
    "LessEqual": "LessOrEqual", "Log": "Log", "LogicalAnd": "And", "LogicalNot": "Not", "LogicalOr": "Or",
    "MatMul": "MatMul", "Maximum": "Max", "Minimum": "Min", "Mul": "Mul", "Neg": "Neg", "Pow": "Pow",
    "RealDiv": "Div", "Reciprocal": "Reciprocal", "Relu": "Relu", "Rint": "Round", "Round": "Round",
    "SelectV2": "Where", "Selu": "Selu", "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "Sinh": "Sinh",
    "Softplus": "Softplus", "Softsign": "Softsign", "Sqrt": "Sqrt", "StopGradient": "Identity", "Sub": "Sub",
    "Tan": "Tan", "Tanh": "Tanh", "Tile": "Tile",
}  # fmt: skip
_REDUCTIONS = {"Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd"}


def _names(op: tf.Operation) -> list[str]:
    return [x.name for x in op.inputs]


@_exports(*_SAME)
def _same(writer: _ModelWriter, op: tf.Operation) -> None:
    inputs = _names(op)
    if op.type == "BiasAdd" and _text(op, "data_format") == "NCHW":
        raise ValueError("data_format NCHW")
    if op.type == "Tile":
        inputs[1] = writer.add("Cast", [inputs[1]], to=onnx.TensorProto.INT64)
    if op.type in ("MatMul", "BatchMatMulV2"):
        flags = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
        for i, flag in enumerate(flags):
            if op.get_attr(flag):
                rank = rank_of(op.inputs[i])
                inputs[i] = writer.transposed(inputs[i], [*range(rank - 2), rank - 1, rank - 2])
    writer.add(_SAME[op.type], inputs, op.outputs[0].name)


@_exports(*_REDUCTIONS)
def _reduction(writer: _ModelWriter, op: tf.Operation) -> None:
    axes = [int(a) for a in np.reshape(_value(op, 1), -1)]
    keep, value = int(op.get_attr("keep_dims")), op.inputs[0].name
    if not axes:
        writer.add("Identity", [value], op.outputs[0].name)
        return
    places = writer.constant(np.array(axes, np.int64))
    writer.add(_REDUCTIONS[op.type], [value, places], op.outputs[0].name, keepdims=keep)


@_exports("Const")
def _constant(writer: _ModelWriter, op: tf.Operation) -> None:
    value = tf.get_static_value(op.outputs[0])
    writer.constant(np.asarray(value), op.outputs[0].name)


@_exports("Reshape")
def _reshape(writer: _ModelWriter, op: tf.Operation) -> None:
    shape = writer.add("Cast", [op.inputs[1].name], to=onnx.TensorProto.INT64)
    writer.add("Reshape", [op.inputs[0].name, shape], op.outputs[0].name, allowzero=1)


@_exports("Shape")
def _shape(writer: _ModelWriter, op: tf.Operation) -> None:
    shape = writer.add("Shape", [op.inputs[0].name])
    writer.add("Cast", [shape], op.outputs[0].name, to=element_types.number_of(op.outputs[0].dtype))


@_exports("Cast")
def _cast(writer: _ModelWriter, op: tf.Operation) -> None:
    writer.add("Cast", _names(op), op.outputs[0].name, to=element_types.number_of(op.outputs[0].dtype))


@_exports("Transpose")
def _transpose(writer: _ModelWriter, op: tf.Operation) -> None:
    writer.transposed(op.inputs[0].name, [int(i) for i in _value(op, 1)], op.outputs[0].name)


@_exports("ConcatV2")
def _concat(writer: _ModelWriter, op: tf.Operation) -> None:
    writer.add("Concat", _names(op)[:-1], op.outputs[0].name, axis=int(_value(op, len(op.inputs) - 1)))


@_exports("ExpandDims")
def _expand_dims(writer: _ModelWriter, op: tf.Operation) -> None:
    axis = writer.constant(np.reshape(_value(op, 1), [1]).astype(np.int64))
    writer.add("Unsqueeze", [op.inputs[0].name, axis], op.outputs[0].name)


@_exports("Squeeze")
def _squeeze(writer: _ModelWriter, op: tf.Operation) -> None:
    axes = op.get_attr("squeeze_dims")
    places = [writer.constant(np.array(axes, np.int64))] if axes else []
    writer.add("Squeeze", [op.inputs[0].name, *places], op.outputs[0].name)


@_exports("Pad", "PadV2")
def _pad(writer: _ModelWriter, op: tf.Operation) -> None:
    pads = writer.constant(np.asarray(_value(op, 1)).T.reshape(-1).astype(np.int64))
    writer.add("Pad", [op.inputs[0].name, pads, *_names(op)[2:]], op.outputs[0].name)


@_exports("GatherV2")
def _gather(writer: _ModelWriter, op: tf.Operation) -> None:
    if op.get_attr("batch_dims"):
        raise ValueError("batch_dims")
    writer.add("Gather", _names(op)[:2], op.outputs[0].name, axis=int(_value(op, 2)))


@_exports("Softmax", "LogSoftmax")
def _softmax(writer: _ModelWriter, op: tf.Operation) -> None:
    writer.add(op.type, _names(op), op.outputs[0].name, axis=-1)


@_exports("LeakyRelu")
def _leaky_relu(writer: _ModelWriter, op: tf.Operation) -> None:
    writer.add("LeakyRelu", _names(op), op.outputs[0].name, alpha=float(op.get_attr("alpha")))


@_exports("Relu6")
def _relu6(writer: _ModelWriter, op: tf.Operation) -> None:
    dtype = op.inputs[0].dtype.as_numpy_dtype
    bounds = [writer.constant(np.asarray(bound, dtype)) for bound in (0, 6)]
    writer.add("Clip", [op.inputs[0].name, *bounds], op.outputs[0].name)


@_exports("Square", "Rsqrt", "SquaredDifference", "NotEqual")
def _two_steps(writer: _ModelWriter, op: tf.Operation) -> None:
    inputs, output = _names(op), op.outputs[0].name
    if op.type == "Square":
        writer.add("Mul", [inputs[0], inputs[0]], output)
    elif op.type == "Rsqrt":
        writer.add("Reciprocal", [writer.add("Sqrt", inputs)], output)
    elif op.type == "NotEqual":
        writer.add("Not", [writer.add("Equal", inputs)], output)
    else:
        difference = writer.add("Sub", inputs)
        writer.add("Mul", [difference, difference], output)


_PADDINGS = {"VALID": "VALID", "SAME": "SAME_UPPER"}


@_exports("Conv2D", "MaxPool", "AvgPool")
def _spatial(writer: _ModelWriter, op: tf.Operation) -> None:
    padding = _text(op, "padding")
    if padding not in _PADDINGS:
        raise ValueError("explicit padding")
    last = _text(op, "data_format") == "NHWC"
    plane = slice(1, 3) if last else slice(2, 4)
    value = writer.transposed(op.inputs[0].name, [0, 3, 1, 2]) if last else op.inputs[0].name
    attributes: dict[str, object] = {
        "strides": list(op.get_attr("strides"))[plane],
        "auto_pad": _PADDINGS[padding],
    }
    target = None if last else op.outputs[0].name
    if op.type == "Conv2D":
        attributes["dilations"] = list(op.get_attr("dilations"))[plane]
        filters = writer.transposed(op.inputs[1].name, [3, 2, 0, 1])
        result = writer.add("Conv", [value, filters], target, **attributes)
    else:
        attributes["kernel_shape"] = list(op.get_attr("ksize"))[plane]
        kind = "MaxPool" if op.type == "MaxPool" else "AveragePool"
        result = writer.add(kind, [value], target, **attributes)
    if last:
        writer.transposed(result, [0, 2, 3, 1], op.outputs[0].name)


def _text(op: tf.Operation, name: str) -> str:
    value = op.get_attr(name)
    return value.decode() if isinstance(value, bytes) else str(value)


def _value(op: tf.Operation, index: int) -> HostArray:
    value = tf.get_static_value(op.inputs[index])
    if value is None:
        raise ValueError(f"its input {index} is no constant")
    return np.asarray(value)


def export_graph(
    sess: tf.Session,
    inputs: Mapping[str, tf.Tensor],
    outputs: Mapping[str, tf.Tensor],
    *,
    name: str = "anabranch",
) -> onnx.ModelProto:
    """A part of a session's graph as an ONNX model, variables with the values that they have in the session.

    Args:
        sess: the session.
        inputs: what the model is fed, by the names that its inputs shall have.
        outputs: what it computes, likewise.
        name: the name of the model's graph.

    Returns:
        A model of operator set 21, which onnx.checker accepts.

    Raises:
        UnimplementedError: operations have no counterpart; the message lists all of them, with the reasons.
        ValueError: an output depends on a placeholder that is no input.

    Example:
        >>> import anabranch.onnx
        >>> x = tf.placeholder(tf.float32, [None, 2])
        >>> with tf.Session() as sess:
        ...     model = anabranch.onnx.export_graph(sess, {"x": x}, {"y": tf.nn.relu(x)})
    """
    with tf.Graph().as_default() as frozen:
        fed, fetched = _frozen(sess, inputs, outputs)
        writer = _ModelWriter()
        _write(writer, frozen, set(fed.values()), list(fetched.values()))
        for key, tensor in fed.items():
            writer.nodes.insert(0, helper.make_node("Identity", [key], [tensor.name], name=f"input/{key}"))
        for key, tensor in fetched.items():
            writer.add("Identity", [tensor.name], key)
        graph = helper.make_graph(writer.nodes, name, _infos(fed), _infos(fetched), initializer=writer.initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="anabranch"
    )
    checker.check_model(model, full_check=True)
    return model


def save(
    sess: tf.Session,
    path: str | os.PathLike[str],
    inputs: Mapping[str, tf.Tensor],
    outputs: Mapping[str, tf.Tensor],
) -> None:
    """Writes what `export_graph` makes to a file, which appears when it is whole."""
    data = export_graph(sess, inputs, outputs).SerializeToString()
    target = os.fsdecode(path)
    with open(f"{target}.part", "wb") as file:
        file.write(data)
    os.replace(f"{target}.part", target)


def _frozen(
    sess: tf.Session, inputs: Mapping[str, tf.Tensor], outputs: Mapping[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """The graph in the default graph, with constants in place of variables."""
    names = [tensor.op.name for tensor in outputs.values()]
    definition = tf.graph_util.convert_variables_to_constants(sess, sess.graph.as_graph_def(), names)
    kept = {node.name for node in definition.node}
    tf.import_graph_def(definition, name="")
    graph = tf.get_default_graph()
    for key, tensor in inputs.items():
        if tensor.op.name not in kept:
            raise ValueError(f"the outputs do not depend on the input {key!r} ({tensor.name})")
    found = [
        {key: graph.get_tensor_by_name(tensor.name) for key, tensor in wanted.items()} for wanted in (inputs, outputs)
    ]
    return found[0], found[1]


def _write(writer: _ModelWriter, graph: tf.Graph, fed: set[tf.Tensor], fetched: Sequence[tf.Tensor]) -> None:
    given, refused = {tensor.name for tensor in fed}, []
    needed, pending = set(), [tensor for tensor in fetched if tensor.name not in given]
    while pending:
        tensor = pending.pop()
        if tensor.op.name not in needed and tensor.name not in given:
            needed.add(tensor.op.name)
            pending.extend(tensor.op.inputs)
    for op in graph.get_operations():
        if op.name not in needed:
            continue
        if op.type in ("Placeholder", "PlaceholderWithDefault"):
            raise ValueError(f"the outputs depend on the placeholder {op.name!r}: name it among the inputs")
        exporter = _EXPORTERS.get(op.type)
        try:
            if exporter is None:
                refused.append(f"{op.type} ({op.name})")
            else:
                exporter(writer, op)
        except ValueError as error:
            refused.append(f"{op.type} ({op.name}: {error})")
    if refused:
        raise tf.errors.UnimplementedError(
            None, None, f"{len(refused)} operations cannot be exported to ONNX: {', '.join(refused)}"
        )


def _infos(tensors: Mapping[str, tf.Tensor]) -> list[onnx.ValueInfoProto]:
    result = []
    for key, tensor in tensors.items():
        number = element_types.number_of(tensor.dtype)
        if number is None:
            raise ValueError(f"{tensor.name} has the dtype {tensor.dtype.name}, which ONNX has not")
        shape = None if tensor.shape.ndims is None else tensor.shape.as_list()
        result.append(helper.make_tensor_value_info(key, number, shape))
    return result
