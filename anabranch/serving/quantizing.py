"""A trained, frozen graph, rewritten so that it computes with numbers of 8 bits (§5).

`quantize_graph` runs the graph on samples and notes between which floats the results of its layers lie. Then it
rewrites convolutions and matrix products by constants, and what follows them, into operations on bytes. A tensor that
has become bytes stays so until something needs its floats:

    x -> QuantizeV2 -> QuantizedConv2D -> Requantize -> QuantizedBiasAdd -> Requantize -> ... -> Dequantize

Products and sums have 32 bits; `Requantize` moves them to bytes of the range that was measured. Weights become bytes in
the graph. Each float that other nodes or the outputs need keeps its name, so that the graph is fed and fetched as
before. All operations are TensorFlow 1.15's, and have kernels for its processors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from anabranch.core.dtypes import quint8
from anabranch.core.values import TensorLike
from anabranch.frontend.storage.graph_util import extract_sub_graph
from anabranch.graph.graph import Graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.ops import raw
from anabranch.ops.quantized import steps
from anabranch.proto.graph_pb2 import DT_FLOAT, DT_QINT32, DT_QUINT8, AttrValue, DataType, GraphDef, NodeDef
from anabranch.proto.node_inputs import producer_of
from anabranch.proto.tensors import make_ndarray, make_tensor_proto
from anabranch.session import Session

#: the products with constants with which bytes begin
_PRODUCTS: Final = {"MatMul": "QuantizedMatMul", "Conv2D": "QuantizedConv2D"}
_BIASES: Final = frozenset({"BiasAdd", "Add", "AddV2"})
#: what has the range of its input
_SAME_RANGE: Final = {
    "Relu": "QuantizedRelu",
    "Relu6": "QuantizedRelu6",
    "MaxPool": "QuantizedMaxPool",
    "AvgPool": "QuantizedAvgPool",
    "Reshape": "QuantizedReshape",
}
_PASSING: Final = frozenset({"Identity", "StopGradient", "PlaceholderWithDefault"})
_CONTROL_FLOW: Final = frozenset({"Enter", "Exit", "NextIteration", "Merge", "Switch"})
Range = tuple[float, float]


def quantize_graph(
    graph_def: GraphDef, output_node_names: Sequence[str], samples: Iterable[Mapping[str, TensorLike]]
) -> GraphDef:
    """A frozen graph that computes with numbers of 8 bits where it multiplies by constants.

    Rewritten are float32 `MatMul` and `Conv2D` (NHWC, equal strides, no dilation) with constant weights, and where
    their results go next: biases, `Relu`, `Relu6`, pooling, `Reshape` and concatenation. Other nodes stay as they are.

    Args:
        graph_def: a graph without variables, as `tf.graph_util.convert_variables_to_constants` gives it.
        output_node_names: the nodes to compute; all that they do not need is left out.
        samples: usual inputs, each a dictionary from tensors' names ("images:0") to arrays. The ranges of the layers
            are measured with them: what is larger later is cut off.

    Returns:
        A new GraphDef, with the same outputs.

    Raises:
        ValueError: there are no samples, a measured number is not finite, or the graph has loops or conditionals as
            `Switch` and `Merge`.
        AssertionError: an output is not in the graph.
    """
    needed = extract_sub_graph(graph_def, output_node_names)
    lowered = next((node.name for node in needed.node if node.op in _CONTROL_FLOW), None)
    if lowered is not None:
        raise ValueError(
            f"node {lowered!r} belongs to a loop or a conditional, in which no ranges can be measured; "
            "tf.enable_control_flow_v2 keeps these whole"
        )
    plan = _Plan.of(needed)
    return _QuantizedNodes(plan, _measured(needed, plan.to_measure(), samples), output_node_names).run()


def _tensor(text: str) -> str:
    """An input as the name of a tensor."""
    return text if ":" in text else f"{text}:0"


# ---------------------------------------------------------------------- what can be bytes
@dataclass
class _Plan:
    """The nodes, inputs first, the values of constants, and the nodes whose results become bytes."""

    nodes: list[NodeDef]
    definition: GraphDef
    constants: dict[str, NodeDef] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, definition: GraphDef) -> _Plan:
        plan = cls(_inputs_first(definition), definition)
        for node in plan.nodes:
            source = plan.constants.get(producer_of(node.input[0])) if node.input and node.op == "Identity" else None
            if node.op == "Const" or source is not None:
                plan.constants[node.name] = source if source is not None else node
            elif plan._fits(node):
                plan.chosen.add(node.name)
        return plan

    def constant(self, text: str) -> Any:
        """The value of an input, None if it is not constant."""
        node = self.constants.get(producer_of(text))
        return None if node is None else make_ndarray(node.attr["value"].tensor)

    def to_measure(self) -> set[str]:
        """The tensors whose range must be known: factors that are not bytes yet, and all sums of 32 bits."""
        measured = set()
        for node in self.nodes:
            if node.name in self.chosen and (node.op in _PRODUCTS or node.op in _BIASES):
                measured.add(f"{node.name}:0")
                if producer_of(node.input[0]) not in self.chosen:
                    measured.add(_tensor(node.input[0]))
        return measured

    def _fits(self, node: NodeDef) -> bool:
        if any(text.startswith("^") for text in node.input) or _is_other_type(node):
            return False
        if node.op in _PRODUCTS:
            weights = self.constant(node.input[1])
            return weights is not None and weights.size > 0 and (node.op == "MatMul" or _is_plain_convolution(node))
        if not node.input or producer_of(node.input[0]) not in self.chosen:
            return False
        if node.op in _BIASES:
            bias = self.constant(node.input[1])
            return bias is not None and bias.ndim == 1 and bias.size > 0 and self._has_channels(node, bias.size)
        if node.op == "ConcatV2":
            axis = self.constant(node.input[-1])
            return axis is not None and int(axis) >= 0 and all(producer_of(t) in self.chosen for t in node.input[:-1])
        return node.op in _PASSING or (node.op in _SAME_RANGE and _is_plain_pooling(node))

    def _has_channels(self, node: NodeDef, count: int) -> bool:
        """Whether a bias has a number for each output of the product that it is added to."""
        if node.op == "BiasAdd":
            return node.attr["data_format"].s in (b"", b"NHWC")
        source = next(n for n in self.nodes if n.name == producer_of(node.input[0]))
        if source.op not in _PRODUCTS:
            return False
        weights = self.constant(source.input[1])
        return bool(weights.shape[-2 if source.attr["transpose_b"].b else -1] == count)


def _is_other_type(node: NodeDef) -> bool:
    return "T" in node.attr and node.attr["T"].type != DT_FLOAT


def _is_plain_convolution(node: NodeDef) -> bool:
    strides, dilations = list(node.attr["strides"].list.i), set(node.attr["dilations"].list.i)
    return (
        node.attr["data_format"].s in (b"", b"NHWC")
        and node.attr["padding"].s in (b"SAME", b"VALID")
        and strides[1] == strides[2]
        and dilations <= {1}
    )


def _is_plain_pooling(node: NodeDef) -> bool:
    """True for other nodes, too."""
    sizes = [list(node.attr[key].list.i) for key in ("ksize", "strides") if key in node.attr]
    return (
        all(values[0] == values[3] == 1 for values in sizes)
        and node.attr["data_format"].s in (b"", b"NHWC")
        and node.attr["padding"].s in (b"", b"SAME", b"VALID")
    )


def _inputs_first(definition: GraphDef) -> list[NodeDef]:
    """The nodes in an order in which each follows its inputs."""
    by_name = {node.name: node for node in definition.node}
    ordered: dict[str, NodeDef] = {}
    for start in definition.node:
        stack = [start.name]
        while stack:
            name = stack[-1]
            waiting = [n for t in by_name[name].input if (n := producer_of(t)) not in ordered]
            if waiting:
                stack += waiting
            else:
                ordered.setdefault(stack.pop(), by_name[name])
    return list(ordered.values())


# ---------------------------------------------------------------------- ranges
def _measured(definition: GraphDef, tensors: set[str], samples: Iterable[Mapping[str, TensorLike]]) -> dict[str, Range]:
    """Between which numbers tensors lie in all samples."""
    names = sorted(tensors)
    lows, highs = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    graph = Graph()
    with graph.as_default():
        import_graph_def(definition, name="")
        flat = [raw.Reshape(graph.get_tensor_by_name(name), [-1]) for name in names]
        ends = [(raw.Min(x, [0]), raw.Max(x, [0])) for x in flat]
    run = 0
    with Session(graph=graph) as session:
        for sample in samples:
            run += 1
            found = np.array(session.run(ends, dict(sample)), np.float64).reshape(-1, 2)
            lows, highs = np.minimum(lows, found[:, 0]), np.maximum(highs, found[:, 1])
    if not run:
        raise ValueError("the ranges of the layers are measured with samples: give one dictionary of feeds or more")
    for name, low, high in zip(names, lows, highs, strict=True):
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError(
                f"tensor {name!r} lies between {low} and {high}, which no bytes cover; look at the samples"
            )
    return {name: _with_zero(low, high) for name, low, high in zip(names, lows, highs, strict=True)}


def _with_zero(low: float, high: float) -> Range:
    """A range that has zero in it, and a length."""
    low, high = min(0.0, float(low)), max(0.0, float(high))
    return low, high if high > low else low + 1.0


# ---------------------------------------------------------------------- rewriting
@dataclass(frozen=True)
class _Bytes:
    """A tensor of quint8, and the ends of its range: names of tensors."""

    values: str
    low: str
    high: str


class _QuantizedNodes:
    """One rewriting of a plan's nodes into a new GraphDef."""

    def __init__(self, plan: _Plan, ranges: dict[str, Range], outputs: Sequence[str]) -> None:
        self._plan, self._ranges, self._outputs = plan, ranges, outputs
        self._taken = {node.name for node in plan.nodes}
        self._result = GraphDef()
        self._bytes: dict[str, _Bytes] = {}
        #: the nodes whose floats, or end, something asks for
        self._asked = set(outputs)
        for node in plan.nodes:
            own = node.input if node.name not in plan.chosen else node.input[1:] if node.op == "Reshape" else ()
            self._asked.update(map(producer_of, own))

    def run(self) -> GraphDef:
        for node in self._plan.nodes:
            if node.name not in self._plan.chosen:
                self._result.node.add().CopyFrom(node)
                continue
            result = self._bytes[f"{node.name}:0"] = self._rewritten(node)
            if node.name in self._asked:
                self._floats(node.name, result)
        definition = self._plan.definition
        self._result.library.CopyFrom(definition.library)
        self._result.versions.CopyFrom(definition.versions)
        return extract_sub_graph(self._result, self._outputs)

    def _rewritten(self, node: NodeDef) -> _Bytes:
        if node.op in _PRODUCTS:
            return self._product(node)
        if node.op in _BIASES:
            return self._bias(node)
        if node.op == "ConcatV2":
            return self._joined(node)
        given = self._bytes[_tensor(node.input[0])]
        return given if node.op in _PASSING else self._same_range(node, given)

    def _product(self, node: NodeDef) -> _Bytes:
        x, w = self._quantised(node.input[0]), self._constant(node.input[1])
        wide = self._add(node, _PRODUCTS[node.op], x.values, w.values, x.low, x.high, w.low, w.high)
        if node.op == "MatMul":
            _types(wide, T1=DT_QUINT8, T2=DT_QUINT8, Toutput=DT_QINT32)
            _copy_attrs(node, wide, "transpose_a", "transpose_b")
        else:
            _types(wide, Tinput=DT_QUINT8, Tfilter=DT_QUINT8, out_type=DT_QINT32)
            _copy_attrs(node, wide, "strides", "padding")
        return self._narrowed(node, wide)

    def _bias(self, node: NodeDef) -> _Bytes:
        x, b = self._bytes[_tensor(node.input[0])], self._constant(node.input[1])
        wide = self._add(node, "QuantizedBiasAdd", x.values, b.values, x.low, x.high, b.low, b.high)
        _types(wide, T1=DT_QUINT8, T2=DT_QUINT8, out_type=DT_QINT32)
        return self._narrowed(node, wide)

    def _narrowed(self, node: NodeDef, wide: NodeDef) -> _Bytes:
        """Bytes of the range that was measured for a node's result."""
        low, high = (self._number(node.name, value) for value in self._ranges[f"{node.name}:0"])
        inputs = (wide.name, f"{wide.name}:1", f"{wide.name}:2", low, high)
        narrow = self._add(node, "Requantize", *inputs)
        _types(narrow, Tinput=DT_QINT32, out_type=DT_QUINT8)
        return _outputs_of(narrow)

    def _same_range(self, node: NodeDef, given: _Bytes) -> _Bytes:
        shape = node.input[1:] if node.op == "Reshape" else ()
        new = self._add(node, _SAME_RANGE[node.op], given.values, *shape, given.low, given.high)
        if node.op in ("Relu", "Relu6"):
            _types(new, Tinput=DT_QUINT8, out_type=DT_QUINT8)
        else:
            _types(new, T=DT_QUINT8)
            _copy_attrs(node, new, "ksize", "strides", "padding", "Tshape")
        return _outputs_of(new)

    def _joined(self, node: NodeDef) -> _Bytes:
        parts = [self._bytes[_tensor(text)] for text in node.input[:-1]]
        axis = self._value(f"{node.name}/axis", np.int32(self._plan.constant(node.input[-1])))
        new = self._add(
            node, "QuantizedConcat", axis, *(p.values for p in parts), *(p.low for p in parts), *(p.high for p in parts)
        )
        _types(new, T=DT_QUINT8)
        new.attr["N"].i = len(parts)
        return _outputs_of(new)

    # ------------------------------------------------------------------ tensors
    def _quantised(self, text: str) -> _Bytes:
        """A float tensor as bytes of its measured range; made once."""
        tensor = _tensor(text)
        if tensor not in self._bytes:
            name = producer_of(text)
            ends = [self._number(name, value) for value in self._ranges[tensor]]
            new = self._node(f"{name}/quantized", "QuantizeV2", text, *ends)
            _types(new, T=DT_QUINT8)
            new.attr["mode"].s = b"MIN_FIRST"
            self._bytes[tensor] = _outputs_of(new)
        return self._bytes[tensor]

    def _constant(self, text: str) -> _Bytes:
        """Weights as bytes, with their range; made once."""
        name = self._plan.constants[producer_of(text)].name
        if f"{name}:0" not in self._bytes:
            weights = self._plan.constant(text)
            low, high = _with_zero(weights.min(), weights.max())
            integers = steps.steps_of(weights, low, high, quint8)
            values = self._value(f"{name}/quantized", steps.saturated(integers, quint8))
            self._bytes[f"{name}:0"] = _Bytes(values, self._number(name, low), self._number(name, high))
        return self._bytes[f"{name}:0"]

    def _floats(self, name: str, given: _Bytes) -> None:
        """The node of that name, which gives what the bytes stand for."""
        new = self._result.node.add(name=name, op="Dequantize", input=[given.values, given.low, given.high])
        _types(new, T=DT_QUINT8)
        new.attr["mode"].s = b"MIN_FIRST"

    # ------------------------------------------------------------------ nodes
    def _add(self, node: NodeDef, op: str, *inputs: str) -> NodeDef:
        return self._node(f"{node.name}/{op}", op, *inputs)

    def _node(self, name: str, op: str, *inputs: str) -> NodeDef:
        unique, count = name, 0
        while unique in self._taken:
            count += 1
            unique = f"{name}_{count}"
        self._taken.add(unique)
        return self._result.node.add(name=unique, op=op, input=inputs)

    def _value(self, name: str, value: TensorLike) -> str:
        tensor = make_tensor_proto(value)
        node = self._node(name, "Const")
        node.attr["dtype"].type = tensor.dtype
        node.attr["value"].CopyFrom(AttrValue(tensor=tensor))
        return node.name

    def _number(self, name: str, value: float) -> str:
        return self._value(f"{name}/range", np.float32(value))


def _outputs_of(node: NodeDef) -> _Bytes:
    return _Bytes(node.name, f"{node.name}:1", f"{node.name}:2")


def _types(node: NodeDef, **types: DataType.ValueType) -> None:
    for key, value in types.items():
        node.attr[key].type = value


def _copy_attrs(source: NodeDef, target: NodeDef, *keys: str) -> None:
    for key in keys:
        if key in source.attr:
            target.attr[key].CopyFrom(source.attr[key])
