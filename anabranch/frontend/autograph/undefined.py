"""What stands for a variable of a converted function that has no value yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from anabranch.core.values import PassedOn


class Undefined:
    """A variable of the user's function that is not assigned on some way through it.

    Attributes:
        name: the variable's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}: not assigned>"

    def __bool__(self) -> NoReturn:
        raise self.unbound()

    def unbound(self) -> UnboundLocalError:
        """What Python raises for a local variable that is read before it is assigned."""
        return UnboundLocalError(
            f"{self.name!r} is used before it is assigned on every way through the function; assign it before the `if` "
            "or the loop that depends on a tensor"
        )


class UndefinedReturnValue:
    """What a function returns as long as it has met no `return`."""

    def __repr__(self) -> str:
        return "<nothing returned>"


def is_missing(value: PassedOn) -> bool:
    """Whether there is no value that a tensor could be made of."""
    return value is None or isinstance(value, Undefined | UndefinedReturnValue)


def load(value: PassedOn) -> Any:
    """A variable's value, where it is read.

    Raises:
        UnboundLocalError: it has none.
    """
    if isinstance(value, Undefined):
        raise value.unbound()
    return value


def load_or_undefined(read: Callable[[], Any], name: str) -> Any:
    """The value of something like `a.b` or `a[i]`, which may not be there."""
    try:
        return read()
    except (KeyError, AttributeError, NameError):
        return Undefined(name)
