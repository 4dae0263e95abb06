"""Random loops and conditionals whose operations are spread over tasks compute what NumPy does (§3.4, WP4.4).

What is sent from task to task in loops and branches, dead or alive, is asked for as often as it is sent: if not, a step
here would wait for ever, which its deadline tells.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation
from anabranch.ops import raw
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from tests.primitive_programs import Place, Writer, interpret, random_program, random_values

#: seconds for one step
DEADLINE = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(worker=3) as tasks:
        yield tasks


@settings(max_examples=12)
@given(seed=st.integers(0, 1 << 40))
def test_a_program_on_three_tasks_computes_what_numpy_does(cluster: LocalCluster, seed: int) -> None:
    check(cluster, seed)


def check(cluster: LocalCluster, seed: int) -> None:
    """Runs one program, twice: the second run must find nothing that the first one left."""
    rng = random.Random(seed)
    program, values = random_program(seed), random_values(seed)

    def somewhere(op: Operation) -> str:
        # a NextIteration goes where its Merge is
        return "" if op.type == "NextIteration" else f"/job:worker/task:{rng.randrange(3)}"

    with Graph().as_default() as graph, graph.device(somewhere):
        feeds = [raw.Placeholder(dtype="float32", shape=[2]) for _ in values]
        results = Writer().write(program, feeds, Place())
    expected = interpret(program, values)
    master = cluster.master()
    try:
        step = master.prepare(results, [], feeds)
        for _ in range(2):
            got = step.run(values, None, DEADLINE)
            for tensor, value, right in zip(results, got, expected, strict=True):
                np.testing.assert_allclose(value, right, rtol=1e-5, atol=1e-6, err_msg=f"{tensor.name} of {seed}")
    finally:
        master.close()
