"""A figure of curves, for examples. It needs matplotlib, of the extra `demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_curves(
    path: Path,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    y: str,
    x: str,
    logarithmic: bool = False,
) -> None:
    """Draws curves into a file, whose ending says the format.

    Args:
        path: of the file.
        curves: points (x, y) by label.
        title: above the figure.
        y, x: labels of the axes.
        logarithmic: whether both axes are.

    Raises:
        ImportError: matplotlib is not there.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, points in curves.items():
        axes.plot([p[0] for p in points], [p[1] for p in points], marker=".", label=label)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.legend(fontsize="small")
    figure.savefig(path)
