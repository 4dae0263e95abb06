"""Builds graphs from ONNX models. Everything that can be checked in a model is checked before the graph grows.

An operator is imported by its rule (`rules.py`), or, where it has none, by the definition that ONNX gives of it in
terms of other operators. Subgraphs of If, Loop and Scan become branches and bodies of `tf.cond` and `tf.while_loop`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import defs

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import element_types, models, vocabulary
from anabranch.onnx.element_types import NarrowTensor
from anabranch.onnx.rules import NeedsConstantError, OnnxNode, Result, Rule, Subgraph, Value, find, since_version

_MAX_DEPTH = 64  # Of functions and subgraphs in one another.


@dataclass(frozen=True)
class ImportedModel:
    """Where a model's inputs and outputs are in the graph."""

    #: Placeholders to feed, by the names of the model's inputs.
    inputs: dict[str, tf.Tensor]
    #: Tensors to fetch, by the names of the model's outputs; a sequence is a list, an empty optional None.
    outputs: dict[str, tf.Tensor | list[tf.Tensor] | None]
    #: The initializers, if they were made variables.
    variables: dict[str, tf.Variable]
    #: ONNX's types of the inputs and outputs whose element type TensorFlow has not, by their names. Their tensors have
    #: a wider dtype, with the same values: float32 for 8-bit and 4-bit floating-point types, int8 and uint8 for 4-bit
    #: integers.
    narrow: dict[str, str] = field(default_factory=dict)


def import_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    inputs: Mapping[str, tf.Tensor] | None = None,
    constants: Mapping[str, HostArray | list[HostArray] | None] | None = None,
    initializers: str = "constants",
    name: str = "onnx",
) -> ImportedModel:
    """Adds the operations of an ONNX model to the default graph.

    Args:
        model: path of a file, its contents, or the message.
        inputs: tensors to take in place of the model's inputs, by their names.
        constants: values of inputs that are to be constants of the graph, by their names. Some operators demand it of
            an input (the axes of a Squeeze): an error says so.
        initializers: what becomes of the model's weights: "constants", or "variables" to train them further (those of
            floating-point types).
        name: name scope of all that is added.

    Returns:
        Placeholders, outputs and variables.

    Raises:
        DataLossError: the file is damaged.
        InvalidArgumentError: the model is no valid one: a cycle, a value that nobody makes, data outside its folder.
        UnimplementedError: its version is not known, or some of its operators; the message lists all of them.
        ValueError: shapes or dtypes do not fit.

    Example:
        >>> import anabranch.onnx
        >>> model = anabranch.onnx.import_model("model.onnx")
        >>> with tf.Session() as sess:
        ...     sess.run(model.outputs, {model.inputs["x"]: [[1.0, 2.0]]})
    """
    if initializers not in ("constants", "variables"):
        raise ValueError(f"initializers must be 'constants' or 'variables', not {initializers!r}")
    message, folder = models.read(model)
    models.check(message)
    _refuse_unknown(message)
    weights = models.weights(message.graph, folder)

    def build() -> ImportedModel:
        builder = _ModelBuilder(message, folder, initializers == "variables")
        return builder.whole(weights, dict(inputs or {}), dict(constants or {}))

    # A graph only grows: what an error at the last node would leave behind is left in a graph that nobody keeps.
    if not inputs:
        with tf.Graph().as_default():
            build()
    with tf.name_scope(name):
        return build()


def _opsets(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}


def _function_key(domain: str, name: str) -> tuple[str, str]:
    return ("" if domain == "ai.onnx" else domain, name)


