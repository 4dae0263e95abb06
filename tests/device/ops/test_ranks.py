"""Operations that state the rank of an input refuse another one: when they are built, and else when they run."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import errors
from anabranch.core.registry import all_op_defs
from anabranch.graph.conversion import constant_of
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.testing.op_cases import OpCase
from tests.fuzz.op_rows import input_arrays, rows_by_operation

RANKED = sorted(name for name, op in all_op_defs().items() if op.ranks and name in rows_by_operation())


def _wrong(case: OpCase, name: str) -> list[Any]:
    """The row's inputs, the named one with one dimension more."""
    op = all_op_defs()[case.op]
    return [
        array[None] if arg.name == name else array for arg, array in zip(op.inputs, input_arrays(case), strict=True)
    ]


def _build(case: OpCase, arrays: list[Any], known: bool) -> dict[Any, Any]:
    """Adds the operation, on constants or on placeholders of unknown shape; gives what to feed."""
    feeds: dict[Any, Any] = {}

    def tensor(array: Any) -> Any:
        if known:
            return constant_of(array, "value")
        placeholder = raw.Placeholder(dtype=array.dtype if array.dtype.kind != "O" else "string", shape=None)
        feeds[placeholder] = array
        return placeholder

    inputs = [[tensor(v) for v in array] if isinstance(array, list) else tensor(array) for array in arrays]
    getattr(raw, case.op)(*inputs, **case.attrs)
    return feeds


@pytest.mark.parametrize("name", RANKED)
def test_another_rank_is_refused(name: str) -> None:
    case = rows_by_operation()[name][0]
    for ranked in all_op_defs()[name].ranks:
        arrays = _wrong(case, ranked)
        with Graph().as_default(), pytest.raises(ValueError, match="rank"):
            _build(case, arrays, known=True)
        with Graph().as_default() as graph, Session(graph=graph) as session:
            feeds = _build(case, arrays, known=False)
            operation = next(o for o in reversed(graph.get_operations()) if o.type == name)
            with pytest.raises(errors.InvalidArgumentError, match="rank"):
                session.run(operation.outputs[0], feeds)
