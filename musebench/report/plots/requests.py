"""What each request was doing when: waiting, prefill, decode, preempted (a Gantt chart)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from musebench.report import series
from musebench.report.columns import RunData
from musebench.report.entries import Entry
from musebench.report.plots import Settings
from musebench.report.plots.style import COLOURS, count_axis, empty, framed, panel_title, seconds_axis

MOST_ROWS = 400
LOOKS = {
    series.WAITING: ("#d0d0d0", ""),
    series.PREFILL: (COLOURS[4], "////"),
    series.DECODE: (COLOURS[0], ""),
    series.PREEMPTED: (COLOURS[1], "xxxx"),
}
"""Of each phase its colour and its hatching, which is drawn only where bars are thick enough to show it."""

THICK_ROWS = 60


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """One panel a report: a bar a request, by arrival from the top down."""
    notes = []
    counts = [len(entry.report.runs[settings.run].requests) for entry in entries]
    if max(counts) > MOST_ROWS:
        notes.append(f"of the requests of a report about {MOST_ROWS:,} are drawn, evenly spread")
    inches = 2.1 if max(counts) <= 12 else 3.4
    figure, panels = framed("Requests over time", entries, len(entries), 1, inches, notes, sharex=True)
    for entry, (axes,) in zip(entries, panels, strict=True):
        axes.set_title(panel_title(entry, entries))
        _panel(axes, entry.report.runs[settings.run])
    panels[-1][0].set_xlabel("time since the run started")
    panels[-1][0].set_xlim(left=0)
    hatched = max(counts) <= THICK_ROWS
    figure.legend(
        handles=[
            Patch(
                facecolor=colour,
                hatch=hatch if hatched else "",
                edgecolor="#404040",
                linewidth=0.4,
                label=phase,
            )
            for phase, (colour, hatch) in LOOKS.items()
        ],
        loc="outside lower left",
        ncols=len(LOOKS),
    )
    return figure


def _panel(axes: Axes, run: RunData) -> None:
    requests = run.requests
    if not len(requests):
        empty(axes, "there is no request")
        return
    order = sorted(range(len(requests)), key=lambda row: (requests.arrival_seconds[row], row))
    drawn = [order[place] for place in series.thinned(len(order), MOST_ROWS)]
    lines = {row: line for line, row in enumerate(drawn)}
    thick = len(drawn) <= THICK_ROWS
    bars: dict[str, list[tuple[int, float, float]]] = {phase: [] for phase in series.PHASES}
    for span in series.spans(run):
        if span.row in lines:
            bars[span.phase].append((lines[span.row], span.start, span.end - span.start))
    for phase, (colour, hatch) in LOOKS.items():
        mine = np.asarray(bars[phase], np.float64).reshape(-1, 3)
        if not len(mine):
            continue
        axes.barh(
            mine[:, 0], mine[:, 2], left=mine[:, 1], height=0.8 if thick else 1.0, color=colour,
            hatch=hatch if thick else None, edgecolor="#404040" if thick else "none",
            linewidth=0.4 if thick else 0,
        )  # fmt: skip
    ended = [row for row in drawn if (reason := requests.finish_reason[row]) is None or not reason.succeeded]
    known = [row for row in ended if requests.finish_seconds[row] is not None]
    if known:
        axes.plot(
            [requests.finish_seconds[row] for row in known], [lines[row] for row in known],
            "x", color="#000000", markersize=5, label="did not succeed",
        )  # fmt: skip
        axes.legend(loc="lower right")
    paused = sum(requests.preemptions)
    if paused and requests.pauses is None:
        axes.text(
            1, 1.01, f"{paused:,} preemptions, of unknown time", ha="right", va="bottom",
            transform=axes.transAxes, fontsize=7.5,
        )  # fmt: skip
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    if len(drawn) <= 12:
        axes.set_yticks(range(len(drawn)), [_short(requests.id[row]) for row in drawn])
    else:
        axes.set_ylabel("request, by arrival")
        count_axis(axes.yaxis)
    seconds_axis(axes.xaxis)


def _short(name: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in name).replace("$", r"\$")
    return plain if len(plain) <= 20 else f"{plain[:19]}…"
