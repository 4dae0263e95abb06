"""Graphs of this package, one for each set of feeds, that say what a node of a random program may take."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.shapes import LateShapeError
from anabranch.graph.constants import apply_shape_rule
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from tests.fuzz.programs import Builder, Node
from tests.fuzz.wire import Array

#: sets of feeds of one program; from the third shape on, an island's kernels run directly first
FEEDS = 3

Shape = tuple[int, ...]
Kernels = dict[str, list[dict[str, list[str]]]]


class Shadows:
    """One graph for each set of feeds, and the tensors of the program in it."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.graphs = [Graph() for _ in range(FEEDS)]
        self.builders = [Builder(None, raw) for _ in range(FEEDS)]

    def known(self, ref: str, dtype: str, shapes: tuple[Shape | None, ...], value: Array | None = None) -> None:
        """Enters a tensor of which dtype and shapes are known, or the value."""
        for graph, builder, shape in zip(self.graphs, self.builders, shapes, strict=True):
            with graph.as_default():
                if value is not None:
                    builder.tensors[ref] = _constant(value, dtype)
                else:
                    builder.tensors[ref] = raw.Placeholder(dtype=dtype, shape=shape)

    def operation(self, node: Node) -> list[tuple[str, tuple[Shape | None, ...]]] | None:
        """Adds an operation; gives dtype and shapes of its outputs, or None where it is refused."""
        found: list[list[Tensor]] = []
        for graph, builder in zip(self.graphs, self.builders, strict=True):
            with graph.as_default():
                try:
                    found.append(builder.enter(node, builder.operation(node)))
                except (TypeError, ValueError, LookupError, NotImplementedError):
                    return None
                added = graph.get_operations()[-1]
                if not self._has_kernel(added) or _is_refused_when_run(added):
                    return None
        return [(ts[0].dtype.name, tuple(_shape(t) for t in ts)) for ts in zip(*found, strict=True)]

    def _has_kernel(self, operation: Operation) -> bool:
        """Whether the other side can run the operation with these attributes."""
        return any(
            all(_attr_name(operation.attrs[name]) in names for name, names in kernel.items() if names)
            for kernel in self.kernels.get(operation.type, ())
        )


def _is_refused_when_run(operation: Operation) -> bool:
    """Whether the shape rule has a refusal that waits; in a loop that does not turn, nobody would hear of it."""
    op_def = operation.op_def
    if op_def.shape_rule is None:
        return False
    inputs = list(operation.inputs)
    try:
        apply_shape_rule(op_def.shape_rule, op_def, operation.attrs, inputs, [t.shape for t in inputs])
    except LateShapeError:
        return True
    return False


def _attr_name(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value.name)


def _constant(value: Array, dtype: str) -> Tensor:
    return constant_of(value, "value") if dtype != "string" else constant_of(np.asarray(value, np.object_), "value")


def _shape(tensor: Tensor) -> Shape | None:
    return tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None
