"""The whole compile story of a step, top to bottom (design D6).

Fetches, targets and feeds go in; a list of islands (compiled) and host calls comes out. Nothing here depends on the
values of a step. An island's executables are made when its input shapes are first seen (`xla.executable`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.cse import merge_common_subexpressions
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.verify import verify
from anabranch.xla.islands import Island, PlanItem, plan_items


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage left: the number of operations still to run, and the time it took (s)."""

    stage: str
    operations: int
    seconds: float


@dataclass(slots=True)
class Plan:
    """How one kind of step runs: its items in order, and where its fetches come from."""

    items: list[PlanItem]
    step: StepGraph
    stages: list[StageReport] = field(default_factory=list)

    @property
    def islands(self) -> list[Island]:
        return [item for item in self.items if isinstance(item, Island)]


#: told about every new plan, from whichever thread made it
plan_listeners: list[Callable[[Plan], None]] = []


def _announced(plan: Plan) -> Plan:
    for listener in tuple(plan_listeners):  # one may be added meanwhile
        listener(plan)
    return plan


def build_plan(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    known: Mapping[Tensor, Any] | None = None,
) -> Plan:
    """Compiles a kind of step down to islands and host calls.

    Args:
        known: values of feeds that are the same in every step (resource handles passed to a function body).

    Raises:
        InvalidArgumentError: what is needed contains a cycle.
    """
    stages: list[StageReport] = []

    def stage(name: str, run: Callable[[], StepGraph]) -> StepGraph:
        start = time.perf_counter()
        step = run()
        verify(step, name)
        stages.append(StageReport(name, len(step.operations), time.perf_counter() - start))
        return step

    # what is known of the feeds needs no operation either
    step = stage("prune", lambda: prune(fetches, targets, [*feeds, *(known or {})]))
    step.feeds = list(feeds)
    step.known.update(known or {})
    step = stage("fold", lambda: fold(step))
    step = stage("cse", lambda: merge_common_subexpressions(step))
    start = time.perf_counter()
    items = plan_items(step)
    stages.append(StageReport("islands", len(items), time.perf_counter() - start))
    return _announced(Plan(items, step, stages))


def plan_of_island(island: Island, on_host: frozenset[Operation]) -> Plan:
    """The plan of an island's operations with some of them taken out of the compiled part."""
    step = StepGraph(island.operations, island.outputs, [], island.inputs, island.known, island.alias)
    return _announced(Plan(plan_items(step, on_host), step))
