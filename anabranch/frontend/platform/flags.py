"""Command-line flags: `tf.flags`, also reached as `tf.app.flags`.

A module defines the flags that it reads, where it reads them; the program parses the command line once:

    tf.flags.DEFINE_integer("steps", 100, "Steps to train.", lower_bound=1)
    FLAGS = tf.flags.FLAGS

    def main(argv):
        train(FLAGS.steps)

    if __name__ == "__main__":
        tf.app.run()

A value is written `--name=value` or `--name value`, with one dash or two; a boolean flag also `--name` and `--noname`;
`--` ends the flags. Positional arguments may stand between flags. What happens to unknown flags, `flag_values` tells.
"""

from __future__ import annotations

import enum
import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from anabranch.frontend.platform.flag_parsers import (
    ArgumentParser,
    ArgumentSerializer,
    BaseListParser,
    BooleanParser,
    EnumClassParser,
    EnumParser,
    FloatParser,
    IntegerParser,
    ListParser,
    WhitespaceSeparatedListParser,
)
from anabranch.frontend.platform.flag_values import (
    DuplicateFlagError,
    Error,
    Flag,
    FlagNameConflictsWithMethodError,
    FlagValues,
    IllegalFlagValueError,
    MultiFlag,
    UnrecognizedFlagError,
    ValidationError,
    Validator,
    calling_module,
    disclaim,
)

__all__ = [
    "DEFINE",
    "DEFINE_alias",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_enum_class",
    "DEFINE_flag",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_list",
    "DEFINE_multi",
    "DEFINE_multi_enum",
    "DEFINE_multi_enum_class",
    "DEFINE_multi_float",
    "DEFINE_multi_integer",
    "DEFINE_multi_string",
    "DEFINE_spaceseplist",
    "DEFINE_string",
    "FLAGS",
    "ArgumentParser",
    "ArgumentSerializer",
    "BaseListParser",
    "BooleanParser",
    "DuplicateFlagError",
    "EnumClassParser",
    "EnumParser",
    "Error",
    "Flag",
    "FlagNameConflictsWithMethodError",
    "FlagValues",
    "FloatParser",
    "IllegalFlagValueError",
    "IntegerParser",
    "ListParser",
    "MultiFlag",
    "UnrecognizedFlagError",
    "ValidationError",
    "WhitespaceSeparatedListParser",
    "adopt_module_key_flags",
    "declare_key_flag",
    "disclaim_key_flags",
    "mark_bool_flags_as_mutual_exclusive",
    "mark_flag_as_required",
    "mark_flags_as_mutual_exclusive",
    "mark_flags_as_required",
    "multi_flags_validator",
    "register_multi_flags_validator",
    "register_validator",
    "validator",
]

FLAGS = FlagValues()
disclaim(__name__)

_OLD_ARGUMENT_NAMES = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _accept_old_names(define: Callable[..., None]) -> Callable[..., None]:
    """Lets a DEFINE function take the argument names of early TensorFlow: flag_name, default_value, docstring."""

    @functools.wraps(define)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        define(*args, **{_OLD_ARGUMENT_NAMES.get(name, name): value for name, value in kwargs.items()})

    return wrapper


# -- definitions. Every one takes these arguments, beside its own:
#      name: how the flag is written. default: its value when not given; None means unset. help: one sentence.
#      flag_values: where to define it. module_name: the module it counts for; the caller's by default.
#      short_name: a one-letter alternative. allow_override: replace a flag of the same name.
#    They raise DuplicateFlagError, FlagNameConflictsWithMethodError, and IllegalFlagValueError for a bad default.


def DEFINE_flag(flag: Flag, flag_values: FlagValues = FLAGS, module_name: str | None = None) -> None:
    """Defines a flag from a `Flag` object."""
    flag_values._register(flag, module_name or calling_module())


def DEFINE(
    parser: ArgumentParser,
    name: str,
    default: Any,
    help: str | None,
    flag_values: FlagValues = FLAGS,
    serializer: ArgumentSerializer | None = None,
    module_name: str | None = None,
    **options: Any,
) -> None:
    """Defines a flag whose values `parser` reads."""
    DEFINE_flag(Flag(parser, serializer, name, default, help, **options), flag_values, module_name)


