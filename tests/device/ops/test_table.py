"""Every row of the op table (`cases_*.py` beside this file), checked against NumPy and numeric gradients."""

from __future__ import annotations

import pytest

from anabranch.testing.op_cases import OpCase, check_case
from tests.device.ops.table import table_rows


@pytest.mark.parametrize("case", table_rows(), ids=str)
def test_row(case: OpCase) -> None:
    check_case(case)
