"""Which of two gradients is right: the one that agrees with how what it is of changes along a line."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.outcomes import Graph
from tests.fuzz.programs import Node
from tests.fuzz.wire import Array, decode_array, encode_array

#: how far to go from a value of size one: what rounds and what bends are about as large then
_STEPS = {"float64": 1e-5, "float32": 1e-2}
#: how many times nearer to the numeric slope one of the two must be
_NEARER = 20.0


def is_nearer(
    graph: Graph,
    node: Node,
    feeds: dict[str, dict[str, Any]],
    at: tuple[str, Array],
    gradients: tuple[Array, Array],
    random: np.random.Generator,
) -> bool:
    """Whether the first of two gradients agrees with differences of the sum of what they are of, and the second not.

    Args:
        graph: where `node`, of the kind "gradients", stands.
        feeds: by the names in the graph; they say all but what is changed.
        at: reference and value of what the gradients are with respect to.
    """
    ref, value = at
    step = _STEPS.get(value.dtype.name)
    if step is None or not all(gradient.shape == value.shape for gradient in gradients):
        return False
    # where one of them is no number, nothing changes: what is of that element says nothing of the others
    known = np.isfinite(gradients[0]) & np.isfinite(gradients[1])
    direction = np.where(known, random.standard_normal(value.shape), 0).astype(value.dtype)
    above, below = (
        _values(graph, node, {**feeds, graph.names[ref]: encode_array(value + s * direction)}) for s in (step, -step)
    )
    slope = sum(_finite_sum(one, other) for one, other in zip(above, below, strict=True)) / (2 * step)
    first, second = (abs(float(np.sum(np.where(known, gradient, 0) * direction)) - slope) for gradient in gradients)
    return bool(first * _NEARER < second)


def _finite_sum(above: Array, below: Array) -> float:
    """The sum of the differences between two arrays, as far as these are numbers."""
    both = np.isfinite(above) & np.isfinite(below)
    return float(np.sum(np.where(both, above, 0) - np.where(both, below, 0), dtype=np.float64))


def _values(graph: Graph, node: Node, feeds: dict[str, dict[str, Any]]) -> list[Array]:
    """What the node's gradients are of; nothing where the step fails."""
    session = graph.side.ask("open", graph=graph.number)["session"]
    graph.side.ask("run", session=session, fetches=[graph.initializer], feeds={})
    fetches = [graph.names[ref] for ref in node["ys"] if ref in graph.names]
    answer = graph.side.ask("run", session=session, fetches=fetches, feeds=feeds)
    if "error" in answer:
        return []
    return [decode_array(value) for value in answer["values"]]
