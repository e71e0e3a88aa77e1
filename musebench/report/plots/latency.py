"""How ITL and TTFT are distributed: the share of samples that were no longer than a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from musebench.report import series
from musebench.report.entries import Entry
from musebench.report.plots import Settings
from musebench.report.plots.style import (
    COLOURS,
    DASHES,
    empty,
    framed,
    line_name,
    log_seconds_axis,
    seconds_axis,
)

MOST_POINTS = 800
SHOWN = (("ITL", "from one token to the next (ITL)"), ("TTFT", "to the first token (TTFT)"))
TICKS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """Two panels, a line a report: cumulative shares over all its runs, the p50 and p99 marked."""
    notes = ["marked on each line: the p50 (a dot) and the p99 (a diamond)"]
    figure, panels = framed("Distribution of latencies", entries, 1, 2, 3.0 + 0.2 * len(entries), notes)
    for axes, (name, label) in zip(panels[0], SHOWN, strict=True):
        _panel(axes, entries, name)
        axes.set_xlabel(label)
        axes.set_title(name)
    panels[0][0].set_ylabel("share of samples up to this time")
    handles, names = panels[0][1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=1 if len(entries) > 4 else 2)
    return figure


def _panel(axes: Axes, entries: Sequence[Entry], name: str) -> None:
    drawn = False
    for place, entry in enumerate(entries):
        values = series.samples(entry.report, name)
        colour, dash = COLOURS[place], DASHES[place]
        axes.plot([], [], color=colour, linestyle=dash, label=line_name(entry))
        if not len(values):
            continue
        drawn = True
        chosen = series.thinned(len(values), MOST_POINTS)
        times = np.concatenate([values[:1], values[chosen]])
        shares = np.concatenate([[0.0], (chosen + 1) / len(values)])
        axes.plot(times, shares, color=colour, linestyle=dash, drawstyle="steps-post")
        for at, shape in ((50, "o"), (99, "D")):
            time = float(np.percentile(values, at))
            axes.plot([time], [at / 100], shape, color=colour, markersize=4)
    if not drawn:
        empty(axes, f"no sample of {name}")
        return
    if axes.dataLim.x0 > 0:
        axes.set_xscale("log")
        log_seconds_axis(axes.xaxis)
    else:
        seconds_axis(axes.xaxis)
    axes.set_ylim(0, 1.03)
    axes.set_yticks(TICKS, [f"{tick:.0%}" for tick in TICKS])
