"""`tensorflow.python.util.deprecation`: functions and arguments that warn, once for each, when they are used."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import anabranch as tf
from anabranch.compat.private.decorators import make_decorator
from anabranch.core.values import PassedOn

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_silent = 0
_warned: set[tuple[object, str]] = set()


def _warn(key: object, text: str, once: bool = True) -> None:
    if _silent or (once and (key, text) in _warned):
        return
    _warned.add((key, text))
    tf.logging.warning("%s", text)


def _removal(date: str | None) -> str:
    return f"will be removed after {date}" if date else "will be removed in a future version"


def _name_of(func: Callable[..., Any]) -> str:
    return f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', repr(func))}"


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Nothing warns inside."""
    global _silent
    _silent += 1
    try:
        yield
    finally:
        _silent -= 1


def deprecated(date: str | None, instructions: str, warn_once: bool = True) -> _Decorator:
    """Marks a function or class that will go.

    Args:
        date: when, "2019-12-31"; None: not known yet.
        instructions: what to use instead.
        warn_once: whether a second use stays silent.

    Raises:
        ValueError: there are no instructions.
    """
    if not instructions:
        raise ValueError("deprecated() needs instructions: what shall be used instead?")

    def decorate(func_or_class: Callable[..., Any]) -> Callable[..., Any]:
        text = f"{_name_of(func_or_class)} is deprecated and {_removal(date)}. Instead: {instructions}"
        if inspect.isclass(func_or_class):
            made = func_or_class.__init__

            @functools.wraps(made)
            def init(self: object, *args: PassedOn, **kwargs: PassedOn) -> None:
                _warn(func_or_class, text, warn_once)
                made(self, *args, **kwargs)

            setattr(func_or_class, "__init__", init)  # noqa: B010 (mypy refuses the plain form)
            return func_or_class

        def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
            _warn(func_or_class, text, warn_once)
            return func_or_class(*args, **kwargs)

        return make_decorator(func_or_class, call, "deprecated")

    return decorate


def deprecated_alias(
    deprecated_name: str, name: str, func_or_class: Callable[..., Any], warn_once: bool = True
) -> Callable[..., Any]:
    """A function, or a subclass of a class, that does the same under another name, and warns."""
    text = f"The name {deprecated_name} is deprecated. Please use {name} instead."
    if inspect.isclass(func_or_class):
        made = func_or_class.__init__

        def init(self: object, *args: PassedOn, **kwargs: PassedOn) -> None:
            _warn(deprecated_name, text, warn_once)
            made(self, *args, **kwargs)

        renamed: Callable[..., Any] = types.new_class(
            func_or_class.__name__, (func_or_class,), exec_body=lambda held: held.update(__init__=init)
        )
        return renamed

    def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
        _warn(deprecated_name, text, warn_once)
        return func_or_class(*args, **kwargs)

    return make_decorator(func_or_class, call, "deprecated_alias")


def deprecated_endpoints(*args: str) -> _Decorator:
    """Notes the names under which a function will no longer be public."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        func._tf_deprecated_api_names = args  # type: ignore[attr-defined]
        return func

    return decorate


def _on_arguments(find: Callable[[dict[str, Any]], list[str]], date: str | None, instructions: str, once: bool) -> Any:
    """A decorator that warns of those arguments that `find` names among the ones given in a call."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(func)

        def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                given = {}  # the call itself will say what is wrong
            flat = {**given, **kwargs}
            for said in find(flat):
                _warn(func, f"{_name_of(func)}: {said} is deprecated and {_removal(date)}. {instructions}", once)
            return func(*args, **kwargs)

        return make_decorator(func, call, "deprecated_args")

    return decorate


def deprecated_args(
    date: str | None, instructions: str, *names_or_pairs: str | tuple[str, PassedOn], **kwargs: bool
) -> _Decorator:
    """Marks arguments that will go.

    Args:
        date, instructions: as for `deprecated`.
        names_or_pairs: names of arguments, or pairs of a name and a value of it that stays silent.
        kwargs: `warn_once`.
    """
    silent: dict[str, Any] = dict(pair if isinstance(pair, tuple) else (pair, _ANY) for pair in names_or_pairs)

    def find(given: dict[str, Any]) -> list[str]:
        return [f"the argument {name!r}" for name, ok in silent.items() if name in given and given[name] is not ok]

    decorator: _Decorator = _on_arguments(find, date, instructions, kwargs.get("warn_once", True))
    return decorator


_ANY = object()


def deprecated_arg_values(
    date: str | None, instructions: str, warn_once: bool = True, **deprecated_kwargs: PassedOn
) -> _Decorator:
    """Marks values of arguments, `name=value`, that will not be taken any more."""

    def find(given: dict[str, Any]) -> list[str]:
        return [
            f"{name}={value!r}" for name, value in deprecated_kwargs.items() if name in given and given[name] == value
        ]

    decorator: _Decorator = _on_arguments(find, date, instructions, warn_once)
    return decorator


def deprecated_argument_lookup(new_name: str, new_value: PassedOn, old_name: str, old_value: PassedOn) -> Any:
    """The value of an argument that has two names.

    Raises:
        ValueError: both were given.
    """
    if old_value is None:
        return new_value
    if new_value is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'; '{old_name}' is the old name of it")
    return old_value
