"""Tells how steps are compiled: each stage's graph size, islands and host calls, every compilation's reason, and which
kernels were chosen.

Turned on by `anabranch explain`, by the environment variable `ANABRANCH_EXPLAIN=1`, or by `enable`. Everything goes to
the standard error stream, so that what a program prints stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from anabranch.core.consoles import table_console
from anabranch.core.devices import LOCAL_TASK
from anabranch.core.kernels import KernelCandidate
from anabranch.passes.half_precision import HalfRequest, TypeChoice
from anabranch.pipeline import Plan, plan_listeners
from anabranch.placement.placer import Placement
from anabranch.xla.islands import Island, PlanItem
from anabranch.xla.kernel_choice import KernelChoice
from anabranch.xla.receives import ReceiveReport
from anabranch.xla.variants import CompileEvent, DirectEvent, compile_log

if TYPE_CHECKING:
    from rich.console import Console

#: environment variable that turns explanations on
EXPLAIN_VARIABLE: Final = "ANABRANCH_EXPLAIN"
_MAX_ROWS: Final = 40
_MAX_NAMES: Final = 6
#: what the stages count that do not count operations
_COUNTED: Final = {"islands": "items", "receives": "delayed", "cut": "tasks"}
#: how the names of all devices of this process begin
_DEVICE: Final = f"{LOCAL_TASK}/device:"


class Explainer:
    """Prints plans and compilations as they are made, from whichever thread. Register its methods as listeners.

    Args:
        console: where to print; default: the standard error stream.
        placement: whether to tell of each operation which device was asked for, which it got, and why.
    """

    def __init__(self, console: Console | None = None, placement: bool = False) -> None:
        self.console = console or table_console(stderr=True)
        self.placement = placement
        self.plans = 0
        self.compilations: list[CompileEvent] = []
        self.direct = 0
        self._placed: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """One thread at a time, and after what the program itself has printed so far."""
        with self._lock:
            # the two streams meet on a terminal; what was printed first is to stand first
            sys.stdout.flush()
            yield

    def on_plan(self, plan: Plan) -> None:
        """Prints a new plan."""
        with self._in_turn():
            self.plans += 1
            title = f"Step {self.plans}" if plan.stages else f"Step {self.plans}: an island, taken apart"
            self.console.rule(title)
            for what, names in _ends(plan).items():
                if names:
                    self.console.print(f"[bold]{what}[/bold] {_listed(names)}", highlight=False)
            if plan.stages:
                self.console.print(_stages_table(plan))
            if self.placement and plan.placement is not None:
                self._print_placement(plan, plan.placement)
            if plan.half is not None:
                self.console.print(f"[bold]half precision[/bold] {_plain(_half_line(plan.half))}", highlight=False)
                if plan.types:
                    self.console.print(_types_table(plan.types))
            self.console.print(_items_table(plan.items))

    def _print_placement(self, plan: Plan, placement: Placement) -> None:
        """Tells of the operations that were not placed like this before."""
        rows = [row for row in placement_rows(plan, placement) if row not in self._placed]
        self._placed.update(rows)
        if rows:
            table = _table("Placement", "operation", "type", "asked", "got", "why")
            for row in rows:
                table.add_row(*map(_plain, row))
            self.console.print(table)
        if plan.receives is not None and plan.receives.delayed:
            self.console.print(_receives_table(plan.receives))

    def on_compile(self, event: CompileEvent) -> None:
        """Prints a compilation, and the kernels of those of its operations that have several."""
        with self._in_turn():
            self.compilations.append(event)
            self.console.print(
                f"[bold]compiled[/bold] {_plain(event.island)} in {event.seconds:.3f} s"
                f"{' in the background' if event.apart else ''}: {_plain(event.reason)}",
                highlight=False,
            )
            if event.alike is not None:
                kind, count = event.alike
                self.console.print(
                    f"  it took so long since XLA compiles each operation for itself: {count} of {event.operations} "
                    f"are {kind} on the same shapes. A loop (tf.while_loop, tf.nn.dynamic_rnn) is compiled once",
                    highlight=False,
                )
            if event.kernels:
                self.console.print(_kernels_table(event))

    def on_direct(self, event: DirectEvent) -> None:
        """Prints that an island ran in its first tier: its operations' kernels, one after the other."""
        with self._in_turn():
            self.direct += 1
            self.console.print(
                f"[bold]ran directly[/bold] {_plain(event.island)} in {event.seconds:.3f} s, its {event.operations} "
                f"operations' own kernels; compiled after {event.calls_left} more: {_plain(event.reason)}",
                highlight=False,
            )

    def print_summary(self) -> None:
        """Prints what it all came to."""
        with self._in_turn():
            self.console.rule("Summary")
            seconds = sum(event.seconds for event in self.compilations)
            self.console.print(
                f"{self.plans} kinds of steps, {len(self.compilations)} compilations in {seconds:.2f} s, "
                f"{self.direct} programs that ran directly first"
            )
            if self.compilations:
                self.console.print(_compilations_table(self.compilations))


