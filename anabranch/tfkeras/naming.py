"""Names of layers and optimizers that were given none."""

from __future__ import annotations

from anabranch.tfkeras import package

_base = package.module("engine.base_layer")
_backend = package.module("backend")


def unique_name(cls: type) -> str:
    """A name for an object of a class: "dense", "dense_1", ..."""
    prefix = _base._to_snake_case(cls.__name__)
    count = _backend.get_uid(prefix) - 1
    return f"{prefix}_{count}" if count else str(prefix)