def _refuse_unknown(model: onnx.ModelProto) -> None:
    """Lists all operators that cannot be imported."""
    functions = {_function_key(f.domain, f.name) for f in model.functions}
    unknown: dict[str, None] = {}

    def visit(nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int]) -> None:
        for node in nodes:
            domain, name = _function_key(node.domain, node.op_type)
            for attribute in node.attribute:
                visit(attribute.g.node, opsets)
            if (domain, name) in functions:
                continue
            since = since_version(domain, name, opsets.get(domain, 0))
            if since is None or not (find(domain, name, since) or _has_definition(domain, name, since)):
                unknown[f"{domain or 'ai.onnx'}::{name} (operator set {opsets.get(domain, 'not stated')})"] = None

    visit(model.graph.node, _opsets(model.opset_import))
    for function in model.functions:
        visit(function.node, _opsets(function.opset_import))
    if unknown:
        raise tf.errors.UnimplementedError(
            None, None, f"the model has {len(unknown)} operators that cannot be imported: {', '.join(sorted(unknown))}"
        )


def _has_definition(domain: str, name: str, since: int) -> bool:
    schema = defs.get_schema(name, since, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


@dataclass
class _ModelBuilder:
    model: onnx.ModelProto
    folder: str | None
    trainable: bool
    functions: dict[tuple[str, str], onnx.FunctionProto] = field(init=False)
    variables: dict[str, tf.Variable] = field(default_factory=dict)
    #: Initializers whose element type TensorFlow has not; they are never trained.
    narrow: frozenset[str] = field(init=False)
    depth: int = 0

    def __post_init__(self) -> None:
        vocabulary.load()
        self.functions = {_function_key(f.domain, f.name): f for f in self.model.functions}
        narrow = (t.name for t in self.model.graph.initializer if element_types.narrow(t.data_type) is not None)
        self.narrow = frozenset(narrow)

    def whole(
        self,
        weights: Mapping[str, HostArray],
        given: dict[str, tf.Tensor],
        constants: Mapping[str, HostArray | list[HostArray] | None],
    ) -> ImportedModel:
        graph = self.model.graph
        values: dict[str, Value] = {"": None}
        placeholders: dict[str, tf.Tensor] = {}
        for name, array in weights.items():
            values[name] = self._weight(name, array)
        values.update(_narrow_weights(graph, values))
        for entry in graph.input:
            if entry.name in given:
                values[entry.name] = given[entry.name]
            elif entry.name in constants:
                values[entry.name] = self._fixed(entry, constants[entry.name])
            elif entry.name not in weights:
                values[entry.name] = placeholder = self._placeholder(entry)
                placeholders[entry.name] = placeholder.tensor if isinstance(placeholder, NarrowTensor) else placeholder
        self._nodes(graph.node, values, _opsets(self.model.opset_import))
        outputs: dict[str, tf.Tensor | list[tf.Tensor] | None] = {}
        narrow: dict[str, str] = {}
        for entry in (*graph.input, *graph.output):
            if entry.name not in values:
                raise tf.errors.InvalidArgumentError(None, None, f"nobody makes the output {entry.name!r}")
            value = values[entry.name]
            if isinstance(value, NarrowTensor):
                narrow[entry.name] = value.type.name
        for entry in graph.output:
            value = values[entry.name]
            outputs[entry.name] = value.tensor if isinstance(value, NarrowTensor) else value
        return ImportedModel(placeholders, outputs, self.variables, narrow)

    @staticmethod
    def _fixed(entry: onnx.ValueInfoProto, value: HostArray | list[HostArray] | None) -> Value:
        if isinstance(value, list):
            return [tf.constant(x) for x in value]
        if value is None:
            return None
        narrow = element_types.narrow(entry.type.tensor_type.elem_type)
        return tf.constant(value) if narrow is None else NarrowTensor(tf.constant(value, narrow.carrier), narrow)

    def _weight(self, name: str, array: HostArray) -> tf.Tensor:
        if self.trainable and array.dtype.kind in "fV" and name not in self.narrow:
            variable = tf.Variable(array, name=models.scope_name(name))
            self.variables[name] = variable
            return tf.identity(variable)
        return tf.constant(array, name=models.scope_name(name))

    @staticmethod
    def _placeholder(entry: onnx.ValueInfoProto) -> tf.Tensor | NarrowTensor:
        """What is fed. An optional is there, unless the constants say that it is not."""
        kind = entry.type.WhichOneof("value")
        declared = entry.type.optional_type.elem_type if kind == "optional_type" else entry.type
        if declared.WhichOneof("value") != "tensor_type":
            from_constants = f"import_model(..., constants={{{entry.name!r}: [...]}})"
            raise tf.errors.UnimplementedError(
                None,
                None,
                f"input {entry.name!r} is a {kind}; only tensors are fed. Fix its value with {from_constants}.",
            )
        number, shape = declared.tensor_type.elem_type, models.static_shape(declared)
        narrow = element_types.narrow(number)
        dtype = narrow.carrier if narrow else element_types.dtype_of(number, f"input {entry.name!r}")
        fed = tf.placeholder(dtype, shape, name=models.scope_name(entry.name))
        return NarrowTensor(fed, narrow) if narrow else fed

    def _nodes(self, nodes: Sequence[onnx.NodeProto], values: dict[str, Value], opsets: Mapping[str, int]) -> None:
        for node in nodes:
            missing = [name for name in node.input if name not in values]
            if missing:
                raise tf.errors.InvalidArgumentError(
                    None, None, f"node {node.name or list(node.output)} needs {missing}, which nothing before it makes"
                )
            results = self._node(node, values, opsets)
            values.update((name, result) for name, result in zip(node.output, results, strict=False) if name)

    def _node(self, node: onnx.NodeProto, values: dict[str, Value], opsets: Mapping[str, int]) -> list[Value]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise tf.errors.InvalidArgumentError(None, None, f"functions and subgraphs are nested {_MAX_DEPTH} deep")
        try:
            domain, name = _function_key(node.domain, node.op_type)
            inputs = [values[input_name] for input_name in node.input]
            function = self.functions.get((domain, name))
            if function is not None:
                return self._call(function, node, inputs, values, _opsets(function.opset_import))
            opset = opsets[domain]
            since = since_version(domain, name, opset) or 0
            found = find(domain, name, since)
            if found is None:
                return self._defined(node, domain, opset, inputs, values)
            view = OnnxNode(node, inputs, opset, since, len(node.output))
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    view.subgraphs[attribute.name] = self._subgraph(attribute.g, values, opsets)
                    view.declared[attribute.name] = [models.static_shape(o.type) for o in attribute.g.output]
            with tf.name_scope(models.scope_name(node.name or name)), _named(node):
                result = _moved(view, found) if name in _MOVING else found(view)
            return list(result) if isinstance(result, tuple) else [result]  # type: ignore[list-item]
        finally:
            self.depth -= 1

    def _subgraph(self, graph: onnx.GraphProto, outer: dict[str, Value], opsets: Mapping[str, int]) -> Subgraph:
        def run(arguments: Sequence[Value]) -> list[Value]:
            values = dict(outer)
            values.update((entry.name, value) for entry, value in zip(graph.input, arguments, strict=True))
            for name, array in models.weights(graph, self.folder).items():
                values[name] = tf.constant(array)
            values.update(_narrow_weights(graph, values))
            self._nodes(graph.node, values, opsets)
            return [values[entry.name] for entry in graph.output]

        return run

    def _defined(
        self, node: onnx.NodeProto, domain: str, opset: int, inputs: list[Value], values: dict[str, Value]
    ) -> list[Value]:
        """A node by the definition that ONNX gives of its operator."""
        schema = defs.get_schema(node.op_type, opset, domain)
        function = onnx.FunctionProto()
        if schema.has_context_dependent_function:
            types = [_type_of(value) for value in inputs]
            version = _definition(schema.context_dependent_function_opset_versions, opset, schema)
            data = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
        else:
            version = _definition(schema.function_opset_versions, opset, schema)
            data = schema.get_function_with_opset_version(version)
        if not data:
            raise tf.errors.UnimplementedError(None, None, f"ONNX defines no {node.op_type} with such inputs")
        function.ParseFromString(data)
        defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        opsets = {**_opsets(function.opset_import)}
        opsets.setdefault("", opset)
        return self._call(function, node, inputs, values, opsets, defaults)

    def _call(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: list[Value],
        outer: dict[str, Value],
        opsets: Mapping[str, int],
        defaults: Mapping[str, onnx.AttributeProto] | None = None,
    ) -> list[Value]:
        attributes = dict(defaults or {})
        attributes.update((a.name, a) for a in function.attribute_proto)
        attributes.update((a.name, a) for a in node.attribute)
        inner: dict[str, Value] = {"": None}
        for index, name in enumerate(function.input):
            inner[name] = inputs[index] if index < len(inputs) else None
        # A subgraph that was handed to the function sees the caller's values.
        if any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            inner = {**outer, **inner}
        with tf.name_scope(models.scope_name(node.name or node.op_type)):
            self._nodes([_with_attributes(n, attributes) for n in function.node], inner, opsets)
        return [inner.get(name) for name in function.output]


@contextlib.contextmanager
def _named(node: onnx.NodeProto) -> Iterator[None]:
    """Makes errors name the node, and an InvalidArgumentError of what a rule stumbles over (a missing input, say)."""
    try:
        yield
    except (tf.errors.OpError, NeedsConstantError):
        raise
    except Exception as error:
        label = node.name or list(node.output)
        if isinstance(error, ValueError | TypeError) and not isinstance(error, UnicodeError):
            error.add_note(f"This is node {label!r} ({node.op_type}) of the ONNX model.")
            raise
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"The ONNX model is not valid: node {label!r} ({node.op_type}) has inputs or attributes that the operator "
            f"cannot have: {type(error).__name__}: {error}.",
        ) from error


