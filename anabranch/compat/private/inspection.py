"""What `tensorflow.python.util.tf_inspect` does otherwise than `inspect`: it looks through decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.compat.private.decorators import unwrap
from anabranch.core.values import PassedOn

#: libraries look for `stack` and the like below this name
_inspect = inspect


class ArgSpec(NamedTuple):
    """Arguments of a callable, as `inspect.getargspec` gave them until Python 3.11."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getfullargspec(obj: Callable[..., Any]) -> inspect.FullArgSpec:
    """The arguments of what a callable decorates in the end, or those that its outermost decorator states.

    Raises:
        TypeError: `obj` is not callable, or written in C without a signature.
    """
    decorators, target = unwrap(obj)
    for decorator in decorators:
        if isinstance(decorator.decorator_argspec, inspect.FullArgSpec):
            return decorator.decorator_argspec
        if isinstance(decorator.decorator_argspec, ArgSpec):
            return inspect.FullArgSpec(*decorator.decorator_argspec, [], None, {})
    if isinstance(target, functools.partial):
        return _without_given(target)
    if not (inspect.isroutine(target) or inspect.isclass(target)) and callable(target):
        target = type(target).__call__
    elif inspect.isclass(target):
        target = target.__init__
    function = inspect.unwrap(target, stop=lambda wrapper: hasattr(wrapper, "__signature__"))
    spec = inspect.getfullargspec(function)
    if (getattr(function, "__module__", None) or "").split(".")[0] == tf.__name__:
        return spec._replace(annotations={})  # TensorFlow's functions have none, and libraries compare them with theirs
    return spec


def getargspec(obj: Callable[..., Any]) -> ArgSpec:
    """As `getfullargspec`, without arguments that are given by name only.

    Raises:
        ValueError: a partial application leaves an argument without a value behind one that has one.
    """
    return ArgSpec(*getfullargspec(obj)[:4])


def getdoc(object: object) -> str | None:
    """The documentation of what a callable decorates in the end."""
    return inspect.getdoc(unwrap(object)[1]) if callable(object) else inspect.getdoc(object)


def getsource(object: Callable[..., Any]) -> str:
    """The source of what a callable decorates in the end."""
    return inspect.getsource(unwrap(object)[1])


def getfile(object: Callable[..., Any]) -> str:
    """The file of what a callable decorates in the end."""
    return inspect.getfile(unwrap(object)[1])


def getcallargs(*func_and_positional: PassedOn, **named: PassedOn) -> dict[str, Any]:
    """The value of each argument in a call of the first argument."""
    func, *positional = func_and_positional
    return inspect.getcallargs(unwrap(func)[1], *positional, **named)


def _without_given(partial: functools.partial[Any]) -> inspect.FullArgSpec:
    """What is left of the arguments of a partial application: those given by name have these as defaults."""
    spec = getfullargspec(partial.func)
    bound = 1 if inspect.ismethod(partial.func) else 0
    args = spec.args[:bound] + spec.args[bound + len(partial.args) :]
    had = dict(zip(reversed(spec.args), reversed(spec.defaults or ()), strict=False))
    values = {**had, **partial.keywords}
    with_value = [name in values for name in args]
    first = with_value.index(True) if True in with_value else len(args)
    if not all(with_value[first:]):
        lacking = args[first + with_value[first:].index(False)]
        raise ValueError(f"{partial!r} gives {args[first]!r} a value, and none to {lacking!r} behind it")
    defaults = tuple(values[name] for name in args[first:]) or None
    return spec._replace(args=args, defaults=defaults)
