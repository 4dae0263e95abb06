"""An item of a plan as the dispatcher runs it."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.pending import Pending
from anabranch.runtime.dispatcher import Mode
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.item_call import Arithmetic, ItemCall, Recorder
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.transfer_call import TransferCall
from anabranch.xla.lowering import NeedsPartsError

#: gives what runs in place of an island that is not to run as one any more
Split = Callable[[ItemCall, NeedsPartsError], ItemCall]


class ItemWork:
    """See `runtime.dispatcher.Work`."""

    __slots__ = ("_call", "_split", "mode", "op")

    def __init__(self, call: ItemCall, mode: Mode, split: Split) -> None:
        self._call, self.mode, self._split = call, mode, split
        self.op = call.op

    def run(self, frame: StepFrame, record: Recorder | None) -> bool:
        """Computes outputs from inputs, all of them."""
        try:
            # `_run`, written out: of a short loop's time this call would be a part
            if record is None:
                self._call(frame)
            else:
                self._call.run_recorded(frame, record)
        except NeedsPartsError as refusal:
            # for good: later runs would meet the same refusal
            self._call = self._split(self._call, refusal)
            self._run(frame, record)
        return False

    def _run(self, frame: StepFrame, record: Recorder | None) -> None:
        if record is None:
            self._call(frame)
        else:
            self._call.run_recorded(frame, record)

    def arithmetic(self) -> Arithmetic | None:
        """See `ItemCall.arithmetic`."""
        return self._call.arithmetic()

    def release(self) -> None:
        """Releases executables."""
        self._call.release()

    def start(self, frame: StepFrame) -> Pending | None:
        """Begins asynchronous work; returns what to wait for if it is not done."""
        assert isinstance(self._call, HostKernelCall)
        return self._call.start(frame)

    def finish(self, frame: StepFrame, pending: Pending, started: float, record: Recorder | None) -> bool:
        """Stores the outputs of what `start` returned; whether they are dead."""
        assert isinstance(self._call, HostKernelCall)
        dead = self._call.finish(frame, pending)
        if record is not None and not dead:
            record(self._call.event(frame, started))
        return dead

    def send_dead(self, frame: StepFrame) -> None:
        """Tells another task that what it waits for is dead."""
        assert isinstance(self._call, TransferCall)
        self._call.send_dead(frame)
