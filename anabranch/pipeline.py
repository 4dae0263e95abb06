"""The whole compile story of a step, top to bottom (design D6).

Fetches, targets and feeds go in; for each task a partition comes out: a value that says which islands (compiled) and
host calls run there, in which order. Nothing here depends on the values of a step, nor on what the tasks hold. They
bind partitions to that (`runtime.bound_partition`); an island's executables are made when its input shapes are first
seen (`xla.executable`).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.core.devices import LOCAL_TASK, Device
from anabranch.core.resources import ResourceHandle
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import StepFunction, StepNode
from anabranch.passes.counted_loops import count_loops
from anabranch.passes.cse import merge_common_subexpressions
from anabranch.passes.equal_shapes import drop_reshapes_to_equal_shapes
from anabranch.passes.fold import fold
from anabranch.passes.fused_bias import fuse_bias
from anabranch.passes.fused_relu import fuse_relu
from anabranch.passes.fused_rows import fuse_rows
from anabranch.passes.half_precision import HalfRequest, TypeChoice, convert_to_half
from anabranch.passes.lower_control_flow import lower_control_flow
from anabranch.passes.placed_maxima import place_maxima
from anabranch.passes.prune import prune
from anabranch.passes.rewriting import step_of_function, step_of_members
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.unneeded_bounds import drop_unneeded_bounds
from anabranch.passes.unneeded_copies import drop_unneeded_copies
from anabranch.passes.unneeded_values import drop_unneeded_values
from anabranch.passes.verify import verify
from anabranch.placement.partition import partition
from anabranch.placement.placer import Placement, Placer, apply
from anabranch.placement.verify_devices import verify_partitioned, verify_placed
from anabranch.xla.islands import (
    Grouping,
    Island,
    PlanItem,
    functional_host_work,
    group,
    group_in_phases,
    order_of,
    runs_on_host,
)
from anabranch.xla.partitions import Partition, cut, verify_partitions
from anabranch.xla.receives import ReceiveReport, delay_receives
from anabranch.xla.state import touches_variables, writes_variables
from anabranch.xla.update_phases import update_phases
from anabranch.xla.verify_items import verify_items


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage left: the number of operations still to run, and the time it took (s)."""

    stage: str
    operations: int
    seconds: float


@dataclass(slots=True)
class Plan:
    """How one kind of step runs: its items in order, where its fetches come from, and what each task has to do with it.

    Attributes:
        partitions: what the tasks run, and all that they are told.
        placement: the report of the placer; None where the plan was made without one.
        receives: which Recvs are delayed, until when; None where nothing is received.
        half: what is asked about half precision; None: nothing.
        types: in which dtype each operation on float32 computes, and why; empty where half precision is not asked for.
    """

    grouping: Grouping
    step: StepGraph
    partitions: list[Partition]
    stages: list[StageReport] = field(default_factory=list)
    placement: Placement | None = None
    receives: ReceiveReport | None = None
    half: HalfRequest | None = None
    types: list[TypeChoice] = field(default_factory=list)

    @property
    def items(self) -> list[PlanItem]:
        return self.grouping.items

    @property
    def islands(self) -> list[Island]:
        return [item for item in self.items if isinstance(item, Island)]


#: the full name of the device on which what is planned without a placer runs
HOST_DEVICE: Final = f"{LOCAL_TASK}/device:CPU:0"

#: told about every new plan, from whichever thread made it
plan_listeners: list[Callable[[Plan], None]] = []


def _announced(plan: Plan) -> Plan:
    for listener in tuple(plan_listeners):  # one may be added meanwhile
        listener(plan)
    return plan


def plan_step(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    placer: Placer | None = None,
    half: HalfRequest | None = None,
) -> Plan:
    """Compiles a kind of step down to islands and host calls of tasks.

    Args:
        placer: chooses the devices; None: everything runs on the default device.
        half: whether what profits computes in half precision; None: nobody asked.

    Raises:
        InvalidArgumentError: what is needed contains a cycle, or cannot be placed.
    """
    return _plan(lambda: prune(fetches, targets, feeds), placer, half)


def plan_function(function: StepFunction, known: Mapping[int, Any], placer: Placer | None = None) -> Plan:
    """Compiles the call of a function, as a step of its own, down to islands and host calls.

    Args:
        known: position of a parameter -> its value, where that is the same in every call (resource handles).
        placer: as of `plan_step`.

    Raises:
        InvalidArgumentError: the operations cannot be placed.
    """
    return _plan(lambda: step_of_function(function, known), placer)


