"""Every row of the op table (`cases_*.py` beside this file), checked against NumPy and numeric gradients.

The first row of each operation is compiled as users' programs are; the others quickly, in a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest

from anabranch.testing.op_case_gradients import run_gradients, wants_gradient
from anabranch.testing.op_cases import (
    OpCase,
    can_stand_beside_constants,
    check_beside_constants,
    check_error,
    check_row,
    flat_arrays,
    input_arrays,
    op_function,
    run_beside_constants,
    run_rows,
)
from tests.device.ops.table import table_rows
from tests.device.ops.table_groups import Groups


def one_for_each_signature(rows: Iterable[OpCase]) -> list[OpCase]:
    """The first row of those that have an operation and the dtypes of its inputs in common."""
    first: dict[object, OpCase] = {}
    for row in rows:
        inputs = input_arrays(op_function(row.op), row.inputs)
        first.setdefault((row.op, *(v.dtype for v in flat_arrays(inputs))), row)
    return list(first.values())


SOUND = [row for row in table_rows() if row.error is None]
FIRST = {id(row) for row in {row.op: row for row in reversed(SOUND)}.values()}
FIRST_ROWS = Groups([row for row in SOUND if id(row) in FIRST], run_rows)
OTHER_ROWS = Groups([row for row in SOUND if id(row) not in FIRST], partial(run_rows, quickly=True))
BESIDE_CONSTANTS = one_for_each_signature(filter(can_stand_beside_constants, table_rows()))
BESIDE_CONSTANTS_ROWS = Groups(BESIDE_CONSTANTS, run_beside_constants)
WITH_GRADIENT = [row for row in table_rows() if wants_gradient(row)]
GRADIENTS = Groups(WITH_GRADIENT, run_gradients)


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_row(case: OpCase, request: pytest.FixtureRequest) -> None:
    if id(case) in FIRST:
        check_row(case, FIRST_ROWS.result(case))
    else:
        request.getfixturevalue("compiled_quickly")
        check_row(case, OTHER_ROWS.result(case))


@pytest.mark.parametrize("case", [row for row in table_rows() if row.error is not None], ids=str)
@pytest.mark.usefixtures("compiled_quickly")
def test_error(case: OpCase) -> None:
    check_error(case)


@pytest.mark.parametrize("case", BESIDE_CONSTANTS, ids=str)
@pytest.mark.usefixtures("compiled_quickly")
def test_row_beside_constants(case: OpCase) -> None:
    check_beside_constants(case, BESIDE_CONSTANTS_ROWS.result(case))


@pytest.mark.parametrize("case", WITH_GRADIENT, ids=str)
@pytest.mark.usefixtures("compiled_quickly")
def test_gradient(case: OpCase) -> None:
    GRADIENTS.result(case).check()
