"""Islands in graphs with loops: no path leaves one and comes back, through whatever iterations (`xla.levels`)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from anabranch.core.roles import Role
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation
from anabranch.ops import vocabulary as _vocabulary  # noqa: F401
from anabranch.pipeline import Plan, plan_step
from anabranch.runtime.executor import Executor
from anabranch.runtime.item_graph import ItemGraph
from tests.primitive_programs import random_program, written

#: how many iterations of each loop the unrolled graph has
ITERATIONS = 2

#: an operation, and the iterations of the loops around it
Instance = tuple[Any, tuple[int, ...]]


# ---------------------------------------------------------------------- the unrolled graph
class Unrolled:
    """The instances of a plan's operations, a few iterations of each loop, and what each comes after."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.frames = plan, plan.grouping.frames

    def _depth(self, op: Operation) -> int:
        frame, depth = self.frames.of[op], 0
        while frame.parent is not None:
            frame, depth = frame.parent, depth + 1
        return depth

    def instances(self, op: Operation) -> Iterable[Instance]:
        return ((op, at) for at in itertools.product(range(ITERATIONS), repeat=self._depth(op)))

    def before(self, instance: Instance) -> Iterable[Instance]:
        op, at = instance
        tensors, controls = self.plan.grouping.waits[op]
        for earlier in (*(t.op for t in tensors), *controls, *self.plan.grouping.order.get(op, ())):
            yield from self._source(earlier, at)
        for tensor in op.inputs:
            if is_back_edge(op, tensor) and at[-1] > 0:
                yield tensor.op, (*at[:-1], at[-1] - 1)

    def _source(self, earlier: Operation, at: tuple[int, ...]) -> Iterable[Instance]:
        if earlier.op_def.role is Role.ENTER:
            if earlier.attrs["is_constant"] or at[-1] == 0:
                yield earlier, at[:-1]
        elif earlier.op_def.role is Role.EXIT:
            yield from ((earlier, (*at, last)) for last in range(ITERATIONS))
        else:
            yield earlier, at


def stuck_islands(plan: Plan) -> list[str]:
    """The islands of which some instance would have to wait for itself."""
    unrolled = Unrolled(plan)
    item_of = {op: number for number, item in enumerate(plan.items) for op in item.operations}
    before: dict[Instance, set[Instance]] = {}
    for op, number in item_of.items():
        for instance in unrolled.instances(op):
            found = before.setdefault((number, instance[1]), set())
            found.update((item_of[o], at) for o, at in unrolled.before(instance))
            found.discard((number, instance[1]))
    done: set[Instance] = set()
    waiting = list(before)
    while waiting:
        left = [instance for instance in waiting if not before[instance] <= done]
        if len(left) == len(waiting):
            return [repr(plan.items[number]) for number, _ in left]
        done.update(set(waiting) - set(left))
        waiting = left
    return []


# ---------------------------------------------------------------------- the executor, without kernels
def runs_to_its_end(plan: Plan, seed: int) -> bool:
    """Whether the executor comes to the end of a plan whose items compute random truth values."""
    rng = random.Random(seed)
    graph = ItemGraph(plan.partitions[0])
    executor = Executor(graph.graph, [np.zeros(2, np.float32) for _ in plan.step.feeds])
    ready = executor.start()
    while ready or executor.paused:
        if not ready:
            ready = executor.resume()
            continue
        node, iteration = ready.pop(rng.randrange(len(ready)))
        for slot in node.slots:  # a value that nobody takes as a predicate does not mind
            iteration.values[slot] = np.bool_(rng.random() < 0.4)
        ready += executor.finished((node, iteration))
    return executor.done


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 40))
def test_no_island_of_a_random_program_waits_for_itself(seed: int) -> None:
    program = random_program(seed)
    made = written(program)
    with made.graph.as_default():
        plan = plan_step(made.values, [], made.feeds)
    assert stuck_islands(plan) == []
    assert runs_to_its_end(plan, seed)
