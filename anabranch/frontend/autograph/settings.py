"""How functions are converted: options, and whether conversion is on where a call is made."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from anabranch.core.values import PassedOn


class Feature(enum.Enum):
    """Parts of the language that are converted when they are asked for.

    Attributes:
        ALL: all of them.
        AUTO_CONTROL_DEPS: what a function returns waits for the operations with effects that it made.
        ASSERT_STATEMENTS: `assert` on a tensor becomes `tf.Assert`.
        BUILTIN_FUNCTIONS: `print` of a tensor becomes `tf.print`.
        EQUALITY_OPERATORS: `==` and `!=` compare the values of tensors.
        LISTS: an empty list becomes a list of tensors that can grow in a loop.
        NAME_SCOPES: operations get the name of the function before their own.
    """

    ALL = "ALL"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"

    @classmethod
    def all(cls) -> tuple[Feature, ...]:
        """Every feature."""
        return tuple(cls)

    @classmethod
    def all_but(cls, exclude: Feature | list[Feature] | tuple[Feature, ...] | set[Feature]) -> tuple[Feature, ...]:
        """Every feature but some."""
        left_out = {exclude} if isinstance(exclude, Feature) else set(exclude)
        return tuple(set(cls) - left_out - {cls.ALL})


@dataclasses.dataclass(frozen=True)
class ConversionOptions:
    """How a function is converted. Its names are those that the package malt asks for, and that its output calls.

    Attributes:
        recursive: whether functions that it calls are converted, too.
        user_requested: whether the user named this function; then it is converted wherever it comes from.
        internal_convert_user_code: whether calls in it may be converted at all.
        optional_features: beyond conditionals, loops and logical operators.
    """

    recursive: bool = True
    user_requested: bool = False
    internal_convert_user_code: bool = True
    optional_features: Collection[Feature] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "optional_features", frozenset(self.optional_features))

    def uses(self, feature: enum.Enum) -> bool:
        """Whether an optional feature is on; features are known by their names."""
        names = {f.name for f in self.optional_features}
        return feature.name in names or Feature.ALL.name in names

    def call_options(self) -> ConversionOptions:
        """The options for the functions that it calls."""
        return ConversionOptions(self.recursive, False, self.recursive, self.optional_features)

    def to_ast(self) -> ast.expr:
        """An expression that makes these options in converted code."""
        features = "".join(f"ag__.{f}, " for f in sorted(self.optional_features, key=str))
        return ast.parse(
            f"ag__.ConversionOptions(recursive={self.recursive}, user_requested={self.user_requested}, "
            f"internal_convert_user_code={self.internal_convert_user_code}, "
            f"optional_features=({features}))",
            mode="eval",
        ).body


def features_of(given: PassedOn) -> frozenset[Feature]:
    """What users name: a feature, several, or None.

    Raises:
        TypeError: something else.
    """
    features = (given,) if isinstance(given, Feature) else given or ()
    if not all(isinstance(f, Feature) for f in features):
        raise TypeError(f"optional features are of tf.autograph.experimental.Feature, got {given!r}")
    return frozenset(features)


class ConversionStatus(enum.Enum):
    """Whether calls are converted."""

    UNSPECIFIED = "unspecified"
    ENABLED = "enabled"
    DISABLED = "disabled"


_STATUS: Final = contextvars.ContextVar("anabranch.autograph", default=ConversionStatus.UNSPECIFIED)


def status() -> ConversionStatus:
    """Whether calls are converted now."""
    return _STATUS.get()


@contextlib.contextmanager
def in_status(new: ConversionStatus) -> Iterator[None]:
    """A block whose calls are converted, or not."""
    token = _STATUS.set(new)
    try:
        yield
    finally:
        _STATUS.reset(token)


_MARK: Final = "autograph_info__"


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which no call converts: it was converted before, or is to be left alone."""
    setattr(function.__func__ if inspect.ismethod(function) else function, _MARK, {})
    return function


def is_marked(function: PassedOn) -> bool:
    """Whether `marked` was given it."""
    return hasattr(function, _MARK)


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does what `function` does, in whose calls nothing is converted."""

    @functools.wraps(function, updated=())
    def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
        with in_status(ConversionStatus.DISABLED):
            return function(*args, **kwargs)

    return marked(call)
