"""How a cluster is shown."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from rich.table import Table

_STYLES = {"running": "green", "starting": "yellow", "waiting": "yellow", "restarting": "yellow", "stopping": "yellow"}


def cluster_table(state: Mapping[str, Any], answering: Collection[str] | None = None) -> Table:
    """The tasks of a cluster, from what its supervisor wrote of it.

    Args:
        state: that.
        answering: the addresses at which tasks answer; None: nobody looked.
    """
    table = Table(title=f"cluster {state['name']}", title_justify="left", box=None, pad_edge=False)
    for column in ("task", "target", "pid", "state"):
        table.add_column(column)
    for column in ("restarts", "uptime"):
        table.add_column(column, justify="right")
    for task in state["tasks"]:
        shown = str(task["state"])
        if is_silent(task, answering):
            shown = "does not answer"
        table.add_row(
            task["name"],
            task["target"] or "–",
            str(task["pid"] or "–"),
            f"[{_STYLES.get(shown, 'red')}]{shown}[/]",
            str(task["restarts"]),
            shown_duration(time.time() - task["started"]) if task["started"] else "–",
        )
    return table


def is_silent(task: Mapping[str, Any], answering: Collection[str] | None) -> bool:
    """Whether a task runs and yet does not answer."""
    is_asked = answering is not None and task["state"] == "running" and task["address"]
    return bool(is_asked) and task["address"] not in (answering or ())


def shown_duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, int(seconds))
    for unit, name, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {small}"
    return f"{whole} s"
