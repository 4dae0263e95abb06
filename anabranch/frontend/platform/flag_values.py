"""The flags of a program and their values: what `tf.flags.FLAGS` is an instance of.

A `FlagValues` keeps all its state in its `__dict__` under names that no flag can have (`__flags`, `__parsed`), because
its attributes are the flags. Programs read `FLAGS.__flags` and `FLAGS.__dict__["__flags"]`, so that name is public.

Parsing has two modes. `FLAGS(argv)` is strict: an unknown flag is an `UnrecognizedFlagError`. `tf.app.run` and the
first read of a flag that nobody has parsed yet are tolerant: they parse `sys.argv` and leave what they do not know in
the argument list, so that a program can have a parser of its own beside these flags.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from anabranch.frontend.platform.flag_parsers import ArgumentParser, ArgumentSerializer, FlagValue

_HELP_NAMES = frozenset({"help", "helpshort", "helpfull", "h", "?"})


class Error(Exception):
    """Base class of what goes wrong with flags."""


class DuplicateFlagError(Error):
    """Two flags were given one name."""


class FlagNameConflictsWithMethodError(Error):
    """A flag was given the name of a method of `FlagValues`, so that `FLAGS.name` could not reach it."""


class IllegalFlagValueError(Error):
    """A flag's value, from the command line or from a default, does not fit its type or a validator."""


class UnrecognizedFlagError(Error):
    """The command line holds a flag that nobody defined.

    Attributes:
      flagname: the flag's name, without dashes.
      flagvalue: the whole argument as it was typed.
    """

    def __init__(self, flagname: str, flagvalue: str = "", suggestions: Sequence[str] = ()) -> None:
        self.flagname = flagname
        self.flagvalue = flagvalue
        tip = f"; did you mean {' or '.join('--' + s for s in suggestions)}?" if suggestions else ""
        super().__init__(f"unknown command-line flag {flagname!r}{tip or '; --helpfull lists all flags'}")


class ValidationError(Error):
    """Raised by a validator's checker to say what is wrong, in place of returning False."""


class Flag:
    """One flag: its parser, default and value.

    Attributes:
      name, short_name: how it is written; `short_name` is None or one letter.
      default: the value before the command line is read. None means unset, whatever the type.
      value: the value now.
      present: how often it stood on the command line.
      using_default_value: whether nobody set it.
    """

    def __init__(
        self,
        parser: ArgumentParser,
        serializer: ArgumentSerializer | None,
        name: str,
        default: Any,
        help_string: str | None,
        short_name: str | None = None,
        boolean: bool = False,
        allow_override: bool = False,
    ) -> None:
        self.parser = parser
        self.serializer = serializer
        self.name = name
        self.help = help_string or "(no help available)"
        self.short_name = short_name
        self.boolean = boolean
        self.allow_override = allow_override
        self.present = 0
        self.using_default_value = True
        self.default = self._parse_default(default)
        self.value = self.default

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"<Flag --{self.name}={self.value!r}>"

    def _parse_default(self, default: Any) -> Any:
        return None if default is None else self._parse(default)

    def _parse(self, argument: Any) -> Any:
        try:
            return self.parser.parse(argument)
        except (TypeError, ValueError) as error:
            raise IllegalFlagValueError(f"flag --{self.name}={argument}: {error}") from error

    def parse(self, argument: Any) -> None:
        """Takes what the command line gave. Raises IllegalFlagValueError where it does not fit the type."""
        self.value = self._parse(argument)
        self.present += 1
        self.using_default_value = False

    def unparse(self) -> None:
        """Forgets the command line: back to the default."""
        self.value = self.default
        self.using_default_value = True
        self.present = 0

    def set_default(self, default: Any) -> None:
        """Replaces the default, and the value if nobody set that."""
        self.default = self._parse_default(default)
        if self.using_default_value:
            self.value = self.default

    def serialize(self) -> str:
        """The argument that sets the present value, such as "--name=3"; empty when the value is None."""
        if self.value is None:
            return ""
        if self.boolean:
            return f"--{self.name}" if self.value else f"--no{self.name}"
        return f"--{self.name}={self._text(self.value)}"

    def _text(self, value: Any) -> str:
        return (self.serializer or self.parser).serialize(value)

    def describe(self) -> str:
        """Its lines in the help."""
        short = f"-{self.short_name}," if self.short_name else ""
        negatable = "[no]" if self.boolean else ""
        lines = [f"  {short}--{negatable}{self.name}: {self.help}"]
        if self.default is not None:
            lines.append(f"    (default: {self._text(self.default)!r})")
        if self.parser.syntactic_help:
            lines.append(f"    ({self.parser.syntactic_help})")
        return "\n".join(lines)


