"""Names of the stateful things that steps share: variables, queues, tables  (§3.1, WP4.7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceHandle:
    """The value of a tensor of dtype `resource`: which resource of which container.

    Two handles are equal when they name the same resource, whatever else they say of it.
    """

    container: str
    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" + (f" in container {self.container!r}" if self.container else "")
