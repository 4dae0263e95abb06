"""Names that nobody has yet."""

from __future__ import annotations

from collections.abc import Container


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or where it is taken the first of `name_1`, `name_2`, ... that is not."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


def take_name(name: str, taken: set[str]) -> str:
    """What `free_name` gives, which is taken from now on."""
    candidate = free_name(name, taken)
    taken.add(candidate)
    return candidate