class MultiFlag(Flag):
    """A flag that may be given several times; its value is a list, in the order of the command line."""

    def _parse(self, argument: Any) -> list[Any]:
        several = isinstance(argument, Iterable) and not isinstance(argument, str)
        parse_one = super()._parse
        return [parse_one(item) for item in argument] if several else [parse_one(argument)]

    def parse(self, argument: Any) -> None:
        earlier = list(self.value) if self.present else []
        super().parse(argument)
        self.value = earlier + self.value

    def serialize(self) -> str:
        return "\n".join(f"--{self.name}={super(MultiFlag, self)._text(item)}" for item in self.value or [])

    def _text(self, value: Any) -> str:
        return str([super(MultiFlag, self)._text(item) for item in value])


class Validator(NamedTuple):
    """A condition on some flags' values, checked after parsing and whenever one of the flags is set."""

    flag_names: tuple[str, ...]
    checker: Callable[[dict[str, Any]], bool]
    message: str


class FlagValues:
    """All flags of a program and their values: `FLAGS.name` reads one, `FLAGS.name = value` sets it.

    Reading a flag before anybody parsed the command line parses `sys.argv`, tolerantly. Setting a name that no flag
    has keeps it as a plain attribute, as early TensorFlow did. `FLAGS["name"]` is the `Flag` itself.
    Not thread-safe: flags are defined and parsed before threads start.
    """

    def __init__(self) -> None:
        state = self.__dict__
        state["__flags"] = {}
        state["__flags_by_module"] = {}
        state["__key_flags_by_module"] = {}
        state["__validators"] = []
        state["__parsed"] = False
        state["__gnu_getopt"] = True

    # -- as a mapping from name to Flag

    def _flags(self) -> dict[str, Flag]:
        flags: dict[str, Flag] = self.__dict__["__flags"]
        return flags

    def __getitem__(self, name: str) -> Flag:
        return self._flags()[name]

    def __setitem__(self, name: str, flag: Flag) -> None:
        self._register(flag, calling_module(), name)

    def __contains__(self, name: object) -> bool:
        return name in self._flags()

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags())

    def __len__(self) -> int:
        return len(self._flags())

    def __dir__(self) -> list[str]:
        return sorted(self._flags())

    # -- as an object whose attributes are the values

    def __getattr__(self, name: str) -> FlagValue:
        if "__flags" not in self.__dict__ or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # a copy under construction, or Python asking for a protocol
        if not self.is_parsed():
            self._parse_flags()
        try:
            return self._flags()[name].value
        except KeyError:
            raise AttributeError(f"no flag is named {name!r}; define it with a tf.flags.DEFINE function") from None

    def __setattr__(self, name: str, value: Any) -> None:
        flag = self._flags().get(name)
        if flag is None:
            self.__dict__[name] = value
            return
        flag.value = value
        flag.using_default_value = False
        self._validate(flag.name)

    def __delattr__(self, name: str) -> None:
        flag = self._flags().pop(name, None)
        if flag is None:
            if name not in self.__dict__:
                raise AttributeError(f"no flag is named {name!r}")
            del self.__dict__[name]
        elif all(other is not flag for other in self._flags().values()):
            for by_module in (self.__dict__["__flags_by_module"], self.__dict__["__key_flags_by_module"]):
                for flags in by_module.values():
                    flags[:] = [other for other in flags if other is not flag]

    # -- definitions

    def _register(self, flag: Flag, module: str, name: str | None = None) -> None:
        names = [name or flag.name] + ([flag.short_name] if flag.short_name and name is None else [])
        for each in names:
            self._check_name(each, flag, module)
        for each in names:
            self.__dict__.pop(each, None)
            self._flags()[each] = flag
        self.__dict__["__flags_by_module"].setdefault(module, []).append(flag)

    def _check_name(self, name: str, flag: Flag, module: str) -> None:
        if not name or any(c.isspace() or c == "=" for c in name) or name.startswith("-"):
            raise Error(f"{name!r} cannot name a flag: a name is not empty, has no spaces or '=' and no leading dash")
        if name in dir(type(self)):
            raise FlagNameConflictsWithMethodError(
                f"a flag cannot be named {name!r}, because FLAGS.{name} is a method; choose another name"
            )
        known = self._flags().get(name)
        if known is None or known is flag or known.allow_override or flag.allow_override:
            return
        raise DuplicateFlagError(
            f"the flag {name!r} is defined twice: first in {self.find_module_defining_flag(name)} "
            f"({known.help}), then in {module}; rename one, or delete the first with FLAGS.__delattr__({name!r})"
        )

    def _declare_key(self, module: str, flags: Iterable[Flag]) -> None:
        """Lists `flags`, which other modules define, among the key flags of `module`."""
        self.__dict__["__key_flags_by_module"].setdefault(module, []).extend(flags)

    def _add_validator(self, rule: Validator) -> None:
        """Adds a condition. Raises KeyError where it is about a flag that does not exist."""
        for name in rule.flag_names:
            if name not in self:
                raise KeyError(f"no flag is named {name!r}; define it before its validator")
        self.__dict__["__validators"].append(rule)

    def find_module_defining_flag(self, flagname: str, default: str | None = None) -> str | None:
        """The name of the module that defined the flag, or `default`. The main program is named by its path."""
        flag = self._flags().get(flagname)
        for module, flags in self.flags_by_module_dict().items():
            if any(other is flag for other in flags):
                return module
        return default

    def flags_by_module_dict(self) -> dict[str, list[Flag]]:
        """The flags that each module defines, by its name."""
        by_module: dict[str, list[Flag]] = self.__dict__["__flags_by_module"]
        return by_module

    def get_key_flags_for_module(self, module: str | ModuleType) -> list[Flag]:
        """The flags that `module` defines or declares as its own; --help lists those of the main program."""
        name = module if isinstance(module, str) else module_name_of(module.__name__)
        flags = list(self.flags_by_module_dict().get(name, []))
        for flag in self.__dict__["__key_flags_by_module"].get(name, []):
            if flag not in flags:
                flags.append(flag)
        return flags

    # -- parsing

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        """Parses a command line.

        Args:
          argv: the program's name and its arguments.
          known_only: leave unknown flags in the result instead of raising.

        Returns:
          The program's name, then the arguments that are no flags.

        Raises:
          UnrecognizedFlagError: an unknown flag, unless `known_only`.
          IllegalFlagValueError: a value does not fit its flag's type, or a validator rejects it.
          Error: a flag that needs a value stands last.
          TypeError, ValueError: `argv` is a string, or empty.
        """
        if isinstance(argv, str | bytes):
            raise TypeError(f"argv must be a list of strings, got the string {argv!r}; pass argv.split()")
        if not argv:
            raise ValueError("argv must hold at least the program's name, got an empty list; pass sys.argv")
        rest, unknown = self._scan(argv[1:], known_only)
        if unknown and not known_only:
            name, argument = unknown[0]
            raise UnrecognizedFlagError(name, argument, self._similar(name))
        self._finish_parsing()
        return [argv[0], *rest]

    def _parse_flags(self, args: Sequence[str] | None = None) -> list[str]:
        """Parses `args`, or `sys.argv` less the program's name, tolerantly; prints the help if asked.

        Returns:
          The arguments that are no flags, without the program's name.

        Raises:
          SystemExit: with status 1, after the help for --help, -h, --helpshort or --helpfull.
          IllegalFlagValueError, Error: as `__call__`.
        """
        rest, unknown = self._scan(sys.argv[1:] if args is None else args, known_only=True)
        asked = {argument.lstrip("-") for _, argument in unknown} & _HELP_NAMES
        if asked:
            self._print_help_and_exit(full="helpfull" in asked)
        self._finish_parsing()
        return rest

    def _finish_parsing(self) -> None:
        self.mark_as_parsed()
        self.validate_all_flags()

    def _scan(self, args: Iterable[str], known_only: bool) -> tuple[list[str], list[tuple[str, str]]]:
        """Sets the flags that stand in `args`.

        Returns:
          What is left, in order, and the unknown flags as (name, whole argument). With `known_only` the latter are
          among what is left.
        """
        rest: list[str] = []
        unknown: list[tuple[str, str]] = []
        pending = iter(args)
        for arg in pending:
            name = _flag_name(arg)
            if name and not self._set_from(name, arg, pending):
                unknown.append((name, arg))
                rest.extend([arg] if known_only else [])
            elif arg == "--":
                rest.extend([arg, *pending] if known_only else pending)
            elif not name:
                rest.extend([arg] if self.__dict__["__gnu_getopt"] else [arg, *pending])
        return rest, unknown

    def _set_from(self, name: str, arg: str, pending: Iterator[str]) -> bool:
        """Sets the flag that `arg` names, with the next argument where that is its value. False: unknown flag."""
        flag, implied = self._resolve(name)
        if flag is None:
            return False
        _, equals, value = arg.partition("=")
        if equals and implied == "false":
            raise IllegalFlagValueError(f"{arg}: --no{flag.name} takes no value; write --{flag.name}={value}")
        text = value if equals else implied if implied is not None else next(pending, None)
        if text is None:
            raise Error(f"flag --{flag.name} needs a value, but {arg} is the last argument; write {arg}=VALUE")
        flag.parse(text)
        return True

    def _resolve(self, name: str) -> tuple[Flag | None, str | None]:
        """The flag that `name` sets, and the value that the bare name implies (None: it takes an argument)."""
        flag = self._flags().get(name)
        if flag is not None:
            return flag, "true" if flag.boolean else None
        negated = self._flags().get(name[2:]) if name.startswith("no") else None
        return (negated, "false") if negated is not None and negated.boolean else (None, None)

    def _similar(self, name: str) -> list[str]:
        return difflib.get_close_matches(name.removeprefix("no"), list(self._flags()), n=2, cutoff=0.8)

    def is_parsed(self) -> bool:
        """Whether a command line was parsed."""
        parsed: bool = self.__dict__["__parsed"]
        return parsed

    def mark_as_parsed(self) -> None:
        """Makes reading a flag legal without a command line; every flag has its default."""
        self.__dict__["__parsed"] = True

    def unparse_flags(self) -> None:
        """Forgets the command line: every flag has its default, and the next read parses again."""
        for flag in self._flags().values():
            flag.unparse()
        self.__dict__["__parsed"] = False

    def set_gnu_getopt(self, gnu_getopt: bool = True) -> None:
        """With False, the first positional argument ends the flags."""
        self.__dict__["__gnu_getopt"] = gnu_getopt

    # -- values

    def flag_values_dict(self) -> dict[str, Any]:
        """Every flag's value, by name."""
        return {name: flag.value for name, flag in self._flags().items()}

    def get_flag_value(self, name: str, default: Any) -> FlagValue:
        """The flag's value, or `default` when it is None. Raises AttributeError for an unknown name."""
        value = getattr(self, name)
        return default if value is None else value

    def set_default(self, name: str, value: Any) -> None:
        """Replaces a flag's default. Raises KeyError for an unknown name, IllegalFlagValueError for a bad value."""
        self[name].set_default(value)
        self._validate(name)

    def validate_all_flags(self) -> None:
        """Runs every validator. Raises IllegalFlagValueError for the first that fails."""
        self._validate(None)

    def _validate(self, name: str | None) -> None:
        validators: list[Validator] = self.__dict__["__validators"]
        for rule in validators:
            if name is None or name in rule.flag_names:
                self._check(rule)

    def _check(self, rule: Validator) -> None:
        values = {name: self[name].value for name in rule.flag_names if name in self}
        if len(values) < len(rule.flag_names):
            return  # one of its flags was deleted
        shown = ", ".join(f"--{name}={value}" for name, value in values.items())
        try:
            message = "" if rule.checker(values) else rule.message
        except ValidationError as error:
            message = str(error) or rule.message
        if message:
            raise IllegalFlagValueError(f"flag{'s' if len(values) > 1 else ''} {shown}: {message}")

    def flags_into_string(self) -> str:
        """The arguments that set all flags to their present values, one on each line."""
        unique = {id(flag): flag for flag in self._flags().values()}.values()
        return "".join(f"{text}\n" for text in (flag.serialize() for flag in unique) if text)

    # -- help

    def get_help(self) -> str:
        """The description of all flags, by module, the main program's first."""
        modules = sorted(self.flags_by_module_dict(), key=lambda name: (name != program(), name))
        return "\n\n".join(self._module_help(name, self.flags_by_module_dict()[name]) for name in modules)

    def main_module_help(self) -> str:
        """The description of the main program's key flags."""
        return self._module_help(program(), self.get_key_flags_for_module(program()))

    def _module_help(self, module: str, flags: Sequence[Flag]) -> str:
        ordered = sorted(flags, key=lambda flag: flag.name)
        return "\n".join([f"{module}:", *(flag.describe() for flag in ordered)]) if ordered else ""

    def _print_help_and_exit(self, full: bool) -> NoReturn:
        text = self.get_help() if full else self.main_module_help() + "\n\nTry --helpfull to get a list of all flags."
        sys.stdout.write(f"{self._usage()}{text}\n")
        raise SystemExit(1)

    def _usage(self) -> str:
        doc = getattr(sys.modules.get("__main__"), "__doc__", None) or "USAGE: %s [flags]"
        return f"\n{doc.strip().replace('%s', program())}\n\nflags:\n"


_disclaimed: set[str] = {__name__}


def disclaim(module_name: str) -> None:
    """Makes the definitions that `module_name` issues count as its caller's."""
    _disclaimed.add(module_name)


def calling_module() -> str:
    """The name of the module that asked for a definition: the nearest caller that has not disclaimed."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name not in _disclaimed:
            return module_name_of(name)
        frame = frame.f_back
    return program()


def module_name_of(name: str) -> str:
    """How help and messages call the module: by its name, the main program by its path."""
    return program() if name == "__main__" else name


def program() -> str:
    """The path of the running program."""
    return sys.argv[0] if getattr(sys, "argv", None) else "program"


def _flag_name(arg: str) -> str:
    """The name in "--name", "-name" or "--name=value"; empty for a positional argument, "-" and "--"."""
    if not arg.startswith("-"):
        return ""
    return arg[2 if arg.startswith("--") else 1 :].partition("=")[0]
