"""`tf.autograph`: converting functions, and saying which are converted and how  (docs/decisions/0071)."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from anabranch.core.values import PassedOn
from anabranch.frontend.autograph.calls import OPERATORS
from anabranch.frontend.autograph.settings import ConversionOptions, Feature, features_of, marked, unconverted
from anabranch.frontend.autograph.transpiler import converted, converted_source


def to_graph(
    entity: Callable[..., Any],
    recursive: bool = True,
    experimental_optional_features: Feature | tuple[Feature, ...] | None = None,
) -> Callable[..., Any]:
    """A function that does what `entity` does, and whose `if`, `while` and `for` may depend on tensors.

    Statements over tensors become `tf.cond` and `tf.while_loop`; over everything else they run while the graph is
    built, as Python runs them. The same goes for `and`, `or`, `not`, comparisons in a chain, conditional expressions,
    `break`, `continue` and `return`, and for `abs`, `float`, `int`, `len`, `max`, `min` and `range` of tensors. Error
    messages and tracebacks name the lines of `entity`.

    Args:
        entity: a function, a method, a lambda, or a `tf.function`.
        recursive: whether functions that it calls are converted, too. Those of anabranch, NumPy and Python's own
            library are called as they are.
        experimental_optional_features: what is converted beside.

    Returns:
        The function. A method becomes a function whose first argument is the object.

    Raises:
        TypeError: `entity` is not a function.
        ValueError: its source is not to be had, or has something in it that cannot be converted.

    Example:
        >>> def collatz(n):
        ...     steps = 0
        ...     while n != 1:
        ...         n = n // 2 if n % 2 < 1 else 3 * n + 1
        ...         steps += 1
        ...     return steps
        >>> features = tf.autograph.experimental.Feature.EQUALITY_OPERATORS
        >>> sess.run(tf.autograph.to_graph(collatz, experimental_optional_features=features)(tf.constant(27)))
        np.int32(111)
    """
    options = ConversionOptions(recursive, True, True, features_of(experimental_optional_features))
    return marked(converted(_function(entity), options, OPERATORS))


def to_code(
    entity: Callable[..., Any],
    recursive: bool = True,
    experimental_optional_features: Feature | tuple[Feature, ...] | None = None,
) -> str:
    """The code of what `to_graph` returns, for people to read.

    Args:
        entity, recursive, experimental_optional_features: as for `to_graph`.

    Raises:
        TypeError, ValueError: as `to_graph`.

    Example:
        >>> def absolute(x):
        ...     return -x if x < 0 else x
        >>> tf.autograph.to_code(absolute).splitlines()[0]
        'def tf__absolute(x):'
    """
    options = ConversionOptions(recursive, True, True, features_of(experimental_optional_features))
    return converted_source(_function(entity), options)


def _function(entity: PassedOn) -> types.FunctionType:
    function = getattr(entity, "python_function", entity)
    function = function.__func__ if inspect.ismethod(function) else function
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"a function, a method or a lambda is converted, got {entity!r}")
    return function


def do_not_convert(func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that is called as it is, and in whose calls nothing is converted.

    Args:
        func: default: returns a decorator.

    Example:
        >>> @tf.autograph.experimental.do_not_convert
        ... def double(x):
        ...     return x + x
    """
    return do_not_convert if func is None else unconverted(func)


class _Unspecified:
    def __repr__(self) -> str:
        return "unspecified"


_UNSPECIFIED = _Unspecified()


def set_loop_options(
    parallel_iterations: object = _UNSPECIFIED,
    back_prop: object = _UNSPECIFIED,
    swap_memory: object = _UNSPECIFIED,
    maximum_iterations: object = _UNSPECIFIED,
    shape_invariants: object = _UNSPECIFIED,
) -> None:
    """Says how the loop that it stands in becomes a `tf.while_loop`: as the first statement of the loop's body.

    Anywhere else, and in a loop that does not depend on tensors, it does nothing.

    Args:
        parallel_iterations, back_prop, swap_memory, maximum_iterations: as for `tf.while_loop`.
        shape_invariants: a list of pairs: a variable of the loop, and the shape that it has in every iteration.

    Example:
        >>> def doubled(n):
        ...     x = tf.constant([1])
        ...     while tf.shape(x)[0] < n:
        ...         tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None]))])
        ...         x = tf.concat([x, x], 0)
        ...     return x
        >>> sess.run(tf.autograph.to_graph(doubled)(tf.constant(3)))
        array([1, 1, 1, 1], dtype=int32)
    """


#: by this the conversion knows the function, whichever name the program has for it
set_loop_options.sets_loop_options = True  # type: ignore[attr-defined]


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Accepted: which functions are converted is not logged; `to_code` shows what becomes of one.

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
