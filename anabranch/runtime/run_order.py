"""Whether a partition can run straight through on one thread, and how its items are run where it cannot."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from anabranch.core.roles import Role
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime.dispatcher import Mode
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition


def needs_executor(partition: Partition) -> bool:
    """Whether something may die, repeat, run beside something else, or wait while something else should run.

    An operation that waits may do so in its place in the straight order, if whatever else may wait comes before or
    after it anyhow: nothing in the step is then needed for its wait to end. One that holds its thread for long may do
    so if besides all islands come before or after it: nothing in the step could then use the time.
    """
    calls = [item for item in partition.items if isinstance(item, HostCall)]
    if any(call.operation.op_def.role is Role.PLACEHOLDER for call in calls):
        return False  # one that is not fed: the step fails before anything has happened
    # where no task waits for anything but the others, all may follow the one order of the whole step: what comes first
    # in it of all that has not run can always run
    meets_others = bool(partition.sends or partition.receives)
    if uses_several_devices(partition) or (meets_others and not partition.follows_order):
        return True
    if any(call.operation.op_def.is_primitive for call in calls):
        return True
    slow = [call.operation for call in calls if is_slow(call) and not call.operation.op_def.is_transfer]
    # in step order, so that it is enough to look at neighbours: being before is transitive
    if any(one not in before(partition, [other]) for one, other in itertools.pairwise(slow)):
        return True
    islands = [item for item in partition.items if isinstance(item, Island)]
    blocking = [op for op in slow if op.op_def.blocking]
    return any(not _are_ordered(partition, island, op) for island in islands for op in blocking)


def is_slow(item: PlanItem) -> bool:
    """Whether an item may wait, or hold its thread for long."""
    if isinstance(item, Island):
        return False
    op = item.operation
    return op.op_def.asynchronous or op.op_def.blocking or (op.op_def.role is Role.RECEIVE and crosses_tasks(op))


def changes_something(item: PlanItem) -> bool:
    """Whether anybody could tell that an item ran, or how far, from something other than its results."""
    if isinstance(item, Island):
        return bool(item.writes or item.random)
    op_def = item.operation.op_def
    changes = op_def.stateful and not op_def.only_reads
    return changes or bool(op_def.writes) or op_def.asynchronous or bool(bodies_of(item.operation))


def uses_several_devices(partition: Partition) -> bool:
    """Whether a partition has islands on different devices."""
    return len({item.device for item in partition.items if isinstance(item, Island)}) > 1


def mode_of(item: PlanItem, several: bool) -> Mode:
    """How the dispatcher runs an item of a partition.

    Where islands run on several devices the thread of the step is kept free for what passes between them. That goes
    first: it is quick, and other devices may wait for it.
    """
    if isinstance(item, Island):
        return Mode.APART_BRIEFLY if several else Mode.HERE
    if item.operation.op_def.is_transfer:
        return Mode.ASYNCHRONOUS if is_slow(item) else Mode.AT_ONCE
    op = item.operation
    if op.op_def.asynchronous:
        return Mode.ASYNCHRONOUS
    if op.op_def.blocking:
        return Mode.APART
    # a loop's counter and condition: quicker than what the dispatcher does between two pieces of work
    is_scalar = op.op_def.portable and all(t.shape.ndims == 0 for t in (*op.inputs, *op.outputs))
    return Mode.AT_ONCE if is_scalar else Mode.HERE


def _are_ordered(partition: Partition, island: Island, op: StepNode) -> bool:
    return op in before(partition, island.operations) or not before(partition, [op]).isdisjoint(island.operations)


def before(partition: Partition, later: Sequence[StepNode]) -> set[StepNode]:
    """The operations of a partition that must have ended before all of some others can; among them these."""
    grouping, seen, stack = partition.grouping, set[StepNode](), list(later)
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if op in grouping.waits:
            tensors, controls = grouping.waits[op]
            stack += [*(t.op for t in tensors), *controls, *grouping.order.get(op, ())]
    return seen
