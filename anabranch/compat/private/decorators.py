"""`tensorflow.python.util.tf_decorator` and `tf_contextlib`: wrappers that remember what they wrap."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

_MARK: Final = "_tf_decorator"


class TFDecorator:
    """What is known of a decorated callable.

    Attributes:
        decorator_name: name of the function that decorated it.
        decorated_target: what was decorated.
        decorator_doc: what the decorator adds to its documentation.
        decorator_argspec: the arguments of the result where they are not those of the target; None: they are.
    """

    def __init__(
        self,
        decorator_name: str,
        target: Callable[..., Any],
        decorator_doc: str = "",
        decorator_argspec: object | None = None,
    ) -> None:
        self.decorator_name = decorator_name
        self.decorated_target = target
        self.decorator_doc = decorator_doc
        self.decorator_argspec = decorator_argspec


def make_decorator(
    target: Callable[..., Any],
    decorator_func: Callable[..., Any],
    decorator_name: str | None = None,
    decorator_doc: str = "",
    decorator_argspec: object | None = None,
) -> Callable[..., Any]:
    """Gives a wrapper the name and documentation of what it wraps, and remembers that.

    Args:
        target: what is wrapped.
        decorator_func: the wrapper; it is returned.
        decorator_name: of the decorator; None: that of the function that calls this one.
        decorator_doc, decorator_argspec: as the attributes of `TFDecorator`.
    """
    if decorator_name is None:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        decorator_name = caller.f_code.co_name if caller is not None else ""
    functools.update_wrapper(decorator_func, target)
    setattr(decorator_func, _MARK, TFDecorator(decorator_name, target, decorator_doc, decorator_argspec))
    return decorator_func


def tf_decorator(
    decorator_name: str, decorator_doc: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of wrappers, which does what `make_decorator` does."""
    return lambda wrapper: make_decorator(wrapper.__wrapped__, wrapper, decorator_name, decorator_doc or "")  # type: ignore[attr-defined]


def unwrap(maybe_tf_decorator: Callable[..., Any]) -> tuple[list[TFDecorator], Callable[..., Any]]:
    """The decorators of a callable, the outermost first, and what they decorate in the end."""
    decorators: list[TFDecorator] = []
    target = maybe_tf_decorator
    # what `update_wrapper` copies from a decorated target is the target's mark, not the wrapper's own
    while isinstance(mark := getattr(target, _MARK, None), TFDecorator) and mark.decorated_target is not target:
        decorators.append(mark)
        target = mark.decorated_target
    return decorators, target


def contextmanager(target: Callable[..., Any]) -> Callable[..., Any]:
    """`contextlib.contextmanager`, with a result that remembers `target`."""
    return make_decorator(target, contextlib.contextmanager(target), "contextmanager")
