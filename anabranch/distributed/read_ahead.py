"""What other processes of this host show of the values that a step reads there (one-sided reads, §4.4).

A master whose process runs a part of the step as well asks the other parts, once the step has run a few times, to show
what they read for this one (`runtime.one_sided_reads`). From then on it reads variables itself when a step begins, and
rows of variables when there are their indices. The message that starts such a part goes along with the tensors for it.

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
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from anabranch.core.devices import task_of
from anabranch.distributed.network import TaskConnection
from anabranch.distributed.session_tasks import Part
from anabranch.proto.step_plan_pb2 import PublishedPartition
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.held_start import HeldStart, Sent
from anabranch.runtime.one_sided_reads import MOST_ROWS
from anabranch.runtime.protocols import RegisteredPartition
from anabranch.runtime.published_messages import tensor_from_proto
from anabranch.runtime.published_rows import PublishedRows
from anabranch.runtime.published_values import PublishedReads
from anabranch.runtime.remote_worker import RemotePartition
from anabranch.xla.partitions import TransferEnd

#: so many steps after each other are many; then, and each time that so many more have run, the parts are asked that
#: were not
MANY: Final = 64


class ShownPart(NamedTuple):
    """A part whose task shows what it reads.

    Attributes:
        partition: as it is registered.
        reads: the values of variables.
        rows: those that are taken, by the names of the transfers of their indices.
        sends: how many tensors go there from here.
        destinations: the full names of the devices to which they go.
        answers: whether somebody may wait for what it does before all of these were sent.
    """

    partition: RemotePartition
    reads: PublishedReads
    rows: Mapping[str, Sequence[PublishedRows]]
    sends: int
    destinations: Collection[str]
    answers: bool

    def held(self, send: Callable[[Sequence[Sent], int], None]) -> dict[str, HeldStart]:
        """What starts the part in one step, by the full names of the devices to which tensors go.

        Args:
            send: see `HeldStart`.
        """
        return dict.fromkeys(self.destinations, HeldStart(send, self.rows, self.sends, not self.answers))


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
        sends = [end for end in own.partition.sends if task_of(end.destination) == task]
        contents = connection.board(told.process, told.descriptor, told.number)
        shown = [tensor_from_proto(tensor) for tensor in told.tensor]
        read = [ends[one.tensor] for one in shown if one.tensor in ends]
        if contents is None or len(read) < len(shown) or not all(end.shape.is_fully_defined() for end in read):
            return
        described = [
            (one, np.dtype(end.dtype.as_numpy_dtype), [size or 0 for size in end.shape.as_list()])
            for one, end in zip(shown, read, strict=True)
        ]
        try:
            reads = PublishedReads(contents, described, read)
            rows = self._rows(told, contents, ends, {end.tensor for end in sends}, connection)
        except ValueError:
            return
        # it sends the rows that are not taken, and they may be waited for
        answers = told.answers or sum(map(len, rows.values())) < len(told.rows)
        destinations = {end.destination for end in sends}
        self._shown[position] = ShownPart(partition, reads, rows, len(sends), destinations, answers)

    def _rows(
        self,
        told: PublishedPartition,
        contents: memoryview,
        ends: Mapping[str, TransferEnd],
        sent: Collection[str],
        connection: TaskConnection,
    ) -> Mapping[str, Sequence[PublishedRows]]:
        """What is taken where indices are sent to a task.

        Raises:
            ValueError: that cannot be.
        """
        read = connection.reader(told.process, told.number_at, told.number) if told.rows else None
        taken: defaultdict[str, list[PublishedRows]] = defaultdict(list)
        if read is None and any(rows.variable.is_address for rows in told.rows):
            # whoever may not read the memory has all rows sent, as before: indices may be those of several
            return taken
        for number, rows in enumerate(told.rows):
            variable = tensor_from_proto(rows.variable)
            end = ends.get(variable.tensor)
            if end is None or rows.indices not in sent or number >= MOST_ROWS or not _fits(end, rows.shape):
                raise ValueError(f"{variable.tensor} at {rows.indices} are no rows that come from there")
            one = PublishedRows(number, contents, variable, end, rows.shape, rows.alone, read)
            taken[rows.indices].append(one)
        return taken


def _fits(end: TransferEnd, shape: Sequence[int]) -> bool:
    """Whether a transfer can be of rows of a shape."""
    if end.shape.ndims is None:
        return True
    sizes = end.shape.as_list()[end.shape.ndims - len(shape) :] if len(shape) <= end.shape.ndims else None
    return sizes is not None and all(known in (None, size) for known, size in zip(sizes, shape, strict=True))
