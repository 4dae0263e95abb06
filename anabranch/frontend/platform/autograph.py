"""tf.autograph: what marks functions; Python code is not rewritten here (docs/decisions/0055)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from anabranch.core.values import PassedOn


class Feature(enum.Enum):
    """Parts of the language that TensorFlow's conversion may be asked for."""

    ALL = "ALL"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"


def do_not_convert(func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function itself: no Python code is converted here.

    Args:
        func: default: returns a decorator.

    Example:
        >>> @tf.autograph.experimental.do_not_convert
        ... def double(x):
        ...     return x + x
    """
    return do_not_convert if func is None else func


class _Unspecified:
    def __repr__(self) -> str:
        return "unspecified"


_UNSPECIFIED = _Unspecified()


def set_loop_options(
    parallel_iterations: object = _UNSPECIFIED,
    back_prop: object = _UNSPECIFIED,
    swap_memory: object = _UNSPECIFIED,
    maximum_iterations: object = _UNSPECIFIED,
) -> None:
    """Nothing to do: in TensorFlow, too, it changes only loops that were converted from Python's; there are none.

    `tf.while_loop` has arguments of these names.

    Example:
        >>> tf.autograph.experimental.set_loop_options(maximum_iterations=3)
    """


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Nothing to do: nothing is converted that could be told of.

    Raises:
        nothing

    Example:
        >>> tf.autograph.set_verbosity(3)
    """


def trace(*args: PassedOn) -> None:
    """Prints its arguments, while the graph is built.

    Raises:
        nothing

    Example:
        >>> tf.autograph.trace("shape", 3)
        shape 3
    """
    print(*args)  # noqa: T201 - this is what it is for
