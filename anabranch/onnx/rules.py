"""The table of import rules: what makes TensorFlow operations of one ONNX operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import defs, helper

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx.element_types import NarrowTensor

#: A value of a model: a tensor, one of an element type that TensorFlow has not, a sequence (of as many tensors as are
#: known when the graph is built), or nothing (an input that was left out, or an empty optional).
Value = tf.Tensor | NarrowTensor | list[tf.Tensor] | None
#: What runs a subgraph in place: from the values of its inputs to those of its outputs.
Subgraph = Callable[[Sequence[Value]], list[Value]]


class NeedsConstantError(ValueError):
    """A rule needs a value when the graph is built, and the value is only known when it runs."""


def rank_of(x: tf.Tensor) -> int:
    """The number of dimensions of a tensor.

    Raises:
        NeedsConstantError: it is not known when the graph is built.
    """
    rank = x.shape.ndims
    if rank is None:
        raise NeedsConstantError(f"the number of dimensions of {x.name!r} is not known when the graph is built")
    return int(rank)


def sizes_of(x: tf.Tensor) -> list[int]:
    """The sizes of a tensor's dimensions.

    Raises:
        NeedsConstantError: one of them is not known when the graph is built.
    """
    return [size_of(x, axis) for axis in range(rank_of(x))]


def size_of(x: tf.Tensor, axis: int) -> int:
    """The size of one dimension of a tensor.

    Raises:
        NeedsConstantError: it is not known when the graph is built.
    """
    rank_of(x)
    size = x.shape.as_list()[axis]
    if size is None:
        raise NeedsConstantError(
            f"dimension {axis} of {x.name!r}, of shape {x.shape}, must be known when the graph is built. Declare it in "
            "the model, or give a tensor of known shape with import_model(..., inputs=...)."
        )
    return int(size)


@dataclass
class OnnxNode:
    """A node of a model, with what its inputs became."""

    proto: onnx.NodeProto
    values: list[Value]
    #: Version of the operator set of the node's domain, and the one that introduced this form of the operator.
    opset: int
    since: int
    outputs: int
    subgraphs: dict[str, Subgraph] = field(default_factory=dict)
    #: Declared shapes of the outputs of the subgraphs; None where nothing is declared.
    declared: dict[str, list[list[int | None] | None]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"node {self.proto.name or self.proto.output[0]!r} ({self.proto.op_type})"

    def subgraph(self, name: str = "body") -> Subgraph:
        """A graph inside of the node, by the name of the attribute.

        Raises:
            ValueError: the node has no such attribute.
        """
        if name not in self.subgraphs:
            raise ValueError(f"{self.label}: it has no attribute {name!r}, which must be a graph")
        return self.subgraphs[name]

    def declared_outputs(self) -> list[list[int | None] | None]:
        """The declared shapes of the outputs of the subgraph "body". Raises as `subgraph`."""
        self.subgraph()
        return self.declared["body"]

    def has(self, index: int) -> bool:
        return index < len(self.values) and self.values[index] is not None

    def tensor(self, index: int = 0) -> tf.Tensor:
        value = self.values[index] if index < len(self.values) else None
        if isinstance(value, NarrowTensor):
            raise tf.errors.UnimplementedError(
                None,
                None,
                f"{self.label}: input {index} is of the element type {value.type.name}, which only casts, quantization "
                "and operators that move elements take",
            )
        if not isinstance(value, tf.Tensor):
            found = "a sequence" if isinstance(value, list) else "nothing"
            raise ValueError(f"{self.label}: input {index} must be a tensor, and is {found}")
        return value

    def sequence(self, index: int = 0) -> list[tf.Tensor]:
        value = self.values[index]
        if not isinstance(value, list):
            raise NeedsConstantError(f"{self.label}: input {index} must be a sequence whose length is known")
        return value

    def optional(self, index: int) -> tf.Tensor | None:
        return self.tensor(index) if self.has(index) else None

    def rank(self, index: int = 0) -> int:
        rank = self.tensor(index).shape.ndims
        if rank is None:
            raise NeedsConstantError(f"{self.label}: the number of dimensions of input {index} is not known")
        return int(rank)

    def static(self, index: int) -> HostArray:
        value = tf.get_static_value(self.tensor(index))
        if value is None:
            name = self.proto.input[index]
            raise NeedsConstantError(
                f"{self.label}: input {name!r} must be known when the graph is built. Give it a value with "
                f"import_model(..., constants={{{name!r}: ...}}), or as an initializer."
            )
        return np.asarray(value)

    def ints(self, name: str, index: int | None = None, default: Sequence[int] | None = None) -> list[int] | None:
        """A list that older versions have as an attribute, and newer ones as an input."""
        if index is not None and self.has(index):
            return [int(i) for i in self.static(index).reshape(-1)]
        value = self.attr(name)
        return list(default) if value is None and default is not None else value  # type: ignore[return-value]

    def attr(self, name: str, default: object = None) -> object:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return list(value) if isinstance(value, (list, tuple)) or hasattr(value, "extend") else value
        return default

    def integer(self, name: str, default: int = 0) -> int:
        value: int = int(self.attr(name, default))  # type: ignore[call-overload]
        return value

    def real(self, name: str, default: float = 0.0) -> float:
        return float(self.attr(name, default))  # type: ignore[arg-type]

    def text(self, name: str, default: str = "") -> str:
        value = self.attr(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def axis(self, default: int, index: int = 0, name: str = "axis") -> int:
        axis, rank = self.integer(name, default), self.rank(index)
        if not -max(rank, 1) <= axis < max(rank, 1) + 1:
            raise ValueError(f"{self.label}: axis {axis} is outside of a tensor of {rank} dimensions")
        return axis + rank if axis < 0 else axis


Result = Value | Sequence[Value]
Rule = Callable[[OnnxNode], Result]

#: By domain and operator: the versions that the rule knows, and the rule.
_RULES: dict[tuple[str, str], tuple[frozenset[int], Rule]] = {}


def rule(name: str, *versions: int, domain: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule for the versions of an operator (the operator sets that introduced a form of it)."""

    def register(function: Rule) -> Rule:
        _RULES[(domain, name)] = (frozenset(versions), function)
        return function

    return register


def find(domain: str, name: str, since: int) -> Rule | None:
    """The rule for a form of an operator, or None."""
    versions, function = _RULES.get((domain, name), (frozenset(), None))
    return function if since in versions else None


def since_version(domain: str, name: str, opset: int) -> int | None:
    """The operator set that introduced the form that an operator has in a later set; None if there is no such one."""
    try:
        return int(defs.get_schema(name, opset, domain).since_version)
    except defs.SchemaError:
        return None


def known() -> dict[tuple[str, str], list[int]]:
    """All operators with a rule of their own, with their versions."""
    return {key: sorted(versions) for key, (versions, _) in sorted(_RULES.items())}
