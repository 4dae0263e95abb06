"""Every row of the op table (`cases_*.py` beside this file), checked against NumPy and numeric gradients.

The first row of each operation is compiled as users' programs are; the others quickly, in a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from anabranch.testing.op_cases import (
    OpCase,
    can_stand_beside_constants,
    check_beside_constants,
    check_case,
    check_gradient,
    flat_arrays,
    input_arrays,
    op_function,
    wants_gradient,
)
from tests.device.ops.table import table_rows


def one_for_each_signature(rows: Iterable[OpCase]) -> list[OpCase]:
    """The first row of those that have an operation and the dtypes of its inputs in common."""
    first: dict[object, OpCase] = {}
    for row in rows:
        inputs = input_arrays(op_function(row.op), row.inputs)
        first.setdefault((row.op, *(v.dtype for v in flat_arrays(inputs))), row)
    return list(first.values())


FIRST = {id(row) for row in {row.op: row for row in reversed(table_rows())}.values()}


@pytest.mark.parametrize("case", table_rows(), ids=str)
def test_row(case: OpCase, request: pytest.FixtureRequest) -> None:
    is_first = id(case) in FIRST
    if not is_first:
        request.getfixturevalue("compiled_quickly")
    check_case(case, quickly=not is_first)


@pytest.mark.parametrize("case", one_for_each_signature(filter(can_stand_beside_constants, table_rows())), ids=str)
@pytest.mark.usefixtures("compiled_quickly")
def test_row_beside_constants(case: OpCase) -> None:
    check_beside_constants(case)


@pytest.mark.parametrize("case", [row for row in table_rows() if wants_gradient(row)], ids=str)
@pytest.mark.usefixtures("compiled_quickly")
def test_gradient(case: OpCase) -> None:
    check_gradient(case)
