"""Functions of tensors that other types have versions of: `tf.concat` of ragged tensors is not made of one `ConcatV2`.

A function marked `@dispatched` looks, when it is called, for arguments of a type that is registered here. If there is
one, the version of the function for such types is called in its place, with the same arguments. Versions stand in a
module of their own, which is imported when the first is looked for: programs without such values load none of it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from anabranch.core.values import PassedOn

Function = TypeVar("Function", bound=Callable[..., Any])

_types: tuple[type, ...] = ()
_modules: dict[str, bool] = {}  # the modules with versions, and whether they were imported
_versions: dict[Callable[..., Any], Callable[..., Any]] = {}


def register_type(cls: type, module: str) -> None:
    """Lets functions marked `@dispatched` look for arguments of a type.

    Args:
        cls: the type.
        module: the module that gives versions of functions, by `version_of`.
    """
    global _types
    _types = (*_types, cls)
    _modules.setdefault(module, False)


def version_of(*functions: Callable[..., Any]) -> Callable[[Function], Function]:
    """Makes a function the version of others for registered types.

    Raises:
        ValueError: a function is not marked `@dispatched`, or has a version already.
    """

    def register(version: Function) -> Function:
        for function in functions:
            if not hasattr(function, "__wrapped__") or function in _versions:
                raise ValueError(f"{function!r} is not @dispatched, or has a version already")
            _versions[function] = version
        return version

    return register


def load_versions() -> None:
    """Imports the modules that give versions."""
    for module, loaded in list(_modules.items()):
        if not loaded:
            _modules[module] = True
            importlib.import_module(module)


def dispatched(function: Function) -> Function:
    """Marks a function that types registered here may have a version of."""

    @functools.wraps(function)
    def chosen(*args: PassedOn, **kwargs: PassedOn) -> Any:
        if _types and (_holds(args) or _holds(kwargs.values())):
            load_versions()
            version = _versions.get(chosen)
            if version is not None:
                return version(*args, **kwargs)
        return function(*args, **kwargs)

    return cast("Function", chosen)


def has_versions(value: PassedOn) -> bool:
    """Whether a value is of a registered type."""
    return isinstance(value, _types)


def _holds(arguments: Iterable[PassedOn]) -> bool:
    """Whether an argument, or an element of a list among them, is of a registered type."""
    for argument in arguments:
        if isinstance(argument, _types):
            return True
        if isinstance(argument, list | tuple) and any(isinstance(element, _types) for element in argument):
            return True
    return False
