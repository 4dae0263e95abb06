"""The registry: every operation type by name, and every gradient function by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from anabranch.core.op_def import OpDef

_op_defs: dict[str, OpDef] = {}
_named_gradients: dict[str, Callable[..., Any] | None] = {}
#: the module that registers what has not been needed so far; empty once it has
_rest: list[str] = []


def register_op(op_def: OpDef) -> None:
    """Adds an operation type.

    Raises:
        ValueError: the name is taken.
    """
    if op_def.name in _op_defs:
        raise ValueError(
            f"operation {op_def.name} is defined twice: at {_op_defs[op_def.name].defined_at} "
            f"and at {op_def.defined_at}"
        )
    _op_defs[op_def.name] = op_def


def load_rest_from(module: str) -> None:
    """Names the module that registers what has not been needed so far, to be imported at the first unknown name."""
    _rest.append(module)


def _load_rest() -> None:
    for module in tuple(_rest):
        importlib.import_module(module)
    _rest.clear()  # only now, so that other threads wait for the import too


def find_op_def(name: str) -> OpDef | None:
    """The operation type of that name, or None."""
    op_def = _op_defs.get(name)
    if op_def is None:
        _load_rest()
        op_def = _op_defs.get(name)
    return op_def


def all_op_defs() -> dict[str, OpDef]:
    """A copy of the vocabulary, by name."""
    _load_rest()
    return dict(_op_defs)


def register_gradient(name: str, function: Callable[..., Any] | None) -> None:
    """Registers a gradient under a name of the user's (None: not differentiable).

    Raises:
        KeyError: a gradient of that name exists, given by a user or by the operation of that name.
    """
    op_def = find_op_def(name)
    if name in _named_gradients or (op_def is not None and op_def.differentiable is not None):
        raise KeyError(f"a gradient named {name!r} is already registered; choose another name")
    _named_gradients[name] = function


def find_gradient(name: str) -> Callable[..., Any] | None:
    """The gradient function of that name; None where the operation is stated not to be differentiable.

    Raises:
        LookupError: no gradient is registered under that name.
    """
    if name in _named_gradients:
        return _named_gradients[name]
    op_def = find_op_def(name)
    if op_def is None or op_def.differentiable is None:
        raise LookupError(f"no gradient is defined for operations of type {name!r}")
    return op_def.gradient_rule