def DEFINE_multi(
    parser: ArgumentParser,
    serializer: ArgumentSerializer | None,
    name: str,
    default: Any,
    help: str | None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    **options: Any,
) -> None:
    """Defines a flag that may be given several times; its value is the list of what `parser` read."""
    DEFINE_flag(MultiFlag(parser, serializer, name, default, help, **options), flag_values, module_name)


@_accept_old_names
def DEFINE_string(
    name: str, default: str | None, help: str | None, flag_values: FlagValues = FLAGS, **options: Any
) -> None:
    """Defines a flag whose value is any string."""
    DEFINE(ArgumentParser(), name, default, help, flag_values, **options)


@_accept_old_names
def DEFINE_boolean(
    name: str,
    default: bool | str | int | None,
    help: str | None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    **options: Any,
) -> None:
    """Defines a flag that is true or false: `--name`, `--noname`, `--name=true`, `--name=false`."""
    DEFINE(BooleanParser(), name, default, help, flag_values, None, module_name, boolean=True, **options)


DEFINE_bool = DEFINE_boolean


@_accept_old_names
def DEFINE_float(
    name: str,
    default: float | str | None,
    help: str | None,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    flag_values: FlagValues = FLAGS,
    **options: Any,
) -> None:
    """Defines a flag whose value is a number between the bounds (inclusive)."""
    DEFINE(FloatParser(lower_bound, upper_bound), name, default, help, flag_values, **options)


@_accept_old_names
def DEFINE_integer(
    name: str,
    default: int | str | None,
    help: str | None,
    lower_bound: int | None = None,
    upper_bound: int | None = None,
    flag_values: FlagValues = FLAGS,
    **options: Any,
) -> None:
    """Defines a flag whose value is an integer between the bounds (inclusive)."""
    DEFINE(IntegerParser(lower_bound, upper_bound), name, default, help, flag_values, **options)


def DEFINE_enum(
    name: str,
    default: str | None,
    enum_values: Sequence[str],
    help: str | None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    case_sensitive: bool = True,
    **options: Any,
) -> None:
    """Defines a flag whose value is one of `enum_values`."""
    parser = EnumParser(enum_values, case_sensitive)
    DEFINE(parser, name, default, help, flag_values, None, module_name, **options)


def DEFINE_enum_class(
    name: str,
    default: enum.Enum | str | None,
    enum_class: type[enum.Enum],
    help: str | None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    **options: Any,
) -> None:
    """Defines a flag whose value is a member of `enum_class`, written as the member's name."""
    DEFINE(EnumClassParser(enum_class), name, default, help, flag_values, None, module_name, **options)


def DEFINE_list(
    name: str, default: list[str] | str | None, help: str | None, flag_values: FlagValues = FLAGS, **options: Any
) -> None:
    """Defines a flag whose value is a list of strings, written with commas between them."""
    DEFINE(ListParser(), name, default, help, flag_values, **options)


def DEFINE_spaceseplist(
    name: str,
    default: list[str] | str | None,
    help: str | None,
    comma_compat: bool = False,
    flag_values: FlagValues = FLAGS,
    **options: Any,
) -> None:
    """Defines a flag whose value is a list of strings, written with spaces (or commas, `comma_compat`) between them."""
    DEFINE(WhitespaceSeparatedListParser(comma_compat), name, default, help, flag_values, **options)


def DEFINE_multi_string(
    name: str, default: Iterable[str] | str | None, help: str | None, flag_values: FlagValues = FLAGS, **options: Any
) -> None:
    """Defines a flag whose value is a list of strings, one from each time that it is given."""
    DEFINE_multi(ArgumentParser(), None, name, default, help, flag_values, **options)


def DEFINE_multi_integer(
    name: str,
    default: Iterable[int] | int | str | None,
    help: str | None,
    lower_bound: int | None = None,
    upper_bound: int | None = None,
    flag_values: FlagValues = FLAGS,
    **options: Any,
) -> None:
    """Defines a flag whose value is a list of integers, one from each time that it is given."""
    DEFINE_multi(IntegerParser(lower_bound, upper_bound), None, name, default, help, flag_values, **options)


