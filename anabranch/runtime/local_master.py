"""The master of a single process: prepares steps and keeps them."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any

from anabranch.core import dtypes
from anabranch.core.bounded import Table
from anabranch.graph.loop_structure import PRIMITIVES
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.pipeline import plan_function, plan_step
from anabranch.placement.cost_model import CostModel
from anabranch.placement.placer import Placer
from anabranch.placement.policy import PlacementPolicy, policy_of
from anabranch.runtime import explain
from anabranch.runtime.containers import Containers
from anabranch.runtime.device_settings import settings
from anabranch.runtime.devices import DeviceAttributes, attributes_of, session_devices
from anabranch.runtime.measurement import measure_step, measure_transfers
from anabranch.runtime.random_counters import Draws, RandomCounters, drawing
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.step import PreparedStep, prepared_steps
from anabranch.runtime.waiting import ActiveSteps
from anabranch.xla.islands import runs_on_host


def _is_host_work(op: StepNode) -> bool:
    """Whether only a CPU can run an operation. The executor itself runs the primitives of control flow."""
    return op.type not in PRIMITIVES and runs_on_host(op)


_session_numbers = itertools.count(1)


class LocalTask:
    """What the sessions of one task share: its containers (design D5)."""

    _tasks: dict[str, LocalTask] = {}
    _registry_lock = threading.Lock()

    def __init__(self) -> None:
        self.containers = Containers()

    @classmethod
    def named(cls, name: str) -> LocalTask:
        """The task of that name in this process, made on first use."""
        with cls._registry_lock:
            return cls._tasks.setdefault(name, LocalTask())


class LocalMaster:
    """Prepares the steps of one session and runs function bodies that cannot be part of an island.

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
        config: Any = None,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        explain.enable_if_asked()
        soft, log = (False, False) if config is None else (config.allow_soft_placement, config.log_device_placement)
        soft = soft or settings.get_soft_device_placement()
        self.placer = Placer(session_devices(config), _is_host_work, policy_of(placement), soft, log)
        self._owns_task = task is None
        self.task = task or LocalTask()
        self._session = f"session_{next(_session_numbers)}"
        self._counters = RandomCounters()
        self._functions = Table()
        self._active = ActiveSteps()

    def close(self) -> None:
        """Cancels the steps that wait, and releases the variables unless they belong to a task that others share."""
        self._active.cancel_all("the step was cancelled: its session was closed while it was waiting")
        if self._owns_task:
            closed, self.task = self.task, LocalTask()
            closed.containers.close()
            self._functions.clear()
        else:
            self.task.containers.close_private(self._environment().private_prefix)

    def forget(self) -> None:
        """Ends the threads of a session that nobody holds any more, and hence no step is running in."""
        if self._owns_task:
            self.task.containers.close()
        else:
            self.task.containers.close_private(self._environment().private_prefix)

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""
        return attributes_of(self.placer.devices)

    def measure(self, model: CostModel, step: PreparedStep, feeds: Sequence[Any], runs: int) -> None:
        """Adds to a model what a step and transfers between the devices cost."""
        measure_step(model, step, feeds, runs)
        measure_transfers(model, self.placer.devices)

    def prepare(self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> PreparedStep:
        """Compiles a kind of step down to calls.

        Raises:
            OpError: the graph cannot be run (a cycle, an operation without a kernel), or not placed.
        """
        plan = plan_step(fetches, targets, feeds, self.placer)
        return PreparedStep(plan, self._environment())

    def _environment(self) -> SessionEnvironment:
        return SessionEnvironment(self._session, self.task.containers, self._counters, self.run_function, self._active)

    def run_function(self, body: StepFunction, inputs: list[Any], draws: Draws | None = None) -> list[Any]:
        """Runs a function as a step of its own.

        Args:
            draws: where its random operations count; None: where they count for the step that calls.
        """
        handles = tuple(v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is dtypes.resource)
        key = (body, handles)
        step = self._functions.get(key)
        if step is None:
            step = self._prepare_function(body, inputs)
            prepared_steps.add(self._functions, key, step)
        feeds = [v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is not dtypes.resource]
        if draws is None:
            return step.run_on_device(feeds)
        with drawing(draws):
            return step.run_on_device(feeds)

    def _prepare_function(self, body: StepFunction, inputs: list[Any]) -> PreparedStep:
        known = {i: inputs[i] for i, p in enumerate(body.inputs) if p.dtype is dtypes.resource}
        plan = plan_function(body, known, self.placer)
        return PreparedStep(plan, self._environment())
