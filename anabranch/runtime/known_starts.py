"""What starts parts of steps again and again: read by its layout, and run in one turn (§4.2, §6.2).

    a message comes    it is as the one before                 it is another, or cannot be run at once
    not known          read; run in one turn, -> known         started as any other (`runtime.worker_service`)
    known              run in one turn                         as one that is not known

#: A part that is known is run only as long as its session has it under its number: one that was closed has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anabranch.core.values import TensorValue
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.messages import Frames
from anabranch.runtime.one_turn import OneTurn
from anabranch.runtime.protocols import OnDone, RegisteredPartition
from anabranch.runtime.rendezvous_table import Dead, Key
from anabranch.runtime.served_sessions import ServedSession
from anabranch.runtime.start_layouts import HEAD_BYTES, StartLayout, has_layout
from anabranch.runtime.step_messages import StepStart

#: parts that are kept; when there are more, all are learnt anew
_MOST: Final = 1024


class _KnownStart(NamedTuple):
    layout: StartLayout
    served: ServedSession
    number: int
    partition: RegisteredPartition
    turn: OneTurn


class KnownStarts:
    """See the module docstring. Thread-safe: each change is one of a dictionary."""

    def __init__(self) -> None:
        #: by who starts them, and how the message begins
        self._known: dict[tuple[str, bytes], _KnownStart] = {}
        #: the bytes of the last message that was not known
        self._sizes: dict[tuple[str, bytes], int] = {}

    def run(self, owner: str, frames: Frames, on_done: OnDone) -> bool:
        """Runs what a message starts, if it is known; False: nothing has been done.

        Args:
            owner: who starts it.
            on_done: told the outcome.
        """
        data = frames[0] if len(frames) == 1 else b""
        known = self._known.get((owner, bytes(data[:HEAD_BYTES])))
        if known is None or known.served.partitions.get(known.number) is not known.partition:
            return False
        start = known.layout.read(bytes(data))
        return start is not None and known.turn.run(start.step, start.first_step, start.tensors, on_done)

    def begin(
        self,
        owner: str,
        frames: Frames,
        start: StepStart,
        served: ServedSession,
        sent: Sequence[tuple[Key, TensorValue | Dead]],
        on_done: OnDone,
    ) -> bool:
        """Runs what a message starts that was not known, if that can be done in one turn; it is known from then on.

        Args:
            owner: who starts it.
            start: what the message says.
            served: the session that it names.
            sent: the tensors that it brings.
            on_done: told the outcome.

        Returns:
            False: nothing has been done.
        """
        partition = served.partitions.get(start.partition)
        if not isinstance(partition, BoundPartition) or start.feeds:
            return False
        turn, tensors = partition.one_turn(sent, start.rows_taken), [value for _, value in sent]
        if turn is None or not turn.run(start.step, start.first_step, tensors, on_done):
            return False
        data = bytes(frames[0])
        name = owner, data[:HEAD_BYTES]
        # where shapes are others in each step, each message would be learnt in vain
        if self._sizes.get(name) != len(data):
            self._sizes[name] = len(data)
        elif len(frames) == 1 and has_layout(start):
            if len(self._known) >= _MOST:
                self.forget()
            self._known[name] = _KnownStart(StartLayout(data, start), served, start.partition, partition, turn)
        return True

    def forget(self) -> None:
        """Keeps nothing of what may have ended; what has not is learnt anew."""
        self._known.clear()
        self._sizes.clear()
