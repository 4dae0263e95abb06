"""Where in the user's code an operation was created."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class CreationSite(NamedTuple):
    """A line of user code; prints as ``file:line``."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


def user_frame() -> CreationSite:
    """The innermost caller outside this package (the outermost caller where there is none).

    Frames are only looked at, never kept: a graph must not hold its builders' local variables alive.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    return CreationSite(code.co_filename, frame.f_lineno, code.co_name)
