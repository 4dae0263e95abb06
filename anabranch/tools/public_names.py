"""Every public name: the modules that users see, and what stands in them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import anabranch as tf
from anabranch.compat import v1

#: functions with a body of their own that a class may define under a name with underscores
_CALLED_BY_SYNTAX: Final = frozenset({"__call__", "__getitem__", "__enter__", "__iter__", "__len__"})


@dataclass(frozen=True)
class PublicName:
    """A name that users write, ``tf.nn.relu``, and what it stands for."""

    name: str
    value: Any


def public_modules() -> dict[str, ModuleType]:
    """The modules that users see, by the name under which they see them first: `tf` and all below it.

    `tf.compat.v1` is `tf` once more, and is left out.
    """
    modules: dict[str, ModuleType] = {}

    def add(name: str, module: ModuleType) -> None:
        if module in modules.values() or module is v1 or not _is_ours(module.__name__):
            return
        modules[name] = module
        for inner in _names_in(module):
            value = getattr(module, inner)
            if isinstance(value, ModuleType) and hasattr(value, "__all__"):
                add(f"{name}.{inner}", value)

    add("tf", tf)
    return modules


def public_names() -> Iterator[PublicName]:
    """Everything of ours that stands in a public module, modules excepted."""
    for module_name, module in public_modules().items():
        for name in _names_in(module):
            value = getattr(module, name)
            if not isinstance(value, ModuleType) and _is_ours(_home_of(value)):
                yield PublicName(f"{module_name}.{name}", value)


def public_functions() -> Iterator[PublicName]:
    """The public functions, and the methods and properties of public classes, inherited ones included."""
    for public in public_names():
        if inspect.isclass(public.value):
            for name, value in members(public.value):
                yield PublicName(f"{public.name}.{name}", value)
        elif callable(public.value) and (function := underlying(public.value)) is not None:
            yield PublicName(public.name, function)


def underlying(value: object) -> Callable[..., Any] | None:
    """The function behind a method, a property or a wrapper; None for other things."""
    while not inspect.isfunction(value) or hasattr(value, "__wrapped__"):
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property | functools.partial):
            value = value.func
        elif hasattr(value, "__func__"):
            value = value.__func__
        elif hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        else:
            return None
    return value


def members(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods and properties of a class as functions, by name; inherited ones of ours included."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not _is_ours(base.__module__):
            continue
        for name, value in vars(base).items():
            function = underlying(value)
            shown = not name.startswith("_") or name in _CALLED_BY_SYNTAX
            if shown and name not in seen and function is not None and _is_ours(function.__module__):
                seen.add(name)
                yield name, function


def _names_in(module: ModuleType) -> list[str]:
    return sorted(getattr(module, "__all__", ()))


def _home_of(value: object) -> str:
    if hasattr(value, "DESCRIPTOR"):  # a protocol buffer class: its documentation is that of the message
        return ""
    return str(getattr(value, "__module__", ""))


def _is_ours(module_name: str) -> bool:
    return module_name == "anabranch" or module_name.startswith("anabranch.")


def signature_of(value: Callable[..., Any]) -> inspect.Signature:
    """How a public function is called, or a class to make an object; without `self`."""
    if not inspect.isclass(value):
        return inspect.signature(value)
    if inspect.isfunction(value.__init__):  # not by way of the class: a metaclass may take any arguments
        whole = inspect.signature(value.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:], return_annotation=inspect.Signature.empty)
    try:
        return inspect.signature(value)
    except ValueError:  # exceptions take what Exception takes
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
