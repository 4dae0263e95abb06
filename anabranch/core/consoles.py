"""Where tables for people are printed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: of a file or a pipe, whose width nobody knows: room for tables of operations' names
_WIDTH_OF_FILES = 120


def table_console(stderr: bool = False) -> Console:
    """The standard output (or error) stream: as wide as the terminal, or as COLUMNS says, or else wide enough."""
    from rich.console import Console  # time that only those who print tables should pay

    console = Console(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, width=_WIDTH_OF_FILES)
    return console
