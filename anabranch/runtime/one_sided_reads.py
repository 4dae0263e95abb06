"""Which reads of a partition another task can do itself, where it sees this task's memory (§4.4).

In a step of a worker and its parameter servers a server is woken twice: to send its parameters, and to apply the
update. Where the worker reads the parameters itself (`runtime.published_values`), a server has nothing to do before the
update comes, so that the message which starts its part may come along with that:

    worker              server                           worker              server
    START          -->  reads, sends                     reads the board
                   <--  value                            update, START  -->  applies it
    update         -->  applies it                                      <--  done
                   <--  done

That must not make anybody wait for what waits for the START. So it is done only where each tensor that the partition
still sends comes after one that the reader has sent it: by then it has started.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.devices import task_of
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime.pinned_read import is_only_sent
from anabranch.runtime.run_order import before
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition, crosses_tasks


def one_sided_reads(partition: Partition, reader: str) -> list[int] | None:
    """The positions of the items that a partition can do without if `reader` reads: the reads and their Sends.

    Args:
        reader: the full name of the task that starts it.

    Returns:
        None where there are none, or the rest may have to run before the reader has sent it something.
    """
    items = partition.items
    operations = {op for item in items for op in item.operations}
    # what has to wait for something else of the step stays where it is
    reads = [
        i
        for i, item in enumerate(items)
        if isinstance(item, Island)
        and is_only_sent(item, partition)
        and before(partition, item.operations) & operations <= set(item.operations)
    ]
    values = {tensor for i in reads for tensor in items[i].outputs}
    sends = [i for i, item in enumerate(items) if values.intersection(item.inputs)]
    left_out = [*reads, *sends]
    own = {op for i in left_out for op in items[i].operations}
    if not reads or any(_end_of(items[i], "recv_device") != reader for i in sends):
        return None
    # a Send may wait for something else
    if not before(partition, list(own)) & operations <= own:
        return None
    received = {op for item in items if _end_of(item, "send_device") == reader for op in item.operations}
    rest = [item for i, item in enumerate(items) if i not in left_out]
    still_sent = [item for item in rest if _end_of(item, "recv_device") not in ("", partition.task)]
    if not received or any(received.isdisjoint(before(partition, item.operations)) for item in still_sent):
        return None
    return sorted(left_out)


def _end_of(item: PlanItem, end: str) -> str:
    """The task at one end of a transfer between tasks; empty where an item is none."""
    if isinstance(item, HostCall) and item.operation.op_def.is_transfer and crosses_tasks(item.operation):
        return task_of(item.operation.attrs[end].decode())
    return ""


def sent_under(item: PlanItem) -> str:
    """The name under which a Send sends."""
    operations: Sequence[StepNode] = item.operations
    (op,) = operations
    name: bytes = op.attrs["tensor_name"]
    return name.decode()
