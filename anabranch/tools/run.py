"""Run a TensorFlow 1 program: `import tensorflow` means anabranch in it.

The program is any script or module; it sees the same `sys.argv`, `sys.path` and `__main__` as under `python`.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import logging
from collections.abc import Iterator, Sequence

from anabranch.frontend.variables import initializers
from anabranch.tools import old_names, tensorflow_alias
from anabranch.tools.for_children import let_children_import_tensorflow
from anabranch.tools.program import run_module, run_script


def main(arguments: Sequence[str]) -> int:
    """`anabranch run script.py args...`"""
    parser = program_parser("anabranch run", "Runs a TensorFlow 1 program on anabranch.")
    parser.add_argument(
        "--no-old-names",
        action="store_true",
        help="leave out what Python and NumPy have removed since (np.int, collections.Mapping, "
        "inspect.getargspec, ...), which is otherwise restored in the program's process",
    )
    options, program = parse_program(parser, arguments)
    if options.no_old_names:
        return run_program(parser, program)
    forget = old_names.restore()
    try:
        return run_program(parser, program)
    finally:
        forget()


def program_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser for the options that stand before a program."""
    return argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [option ...] [--] script.py [argument ...]\n"
        f"       {prog} [option ...] [--] -m module [argument ...]",
        description=f"{description} In it, `import tensorflow` and its public submodules mean anabranch.",
    )


def parse_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Splits a command line: the options before the program, and the program with its arguments.

    Ends the process with a message when no program is named.
    """
    words = list(arguments)
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        at += 1
    options = parser.parse_args(words[:at])
    program = words[at:]
    if program[:1] == ["--"]:
        del program[0]
    if not program or program == ["-m"]:
        parser.error("which program? Name a script, or a module after -m")
    return options, program


def run_program(parser: argparse.ArgumentParser, program: list[str]) -> int:
    """Runs a script, or a module after ``-m``, with the module `tensorflow` aliased; returns the exit status.

    Python processes that the program starts know the alias too.
    """
    tensorflow_alias.install()
    _quiet_jax()
    let_children_import_tensorflow()
    with _initializers_of_tensorflow():
        if program[0] == "-m":
            return run_module(program[1], program[2:])
        try:
            return run_script(program[0], program[1:])
        except OSError as error:
            parser.error(f"can't open file {program[0]!r}: {error.strerror}")


@contextlib.contextmanager
def _initializers_of_tensorflow() -> Iterator[None]:
    """A block in which the classes of initializers say that they are TensorFlow's: programs know them by that."""
    home = initializers.Initializer.__module__
    classes = [cls for cls in vars(initializers).values() if inspect.isclass(cls) and cls.__module__ == home]
    for cls in classes:
        cls.__module__ = "tensorflow.python.ops.init_ops"
    try:
        yield
    finally:
        for cls in classes:
            cls.__module__ = home


def _quiet_jax() -> None:
    """Keeps JAX's reports of each compilation from a program that logs everything from DEBUG up.

    The program does not know of JAX, which is beneath the session here.
    """
    log = logging.getLogger("jax")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)
