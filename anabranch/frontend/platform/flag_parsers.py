"""How the text of a command-line flag becomes a value, one class per type of value.

A parser accepts text and also values of its own type, because a flag's default goes through the same check as what
the user typed. It raises `ValueError` or `TypeError`; the flag turns these into an `IllegalFlagValueError`.
"""

from __future__ import annotations

import csv
import enum
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

#: A flag's value; its parser says of what type it is.
FlagValue: TypeAlias = Any


class ArgumentParser:
    """The parser of string flags, and the base class of all others.

    Attributes:
      syntactic_help: what the help says about acceptable values, such as "an integer".
    """

    syntactic_help: str = ""

    def parse(self, argument: Any) -> FlagValue:
        """The value that `argument` stands for. Raises ValueError or TypeError where there is none."""
        if not isinstance(argument, str):
            raise TypeError(f"expected a string, got {argument!r} of type {type(argument).__name__}")
        return argument

    def flag_type(self) -> str:
        """The name of the type, for listings."""
        return "string"

    def serialize(self, value: Any) -> str:
        """Text that `parse` turns back into `value`."""
        return str(value)


class ArgumentSerializer:
    """Writes a flag's value as text, for flags whose parser does not know how."""

    def serialize(self, value: Any) -> str:
        """The text of `value`."""
        return str(value)


class _NumericParser(ArgumentParser):
    """A number, possibly between bounds (inclusive)."""

    def __init__(self, lower_bound: float | None = None, upper_bound: float | None = None) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        article = "an" if self.flag_type() == "int" else "a"
        noun = "integer" if self.flag_type() == "int" else "number"
        self.syntactic_help = f"{article} {noun}{self._range()}"

    def _range(self) -> str:
        if self.lower_bound is not None and self.upper_bound is not None:
            return f" in the range [{self.lower_bound}, {self.upper_bound}]"
        if self.lower_bound is not None:
            return f" of at least {self.lower_bound}"
        if self.upper_bound is not None:
            return f" of at most {self.upper_bound}"
        return ""

    def parse(self, argument: Any) -> FlagValue:
        """The number. Raises TypeError for another type, ValueError for bad text or a number out of bounds."""
        value = self.convert(argument)
        below = self.lower_bound is not None and value < self.lower_bound
        above = self.upper_bound is not None and value > self.upper_bound
        if below or above:
            raise ValueError(f"{value} is not {self.syntactic_help}")
        return value

    def convert(self, argument: Any) -> FlagValue:
        """The number before bounds are checked."""
        raise NotImplementedError


class IntegerParser(_NumericParser):
    """An integer in decimal, `0x` hexadecimal or `0o` octal."""

    def flag_type(self) -> str:
        return "int"

    def convert(self, argument: Any) -> int:
        if isinstance(argument, bool) or not isinstance(argument, int | str):
            raise TypeError(f"expected an integer, got {argument!r} of type {type(argument).__name__}")
        if isinstance(argument, int):
            return argument
        bases = {"0x": 16, "0o": 8}
        return int(argument, bases.get(argument[:2].lower(), 10))


class FloatParser(_NumericParser):
    """A floating-point number; integers are converted."""

    def flag_type(self) -> str:
        return "float"

    def convert(self, argument: Any) -> float:
        if isinstance(argument, bool) or not isinstance(argument, float | int | str):
            raise TypeError(f"expected a number, got {argument!r} of type {type(argument).__name__}")
        return float(argument)


class BooleanParser(ArgumentParser):
    """true, t, 1, false, f or 0, in any case."""

    def parse(self, argument: Any) -> bool:
        """The truth value. Raises ValueError or TypeError for anything else, such as "yes" or 2."""
        if isinstance(argument, str):
            if argument.lower() in ("true", "t", "1"):
                return True
            if argument.lower() in ("false", "f", "0"):
                return False
            raise ValueError(f"expected true, t, 1, false, f or 0, got {argument!r}")
        if isinstance(argument, int) and argument in (0, 1):
            return bool(argument)
        raise TypeError(f"expected a boolean, got {argument!r} of type {type(argument).__name__}")

    def flag_type(self) -> str:
        return "bool"

    def serialize(self, value: Any) -> str:
        return "true" if value else "false"


