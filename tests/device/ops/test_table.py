"""Every row of the op table (`cases_*.py` beside this file), checked against NumPy and numeric gradients."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from anabranch.testing.op_cases import OpCase, check_case


def _rows() -> list[OpCase]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
    return [case for name in names for case in importlib.import_module(f"tests.device.ops.{name}").CASES]


ROWS = _rows()


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_row(case: OpCase) -> None:
    check_case(case)
