"""Colocation groups: an operation's attribute `_class` lists, as ``loc:@name``, those whose device it shares (§3.3)."""

from __future__ import annotations

from typing import Final

#: what the names of groups begin with; other entries of `_class` are no colocation groups
COLOCATION_PREFIX: Final = b"loc:@"


def colocation_group(name: str) -> bytes:
    """The name of the group that the operation `name` leads."""
    return COLOCATION_PREFIX + name.encode()


def colocation_leader(group: bytes) -> str | None:
    """The name of the operation that leads a group; None: the entry is no colocation group."""
    # what is no text is the name of no operation, as which it is refused
    return (
        group.removeprefix(COLOCATION_PREFIX).decode(errors="replace") if group.startswith(COLOCATION_PREFIX) else None
    )
