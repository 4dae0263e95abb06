"""What libraries ask of `tensorflow.python.util.function_utils`: which arguments a function of the program's takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from anabranch.compat.private import decorators, inspection


def fn_args(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the positional arguments that are still to be given; without `self` of a method.

    Raises:
        TypeError: `fn` cannot be called.
    """
    if isinstance(fn, functools.partial):
        given = len(fn.args)
        return tuple(name for name in fn_args(fn.func)[given:] if name not in fn.keywords)
    _check_callable(fn)
    called = fn if inspect.isfunction(fn) or inspect.ismethod(fn) or inspect.isclass(fn) else type(fn).__call__
    called = fn.__init__ if inspect.isclass(fn) else called
    names = inspection.getfullargspec(called).args
    return tuple(names if inspect.isfunction(fn) else names[1:])


def has_kwargs(fn: Callable[..., Any]) -> bool:
    """Whether a function takes any further named arguments.

    Raises:
        TypeError: `fn` cannot be called.
    """
    if isinstance(fn, functools.partial):
        return has_kwargs(fn.func)
    _check_callable(fn)
    called = fn if inspect.isfunction(fn) or inspect.ismethod(fn) else type(fn).__call__
    return inspection.getfullargspec(called).varkw is not None


def get_func_name(func: Callable[..., Any]) -> str:
    """What a function is called; of a method with its class, of another object its type.

    Raises:
        ValueError: it cannot be called.
    """
    _, target = decorators.unwrap(func)
    if inspect.isfunction(target):
        return target.__name__
    if inspect.ismethod(target):
        return f"{type(target.__self__).__name__}.{target.__func__.__name__}"
    if callable(target):
        return str(type(target))
    raise ValueError("Argument must be callable")


def get_func_code(func: Callable[..., Any]) -> CodeType | None:
    """The code of a function, a method or an object's `__call__`; None where there is none.

    Raises:
        ValueError: it cannot be called.
    """
    _, target = decorators.unwrap(func)
    if not callable(target):
        raise ValueError("Argument must be callable")
    code: CodeType | None = getattr(target, "__code__", None)
    return code if code is not None else getattr(type(target).__call__, "__code__", None)


def _check_callable(fn: Callable[..., Any]) -> None:
    if not callable(fn):
        raise TypeError(f"fn should be a function-like object, but is of type {type(fn)}.")
