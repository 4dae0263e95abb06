"""What replicas share where they go in rounds: accumulators, and a queue of tokens for each worker. See `replicas`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from anabranch.frontend.resources.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from anabranch.frontend.resources.queues import FIFOQueue
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.queue_runner import QueueRunner


class RoundsRunner(QueueRunner):
    """The chief's: its one thread ends one round after the other; between two of them nothing changes the model.

    It waits for values, which no longer come when the workers have stopped: it ends with the session.
    """

    _ends_with_session = True
    _wanted: Callable[[], None] | None = None

    def between_rounds(self, action: Callable[[], None]) -> None:
        """Has something called before the next round, by the thread that would begin it; it must not raise.

        What was asked for before and has not been called yet, is not called.
        """
        self._wanted = action

    def _enqueued(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted()


#: of the optimizer of a graph that works in rounds
rounds_runners: Final[WeakKeyDictionary[Graph, RoundsRunner]] = WeakKeyDictionary()


class HandedIn(NamedTuple):
    """The accumulator of a variable."""

    accumulator: ConditionalAccumulator | SparseConditionalAccumulator
    device: str
    handed_in: Operation
    mean: Any

    def set_time(self, number: Variable) -> Operation:
        with get_default_graph().device(self.device):
            return self.accumulator.set_global_step(number)


def accumulated(scope: str, value: Gradient | None, var: Variable, local: Tensor, m: int) -> HandedIn | None:
    """The accumulator of a variable, on its device; None if there is nothing to hand in."""
    if value is None:
        return None
    name = f"{var.op.name}/{scope}_accumulator"
    with get_default_graph().device(var.device):
        if isinstance(value, IndexedSlices):
            rows = SparseConditionalAccumulator(value.dtype, shape=(), shared_name=name)
            handed_in = rows.apply_indexed_slices_grad(value, local_step=local)
            return HandedIn(rows, var.device, handed_in, rows.take_indexed_slices_grad(m))
        dense = ConditionalAccumulator(value.dtype, shape=var.shape, shared_name=name)
        return HandedIn(dense, var.device, dense.apply_grad(value, local_step=local), dense.take_grad(m))


def token_queue(number: Variable, worker: int) -> FIFOQueue:
    name = f"replica_tokens_{worker}"
    with get_default_graph().device(number.device), get_default_graph().name_scope(""):
        return FIFOQueue(-1, np.int64, shapes=[()], name=name, shared_name=name)


def hand_out(queue: FIFOQueue, token: Tensor, condition: Tensor) -> Operation:
    """Puts a token into a queue, or none."""
    count = raw.Reshape(raw.Cast(condition, DstT=np.int32), [1])
    handed_out: Operation = queue.enqueue_many((raw.Fill(count, token),))
    return handed_out
