"""Which reads of a partition another task can do itself, where it sees this task's memory (§4.4).

In a step of a worker and its parameter servers a server is woken twice: to send its parameters, and to apply the
update. Where the worker reads the parameters itself (`runtime.published_values`), a server has nothing to do before the
update comes, so that the message which starts its part may come along with that:

    worker              server                           worker              server
    START          -->  reads, sends                     reads the board
                   <--  value                            update, START  -->  applies it
    update         -->  applies it                                      <--  done
                   <--  done

So it is with rows of a table whose indices the worker sends (`runtime.published_rows`): it takes the rows when it has
the indices, which it sends along with the update if the update needs them.

That must not make anybody wait for what waits for the START. So it is done only where each tensor that the partition
still sends, and each operation that may wait for something else or make others go on, comes after a tensor that the
reader has sent it: by then it has started. Where there is none of these, the START may wait for the reader's last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.core.devices import task_of
from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.runtime.pinned_read import is_only_sent
from anabranch.runtime.run_order import before, is_slow
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition
from anabranch.xla.state import known_handle

#: a partition says of no more variables that rows of theirs can be taken: there is a bit for each in a message
MOST_ROWS: Final = 64


class OneSidedRows(NamedTuple):
    """Rows that go to the reader, at indices that come from it.

    Attributes:
        variable: whose rows.
        tensor, indices: the names of the transfers.
        operations: those that the partition can do without.
    """

    variable: ResourceHandle
    tensor: str
    indices: str
    operations: Collection[StepNode]


class OneSidedReads(NamedTuple):
    """What the reader of a partition can do itself.

    Attributes:
        reads: the positions of reads of whole variables, and of the Sends of their values.
        rows: the rows that it can take.
        answers: whether the partition does something else for which somebody may wait before the reader has sent it all
            that it will.
    """

    reads: Sequence[int]
    rows: Sequence[OneSidedRows]
    answers: bool


def one_sided_reads(partition: Partition, reader: str) -> OneSidedReads | None:
    """What the partition can do without if `reader`, which starts it, reads itself.

    Args:
        reader: its full name.

    Returns:
        None where there is nothing, or the rest may have to run before the reader has sent it something.
    """
    reads, rows = _plain_reads(partition, reader), _rows(partition, reader)[:MOST_ROWS]
    for ahead in (OneSidedReads(reads, rows, False), OneSidedReads(reads, [], False)):
        answers = _answers(partition, reader, ahead) if ahead.reads or ahead.rows else None
        if answers is not None:
            return ahead._replace(answers=answers)
    return None


def left_out(partition: Partition, ahead: OneSidedReads, taken: Collection[int]) -> set[int]:
    """The positions of what a partition does without in a step for which its reader has read.

    Args:
        taken: the numbers of the rows that were taken.
    """
    out = set(ahead.reads)
    rows = [ahead.rows[number] for number in taken]
    # an island may take rows of several variables, and runs if one of them was not taken
    free = {op for one in rows for op in one.operations}
    out.update(i for i, item in enumerate(partition.items) if free.issuperset(item.operations))
    indices = {one.indices for one in rows}
    consumers = _consumers(partition)
    for position, item in enumerate(partition.items):
        if _comes_from(item, partition) and sent_under(item) in indices:
            (tensor,) = item.outputs
            if all(i in out for i in consumers[tensor]):
                out.add(position)
    return out


def is_alone(partition: Partition, ahead: OneSidedReads, indices: str) -> bool:
    """Whether indices that come under a name are taken for nothing but rows that the reader can take."""
    out = left_out(partition, ahead, range(len(ahead.rows)))
    received = (i for i, item in enumerate(partition.items) if _comes_from(item, partition))
    return all(i in out for i in received if sent_under(partition.items[i]) == indices)


def _plain_reads(partition: Partition, reader: str) -> list[int]:
    """The positions of reads of whole variables, and of the Sends of their values."""
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
    consumers = _consumers(partition)
    sends = [i for read in reads for tensor in items[read].outputs for i in consumers[tensor]]
    own = {op for i in (*reads, *sends) for op in items[i].operations}
    # a Send may wait for something else
    is_free = before(partition, list(own)) & operations <= own
    is_free &= all(_goes_to(items[i], partition) == reader for i in sends)
    return sorted({*reads, *sends}) if is_free else []


def _rows(partition: Partition, reader: str) -> list[OneSidedRows]:
    items = {op: item for item in partition.items for op in item.operations}
    users: defaultdict[StepTensor, set[StepNode]] = defaultdict(set)
    for op in items:
        for tensor in op.inputs:
            users[tensor].add(op)
    sends = [item for item in partition.items if _goes_to(item, partition) == reader]
    found = (_rows_of(partition, reader, send, items, users) for send in sends)
    return [rows for rows in found if rows is not None]


def _rows_of(
    partition: Partition,
    reader: str,
    send: PlanItem,
    items: Mapping[StepNode, PlanItem],
    users: Mapping[StepTensor, set[StepNode]],
) -> OneSidedRows | None:
    """What a Send sends, where these are rows at indices that come from the reader.

    Args:
        items: where the partition's operations are.
        users: of tensors, among them.
    """
    (tensor,) = send.inputs
    tensor, copies = _copied(tensor)
    gather = tensor.op
    if gather.type != "ResourceGather" or gather.attrs.get("batch_dims"):
        return None
    variable, (indices, more) = known_handle(gather.inputs[0]), _copied(gather.inputs[1])
    received = items.get(indices.op)
    if variable is None or received is None or _comes_from(received, partition) != reader:
        return None
    own = frozenset((gather, *copies, *more, *send.operations))
    outputs = [t for op in own for t in op.outputs]
    # nobody has other rows of this step than the reader, and nothing has to happen before they are read
    is_apart = all(users[t] <= own for t in outputs) and not any(t in partition.fetches for t in outputs)
    if not is_apart or not before(partition, list(own)) & items.keys() <= own | {indices.op}:
        return None
    return OneSidedRows(variable, sent_under(send), sent_under(received), own)


def _copied(tensor: StepTensor) -> tuple[StepTensor, list[StepNode]]:
    """Of what a tensor is a copy, and the operations that copy it."""
    copies: list[StepNode] = []
    while tensor.op.type == "Identity":
        copies.append(tensor.op)
        tensor = tensor.op.inputs[0]
    return tensor, copies


def _answers(partition: Partition, reader: str, ahead: OneSidedReads) -> bool | None:
    """See `OneSidedReads`; None where something of it need not come after any tensor of the reader's."""
    out = left_out(partition, ahead, range(len(ahead.rows)))
    rest = [item for i, item in enumerate(partition.items) if i not in out]
    received = {op for item in rest if _comes_from(item, partition) == reader for op in item.operations}
    answering = [
        item
        for item in rest
        if _goes_to(item, partition) or (is_slow(item) and not item.operations[0].op_def.is_transfer)
    ]
    if not received or any(received.isdisjoint(before(partition, item.operations)) for item in answering):
        return None
    return bool(answering)


def _consumers(partition: Partition) -> Mapping[StepTensor, list[int]]:
    """The positions of the items that take a tensor."""
    consumers: defaultdict[StepTensor, list[int]] = defaultdict(list)
    for position, item in enumerate(partition.items):
        for tensor in item.inputs:
            consumers[tensor].append(position)
    return consumers


def _comes_from(item: PlanItem, partition: Partition) -> str:
    """The task whose tensor a Recv receives; empty where an item is none, or receives from its own task."""
    return _other_end(item, partition, "send_device")


def _goes_to(item: PlanItem, partition: Partition) -> str:
    """The task to which a Send sends; likewise."""
    return _other_end(item, partition, "recv_device")


def _other_end(item: PlanItem, partition: Partition, end: str) -> str:
    if not (isinstance(item, HostCall) and item.operation.op_def.is_transfer and crosses_tasks(item.operation)):
        return ""
    task = task_of(item.operation.attrs[end].decode())
    return "" if task == partition.task else task


def sent_under(item: PlanItem) -> str:
    """The name of a transfer."""
    operations: Sequence[StepNode] = item.operations
    (op,) = operations
    name: bytes = op.attrs["tensor_name"]
    return name.decode()