def _narrow_weights(graph: onnx.GraphProto, values: Mapping[str, Value]) -> dict[str, Value]:
    """Those initializers whose element type TensorFlow has not, named so."""
    result: dict[str, Value] = {}
    for tensor in graph.initializer:
        narrow, value = element_types.narrow(tensor.data_type), values[tensor.name]
        if narrow is not None and isinstance(value, tf.Tensor):
            result[tensor.name] = NarrowTensor(value, narrow)
    return result


#: Operators that move elements, whatever these are, or look at the shape alone; and those of them that give elements.
_MOVING = {"Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Shape", "Size"}
_GIVING = _MOVING - {"Shape", "Size"}


def _moved(node: OnnxNode, found: Rule) -> Result:
    """The result of an operator that moves elements; those of a narrow type stay what they are."""
    first = node.values[0] if node.values else None
    if not isinstance(first, NarrowTensor):
        return found(node)
    node.values[0] = first.tensor
    result = found(node)
    if node.proto.op_type in _GIVING and isinstance(result, tf.Tensor):
        return NarrowTensor(result, first.type)
    return result


def _definition(versions: Sequence[int], opset: int, schema: defs.OpSchema) -> int:
    """The definition to take: the newest that the model's operator set has, or else the first that was given later."""
    return max((v for v in versions if v <= opset), default=min(versions, default=schema.since_version))


def _type_of(value: Value) -> onnx.TypeProto:
    result = onnx.TypeProto()
    target = result
    if isinstance(value, list):
        target = result.sequence_type.elem_type
        value = value[0] if value else None
    if value is None:
        return result
    tensor = target.tensor_type
    if isinstance(value, NarrowTensor):
        tensor.elem_type = value.type.number
        value = value.tensor
    else:
        tensor.elem_type = element_types.number_of(value.dtype) or 0
    if value.shape.ndims is not None:
        tensor.shape.SetInParent()
        for size in value.shape.as_list():
            dimension = tensor.shape.dim.add()
            if size is not None:
                dimension.dim_value = size
    return result


def _with_attributes(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node of a function with the caller's attributes where it refers to them."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in attributes:
                result.attribute.add().CopyFrom(attributes[attribute.ref_attr_name])
                result.attribute[-1].name = attribute.name
            continue
        result.attribute.add().CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = result.attribute[-1].g
            replaced = [_with_attributes(n, attributes) for n in inner.node]
            del inner.node[:]
            inner.node.extend(replaced)
    return result
