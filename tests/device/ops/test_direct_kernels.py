"""Every row of the op table, its kernels run directly in NumPy: the way of programs whose shapes change in each step.

`test_table.py` runs the same rows compiled. Both compare values, dtypes and shapes with the same oracles, so the two
ways of running one graph agree. Rows are passed over that hold kernels only JAX can run: it does so either way.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import pytest

from anabranch.testing.op_cases import OpCase, check_values, op_function
from anabranch.xla import executable
from tests.device.ops.table import table_rows


class _CompiledError(BaseException):
    """The kernels do not run directly."""


@pytest.fixture(autouse=True)
def _directly_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise _CompiledError

    monkeypatch.setattr(executable, "EAGER_VARIANTS", 0)
    monkeypatch.setattr(executable.Executable, "_first_call", refuse)
    monkeypatch.setattr(executable, "_only_by_jax", lambda op: not op.op_def.portable)
    monkeypatch.setattr(executable, "MAX_FOREIGN", 0)
    monkeypatch.setattr(executable, "is_open", lambda op: True)


def _family(row: OpCase) -> str:
    return op_function(row.op).defined_at.rsplit("/", 1)[-1].split(":")[0]


_ROWS = [row for row in table_rows() if row.error is None and op_function(row.op).compiled_rule is not None]
_FAMILIES = {name: list(rows) for name, rows in groupby(sorted(_ROWS, key=_family), key=_family)}
#: families of which most rows run so; were they passed over, this test would check nothing
_MUST = ("math.py", "array.py", "logic.py", "reduction.py", "slicing.py", "conv.py", "pool.py")


@pytest.mark.parametrize("family", _FAMILIES)
def test_rows(family: str) -> None:
    counts: Counter[str] = Counter()
    for row in _FAMILIES[family]:
        try:
            check_values(row)
            counts["direct"] += 1
        except _CompiledError:
            counts["compiled"] += 1
    assert family not in _MUST or counts["direct"] > counts["compiled"], counts
