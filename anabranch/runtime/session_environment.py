"""What all steps of one session share on a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.core.devices import Device
from anabranch.graph.step_nodes import StepFunction
from anabranch.runtime.containers import Containers
from anabranch.runtime.random_counters import CountedStream, RandomCounters
from anabranch.runtime.waiting import ActiveSteps

#: (function, inputs, where its random operations count) -> outputs
FunctionRunner = Callable[[StepFunction, list[Any], CountedStream | None], list[Any]]


@dataclass(frozen=True, slots=True)
class SessionEnvironment:
    """See the module docstring.

    Attributes:
        session: names what belongs to the session alone, among what the sessions of its task have.
        containers: the task's variables, queues and tables.
        counters: how often each random operation of the session has run.
        run_function: runs a function as a step of its own.
        active: the steps that are under way.
        devices: those of the task, by their full names.
        task: the task, as `ResourceHandle.task` says it.
        is_shared: whether other tasks work for the session too.
        is_remote: whether another process asks for all that is done, so that no thread of the program's does it.
    """

    session: str
    containers: Containers
    counters: RandomCounters
    run_function: FunctionRunner
    active: ActiveSteps
    devices: Mapping[str, Device]
    task: str = ""
    is_shared: bool = False
    is_remote: bool = False

    @property
    def private_prefix(self) -> str:
        """How the names begin of objects that belong to the session alone."""
        return f"_{self.session}_"
