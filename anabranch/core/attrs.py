"""Attribute values that have no plain Python type of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FuncAttr:
    """A function of the graph's library, by name, with attributes for its instantiation."""

    name: str
    attrs: dict[str, Any] = field(default_factory=dict, compare=False)
