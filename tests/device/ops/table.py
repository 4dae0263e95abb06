"""The op table: all rows of the `cases_*.py` beside this file."""

from __future__ import annotations

import importlib
from pathlib import Path

from anabranch.testing.op_cases import OpCase


def table_rows() -> list[OpCase]:
    """The rows, in the order of the files' names."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
    return [row for name in names for row in importlib.import_module(f"tests.device.ops.{name}").CASES]
