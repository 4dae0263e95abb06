"""The master of a single process: prepares steps and keeps them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from anabranch.core import dtypes
from anabranch.graph.operation import Operation, Tensor
from anabranch.pipeline import build_plan
from anabranch.runtime import explain
from anabranch.runtime.containers import Containers
from anabranch.runtime.devices import DeviceAttributes, local_devices
from anabranch.runtime.random_counters import RandomCounters
from anabranch.runtime.step import PreparedStep

#: prepared function bodies kept per master
_MAX_BODIES = 256


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
    """Prepares the steps of one session and runs function bodies that cannot be part of an island."""

    def __init__(self, task: LocalTask | None = None) -> None:
        explain.enable_if_asked()
        self._owns_task = task is None
        self.task = task or LocalTask()
        self.run_seed = int.from_bytes(os.urandom(4), "little")
        self.counters = RandomCounters()
        self._bodies: OrderedDict[Hashable, PreparedStep] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Releases the variables, unless they belong to a task that other sessions share."""
        if self._owns_task:
            self.task = LocalTask()
            self._bodies.clear()

    @staticmethod
    def devices() -> list[DeviceAttributes]:
        """The devices of this process."""
        return local_devices()

    def prepare(self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> PreparedStep:
        """Compiles a kind of step down to calls.

        Raises:
            OpError: the graph cannot be run (a cycle, an operation without a kernel).
        """
        plan = build_plan(fetches, targets, feeds)
        return PreparedStep(plan, self.task.containers, self.run_seed, self.counters, self.run_body)

    def run_body(self, body: Any, inputs: list[Any]) -> list[Any]:
        """Runs a function graph as a step of its own."""
        handles = tuple(v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is dtypes.resource)
        key = (id(body), body.version, handles)
        with self._lock:
            step = self._bodies.get(key)
        if step is None:
            step = self._prepare_body(body, inputs)
            with self._lock:
                self._bodies[key] = step
                while len(self._bodies) > _MAX_BODIES:
                    self._bodies.popitem(last=False)
        feeds = [v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is not dtypes.resource]
        return step.run_on_device(feeds)

    def _prepare_body(self, body: Any, inputs: list[Any]) -> PreparedStep:
        known = {p: v for v, p in zip(inputs, body.inputs, strict=True) if p.dtype is dtypes.resource}
        feeds = [p for p in body.inputs if p not in known]
        plan = build_plan(body.outputs, [], feeds, known)
        return PreparedStep(plan, self.task.containers, self.run_seed, self.counters, self.run_body)