def _plan(begin: Callable[[], StepGraph], placer: Placer | None, half: HalfRequest | None = None) -> Plan:
    stages: list[StageReport] = []

    def noted(name: str, count: int, start: float) -> None:
        stages.append(StageReport(name, count, time.perf_counter() - start))

    def stage(name: str, run: Callable[[], StepGraph]) -> StepGraph:
        start = time.perf_counter()
        step = run()
        verify(step, name)
        noted(name, len(step.operations), start)
        return step

    step = stage("prune", lambda: drop_unneeded_bounds(drop_unneeded_values(begin())))
    needed = step.operations
    task_for = (lambda _: "") if placer is None else placer.task_for
    step = stage("fold", lambda: fold(step, task_for))
    if placer is not None:
        left = {op.name for op in step.operations}
        # what was folded is never placed, but asking for a device that does not exist is an error all the same
        placer.check_exists(op for op in needed if op.name not in left)
    step = stage("cse", lambda: merge_common_subexpressions(step))
    types: list[TypeChoice] = []
    if half is not None and half.dtype is not None:
        # after equal reads of a variable were merged, so that it is cast once; before devices are chosen, so that what
        # travels between them is what is computed with
        start = time.perf_counter()
        step, types = convert_to_half(step, half.dtype)
        verify(step, "half")
        noted("half", len(step.operations), start)
    # copies of bodies may hold further conditionals and loops, and constants of their own to fold
    while chosen := _to_lower(step, placer=placer):
        step = stage("lower", functools.partial(lower_control_flow, step, chosen, order_of(step), _lower_inside))
        step = stage("fold", functools.partial(fold, step, task_for))
    step = stage("shapes", lambda: fuse_rows(drop_reshapes_to_equal_shapes(step)))
    step = stage("fuse", lambda: place_maxima(fuse_bias(fuse_relu(step))))
    step = stage("count", functools.partial(count_loops, step))
    placement, receives = None, None
    devices: Mapping[str, Device] = {}
    if placer is not None:
        start = time.perf_counter()
        devices = {device.name: device for device in placer.devices}
        placement = placer.place(step)
        noted("place", len(step.operations), start)
    if placement is not None and placement.device:
        placed = apply(step, placement)
        verify_placed(placed, devices, "place")
        step = stage("partition", lambda: partition(placed))
        verify_partitioned(step, "partition")
    step = stage("copies", functools.partial(drop_unneeded_copies, step))
    start = time.perf_counter()
    grouping = group(step)
    verify_items(grouping, step, "islands")
    noted("islands", len(grouping.items), start)
    if placer is not None and step.transfers:
        start = time.perf_counter()
        grouping, receives = delay_receives(grouping, step, devices, placer.cost_model)
        verify_items(grouping, step, "receives")
        noted("receives", len(receives.delayed), start)
    start = time.perf_counter()
    partitions = cut(step, grouping, HOST_DEVICE if placer is None else placer.default_device)
    verify_partitions(partitions, step, "cut")
    noted("cut", len(partitions), start)
    return _announced(Plan(grouping, step, partitions, stages, placement, receives, half, types))


def _to_lower(step: StepGraph, on_host: frozenset[str] = frozenset(), placer: Placer | None = None) -> set[StepNode]:
    """The conditionals and loops that XLA cannot take whole, or that belong on several devices.

    Inside `lowering_everything` all of them.
    """
    functional = [op for op in step.operations if op.op_def.is_functional]
    if _lower_everything.get():
        return set(functional)
    spanning = {op for op in functional if placer is not None and placer.spans_devices(op)}
    return functional_host_work(step, on_host) | spanning


def _lower_inside(op: StepNode, outer: StepNode) -> bool:
    """Whether a conditional in a body is lowered together with what the body belongs to.

    It is where XLA cannot take it, unless it has to be put in order with others that come to its variables.
    """
    return (_lower_everything.get() or runs_on_host(op)) and not (writes_variables(outer) and touches_variables(op))


_lower_everything: ContextVar[bool] = ContextVar("lower_everything", default=False)


@contextlib.contextmanager
def lowering_everything() -> Iterator[None]:
    """Inside the block, plans made on this thread contain no functional conditional or loop.

    For tests and comparisons: the executor runs then what would be compiled otherwise.
    """
    token = _lower_everything.set(True)
    try:
        yield
    finally:
        _lower_everything.reset(token)


def plan_of_island(island: Island, on_host: frozenset[str], default_device: str) -> Plan:
    """The plan of an island's operations with some of them, given by name, taken out of the compiled part."""
    step = step_of_members(island.operations, island.outputs, island.inputs)
    while chosen := _to_lower(step, on_host):
        step = fold(lower_control_flow(step, chosen, order_of(step), _lower_inside))
    return _grouped_anew(step, group(step, on_host), default_device)


def plan_in_phases(
    island: Island, pays: Callable[[Collection[ResourceHandle]], bool], default_device: str, alone: bool
) -> Plan | None:
    """The plan of an island's operations as look-ups, gradients and updates (`xla.update_phases`).

    Args:
        pays: whether it is worth it where variables are copied while somebody computes gradients with them.
        alone: whether each part runs on the thread that calls it alone.

    Returns:
        None where the island has no such parts, or it is not worth it.
    """
    step = step_of_members(island.operations, island.outputs, island.inputs)
    phases = update_phases(step)
    if phases is None or not pays(phases.pinned):
        return None
    return _grouped_anew(step, group_in_phases(step, phases, alone), default_device)


def _grouped_anew(step: StepGraph, grouping: Grouping, default_device: str) -> Plan:
    verify_items(grouping, step, "islands")
    return _announced(Plan(grouping, step, cut(step, grouping, default_device)))
