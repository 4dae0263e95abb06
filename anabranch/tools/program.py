"""Runs another program in this process, as `python script.py` and `python -m module` would."""

from __future__ import annotations

import importlib.machinery
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType

_MAIN = "__main__"
_INTERRUPTED = 130
#: the frames between a command and the program that it runs
_OUTSIDE = frozenset(
    (
        __file__,
        runpy.__file__,
        "<frozen runpy>",
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
    )
)


class _ScriptLoader(importlib.machinery.SourceFileLoader):
    """Reads a script without leaving compiled code beside it."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def run_script(path: str, arguments: Sequence[str]) -> int:
    """Runs a script as `__main__`, with its folder first in `sys.path`; returns the exit status.

    An exception of the script is reported as the interpreter does. SystemExit is passed on.

    Raises:
        OSError: there is no such script.
    """
    with open(path, "rb"):
        pass
    sys.argv[:] = [path, *arguments]
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    module = ModuleType(_MAIN)
    loader = _ScriptLoader(_MAIN, path)
    vars(module).update(__file__=path, __loader__=loader, __builtins__=__builtins__, __cached__=None, __spec__=None)
    # it stays: functions that the interpreter calls at exit, and threads, look for it
    sys.modules[_MAIN] = module
    return _reported(lambda: loader.exec_module(module))


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Runs a module as `__main__`, with the current folder first in `sys.path`; returns the exit status.

    Raises:
        ImportError: there is no such module.
    """
    sys.argv[:] = [name, *arguments]
    _set_first_path(os.getcwd())

    def run() -> None:
        runpy.run_module(name, run_name=_MAIN, alter_sys=True)

    return _reported(run)


def _set_first_path(folder: str) -> None:
    """Replaces the folder of the command by that of the program."""
    if not sys.flags.safe_path:
        sys.path[0:1] = [folder]


def _reported(run: Callable[[], None]) -> int:
    try:
        run()
    except (Exception, KeyboardInterrupt) as error:
        trace = _program_frames(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback that begins in the program, as the interpreter's own does; None where the program never began."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OUTSIDE:
        trace = trace.tb_next
    return trace
