"""Arguments that have a deprecated second name."""

from __future__ import annotations

from typing import Any


def one_of(name: str, value: Any, old_name: str, old_value: Any) -> Any:
    """The value of an argument that may also be given under its deprecated name.

    Raises:
        ValueError: both are given.
    """
    if old_value is None:
        return value
    if value is not None:
        raise ValueError(
            f"Cannot specify both {name!r} and {old_name!r}; {old_name!r} is the deprecated name of {name!r}"
        )
    return old_value