def DEFINE_multi_float(
    name: str,
    default: Iterable[float] | float | str | None,
    help: str | None,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    flag_values: FlagValues = FLAGS,
    **options: Any,
) -> None:
    """Defines a flag whose value is a list of numbers, one from each time that it is given."""
    DEFINE_multi(FloatParser(lower_bound, upper_bound), None, name, default, help, flag_values, **options)


def DEFINE_multi_enum(
    name: str,
    default: Iterable[str] | str | None,
    enum_values: Sequence[str],
    help: str | None,
    flag_values: FlagValues = FLAGS,
    case_sensitive: bool = True,
    **options: Any,
) -> None:
    """Defines a flag whose value is a list of members of `enum_values`, one from each time that it is given."""
    DEFINE_multi(EnumParser(enum_values, case_sensitive), None, name, default, help, flag_values, **options)


def DEFINE_multi_enum_class(
    name: str,
    default: Iterable[enum.Enum] | enum.Enum | str | None,
    enum_class: type[enum.Enum],
    help: str | None,
    flag_values: FlagValues = FLAGS,
    module_name: str | None = None,
    **options: Any,
) -> None:
    """Defines a flag whose value is a list of members of `enum_class`, one from each time that it is given."""
    # A whole Enum class iterates over its members, so it may be a default too.
    DEFINE_multi(EnumClassParser(enum_class), None, name, default, help, flag_values, module_name, **options)


class _AliasFlag(Flag):
    """A second name of a flag: reading and setting it reads and sets the other."""

    def __init__(self, name: str, original: Flag) -> None:
        self.original = original
        present_value = original.value
        help_string = f"Alias for --{original.name}."
        super().__init__(original.parser, original.serializer, name, None, help_string, boolean=original.boolean)
        original.value = present_value  # the base class has just set it to this flag's default

    @property
    def value(self) -> Any:
        """The value of the flag that this one is another name of."""
        return self.original.value

    @value.setter
    def value(self, value: Any) -> None:
        self.original.value = value

    def parse(self, argument: Any) -> None:
        self.original.parse(argument)
        self.present += 1
        self.using_default_value = False

    def unparse(self) -> None:
        self.original.unparse()
        self.present = 0
        self.using_default_value = True

    def set_default(self, default: Any) -> None:
        self.original.set_default(default)

    def serialize(self) -> str:
        return ""  # the original is in the listing already


def DEFINE_alias(
    name: str, original_name: str, flag_values: FlagValues = FLAGS, module_name: str | None = None
) -> None:
    """Defines another name for an existing flag. Raises UnrecognizedFlagError where there is none."""
    if original_name not in flag_values:
        raise UnrecognizedFlagError(original_name)
    DEFINE_flag(_AliasFlag(name, flag_values[original_name]), flag_values, module_name)


# -- validators: conditions on values, checked after parsing and whenever a flag concerned is set


def register_validator(
    flag_name: str,
    checker: Callable[[Any], bool],
    message: str = "Flag validation failed",
    flag_values: FlagValues = FLAGS,
) -> None:
    """Rejects values of a flag.

    Args:
      flag_name: the flag.
      checker: takes the value; returns whether it is good, or raises `ValidationError` to say what is wrong.
      message: what the IllegalFlagValueError says when `checker` returns False.
      flag_values: where the flag is defined.

    Raises:
      KeyError: there is no such flag.
    """
    rule = Validator((flag_name,), lambda values: checker(values[flag_name]), message)
    flag_values._add_validator(rule)


def validator(
    flag_name: str, message: str = "Flag validation failed", flag_values: FlagValues = FLAGS
) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    """`register_validator` as a decorator of the checker."""

    def register(checker: Callable[[Any], bool]) -> Callable[[Any], bool]:
        register_validator(flag_name, checker, message, flag_values)
        return checker

    return register


