"""Feeds the constants of a graph: graphs that differ in these alone are one program, which is compiled once."""

from __future__ import annotations

from typing import Any

import anabranch as tf


def fed_data(graph: tf.Graph) -> dict[Any, Any]:
    """Constants that are data, to be fed, so that no kernel knows them beforehand."""
    taken = [(op, i, tensor) for op in graph.get_operations() for i, tensor in enumerate(op.inputs)]
    fixed = {t for op, i, t in taken if i in op.op_def.static_positions(op)}
    data = [t for _, _, t in taken if t.op.type == "Const" and t not in fixed]
    return {t: t.op.attrs["value"] for t in data}
