"""The master of sessions whose steps run in this process: it plans them, and numbers their runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from anabranch.core.bounded import ticks
from anabranch.graph.loop_structure import PRIMITIVES
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import StepNode
from anabranch.pipeline import Plan, plan_step
from anabranch.placement.cost_model import CostModel
from anabranch.placement.placer import Placer
from anabranch.placement.policy import PlacementPolicy, policy_of
from anabranch.runtime import explain
from anabranch.runtime.device_settings import settings
from anabranch.runtime.devices import DeviceAttributes, attributes_of, session_devices
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession
from anabranch.runtime.measurement import measure_step, measure_transfers
from anabranch.runtime.protocols import OnDone, RegisteredPartition, Step, Value, WorkerSession
from anabranch.xla.islands import runs_on_host

#: (name of the session, task, placer) -> the session at the worker; tests put a transport of bytes in between
OpenWorkerSession = Callable[[str, LocalTask | None, Placer], WorkerSession]


def _is_host_work(op: StepNode) -> bool:
    """Whether only a CPU can run an operation. The executor itself runs the primitives of control flow."""
    return op.type not in PRIMITIVES and runs_on_host(op)


_session_numbers = itertools.count(1)


class LocalMaster:
    """Plans the steps of one session, and gives them to the worker of this process.

    Args:
        task: whose variables the session works on; default: a task of its own.
        config: the session's `ConfigProto`.
        placement: the session's placement policy, or the path of its file.

    Attributes:
        open_worker_session: how the worker is asked to work for a session.

    Raises:
        InvalidArgumentError: the configuration names devices that do not exist, or the policy is malformed.
        NotFoundError: there is no such policy file.
    """

    open_worker_session: ClassVar[OpenWorkerSession] = LocalWorkerSession

    def __init__(
        self,
        task: LocalTask | None = None,
        config: Any = None,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        explain.enable_if_asked()
        soft, log = (False, False) if config is None else (config.allow_soft_placement, config.log_device_placement)
        soft = soft or settings.get_soft_device_placement()
        self.placer = Placer(session_devices(config), _is_host_work, policy_of(placement), soft, log)
        name = f"session_{next(_session_numbers)}"
        self.worker: WorkerSession = type(self).open_worker_session(name, task, self.placer)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Cancels the steps that wait, and releases the variables unless they belong to a task that others share."""
        self.worker.close()

    def forget(self) -> None:
        """Ends the threads of a session that nobody holds any more, and hence no step is running in."""
        self.worker.forget()

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""
        return attributes_of(self.placer.devices)

    def measure(self, model: CostModel, step: Step, feeds: Sequence[Value], runs: int) -> None:
        """Adds to a model what a step and transfers between the devices cost."""
        devices = {device.name: device.device_type for device in self.placer.devices}
        measure_step(model, step, feeds, runs, devices)
        measure_transfers(model, self.placer.devices)

    def prepare(self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> PlannedStep:
        """Plans a kind of step, and gives the worker its partition.

        Raises:
            OpError: the graph cannot be run (a cycle, an operation without a kernel), or not placed.
        """
        plan = plan_step(fetches, targets, feeds, self.placer)
        (partition,) = plan.partitions
        return PlannedStep(plan, self.worker.register(partition), self._numbers)


class PlannedStep:
    """A step that runs on the task of this process alone. See `runtime.protocols.Step`."""

    __slots__ = ("__weakref__", "_numbers", "_partition", "plan", "used")

    def __init__(self, plan: Plan, partition: RegisteredPartition, numbers: Iterator[int]) -> None:
        self.plan = plan
        self._partition = partition
        self._numbers = numbers
        self.used = 0

    def release(self) -> None:
        """Lets executables go; a run that comes later compiles anew."""
        self._partition.release()

    def run(self, feeds: Sequence[Value], record: Recorder | None = None, timeout: float | None = None) -> list[Value]:
        """Runs one step; see `BoundPartition.run`."""
        self.used = next(ticks)
        return self._partition.run(next(self._numbers), feeds, record, timeout)

    def start(self, feeds: Sequence[Value], on_done: OnDone, timeout: float | None = None) -> None:
        """Starts one step; see `BoundPartition.start`."""
        self.used = next(ticks)
        self._partition.start(next(self._numbers), feeds, on_done, timeout)
