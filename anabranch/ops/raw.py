"""Every operation type of the vocabulary, by name: ``raw.MatMul(a=x, b=y)``.

The names are looked up when they are used, so a gradient in one family may build operations of any other family
without the families importing each other.
"""

from __future__ import annotations

from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.graph.building import OpFunction


def __getattr__(name: str) -> OpFunction:
    op = find_op_def(name)
    if not isinstance(op, OpFunction):
        raise AttributeError(f"there is no operation type {name!r}")
    return op


def __dir__() -> list[str]:
    return sorted(all_op_defs())
