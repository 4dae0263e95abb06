"""What other processes of this host show of the values that a step reads there (one-sided reads, §4.4).

A master whose process runs a part of the step as well asks the other parts, once the step has run a few times, to show
what they read for this one (`runtime.one_sided_reads`). From then on it reads that itself when a step begins, and the
message that starts such a part goes along with the first tensor for it.

    =========  =========================  ====================  ===========================
    a part is  many steps have run        the task has shown    the link to it failed
    =========  =========================  ====================  ===========================
    plain      it is asked, -> asked      -                     -
    asked      -                          -> shown              plain, when it is registered
    shown      -                          -                     likewise
    =========  =========================  ====================  ===========================
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from anabranch.core.devices import task_of
from anabranch.distributed.network import TaskConnection
from anabranch.distributed.session_tasks import Part
from anabranch.proto.step_plan_pb2 import PublishedPartition
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.protocols import RegisteredPartition
from anabranch.runtime.published_values import PublishedReads, PublishedTensor
from anabranch.runtime.remote_worker import RemotePartition
from anabranch.xla.partitions import TransferEnd

#: so many steps after each other are many; then, and each time that so many more have run, the parts are asked that
#: were not
MANY: Final = 64


class ShownPart(NamedTuple):
    """A part whose task shows what it reads.

    Attributes:
        partition: as it is registered.
        reads: the values.
        ends: the transfers that they are, in their order.
        devices: to which tensors go from here, by their full names.
    """

    partition: RemotePartition
    reads: PublishedReads
    ends: Sequence[TransferEnd]
    devices: Collection[str]


class ReadAhead:
    """The parts of one step that are shown. Thread-safe: each part's state is one assignment.

    Args:
        parts: all parts of the step.
        connect: the way to an address; None where that is this process.
    """

    def __init__(self, parts: Sequence[Part], connect: Callable[[str], TaskConnection | None]) -> None:
        self._parts, self._connect = parts, connect
        here = [part for part in parts if part.task.is_here]
        #: the part whose tensors are read
        self._own = here[0] if len(here) == 1 else None
        self._runs = 0
        self._asked: dict[int, RegisteredPartition] = {}
        self._shown: dict[int, ShownPart] = {}

    def at(self, position: int, partition: RegisteredPartition) -> ShownPart | None:
        """The part at a position, if it is shown as it is registered now."""
        shown = self._shown.get(position)
        return shown if shown is not None and shown.partition is partition else None

    def count(self) -> None:
        """Another step has begun."""
        self._runs += 1
        if not self._runs % MANY:
            self._ask()

    def _ask(self) -> None:
        own = None if self._own is None or self._own.registered is None else self._own.registered.partition
        # each of its Sends must be made in each step: what starts a part goes along with one
        if self._own is None or not isinstance(own, BoundPartition) or not own.runs_straight:
            return
        for position, part in enumerate(self._parts):
            partition = None if part.registered is None else part.registered.partition
            if not isinstance(partition, RemotePartition) or self._asked.get(position) is partition:
                continue
            connection = self._connect(part.task.address)
            # who is on another host, or has said little, may be asked later
            if connection is None or not connection.shares_memory:
                continue
            self._asked[position] = partition
            answer = functools.partial(self._take, position, self._own, partition, connection)
            partition.publish(self._own.task.name, answer)

    def _take(
        self,
        position: int,
        own: Part,
        partition: RemotePartition,
        connection: TaskConnection,
        told: PublishedPartition,
    ) -> None:
        """Reads from now on what a task shows; what does not fit is not believed: the part stays as it is."""
        task = self._parts[position].task.name
        ends = {end.tensor: end for end in own.partition.receives if task_of(end.source) == task}
        shown = [(PublishedTensor(t.tensor, t.slot, t.offset, t.size), ends.get(t.tensor)) for t in told.tensor]
        contents = connection.board(told.process, told.descriptor, told.number)
        described = [
            (tensor, np.dtype(end.dtype.as_numpy_dtype), [size or 0 for size in end.shape.as_list()])
            for tensor, end in shown
            if end is not None and end.shape.is_fully_defined()
        ]
        if contents is None or len(described) < len(shown):
            return
        try:
            reads = PublishedReads(contents, described)
        except ValueError:
            return
        read = [end for _, end in shown if end is not None]
        devices = {end.destination for end in own.partition.sends if task_of(end.destination) == task}
        self._shown[position] = ShownPart(partition, reads, read, devices)
