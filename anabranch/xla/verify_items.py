"""What must hold of the items of a step: its islands and host calls, and their order."""

from __future__ import annotations

from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import fail
from anabranch.xla.islands import Grouping, Island


def verify_items(grouping: Grouping, step: StepGraph, stage: str) -> None:
    """Raises InternalError unless the items can run in their order.

    Every operation of the step is in one item, which runs on the operation's device. What it waits for comes before it,
    in its item or in an earlier one. What it takes is known, or an input of its item, or computed in its island. What
    another item takes of an island, or the step returns, is an output of it.
    """
    position = _positions(grouping, step, stage)
    done: set[StepNode] = set()
    for at, item in enumerate(grouping.items):
        members = item.operations
        for op in members:
            if op.placed_on != item.device:
                fail(stage, op, f"is placed on {op.placed_on!r}, and runs on {item.device!r}")
            tensors, controls = grouping.waits[op]
            for earlier in (*(t.op for t in tensors), *controls, *grouping.order.get(op, ())):
                if earlier not in done:
                    fail(stage, op, f"does not run after {earlier.name!r}")
            done.add(op)
        if isinstance(item, Island):
            _check_island(item, at, position, stage)
    _check_outputs(grouping, step, position, stage)


def _positions(grouping: Grouping, step: StepGraph, stage: str) -> dict[StepNode, int]:
    position: dict[StepNode, int] = {}
    for at, item in enumerate(grouping.items):
        for op in item.operations:
            if op in position:
                fail(stage, op, "is in two items")
            position[op] = at
    for op in step.operations:
        if op not in position:
            fail(stage, op, "is in no item")
    if len(position) > len(step.operations):
        stranger = next(op for op in position if op not in set(step.operations))
        fail(stage, stranger, "is in an item, and not in the step")
    return position


def _check_island(island: Island, at: int, position: dict[StepNode, int], stage: str) -> None:
    inputs = set(island.inputs)
    for op in island.operations:
        for tensor in op.inputs:
            if not (tensor.is_known or tensor in inputs or position.get(tensor.op) == at):
                fail(stage, op, f"takes {tensor.name!r}, which does not come into its island")
    for tensor in inputs:
        if position.get(tensor.op) == at:
            fail(stage, tensor.op, f"gives {tensor.name!r} to its own island from outside")


def _check_outputs(grouping: Grouping, step: StepGraph, position: dict[StepNode, int], stage: str) -> None:
    computed: set[StepTensor] = {t for item in grouping.items for t in item.outputs}
    taken = [(t, position[op]) for op in step.operations for t in op.inputs]
    for tensor, at in [*taken, *((t, -1) for t in step.fetches)]:
        home = position.get(tensor.op)
        if home not in (None, at) and not tensor.is_known and tensor not in computed:
            fail(stage, tensor.op, f"keeps {tensor.name!r} inside of its island, though others need it")
