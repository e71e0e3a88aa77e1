"""Rows of the pool against cells in use over time, and where it grew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from musebench.report import series
from musebench.report.columns import RunData
from musebench.report.entries import Entry
from musebench.report.plots import Settings
from musebench.report.plots.style import (
    COLOURS,
    count_axis,
    empty,
    framed,
    panel_title,
    seconds_axis,
)
from musebench.report.table import pretty

MOST_POINTS = 700
ROWS, IN_USE, GROWN = COLOURS[0], COLOURS[1], COLOURS[6]


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """One panel a report: steps of rows (scratch included) over the area of cells in use."""
    figure, panels = framed("Pool: rows and cells in use", entries, len(entries), 1, 2.5, sharex=True)
    for entry, (axes,) in zip(entries, panels, strict=True):
        _panel(axes, entry, entries, settings)
    panels[-1][0].set_xlabel("time since the run started")
    panels[-1][0].set_xlim(left=0)
    handles = {
        name: handle
        for (axes,) in panels
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=3)
    return figure


def _panel(axes: Axes, entry: Entry, entries: Sequence[Entry], settings: Settings) -> None:
    run = entry.report.runs[settings.run]
    if run.pool is None or not len(run.steps):
        axes.set_title(panel_title(entry, entries))
        empty(axes, "no step was made")
        return
    changes = series.growths(run)
    places = series.thinned(len(run.steps), MOST_POINTS, run.pool.growths.step)
    at = np.asarray(run.steps.start)[places]
    # A step holds its rows and cells until the next one: the last one until its end.
    at = np.append(at, run.steps.end[-1])
    rows = np.asarray(run.steps.rows)[places]
    in_use = np.asarray(run.steps.in_use)[places]
    rows, in_use = np.append(rows, rows[-1]), np.append(in_use, in_use[-1])
    axes.fill_between(at, in_use, step="post", color=IN_USE, alpha=0.25, linewidth=0)
    axes.step(at, in_use, where="post", color=IN_USE, linestyle="--", label="cells in use")
    axes.step(at, rows, where="post", color=ROWS, label="rows")
    grown = [change for change in changes if not change.first]
    if grown:
        axes.plot(
            [change.seconds for change in grown],
            [change.rows for change in grown],
            "^",
            color=GROWN,
            markersize=5,
            linestyle="none",
            label="growth",
        )
    axes.set_ylim(0, max(rows) * 1.12)
    axes.set_ylabel("cells")
    axes.margins(x=0.01)
    count_axis(axes.yaxis)
    seconds_axis(axes.xaxis)
    axes.set_title(f"{panel_title(entry, entries)}\n{_sums(run, grown)}")


def _sums(run: RunData, grown: Sequence[series.Growth]) -> str:
    text = f"most cells in use {max(run.steps.in_use):,}, rows at the end {run.steps.rows[-1]:,}"
    if not grown:
        return f"{text}, no growth"
    copied = pretty(sum(change.copied_bytes for change in grown), "bytes")
    seconds = pretty(sum(change.took_seconds for change in grown), "s")
    return f"{text}, {len(grown)} growth{'s' if len(grown) > 1 else ''}: {copied} copied in {seconds}"
