"""A step's timings as a picture: an SVG with a band for each device, a bar for each island or host operation (WP9.2).

The picture is for documents and for a first look; `runtime.timeline` gives the trace that Perfetto opens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from anabranch.core.registry import find_op_def
from anabranch.core.roles import Role
from anabranch.proto.step_stats_pb2 import StepStats

_LEFT: Final = 130
_TOP: Final = 34
_BAR: Final = 22
_GAP: Final = 4
_BAND_GAP: Final = 14
_CHARACTER: Final = 6.4
#: what the picture tells apart, and the colours of that
_COLOURS: Final = {"island": "#4c78a8", "sent": "#f58518", "received": "#e45756", "on the host": "#9d9da1"}
_LEGEND_STEP: Final = 84
#: the room that the text of a tick takes
_TICK: Final = 50
_TEXT: Final = "font-family='sans-serif' font-size='11'"


@dataclass(slots=True)
class _Bar:
    """One bar: what ran, from when to when (µs since the step's start), and on which line of the picture."""

    name: str
    kind: str
    sources: tuple[str, ...]
    start: float
    end: float
    line: float = 0.0


def timeline_svg(step_stats: StepStats, width: int = 1000, title: str = "") -> str:
    """Draws the timings of a step.

    Args:
        step_stats: the `StepStats` of a `RunMetadata`.
        width: of the picture, in pixels.

    Returns:
        The text of an SVG file.
    """
    bands = _read(step_stats)
    end = max((bar.end for _, bars in bands for bar in bars), default=1.0)
    scale = (width - _LEFT - 10) / max(end, 1e-9)
    body: list[str] = []
    top = float(_TOP)
    for device, bars in bands:
        height = _arrange(bars, top)
        body.append(f"<rect x='0' y='{top - 5:.1f}' width='{width}' height='{height + 6:.1f}' fill='#f4f4f6'/>")
        body.append(f"<text x='6' y='{top + 15:.1f}' {_TEXT} font-weight='bold'>{escape(_short(device))}</text>")
        body.extend(piece for bar in bars for piece in _drawn(bar, scale))
        top += height + _BAND_GAP
    body.extend(_arrows([bar for _, bars in bands for bar in bars], scale))
    body.extend(_axis(end, scale, top, width))
    heading = f"<text x='6' y='16' {_TEXT} font-weight='bold'>{escape(title)}</text>" if title else ""
    size = f"width='{width}' height='{top + 12:.0f}' viewBox='0 0 {width} {top + 12:.0f}'"
    legend = _legend({bar.kind for _, bars in bands for bar in bars}, width)
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", heading, *legend, *body, "</svg>", ""])


def _read(step_stats: StepStats) -> list[tuple[str, list[_Bar]]]:
    """The bars of each device, by their start."""
    nodes = [(stats.device, node) for stats in step_stats.dev_stats for node in stats.node_stats]
    first = min((node.all_start_nanos for _, node in nodes), default=0)
    bands: dict[str, list[_Bar]] = {stats.device: [] for stats in step_stats.dev_stats}
    for device, node in nodes:
        start = (node.all_start_nanos - first) / 1e3
        _, _, call = node.timeline_label.partition(" = ")
        kind, _, rest = call.partition("(")
        sources = tuple(s.strip() for s in rest.partition(")")[0].split(",") if s.strip())
        bands[device].append(_Bar(node.node_name, kind, sources, start, start + node.all_end_rel_nanos / 1e3))
    return [(device, sorted(bars, key=lambda bar: bar.start)) for device, bars in bands.items()]


def _arrange(bars: list[_Bar], top: float) -> float:
    """Gives bars that overlap lines of their own; returns the height of the band."""
    ends: list[float] = []
    for bar in bars:
        lane = next((at for at, end in enumerate(ends) if end <= bar.start), len(ends))
        ends[lane : lane + 1] = [bar.end]
        bar.line = top + lane * (_BAR + _GAP)
    return max(1, len(ends)) * (_BAR + _GAP)


def _drawn(bar: _Bar, scale: float) -> Iterator[str]:
    x, length = _LEFT + bar.start * scale, max(1.0, (bar.end - bar.start) * scale)
    tip = escape(f"{bar.name} ({bar.kind.lstrip('_')}), {bar.end - bar.start:,.1f} µs")
    colour = _COLOURS[_group_of(bar.kind)]
    yield (
        f"<rect x='{x:.1f}' y='{bar.line:.1f}' width='{length:.1f}' height='{_BAR}' rx='2' fill='{colour}'>"
        f"<title>{tip}</title></rect>"
    )
    fits = int((length - 6) / _CHARACTER)
    if fits >= 4:
        # the end of a name tells what is done, its beginning only where the program says so
        text = bar.name if len(bar.name) <= fits else f"…{bar.name[1 - fits :]}"
        yield f"<text x='{x + 3:.1f}' y='{bar.line + 15:.1f}' {_TEXT} fill='white'>{escape(text)}</text>"


def _arrows(bars: list[_Bar], scale: float) -> Iterator[str]:
    """A line from each Send to its Recv."""
    bar_of = {bar.name: bar for bar in bars}
    for bar in bars:
        source = bar_of.get(bar.sources[0]) if _group_of(bar.kind) == "received" and bar.sources else None
        if source is not None:
            begin = f"x1='{_LEFT + source.end * scale:.1f}' y1='{source.line + _BAR / 2:.1f}'"
            end = f"x2='{_LEFT + bar.start * scale:.1f}' y2='{bar.line + _BAR / 2:.1f}'"
            yield f"<line {begin} {end} stroke='#333' stroke-width='0.8' stroke-dasharray='3 2'/>"


def _group_of(kind: str) -> str:
    """What the picture shows a bar as: an island, or an operation by its type."""
    if kind == "Island":
        return "island"
    op_def = find_op_def(kind)
    return {Role.SEND: "sent", Role.RECEIVE: "received"}.get(op_def.role, "on the host") if op_def else "on the host"


def _legend(kinds: set[str], width: int) -> Iterator[str]:
    """What the colours of the picture mean, at its right."""
    groups = set(map(_group_of, kinds))
    shown = [group for group in _COLOURS if group in groups]
    for number, group in enumerate(shown):
        x = width - _LEGEND_STEP * (len(shown) - number)
        yield f"<rect x='{x}' y='7' width='10' height='10' rx='2' fill='{_COLOURS[group]}'/>"
        yield f"<text x='{x + 14}' y='16' {_TEXT} fill='#555'>{group}</text>"


def _axis(end: float, scale: float, top: float, width: int) -> Iterator[str]:
    step = 10.0 ** math.floor(math.log10(max(end, 1e-3)))
    step = next(s for s in (step / 5, step / 2, step) if end / s <= 10)
    unit, name = (1e3, "ms") if end >= 2e3 else (1.0, "µs")
    for number in range(int(end / step) + 1):
        x = _LEFT + number * step * scale
        yield f"<line x1='{x:.1f}' y1='{_TOP - 6}' x2='{x:.1f}' y2='{top - 8:.1f}' stroke='#ccc' stroke-width='0.5'/>"
        anchor = " text-anchor='end'" if x > width - _TICK else ""
        yield f"<text x='{x:.1f}' y='{top + 4:.1f}' {_TEXT} fill='#555'{anchor}>{number * step / unit:g} {name}</text>"


def _short(device: str) -> str:
    return device.rpartition("/device:")[2] or device