_enabled: list[Explainer] = []


def enable(console: Console | None = None, placement: bool = False) -> Explainer:
    """Starts explaining what this process compiles; returns the explainer (there is one per process)."""
    if not _enabled:
        explainer = Explainer(console, placement)
        plan_listeners.append(explainer.on_plan)
        compile_log.listeners.append(explainer.on_compile)
        compile_log.direct_listeners.append(explainer.on_direct)
        _enabled.append(explainer)
    return _enabled[0]


def disable() -> None:
    """Stops explaining."""
    for explainer in _enabled:
        plan_listeners.remove(explainer.on_plan)
        compile_log.listeners.remove(explainer.on_compile)
        compile_log.direct_listeners.remove(explainer.on_direct)
    _enabled.clear()


def enable_if_asked() -> None:
    """`enable`, if the environment asks for it; the value "placement" asks for the placement as well."""
    value = os.environ.get(EXPLAIN_VARIABLE, "0")
    if value not in ("", "0"):
        enable(placement=value == "placement")


# ---------------------------------------------------------------------- tables
def placement_rows(plan: Plan, placement: Placement) -> list[tuple[str, ...]]:
    """Of each operation of a step: its name, its type, what was asked for it, what it got, and why."""
    rows: list[tuple[str, ...]] = []
    for op in plan.step.operations:
        if op.name in placement.assigned or not placement.assigned:
            decision = placement.of(op)
            rows.append((op.name, op.type, decision.asked or "-", decision.got.removeprefix(_DEVICE), decision.why))
    return rows


def _ends(plan: Plan) -> dict[str, list[str]]:
    step = plan.step
    return {
        "fetches": [t.name for t in step.fetches],
        "targets": [op.name for op in step.targets],
        "feeds": [t.name for t in step.feeds],
    }


def _plain(text: str) -> str:
    """Text in which brackets are no markup."""
    return text.replace("[", "\\[")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return _plain(", ".join(names[:_MAX_NAMES])) + more


def _table(title: str, *columns: str) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        numeric = column.startswith("#") or column.endswith(("(ms)", "(s)"))
        table.add_column(column.removeprefix("#"), justify="right" if numeric else "left", overflow="fold")
    return table


def _stages_table(plan: Plan) -> Any:
    table = _table("Stages", "stage", "#operations left", "time (ms)")
    for report in plan.stages:
        what = f"{report.operations} {_COUNTED.get(report.stage, '')}".rstrip()
        table.add_row(report.stage, what, f"{report.seconds * 1e3:.2f}")
    return table


