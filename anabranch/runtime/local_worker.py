"""The worker of this process: what its task holds, and what it does for each session (§3.3)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from anabranch.core import dtypes
from anabranch.core.bounded import Table
from anabranch.core.devices import Device, task_of
from anabranch.errors import OpError
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.pipeline import plan_function
from anabranch.placement.placer import Placer
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.bound_partition import BoundPartition, bound_partitions
from anabranch.runtime.containers import Containers
from anabranch.runtime.device_settings import settings
from anabranch.runtime.devices import session_devices
from anabranch.runtime.random_counters import CountedStream, RandomCounters, using_stream
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.waiting import ActiveSteps
from anabranch.xla.islands import runs_on_host
from anabranch.xla.partitions import Partition


class LocalTask:
    """What the sessions of one task share: its containers (design D5)."""

    _tasks: dict[str, LocalTask] = {}
    _registry_lock = threading.Lock()

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.containers = Containers()

    @classmethod
    def named(cls, name: str) -> LocalTask:
        """The task of that name in this process, made on first use."""
        with cls._registry_lock:
            return cls._tasks.setdefault(name, LocalTask(name))


def placer_for(config: ConfigProto | None, policy: PlacementPolicy, devices: Sequence[Device] | None = None) -> Placer:
    """The placer of a session.

    Args:
        devices: those that it places on; default: those of this process.

    Raises:
        InvalidArgumentError: the configuration names devices that do not exist.
    """
    soft, log = (False, False) if config is None else (config.allow_soft_placement, config.log_device_placement)
    soft = soft or settings.get_soft_device_placement()
    return Placer(session_devices(config) if devices is None else devices, _is_host_work, policy, soft, log)


def _is_host_work(op: StepNode) -> bool:
    """Whether only a CPU can run an operation. The executor itself runs the primitives of control flow."""
    return not op.op_def.is_primitive and runs_on_host(op)


class LocalWorkerSession:
    """What the worker of this process does for one session.

    Args:
        name: the session's.
        task: whose variables it works on; None: a task of its own.
        placer: chooses devices for the functions that run as steps of their own.
        is_shared: whether other tasks work for the session too.
        first_step: the steps below have ended, where the session was opened before.
        is_remote: whether another process asks for all that is done.

    Attributes:
        containers: what the task holds.
    """

    def __init__(
        self,
        name: str,
        task: LocalTask | None,
        placer: Placer,
        is_shared: bool = False,
        first_step: int = 0,
        is_remote: bool = False,
    ) -> None:
        self.name = name
        self._is_shared, self._is_remote = is_shared, is_remote
        self._placer = placer
        self._owns_task = task is None
        self.containers = LocalTask().containers if task is None else task.containers
        self._counters = RandomCounters()
        self._functions = Table()
        self._active = ActiveSteps()
        #: steps that functions are: they count downwards, so that no number is that of a step of the master
        self._numbers = itertools.count(-1, -1)
        self._devices = {device.name: device for device in placer.devices}
        if is_shared:
            self.containers.rendezvous.open_session(name, first_step)

    def register(self, partition: Partition) -> BoundPartition:
        """Binds a partition to what the task holds.

        Raises:
            OpError: an operation has no kernel here.
        """
        return BoundPartition(partition, self._environment())

    def abort(self, number: int, error: OpError) -> None:
        """Gives up a step, which may not have begun here: it never does then."""
        self.containers.rendezvous.abort(StepId(self.name, number), error)
        self._active.cancel(number, error)

    def close(self) -> None:
        """Cancels the steps that wait, and releases the variables unless they belong to a task that others share."""
        # first the steps, then what they wait for: they are told that the session was closed
        self._active.cancel_all("the step was cancelled: its session was closed while it was waiting")
        if self._owns_task:
            closed, self.containers = self.containers, Containers()
            closed.close()
            self._functions.clear()
        else:
            self.containers.close_private(self._environment().private_prefix)

    @property
    def rendezvous(self) -> Rendezvous:
        """Where its tensors meet those who receive them."""
        return self.containers.rendezvous

    def forget(self) -> None:
        """Ends the threads of a session that nobody holds any more, and hence no step is running in."""
        if self._owns_task:
            self.containers.close()
        else:
            self.containers.close_private(self._environment().private_prefix)
        if self._is_shared:
            self.containers.rendezvous.forget_session(self.name)

    def _environment(self) -> SessionEnvironment:
        return SessionEnvironment(
            self.name,
            self.containers,
            self._counters,
            self.run_function,
            self._active,
            self._devices,
            task_of(next(iter(self._devices))) if self._is_shared else "",
            self._is_shared,
            self._is_remote,
        )

    def run_function(self, body: StepFunction, inputs: list[Any], stream: CountedStream | None = None) -> list[Any]:
        """Runs a function as a step of its own: one that cannot be part of an island, or that a dataset calls.

        Args:
            stream: where its random operations count; None: where they count for the step that calls.
        """
        # a plan holds the handles as known values: another queue or table needs a plan of its own
        handles = tuple(v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is dtypes.resource)
        key = (body, handles)
        bound = self._functions.get(key)
        if bound is None:
            bound = self._bind_function(body, inputs)
            bound_partitions.add(self._functions, key, bound)
        feeds = [v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is not dtypes.resource]
        number = next(self._numbers)
        if stream is None:
            return bound.run_on_device(number, feeds)
        with using_stream(stream):
            return bound.run_on_device(number, feeds)

    def _bind_function(self, body: StepFunction, inputs: list[Any]) -> BoundPartition:
        known = {i: inputs[i] for i, p in enumerate(body.inputs) if p.dtype is dtypes.resource}
        (partition,) = plan_function(body, known, self._placer).partitions
        return BoundPartition(partition, self._environment())
