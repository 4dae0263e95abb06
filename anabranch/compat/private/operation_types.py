"""`tensorflow.python.framework.op_def_registry`: operation types as messages, by name."""

from __future__ import annotations

import functools

from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.graph.op_list import op_def_to_proto
from anabranch.proto.graph_pb2 import OpDef


@functools.cache
def get(name: str) -> OpDef | None:
    """The signature of an operation type; None where there is no such type."""
    op_def = find_op_def(name)
    return None if op_def is None else op_def_to_proto(op_def)


def get_registered_ops() -> dict[str, OpDef]:
    """The signatures of all operation types, by name."""
    return {name: message for name in all_op_defs() if (message := get(name)) is not None}


def sync() -> None:
    """Nothing to do: there is one registry."""
