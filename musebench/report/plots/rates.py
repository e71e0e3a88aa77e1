"""Latency and throughput over the rate at which requests arrive: a line for each choice of components."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from musebench.report import series
from musebench.report.entries import Entry, same_choices
from musebench.report.plots import Settings
from musebench.report.plots.style import (
    COLOURS,
    DASHES,
    SHAPES,
    count_axis,
    empty,
    framed,
    log_seconds_axis,
)

NOTHING = "no two valid reports of one choice\nwith requests that arrive over time"


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """TTFT over the offered rate, TPOT over it, and TTFT against the throughput that was reached."""
    left_out = sum(not entry.judgement.valid for entry in entries)
    notes = ["p50 filled, p99 hollow; points of a line differ in the rate of arrivals alone"]
    if left_out:
        notes.append(f"{left_out:,} INVALID reports are left out")
    lines = curves(entries)
    figure, panels = framed("Latency and throughput over the rate of arrivals", entries, 1, 3, 3.1, notes)
    for axes, (name, x_label) in zip(
        panels[0],
        (
            ("ttft", "requests offered per second"),
            ("tpot", "requests offered per second"),
            ("reached", "output tokens per second"),
        ),
        strict=True,
    ):
        for place, line in enumerate(lines):
            _line(axes, line, name, place % len(COLOURS))
        if not lines:
            empty(axes, NOTHING)
            continue
        axes.set_title({"ttft": "TTFT", "tpot": "TPOT", "reached": "TTFT against throughput"}[name])
        axes.set_xlabel(x_label)
        axes.set_yscale("log")
        log_seconds_axis(axes.yaxis)
        count_axis(axes.xaxis)
    handles, names = panels[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, names, loc="outside lower left", ncols=1)
    return figure


def curves(entries: Sequence[Entry]) -> list[list[tuple[Entry, series.Point]]]:
    """Valid reports of one choice of components and one model, by rising rate; two rates or more each."""
    groups: dict[str, list[tuple[Entry, series.Point]]] = {}
    for entry in entries:
        point = series.point(entry.report)
        if entry.judgement.valid and point.offered_per_second is not None:
            groups.setdefault(same_choices(entry.report), []).append((entry, point))
    made = [sorted(group, key=lambda one: one[1].offered_per_second or 0.0) for group in groups.values()]
    return [line for line in made if len({point.offered_per_second for _, point in line}) > 1]


def _line(axes: Axes, line: list[tuple[Entry, series.Point]], name: str, place: int) -> None:
    first = line[0][0]
    choices = first.report.choices
    label = f"{', '.join(choices.named().values())}: {len(line)} rates"
    for at, filled in (("p50", True), ("p99", False)):
        points = []
        for _, point in line:
            summary = point.tpot if name == "tpot" else point.ttft
            x = point.output_tokens_per_second if name == "reached" else point.offered_per_second
            y = getattr(summary, at)
            if x is not None and y is not None and y > 0:
                points.append((x, y))
        if points:
            axes.plot(
                *zip(*points, strict=True), color=COLOURS[place], linestyle=DASHES[place],
                marker=SHAPES[place], markersize=4.5, markerfacecolor=COLOURS[place] if filled else "white",
                label=label if filled else None,
            )  # fmt: skip
