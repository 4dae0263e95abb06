"""`tf.app`: the entry point of a program."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import absl.app
import absl.flags

from anabranch.frontend.platform import flags


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> NoReturn:
    """Parses the flags, calls `main` with what is left of the command line, and exits with what it returns.

    It is `absl.app.run`, except that flags that nobody defined are left to `main`. So absl's own flags work, such as
    `--help` and `--pdb_post_mortem`, and absl's handler prints the messages of Python's loggers.

    Args:
        main: takes the program's name followed by the arguments that are no known flags, unknown flags among them. None
            means the function `main` of the main module.
        argv: the program's name and its arguments; None means `sys.argv`.

    Returns:
        Nothing: the process exits.

    Raises:
        SystemExit: always, unless `main` raises: with the value that `main` returned, or with status 1 after the help
            or after a message about a bad flag.
        AttributeError: `main` is None and the main module has no function `main`.

    Example:
        >>> def main(argv):
        ...     print("arguments:", argv[1:])
        >>> if __name__ == "__main__":
        ...     tf.app.run(main)
    """
    log_of_jax = logging.getLogger("jax")
    if log_of_jax.level == logging.NOTSET:
        log_of_jax.setLevel(logging.WARNING)  # absl prints what comes from INFO up, of all loggers
    absl.app.run(main or _main_of_program(), None if argv is None else list(argv), flags_parser=_parse)


def _main_of_program() -> Callable[[list[str]], Any]:
    main: Callable[[list[str]], Any] | None = getattr(sys.modules["__main__"], "main", None)
    if main is None:
        raise AttributeError("the main module defines no function main(argv); define it, or call tf.app.run(main=...)")
    return main


def _parse(command_line: Sequence[str]) -> list[str]:
    try:
        return flags.FLAGS(command_line, known_only=True)
    except absl.flags.Error as error:
        sys.stderr.write(f"FATAL Flags parsing error:\n  {error}\nPass --help or --helpfull to see the flags.\n")
        sys.exit(1)
