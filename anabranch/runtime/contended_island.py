"""What runs in place of an island for which threads wait: the island, or its parts, whichever is quicker."""

from __future__ import annotations

import threading

from anabranch.runtime.contention import Ways
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.item_call import ItemCall, Recorder
from anabranch.runtime.split_island import SplitIsland
from anabranch.runtime.step_frame import StepFrame
from anabranch.xla.one_thread import own_clients


class ContendedIsland(ItemCall):
    """An island and its look-ups, gradients and updates.

    Args:
        whole: the island.
        parts: what computes the same in parts.

    Attributes:
        whole: as given.
    """

    def __init__(self, whole: IslandCall, parts: SplitIsland) -> None:
        self.op, self.kind, self.operations, self.device = whole.op, whole.kind, whole.operations, whole.device
        self.whole, self._parts = whole, parts
        self._outputs = whole._outputs
        self._ways = Ways(parts.is_warm, whole.waits_long)

    def __call__(self, frame: StepFrame) -> None:
        thread = threading.get_ident()
        if self._ways.apart(thread):
            own_clients.take(thread)
            try:
                self._parts(frame)
            finally:
                own_clients.give_back(thread)
        else:
            self.whole(frame)

    def run_recorded(self, frame: StepFrame, record: Recorder) -> None:
        """Tells of the items of parts, where these run."""
        thread = threading.get_ident()
        if self._ways.apart(thread):
            own_clients.take(thread)
            try:
                self._parts.run_recorded(frame, record)
            finally:
                own_clients.give_back(thread)
        else:
            self.whole.run_recorded(frame, record)

    @property
    def sources(self) -> list[str]:
        return self.whole.sources

    def release(self) -> None:
        self.whole.release()
        self._parts.release()