def register_multi_flags_validator(
    flag_names: Iterable[str],
    multi_flags_checker: Callable[[dict[str, Any]], bool],
    message: str = "Flags validation failed",
    flag_values: FlagValues = FLAGS,
) -> None:
    """As `register_validator`, of several flags together; the checker takes a dict of their values by name."""
    flag_values._add_validator(Validator(tuple(flag_names), multi_flags_checker, message))


def multi_flags_validator(
    flag_names: Iterable[str], message: str = "Flag validation failed", flag_values: FlagValues = FLAGS
) -> Callable[[Callable[[dict[str, Any]], bool]], Callable[[dict[str, Any]], bool]]:
    """`register_multi_flags_validator` as a decorator of the checker."""

    def register(checker: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], bool]:
        register_multi_flags_validator(flag_names, checker, message, flag_values)
        return checker

    return register


def mark_flag_as_required(flag_name: str, flag_values: FlagValues = FLAGS) -> None:
    """Rejects a command line after which the flag is None. Raises KeyError where there is no such flag."""
    if flag_name in flag_values and flag_values[flag_name].default is not None:
        warnings.warn(
            f"flag --{flag_name} is marked as required but has the default {flag_values[flag_name].default!r}, "
            "so it passes without being given; make its default None",
            stacklevel=2,
        )
    register_validator(
        flag_name,
        lambda value: value is not None,
        f"Flag --{flag_name} must have a value other than None; add --{flag_name}=VALUE to the command line.",
        flag_values,
    )


def mark_flags_as_required(flag_names: Iterable[str], flag_values: FlagValues = FLAGS) -> None:
    """`mark_flag_as_required` for each name."""
    for flag_name in flag_names:
        mark_flag_as_required(flag_name, flag_values)


def _allow_only_one(
    flag_names: Sequence[str], required: bool, flag_values: FlagValues, is_set: Callable[[Any], bool], wanted: str
) -> None:
    def checker(values: dict[str, Any]) -> bool:
        count = sum(is_set(value) for value in values.values())
        if count == 1 or (count == 0 and not required):
            return True
        how_many = "Exactly" if required else "At most"
        raise ValidationError(f"{how_many} one of ({', '.join(flag_names)}) must {wanted}; {count} do.")

    register_multi_flags_validator(flag_names, checker, flag_values=flag_values)


def mark_flags_as_mutual_exclusive(
    flag_names: Sequence[str], required: bool = False, flag_values: FlagValues = FLAGS
) -> None:
    """Rejects a command line after which more than one (`required`: not exactly one) of the flags is not None."""
    _allow_only_one(flag_names, required, flag_values, lambda value: value is not None, "have a value other than None")


def mark_bool_flags_as_mutual_exclusive(
    flag_names: Sequence[str], required: bool = False, flag_values: FlagValues = FLAGS
) -> None:
    """Rejects a command line after which more than one (`required`: not exactly one) of the boolean flags is true.

    Raises ValidationError when it is called, for a flag that is not boolean.
    """
    for name in flag_names:
        if not flag_values[name].boolean:
            raise ValidationError(f"flag --{name} is not boolean; use mark_flags_as_mutual_exclusive")
    _allow_only_one(flag_names, required, flag_values, bool, "be true")


# -- key flags: those that --help lists for a program, which are the main module's own unless it says more


def declare_key_flag(flag_name: str, flag_values: FlagValues = FLAGS) -> None:
    """Lists another module's flag among the caller's. Raises KeyError where there is no such flag."""
    flag_values._declare_key(calling_module(), [flag_values[flag_name]])


def adopt_module_key_flags(module: ModuleType, flag_values: FlagValues = FLAGS) -> None:
    """Lists the key flags of `module` among the caller's."""
    if not isinstance(module, ModuleType):
        raise Error(f"expected a module, got {module!r} of type {type(module).__name__}; pass the imported module")
    flag_values._declare_key(calling_module(), flag_values.get_key_flags_for_module(module))


def disclaim_key_flags() -> None:
    """Makes the flags that the calling module defines count as those of whoever calls it."""
    disclaim(calling_module())
