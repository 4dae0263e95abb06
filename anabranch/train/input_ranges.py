"""Input that workers share: leases of ranges of examples, each once in an epoch, also when workers come, go and die.

The ranges are dealt out by the task of the global step (`state.leases`). A worker that asks for the next range says
that it has done the last. What a worker had that is not heard of for a while goes to another. Who has what is saved
with the model: a range that was not done when a checkpoint was saved is dealt out again after a restore.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch import errors
from anabranch.core.interrupts import admitted
from anabranch.core.pauses import Pauses
from anabranch.core.values import TensorValue
from anabranch.frontend.platform import logging
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.coordinator import is_told_to_end
from anabranch.train.hooked_session import StepContext
from anabranch.train.model_shards import INITIALIZERS
from anabranch.train.monitored_session import MonitoredSession
from anabranch.train.preemption import end_if_told
from anabranch.train.saveables import SaveableObject, SaveSpec
from anabranch.train.training_util import get_or_create_global_step

#: how long (s) a worker may take for a range, unless it says otherwise
RANGE_SECONDS: Final = 60.0
#: the longest pause (s) between two questions of a worker for whom there is nothing at the moment
_LONGEST_PAUSE: Final = 1.0

_numbers = itertools.count(1)


class InputRange(NamedTuple):
    """Examples for one worker.

    Attributes:
        epoch: which pass over the examples, from 0.
        begin, end: which examples, the end excluded.
    """

    epoch: int
    begin: int
    end: int


class _Positions(SaveableObject):
    """Saves which ranges are done: so they were before the variables are read, which have what they were used for."""

    is_read_first = True

    def __init__(self, handle: Tensor, name: str) -> None:
        self._handle = handle
        spec = SaveSpec(lambda: raw._ExportRanges(handle), "", name, np.int64, handle.device)
        super().__init__(handle, [spec], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: list[Any] | None) -> Operation:
        restored: Operation = raw._ImportRanges(self._handle, restored_tensors[0])
        return restored


class InputRanges:
    """Deals ranges of examples out to workers; each worker makes one with the same arguments in its graph.

    A worker that dies after the step in which it used a range, and before it has asked for the next, has that range
    used once more: that is all that a death repeats.

    Args:
        examples: how many there are.
        size: how many make up a range, a batch or several; the last one may have fewer.
        epochs: how often all are dealt out.
        seconds: how long a worker may take for a range before it is thought dead.
        name: of the object that workers share, and in checkpoints.

    Raises:
        ValueError: a number is not positive.

    Example:
        >>> ranges = tf.train.replicas.InputRanges(examples=5, size=2)
        >>> with tf.train.MonitoredTrainingSession() as session:
        ...     for epoch, begin, end in ranges.leased(session):
        ...         print(begin, end)
        0 2
        2 4
        4 5
    """

    def __init__(
        self,
        examples: int,
        size: int,
        epochs: int = 1,
        seconds: float = RANGE_SECONDS,
        name: str = "input_ranges",
    ) -> None:
        if min(examples, size, epochs, seconds) <= 0:
            raise ValueError(
                f"examples, size, epochs and seconds must be positive, got {examples}, {size}, {epochs} and {seconds}"
            )
        self._seconds, self._epochs = seconds, epochs
        self._me = f"{socket.gethostname()}:{os.getpid()}.{next(_numbers)}"
        graph, step = get_default_graph(), get_or_create_global_step()
        with graph.device(step.device or None), graph.name_scope(name), graph.control_dependencies(None):
            handle = raw._RangeLeases(examples=examples, size=size, epochs=epochs, shared_name=name)
            self._done = raw.Placeholder(dtype=np.int64, shape=[None])
            self._wanted = raw.Placeholder(dtype=np.float64, shape=[])
            self._answer = raw._AskForRange(handle, self._me, self._done, self._wanted)
            #: begins with the first epoch
            self.initializer: Operation = raw._ImportRanges(handle, np.zeros([0], np.int64))
        graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _Positions(handle, name))
        graph.add_to_collection(INITIALIZERS, self.initializer)

    def leased(self, session: Session | MonitoredSession) -> Iterator[InputRange]:
        """The ranges that this worker gets, until all epochs are over.

        Asking for the next says that the last is done. Who stops before gives back the last one, as not done, unless it
        has said so (`done`).

        Args:
            session: asks for them, beside the steps and their hooks.

        Raises:
            OpError: the task that deals them out does not answer.
            OutOfRangeError: the process was told to end (`PreemptionHook`).
        """
        self._given = done = list[int]()
        pauses = Pauses(_LONGEST_PAUSE)
        try:
            while True:
                coord = session._coord if isinstance(session, MonitoredSession) else None
                # who is told to end wants no more, but says what it has done
                wanted = 0.0 if is_told_to_end(coord) else self._seconds
                epoch, ticket, begin, end = self._ask(session, done, wanted)
                done = []
                if not wanted:
                    end_if_told(coord)
                if epoch >= self._epochs:
                    return
                if begin < 0:
                    logging.vlog(1, "No range is free: other workers have the last ones of epoch %d", epoch)
                    with admitted():
                        time.sleep(pauses.next())
                    continue
                pauses.reset()
                self._given = [ticket, begin]
                yield InputRange(epoch, begin, end)
                done, self._given = self._given, []
        finally:
            # a session that has ended cannot say so; then the others wait until the time is over
            with contextlib.suppress(errors.OpError, RuntimeError):
                self._ask(session, [], 0.0)

    def done(self, session: Session | MonitoredSession) -> None:
        """Says that the range which this worker had last is done: before it leaves.

        Args:
            session: as for `leased`.

        Raises:
            OpError: the task that deals ranges out does not answer.
        """
        given, self._given = self._given, []
        self._ask(session, given, 0.0)

    def _ask(self, session: Session | MonitoredSession, done: list[int], seconds: float) -> tuple[int, int, int, int]:
        feeds = {self._done: np.array(done, np.int64), self._wanted: seconds}

        def ask(step_context: StepContext) -> TensorValue:
            return step_context.session.run(self._answer, feeds)

        said = session.run_step_fn(ask) if isinstance(session, MonitoredSession) else session.run(self._answer, feeds)
        epoch, ticket, begin, end = (int(number) for number in said)
        return epoch, ticket, begin, end
