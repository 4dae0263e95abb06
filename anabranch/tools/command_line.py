"""The command `anabranch`.

Every module of this package that has a function `main` is a subcommand: it is named after the module, described by the
first line of the module's docstring, and called with the arguments that follow the name. What `main` returns is the
exit status (None: 0).
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Final, NoReturn

from anabranch import tools
from anabranch.errors import OpError

_USAGE_ERROR: Final = 2
_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141


def commands() -> dict[str, ModuleType]:
    """The subcommands by name."""
    found = {name: _command(name) for name in _names()}
    return {name: module for name, module in found.items() if module is not None}


def _names() -> set[str]:
    """What a subcommand may be called; each is looked for in one module."""
    own = __name__.rpartition(".")[2]
    return {module.name.replace("_", "-") for module in pkgutil.iter_modules(tools.__path__) if module.name != own}


def _command(name: str) -> ModuleType | None:
    """The subcommand of this name (of `_names`); None if its module is no command."""
    module = importlib.import_module(f"{tools.__name__}.{name.replace('-', '_')}")
    return module if hasattr(module, "main") else None


def summary_of(module: ModuleType) -> str:
    """The first line of a module's docstring, as one line of a list."""
    lines = (module.__doc__ or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # one command does not wait for what the others import
    if words and words[0] in _names() and (module := _command(words[0])) is not None:
        return _guarded(module.main, words[1:])
    modules = commands()
    parser = _parser(modules)
    if words and words[0].startswith("-"):
        parser.parse_args(words[:1])
    if words:
        _refuse(parser, words[0], modules)
    parser.print_help()
    return _USAGE_ERROR


def _refuse(parser: argparse.ArgumentParser, name: str, known: Iterable[str]) -> NoReturn:
    """Ends the process: there is no such command."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    parser.error(f"there is no command {name!r}{hint}")


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    width = max(len(name) for name in modules)
    listed = "\n".join(f"  {name:{width}}  {summary_of(module)}" for name, module in sorted(modules.items()))
    parser = argparse.ArgumentParser(
        prog="anabranch",
        description="TensorFlow's graph system on XLA.",
        epilog=f"commands:\n{listed}\n\n`anabranch COMMAND --help` tells more about one of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = "version" in modules
    parser.add_argument("--version", action="version", version=modules["version"].line() if version else "")
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="what to do")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _guarded(run: Callable[[list[str]], int | None], arguments: list[str]) -> int:
    """Runs a command; what a user can put right is one line, not a traceback."""
    try:
        status = run(arguments) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # whoever read the output has gone; keep the interpreter from complaining about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OpError as error:
        print(f"anabranch: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"anabranch: {error}", file=sys.stderr)
        return 1
