"""Throughput against TTFT and against memory: every valid report a point, and those that nothing beats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from musebench.report import series
from musebench.report.entries import Entry
from musebench.report.plots import Settings
from musebench.report.plots.style import (
    COLOURS,
    SHAPES,
    bytes_axis,
    count_axis,
    empty,
    framed,
    line_name,
    seconds_axis,
)

MOST_NAMES = 8
"""Most reports that get a colour, a shape and a line of the legend of their own; more are named at the
frontier only."""


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """Two panels: up and to the left of nothing is best, at the lower right."""
    left_out = sum(not entry.judgement.valid for entry in entries)
    notes = [
        "memory is the device's peak, or where that is not known weights and pool",
        "better is to the right and down; the line joins reports that no other beats in both",
    ]
    if left_out:
        notes.append(f"{left_out:,} INVALID reports are left out")
    kept = [(entry, series.point(entry.report)) for entry in entries if entry.judgement.valid]
    figure, panels = framed("Throughput against TTFT and memory", entries, 1, 2, 3.2, notes)
    left, right = panels[0]
    _panel(left, kept, lambda point: point.ttft.p50)
    left.set_ylabel("TTFT, p50")
    seconds_axis(left.yaxis)
    _panel(right, kept, lambda point: point.memory_bytes)
    right.set_ylabel("memory")
    if kept:
        bytes_axis(right)
    handles, names = left.get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower left", ncols=2)
    return figure


def _panel(
    axes: Axes,
    kept: Sequence[tuple[Entry, series.Point]],
    cost: Callable[[series.Point], float | None],
) -> None:
    points = []
    for place, (entry, point) in enumerate(kept):
        rate, price = point.output_tokens_per_second, cost(point)
        if rate is not None and price is not None:
            points.append((place, entry, rate, float(price)))
    if not points:
        empty(axes, "no valid report has both")
        return
    best = series.frontier([(rate, price) for _, _, rate, price in points])
    axes.plot(
        [points[place][2] for place in best], [points[place][3] for place in best],
        color="#808080", linewidth=0.9, linestyle="--",
    )  # fmt: skip
    own = len(kept) <= MOST_NAMES
    for index, (place, entry, rate, price) in enumerate(points):
        mark = place % len(COLOURS) if own else 0
        axes.plot(
            [rate], [price], SHAPES[mark], color=COLOURS[mark], linestyle="none", markersize=6,
            markerfacecolor=COLOURS[mark] if index in best else "white",
            label=line_name(entry) if own else None,
        )  # fmt: skip
        if not own and index in best:
            axes.annotate(line_name(entry), (rate, price), (4, 4), textcoords="offset points", fontsize=7)
    axes.set_xlabel("output tokens per second")
    axes.set_ylim(0, max(price for *_, price in points) * 1.15 or 1.0)
    axes.set_xlim(0, max(rate for _, _, rate, _ in points) * 1.1 or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    count_axis(axes.xaxis)
