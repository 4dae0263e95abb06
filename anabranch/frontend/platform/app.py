"""`tf.app`: the entry point of a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from anabranch.frontend.platform import flags

__all__ = ["flags", "run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> NoReturn:
    """Parses the flags, calls `main` with what is left of the command line, and exits with what it returns.

    Args:
        main: takes the program's name followed by the arguments that are no known flags, unknown flags among them. None
            means the function `main` of the main module.
        argv: the program's name and its arguments; None or empty means `sys.argv`.

    Returns:
        Nothing: the process exits.

    Raises:
        SystemExit: always, unless `main` raises: with the value that `main` returned, or with status 1 after the help
            or after a message about a bad flag.
        AttributeError: `main` is None and the main module has no function `main`.

    Example:
        >>> try:
        ...     tf.app.run(lambda argv: print("arguments:", argv[1:]), ["program", "input.txt"])
        ... except SystemExit:
        ...     print("done")
        arguments: ['input.txt']
        done
    """
    command_line = list(argv or sys.argv)
    main = main or _main_of_program()
    sys.exit(main(_parse(command_line)))


def _main_of_program() -> Callable[[list[str]], Any]:
    main: Callable[[list[str]], Any] | None = getattr(sys.modules["__main__"], "main", None)
    if main is None:
        raise AttributeError("the main module defines no function main(argv); define it, or call tf.app.run(main=...)")
    return main


def _parse(command_line: list[str]) -> list[str]:
    try:
        rest = flags.FLAGS._parse_flags(command_line[1:])
    except flags.Error as error:
        sys.stderr.write(f"FATAL Flags parsing error:\n  {error}\nPass --help or --helpfull to see the flags.\n")
        sys.exit(1)
    return _parse_absl_flags([*command_line[:1], *rest])


def _parse_absl_flags(command_line: list[str]) -> list[str]:
    """Parses the flags that the program defined with absl itself, which TensorFlow shares, if it imported that."""
    absl_flags: Any = sys.modules.get("absl.flags")
    if absl_flags is None:
        return command_line
    rest: list[str] = absl_flags.FLAGS(command_line, known_only=True)
    return rest
