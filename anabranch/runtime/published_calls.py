"""The calls of a partition of which another task reads for itself what it would be sent (§4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.item_call import ItemCall
from anabranch.runtime.one_sided_reads import OneSidedReads, is_alone, left_out, sent_under
from anabranch.runtime.pinned_read import PinnedReadCall
from anabranch.runtime.published_values import Board, PublishedTensor
from anabranch.runtime.straight_run import StraightCalls
from anabranch.xla.partitions import Partition

#: for so many choices of rows the calls are kept
_MOST_KEPT: Final = 64


class DescribedRows(NamedTuple):
    """Rows that the reader of a partition can take; see `runtime.published_rows`.

    Attributes:
        variable: where the variable stands, with the name under which its rows are sent.
        indices: the name under which their indices come.
        shape: of a row.
        is_alone: whether nothing in the partition takes the indices but such rows.
    """

    variable: PublishedTensor
    indices: str
    shape: Sequence[int]
    is_alone: bool


class DescribedReads(NamedTuple):
    """What is shown to the reader of a partition.

    Attributes:
        board: where.
        tensors: values of whole variables.
        rows: in the order of their numbers.
        answers: see `runtime.one_sided_reads.OneSidedReads`.
    """

    board: Board
    tensors: Sequence[PublishedTensor]
    rows: Sequence[DescribedRows]
    answers: bool


class PublishedCalls:
    """See the module docstring.

    Args:
        partition: what is run.
        straight: all of its calls.
        calls: those that it was bound to, by position.
        ahead: what its reader can do.
        containers: of the task.
    """

    def __init__(
        self,
        partition: Partition,
        straight: StraightCalls,
        calls: Sequence[ItemCall],
        ahead: OneSidedReads,
        containers: Containers,
    ) -> None:
        self._partition, self._straight = partition, straight
        self._reads = [call for i in ahead.reads if isinstance(call := calls[i], PinnedReadCall)]
        self._ahead = ahead
        self._tables: list[VariableState] = [containers.variable(rows.variable) for rows in ahead.rows]
        self._without: dict[int, StraightCalls] = {}

    def describe(self, board: Board) -> DescribedReads | None:
        """Shows what is read from now on; None where nothing can be shown."""
        ahead, items = self._ahead, self._partition.items
        sent = {t: sent_under(items[i]) for i in ahead.reads for t in items[i].inputs}
        tensors: list[PublishedTensor] = []
        for call in self._reads:
            slots = call.publish(board)
            if slots is None:
                return None
            tensors += [one.described(sent[t]) for t, one in slots]
        shown, rows = [], list[DescribedRows]()
        for one, state in zip(ahead.rows, self._tables, strict=True):
            # nobody changes it between what is shown and the mark that it is shown
            with state.lock:
                slot, shape = board.publish(state, rows=True), getattr(state.value, "shape", ())
            if slot is not None and shape:
                shown.append(one)
                rows.append(DescribedRows(slot.described(one.tensor), one.indices, shape[1:], False))
        if not (tensors or rows):
            return None
        # a variable that could not be shown is read by the partition, as before, and its rows may be waited for
        self._tables = [state for one, state in zip(ahead.rows, self._tables, strict=True) if one in shown]
        answers = ahead.answers or len(shown) < len(ahead.rows)
        self._ahead = ahead = ahead._replace(rows=shown, answers=answers)
        rows = [one._replace(is_alone=is_alone(self._partition, ahead, one.indices)) for one in rows]
        return DescribedReads(board, tensors, rows, ahead.answers)

    def without(self, rows_taken: int) -> StraightCalls:
        """The calls of a step for which the reader has read all whole variables, and taken these rows.

        Args:
            rows_taken: a bit for each number of rows.
        """
        known = self._without.get(rows_taken)
        if known is None:
            taken = [number for number in range(len(self._ahead.rows)) if rows_taken >> number & 1]
            if len(self._without) >= _MOST_KEPT:
                self._without.clear()
            known = self._without[rows_taken] = self._straight.without(left_out(self._partition, self._ahead, taken))
        return known

    def has_left(self, rows_taken: int) -> bool:
        """Whether there are rows that the reader has not taken."""
        return any(not rows_taken >> number & 1 for number in range(len(self._tables)))

    def show_tables(self, rows_taken: int) -> None:
        """Shows again the variables of which rows were not taken: nobody may have done so since they were changed."""
        for number, state in enumerate(self._tables):
            published = state.published
            # who writes it shows it anyhow, and nobody waits for that here
            if not rows_taken >> number & 1 and published is not None and state.lock.acquire(blocking=False):
                try:
                    published.show(state.value)
                finally:
                    state.lock.release()

    def release(self) -> None:
        """Releases the executables."""
        for calls in self._without.values():
            calls.release()
