"""The graphs of what operations are declared to refuse."""

from __future__ import annotations

import json

from tests.fuzz.op_rows import refused_rows, rows_by_operation
from tests.fuzz.refusals import programs


def test_each_row_with_an_error_is_a_graph_of_constants_and_one_of_placeholders() -> None:
    rows = [row for row in refused_rows() if row.op == "CTCLoss"]
    made = list(programs(rows, {"CTCLoss": []}))
    assert len(rows) > 2
    assert [program["index"] for program in made] == list(range(2 * len(rows)))
    for program in made:
        *sources, last = program["nodes"]
        assert (last["kind"], last["op"]) == ("op", "CTCLoss")
        fed = {node["id"] for node in sources if node["kind"] == "placeholder"}
        assert fed == set(program["feeds"][0])
        assert bool(fed) is bool(program["index"] % 2)
        json.dumps(program)


def test_a_row_is_for_random_graphs_or_ends_in_an_error() -> None:
    assert all(row.error is not None for row in refused_rows())
    assert all(row.error is None for rows in rows_by_operation().values() for row in rows)


def test_operations_that_the_other_side_lacks_are_left_out() -> None:
    assert not list(programs(refused_rows(), {}))
