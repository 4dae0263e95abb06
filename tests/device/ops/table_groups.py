"""Rows of the op table in groups that are run together: a program for each row would take twice as long to compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from anabranch.testing.op_cases import OpCase, op_function

Run = TypeVar("Run")


class Groups(Generic[Run]):
    """The results of rows; those of a group are made when the first of them is asked for.

    Args:
        rows: all rows.
        run: gives the results of some of them, which it runs together.
        size: of a group. A row whose operation has state, random numbers, or no compiled kernel, is a group of its own.
    """

    def __init__(
        self, rows: Sequence[OpCase], run: Callable[[Sequence[OpCase]], Sequence[Run]], size: int = 12
    ) -> None:
        self._run = run
        together = [row for row in rows if _may_share_a_step(row)]
        groups = [together[i : i + size] for i in range(0, len(together), size)]
        self._group_of = {id(row): group for group in groups for row in group}
        self._results: dict[int, Run] = {}

    def result(self, row: OpCase) -> Run:
        """What the row gives.

        Raises:
            Exception: that of the row, if it fails when it is run alone, too.
            AssertionError: it gives a result alone, and its group fails.
        """
        if id(row) not in self._results:
            group = self._group_of.get(id(row), [row])
            try:
                self._results.update(zip(map(id, group), self._run(group), strict=True))
            except Exception as error:
                if len(group) == 1:
                    raise
                self._run([row])
                others = ", ".join(map(str, group))
                raise AssertionError(
                    f"{row} gives a result alone, but not in one step with {others}: {error}"
                ) from error
        return self._results.pop(id(row))


def _may_share_a_step(row: OpCase) -> bool:
    op = op_function(row.op)
    return row.error is None and op.compiled_rule is not None and not op.stateful and not op.random
