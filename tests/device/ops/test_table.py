"""Every row of the op table (`cases_*.py` beside this file), checked against NumPy and numeric gradients.

The first row of each operation is compiled as users' programs are; the others quickly, in a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

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
from tests.each_case import check_each


def one_for_each_signature(rows: Iterable[OpCase]) -> list[OpCase]:
    """The first row of those that have an operation and the dtypes of its inputs in common."""
    first: dict[object, OpCase] = {}
    for row in rows:
        inputs = input_arrays(op_function(row.op), row.inputs)
        first.setdefault((row.op, *(v.dtype for v in flat_arrays(inputs))), row)
    return list(first.values())


def by_operation(rows: Iterable[OpCase]) -> Any:
    """Marks a test that is given all of an operation's rows at once."""
    found: dict[str, list[OpCase]] = {}
    for row in rows:
        found.setdefault(row.op, []).append(row)
    return pytest.mark.parametrize("rows", list(found.values()), ids=list(found))


SOUND = [row for row in table_rows() if row.error is None]
FIRST = list({row.op: row for row in reversed(SOUND)}.values())[::-1]
_ARE_FIRST = set(map(id, FIRST))
OTHERS = [row for row in SOUND if id(row) not in _ARE_FIRST]
FIRST_ROWS = Groups(FIRST, run_rows)
OTHER_ROWS = Groups(OTHERS, partial(run_rows, quickly=True))
BESIDE_CONSTANTS = one_for_each_signature(filter(can_stand_beside_constants, table_rows()))
BESIDE_CONSTANTS_ROWS = Groups(BESIDE_CONSTANTS, run_beside_constants)
WITH_GRADIENT = [row for row in table_rows() if wants_gradient(row)]
GRADIENTS = Groups(WITH_GRADIENT, run_gradients)


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_first_row(case: OpCase) -> None:
    check_row(case, FIRST_ROWS.result(case))


@by_operation(OTHERS)
@pytest.mark.usefixtures("compiled_quickly")
def test_other_rows(rows: Sequence[OpCase]) -> None:
    check_each(lambda row: check_row(row, OTHER_ROWS.result(row)), rows, str)


@by_operation(row for row in table_rows() if row.error is not None)
@pytest.mark.usefixtures("compiled_quickly")
def test_errors(rows: Sequence[OpCase]) -> None:
    check_each(check_error, rows, str)


@by_operation(BESIDE_CONSTANTS)
@pytest.mark.usefixtures("compiled_quickly")
def test_rows_beside_constants(rows: Sequence[OpCase]) -> None:
    check_each(lambda row: check_beside_constants(row, BESIDE_CONSTANTS_ROWS.result(row)), rows, str)


@by_operation(WITH_GRADIENT)
@pytest.mark.usefixtures("compiled_quickly")
def test_gradients(rows: Sequence[OpCase]) -> None:
    check_each(lambda row: GRADIENTS.result(row).check(), rows, str)