class EnumParser(ArgumentParser):
    """One of a few strings."""

    def __init__(self, enum_values: Sequence[str], case_sensitive: bool = True) -> None:
        if not enum_values:
            raise ValueError("an enum flag needs at least one value; enum_values is empty")
        self.enum_values = list(enum_values)
        self.case_sensitive = case_sensitive
        self.syntactic_help = "<" + "|".join(self.enum_values) + ">"

    def parse(self, argument: Any) -> str:
        """The member of `enum_values`, in its spelling there. Raises ValueError for any other text."""
        for value in self.enum_values:
            if argument == value or (not self.case_sensitive and str(argument).lower() == value.lower()):
                return value
        raise ValueError(f"expected one of {self.syntactic_help}, got {argument!r}")

    def flag_type(self) -> str:
        return "string enum"


class EnumClassParser(ArgumentParser):
    """A member of an `enum.Enum`, by its name."""

    def __init__(self, enum_class: type[enum.Enum]) -> None:
        if not (isinstance(enum_class, type) and issubclass(enum_class, enum.Enum)):
            raise TypeError(f"expected a subclass of enum.Enum, got {enum_class!r}")
        if not len(enum_class):
            raise ValueError(f"an enum flag needs at least one value; {enum_class.__name__} has none")
        self.enum_class = enum_class
        self.syntactic_help = "<" + "|".join(member.name for member in enum_class) + ">"

    def parse(self, argument: Any) -> enum.Enum:
        """The member. Raises ValueError for a name that is none of its."""
        if isinstance(argument, self.enum_class):
            return argument
        if isinstance(argument, str) and argument in self.enum_class.__members__:
            return self.enum_class[argument]
        raise ValueError(f"expected one of {self.syntactic_help}, got {argument!r}")

    def flag_type(self) -> str:
        return "enum class"

    def serialize(self, value: Any) -> str:
        return str(value.name)


class BaseListParser(ArgumentParser):
    """Base class of the parsers of one argument that holds several strings; a list passes through as it is."""

    def parse(self, argument: Any) -> list[str]:
        """The strings, without the space around them; none for empty text.

        Raises TypeError for neither text nor list, ValueError for bad quoting.
        """
        if isinstance(argument, list):
            return argument
        if not isinstance(argument, str):
            raise TypeError(f"expected a list or a string, got {argument!r} of type {type(argument).__name__}")
        return self.split(argument) if argument else []

    def split(self, text: str) -> list[str]:
        """The parts of `text`, which is not empty."""
        raise NotImplementedError

    def flag_type(self) -> str:
        return "list of strings"


class ListParser(BaseListParser):
    """Strings separated by commas; one that holds a comma stands in double quotes, as in CSV."""

    syntactic_help = "a comma separated list"

    def split(self, text: str) -> list[str]:
        try:
            row = next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise ValueError(f"cannot read {text!r} as a comma separated list: {error}") from error
        return [part.strip() for part in row]

    def serialize(self, value: Any) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([str(part) for part in value])
        return out.getvalue()


class WhitespaceSeparatedListParser(BaseListParser):
    """Strings separated by white space and, with `comma_compat`, commas."""

    def __init__(self, comma_compat: bool = False) -> None:
        self.comma_compat = comma_compat
        self.syntactic_help = "a whitespace or comma separated list" if comma_compat else "a whitespace separated list"

    def split(self, text: str) -> list[str]:
        return (text.replace(",", " ") if self.comma_compat else text).split()

    def serialize(self, value: Any) -> str:
        return " ".join(str(part) for part in value)
