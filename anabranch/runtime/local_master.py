"""The master of sessions whose steps run in this process: it plans them, and numbers their runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from anabranch.core.bounded import ticks
from anabranch.core.device import DeviceSpec
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError
from anabranch.graph.operation import Operation, Tensor
from anabranch.pipeline import Plan, plan_step
from anabranch.placement.cost_model import CostModel
from anabranch.placement.placer import Placer
from anabranch.placement.policy import PlacementPolicy, policy_of
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime import explain
from anabranch.runtime.devices import DeviceAttributes, XlaDevice, attributes_of
from anabranch.runtime.half_precision import half_request
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.lent_tensors import DlpackTensor, KeptFetches, LentFeeds, lent_array, lent_to_host
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.measurement import measure_step, measure_transfers
from anabranch.runtime.protocols import OnDone, RegisteredPartition, Step, WorkerSession

#: (name of the session, task, placer, configuration) -> the session at the worker
OpenWorkerSession = Callable[[str, LocalTask | None, Placer, ConfigProto | None], WorkerSession]


def open_beside(name: str, task: LocalTask | None, placer: Placer, _: ConfigProto | None) -> WorkerSession:
    """The session of a worker that runs beside its master, and shares its placer."""
    return LocalWorkerSession(name, task, placer)


#: the last of them opens the sessions of masters that are made from now on; a test puts a transport of bytes in between
worker_session_openers: Final[list[OpenWorkerSession]] = [open_beside]

_session_numbers = itertools.count(1)


class LocalMaster:
    """Plans the steps of one session, and gives them to the worker of this process.

    Args:
        task: whose variables the session works on; default: a task of its own.
        config: the session's `ConfigProto`.
        placement: the session's placement policy, or the path of its file.

    Raises:
        InvalidArgumentError: the configuration names devices that do not exist, or the policy is malformed.
        NotFoundError: there is no such policy file.
    """

    def __init__(
        self,
        task: LocalTask | None = None,
        config: ConfigProto | None = None,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        explain.enable_if_asked()
        self.placer = placer_for(config, policy_of(placement))
        self._half = half_request(config, self.placer.devices)
        name = f"session_{next(_session_numbers)}"
        self.worker = worker_session_openers[-1](name, task, self.placer, config)
        self._numbers = itertools.count(1)
        #: the devices with a memory of their own
        self._far = {d.name: d for d in self.placer.devices if isinstance(d, XlaDevice) and d.is_far}

    def stay_lost(self) -> None:
        """See `runtime.protocols.Master`: no other process takes this one over."""

    def leaving(self) -> frozenset[str]:
        """See `runtime.protocols.Master`: this process says so to itself, if at all (`tf.train.PreemptionHook`)."""
        return frozenset()

    def close(self) -> None:
        """Cancels the steps that wait, and releases the variables unless they belong to a task that others share."""
        self.worker.close()

    def forget(self) -> None:
        """Ends the threads of a session that nobody holds any more, and hence no step is running in."""
        self.worker.forget()

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""
        return attributes_of(self.placer.devices)

    def measure(self, model: CostModel, step: Step, feeds: Sequence[TensorValue], runs: int) -> None:
        """Adds to a model what a step and transfers between the devices cost."""
        devices = {device.name: device.device_type for device in self.placer.devices}
        measure_step(model, step, feeds, runs, devices)
        measure_transfers(model, self.placer.devices)

    def prepare(
        self,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        kept: Mapping[int, str] | None = None,
    ) -> PlannedStep:
        """Plans a kind of step, and gives the worker its partition.

        Args:
            kept: for fetches, by their positions, the devices in whose memory their values stay.

        Raises:
            OpError: the graph cannot be run (a cycle, an operation without a kernel), or not placed.
            InvalidArgumentError: there is no such device.
        """
        places = {position: self._device(name) for position, name in (kept or {}).items()}
        plan = plan_step(fetches, targets, feeds, self.placer, self._half)
        (partition,) = plan.partitions
        step = PlannedStep(plan, self.worker.register(partition), self._numbers)
        if self._far:
            step.lent = LentFeeds(partition, self._far)
        if places:
            step.kept = KeptFetches(partition, places)
        return step

    def lend(self, value: DlpackTensor) -> Any:
        """See `runtime.protocols.Master`."""
        return lent_array(value) if self._far else lent_to_host(value)

    def _device(self, name: str) -> XlaDevice:
        """The only device of that name, which may leave out parts."""
        wanted = DeviceSpec.from_string(name)
        found = [d for d in self.placer.devices if wanted.covers(DeviceSpec.from_string(d.name))]
        if len(found) != 1 or not isinstance(found[0], XlaDevice):
            raise InvalidArgumentError(
                None,
                None,
                f"{name!r} is {'no device' if not found else 'not one device'} of this session that XLA compiles for; "
                f"it has {[d.name for d in self.placer.devices]}",
            )
        return found[0]


class PlannedStep:
    """A step that runs on the task of this process alone. See `runtime.protocols.Step`.

    Attributes:
        lent: takes feeds to where they are read; None: all are on the host.
        kept: gives fetches where they are asked for; None: all on the host.
    """

    __slots__ = ("__weakref__", "_numbers", "_partition", "kept", "lent", "plan", "used")

    def __init__(self, plan: Plan, partition: RegisteredPartition, numbers: Iterator[int]) -> None:
        self.plan = plan
        self._partition = partition
        self._numbers = numbers
        self.lent: LentFeeds | None = None
        self.kept: KeptFetches | None = None
        self.used = 0

    def release(self) -> None:
        """Releases executables; a run that comes later compiles anew."""
        self._partition.release()

    def run(
        self, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Runs one step; see `BoundPartition.run`."""
        self.used = next(ticks)
        if self.lent is not None:
            feeds = self.lent(feeds)
        if self.kept is not None:
            return self.kept(self._partition.run_on_device(next(self._numbers), feeds, record, timeout))
        return self._partition.run(next(self._numbers), feeds, record, timeout)

    def start(self, feeds: Sequence[TensorValue], on_done: OnDone, timeout: float | None = None) -> None:
        """Starts one step; see `BoundPartition.start`."""
        self.used = next(ticks)
        if self.lent is not None:
            feeds = self.lent(feeds)
        self._partition.start(next(self._numbers), feeds, on_done, timeout)