def _items_table(items: list[PlanItem]) -> Any:
    table = _table("What runs, in this order", "##", "where", "what", "#inputs", "#outputs", "reads", "writes")
    for number, item in enumerate(items[:_MAX_ROWS], start=1):
        table.add_row(str(number), *_item_cells(item))
    if len(items) > _MAX_ROWS:
        table.add_row("", "", f"and {len(items) - _MAX_ROWS} more")
    return table


def _item_cells(item: PlanItem) -> list[str]:
    if isinstance(item, Island):
        what = f"island of {len(item.operations)} operations, up to {item.operations[-1].name}"
        reads, writes = ([handle.name for handle in handles] for handles in (item.reads, item.writes))
        inputs = f"{len(item.inputs)}" + (f" ({len(item.static)} static)" if item.static else "")
        return [_where("XLA", item), _plain(what), inputs, str(len(item.outputs)), _listed(reads), _listed(writes)]
    op = item.operation
    return [_where("host", item), _plain(f"{op.name} ({op.type})"), str(len(item.inputs)), str(len(op.outputs)), "", ""]


def _receives_table(receives: ReceiveReport) -> Any:
    peaks = (
        f"{device.removeprefix(_DEVICE)}: {_megabytes(now)} instead of {_megabytes(otherwise)}"
        for device, (otherwise, now) in receives.peaks.items()
        if now < otherwise
    )
    title = f"Receives that wait; received at most at once, as estimated: {'; '.join(peaks)}"
    table = _table(title, "receive", "on", "#size", "until after")
    for one in receives.delayed[:_MAX_ROWS]:
        table.add_row(_plain(one.name), one.device.removeprefix(_DEVICE), _megabytes(one.size), _plain(one.after))
    return table


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def _half_line(half: HalfRequest) -> str:
    return f"{'none' if half.dtype is None else half.dtype.name}: {half.why}"


def _types_table(types: list[TypeChoice]) -> Any:
    """What runs in which dtype; equal types of operations with equal reasons share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for one in types:
        rows.setdefault((one.op_type, one.dtype.name, one.why), []).append(one.name)
    table = _table("Half precision: what computes in which dtype", "type", "dtype", "why", "#operations", "which")
    for (op_type, dtype, why), names in rows.items():
        table.add_row(op_type, dtype, why, str(len(names)), _listed(names))
    return table


def _where(how: str, item: PlanItem) -> str:
    return f"{how} on {item.device.removeprefix(_DEVICE)}" if item.device else how


def _kernels_table(event: CompileEvent) -> Any:
    title = "Kernels; estimated as shares of the operation's own kernel's time, measured alone"
    table = _table(title, "operation", "type", "kernel", "why", "estimated, and measured")
    for name, choice in list(event.kernels.items())[:_MAX_ROWS]:
        costs = ", ".join(_cost_of(one, choice) for one in choice.candidates)
        table.add_row(_plain(name), choice.op_type, choice.chosen.name, choice.why, costs)
    if len(event.kernels) > _MAX_ROWS:
        table.add_row(f"and {len(event.kernels) - _MAX_ROWS} more", "", "", "", "")
    return table


def _cost_of(candidate: KernelCandidate, choice: KernelChoice) -> str:
    """A candidate's name, its estimated cost, and the time that it was measured to take."""
    measured = choice.measured.get(candidate.name)
    return f"{candidate.name} {candidate.cost:.2g}" + ("" if measured is None else f" ({measured * 1e3:.3g} ms)")


def _compilations_table(events: list[CompileEvent]) -> Any:
    table = _table("Compilations, the longest first", "island", "#operations", "time (s)", "reason")
    ranked = sorted(events, key=lambda event: event.seconds, reverse=True)
    for event in ranked[:_MAX_ROWS]:
        table.add_row(_plain(event.island), str(event.operations), f"{event.seconds:.3f}", _plain(event.reason))
    if len(ranked) > _MAX_ROWS:
        rest = ranked[_MAX_ROWS:]
        table.add_row(f"and {len(rest)} more", "", f"{sum(e.seconds for e in rest):.3f}", "")
    return table
