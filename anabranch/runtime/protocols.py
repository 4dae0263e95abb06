"""What a session, its master and its workers ask of each other (§3.3, WP2; design D9; docs/decisions/0036).

A session has a master, which plans its steps and gives each task's worker its partition. It then starts the steps under
numbers of its own. A worker binds partitions to what its task holds, runs them, and tells the outcome. All that passes
between a master and a worker are values: partitions, arrays, names and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.operation import Operation, Tensor
from anabranch.pipeline import Plan
from anabranch.placement.cost_model import CostModel
from anabranch.runtime.devices import DeviceAttributes
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.lent_tensors import DlpackTensor
from anabranch.xla.partitions import Partition

#: told the values of the fetches, or what the step failed with
OnDone = Callable[[Sequence[TensorValue] | BaseException], None]


class Step(Protocol):
    """A prepared step. May be run by several threads at once.

    Attributes:
        plan: what it was planned to do.
        used: when it last ran; see `core.bounded.Kept`.
    """

    plan: Plan
    used: int

    def release(self) -> None:
        """Releases executables; a run that comes later compiles anew."""

    def run(
        self, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """One value per fetch, for one array per feed; fails when it waits for longer than `timeout` seconds.

        A feed is an array of NumPy, or what the master's `lend` gave.
        """

    def start(self, feeds: Sequence[TensorValue], on_done: OnDone, timeout: float | None = None) -> None:
        """Like `run`, but returns at once. While the step waits it holds no thread.

        `on_done` is called once, on a thread of ours, and must not raise or wait.
        """


class Master(Protocol):
    """Prepares steps. The local one has a worker in this process; a cluster's has one on each task."""

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""

    def measure(self, model: CostModel, step: Step, feeds: Sequence[TensorValue], runs: int) -> None:
        """Adds to a model what a step and transfers between the devices cost."""

    def prepare(
        self,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        kept: Mapping[int, str] | None = None,
    ) -> Step:
        """Compiles a kind of step.

        Args:
            kept: for fetches, by their positions, the devices in whose memory their values stay.
        """

    def lend(self, value: DlpackTensor) -> Any:
        """What a step is fed for a tensor of another library in an accelerator's memory; None for one in the host's.

        Raises:
            ValueError: that memory cannot be reached.
        """

    def stay_lost(self) -> None:
        """From now on every step of a task fails that another process has taken over, and not only the first."""

    def leaving(self) -> frozenset[str]:
        """The names of the tasks that have said that they are about to leave."""

    def close(self) -> None:
        """Cancels the steps that wait, and releases what belongs to the session alone."""

    def forget(self) -> None:
        """Ends what works for a session that nobody holds any more, and hence no step is running in."""


class RegisteredPartition(Protocol):
    """A partition as its master knows it once the worker has it. May be run by several threads at once."""

    def run(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Runs it as part of the step of that number; takes and gives the values of its feeds and fetches."""

    def run_on_device(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Likewise; values stay in the memory of devices where the worker is in this process."""

    def start(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Likewise, but returns at once; see `Step.start`."""

    def release(self) -> None:
        """As of `Step`."""


class WorkerSession(Protocol):
    """What the worker of one task does for one session."""

    def abort(self, number: int, error: OpError) -> None:
        """Gives up a step, which may not have begun there: it never does then."""

    def register(self, partition: Partition) -> RegisteredPartition:
        """Binds a partition to what the task holds.

        Raises:
            OpError: it cannot be run there.
        """

    def close(self) -> None:
        """As of `Master`."""

    def forget(self) -> None:
        """As of `Master`."""


class LinkTraffic(NamedTuple):
    """What went between this process and another.

    Attributes:
        name: what the other calls itself; empty before it has said so.
        address: its own.
        state: of the link to it.
        sent_bytes, received_bytes: since this process knows it, those in shared memory too.
    """

    name: str
    address: str
    state: str
    sent_bytes: int
    received_bytes: int
