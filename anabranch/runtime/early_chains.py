"""What a task sends to another because of a tensor that came from there, as soon as it is there (§4.4).

A worker of several parameter servers takes rows in the memory of each as their indices leave
(`runtime.published_rows`). In the order of the whole step all indices leave first, and what is computed of the rows
follows; but the first server has nothing to do until its update comes. So a run does what follows from rows alone right
after they were taken, and goes on then where it was: server after server begins, while the worker deals with the next.

    in order    i0 i1 i2 i3   r0 c0 s0   r1 c1 s1   r2 c2 s2   r3 c3 s3       i: indices leave, rows are taken
    early       i0 r0 c0 s0   i1 r1 c1 s1   i2 r2 c2 s2   i3 r3 c3 s3         r, c, s: received, computed, sent

Nothing of that may wait, or come after anything else of the task: so the one order in which the tasks' runs are free of
deadlock (`runtime.run_order`) still holds for all that waits, and what is sent early waits where it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.item_call import ItemCall
from anabranch.runtime.run_order import changes_something
from anabranch.runtime.transfer_call import TransferCall
from anabranch.xla.islands import HostCall
from anabranch.xla.partitions import Partition

#: a transfer: its source, its destination, its name
Way: TypeAlias = tuple[str, str, str]
#: the positions of what follows from what arrives, by its transfer
Chains: TypeAlias = Mapping[Way, Sequence[int]]


def early_chains(partition: Partition, calls: Sequence[ItemCall]) -> Chains:
    """For each `_Recv` from another task, its position and those of what follows from it alone, up to a `_Send`."""
    receives = [(i, call) for i, call in enumerate(calls) if isinstance(call, TransferCall) and call.receives]
    found = ((call.way, _chain(partition, calls, position)) for position, call in receives)
    return {way: chain for way, chain in found if len(chain) > 1}


def _chain(partition: Partition, calls: Sequence[ItemCall], first: int) -> list[int]:
    waits, order = partition.grouping.waits, partition.grouping.order
    chain, members, known = [first], {partition.items[first].operations[0]}, 1
    for position in range(first + 1, len(calls)):
        item, call = partition.items[position], calls[position]
        if not isinstance(item, HostCall) or not isinstance(call, HostKernelCall):
            continue
        op = item.operation
        tensors, controls = waits[op]
        if not {*(t.op for t in tensors), *controls, *order.get(op, ())} <= members or not tensors:
            continue
        sends = isinstance(call, TransferCall) and not call.receives
        if not sends and (changes_something(item) or not op.op_def.portable):
            continue
        chain.append(position)
        members.add(op)
        if sends:
            known = len(chain)
    return chain[:known]
