"""Time of a step against its tokens and its sequences, by what it holds, with the floor where it is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from musebench.report import series
from musebench.report.entries import Entry
from musebench.report.plots import Settings
from musebench.report.plots.style import COLOURS, SHAPES, empty, framed, log_seconds_axis, panel_title
from musebench.report.roofline import KINDS

MOST_POINTS = 800
SLOWEST = 20
LOOKS = {kind: (COLOURS[place], SHAPES[place]) for kind, place in zip(KINDS, (0, 2, 1), strict=True)}


def draw(entries: Sequence[Entry], settings: Settings) -> Figure:
    """Two panels a report: over the tokens of a step (padding included), and over its sequences."""
    notes = []
    found = {ceilings for entry in entries if (ceilings := entry.report.conditions.ceilings) is not None}
    if found:
        rates = [
            f"{one.copy_bytes_per_second / 1e12:.3g} TB/s and {one.flops_per_second / 1e12:.3g} TFLOP/s"
            for one in sorted(found, key=lambda one: one.copy_bytes_per_second)
        ]
        notes.append(f"floor: the least time that a step could take, at {' or '.join(rates)}, as measured")
    most = max(len(entry.report.runs[settings.run].steps) for entry in entries)
    if most > MOST_POINTS:
        notes.append(
            f"of the steps of a report about {MOST_POINTS:,} are drawn, evenly spread, and the slowest"
        )
    figure, panels = framed("Time of a step", entries, len(entries), 2, 2.7, notes)
    for entry, pair in zip(entries, panels, strict=True):
        pair[0].set_title(panel_title(entry, entries))
        _panels(pair, entry, settings)
    handles = {
        name: handle
        for pair in panels
        for handle, name in zip(*pair[1].get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=4)
    return figure


def _panels(pair: list[Axes], entry: Entry, settings: Settings) -> None:
    run = entry.report.runs[settings.run]
    steps = run.steps
    if not len(steps):
        for axes in pair:
            empty(axes, "no step was made")
        return
    seconds, what = series.step_seconds(run)
    kinds = series.step_kinds(run)
    places = series.thinned(len(steps), MOST_POINTS, np.argsort(-seconds)[:SLOWEST].tolist())
    tokens = np.asarray(steps.decode_tokens) + np.asarray(steps.prefill_tokens)
    tokens = tokens + np.asarray(steps.padded_tokens)
    floor = series.floor_seconds(entry.report, run)
    for axes, over, name in (
        (pair[0], tokens, "tokens of the step, padding included"),
        (pair[1], np.asarray(steps.sequences), "sequences in the step"),
    ):
        for number, kind in enumerate(KINDS):
            colour, shape = LOOKS[kind]
            mine = places[kinds[places] == number]
            if not len(mine):
                continue
            axes.scatter(
                over[mine], seconds[mine], s=11, marker=shape, facecolors="none", edgecolors=colour,
                linewidths=0.7, label=kind,
            )  # fmt: skip
            if floor is not None:
                axes.plot(over[mine], floor[mine], ".", color=colour, markersize=2, linestyle="none")
        if floor is not None:
            axes.plot(
                [], [], ".", color="#606060", markersize=3, linestyle="none", label="floor of each kind"
            )
        axes.set_xlabel(name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
        log_seconds_axis(axes.yaxis)
    pair[0].set_ylabel(what)
    counts = [(kind, int((kinds == number).sum())) for number, kind in enumerate(KINDS)]
    pair[1].set_title("steps: " + ", ".join(f"{count:,} {kind}" for kind, count in counts if count))
