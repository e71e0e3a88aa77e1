"""A history as a picture: every sample over commits, the medians joined, a line at each change point."""

from __future__ import annotations

import io
from pathlib import Path

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.whole import write_whole
from musebench.report.history import History, Series

SUFFIXES = (".png", ".svg")
SCALES = {"s": (1e3, "ms"), "bytes": (2.0**-20, "MiB")}
"""By unit of the metric: what its values are multiplied by for the axis, and what that is called."""

COLOUR, MARK = "#0072B2", "#D55E00"
"""Two of Okabe and Ito's colours, which stay apart for colour-blind eyes and in grey."""


def draw(history: History, path: Path) -> Path:
    """Write a PNG or SVG by the path's ending, one panel a series.

    Raises:
        UsageError: another ending, or nothing to draw.
        UnsupportedError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot {path}: a name that ends with {' or '.join(SUFFIXES)} is wanted")
    if not history.series:
        raise UsageError(f"--plot {path}: there is no report to draw")
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UnsupportedError("--plot needs matplotlib; pip install 'musebench[plot]'") from error
    count = len(history.series)
    figure = Figure(figsize=(8, 1.0 + 2.4 * count), layout="constrained")
    panels = figure.subplots(count, 1, squeeze=False)
    for panel, series in zip(panels[:, 0], history.series, strict=True):
        _draw_series(panel, history, series)
    figure.suptitle(f"{history.metric.name} over commits", fontsize=11)
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix.removeprefix("."), dpi=150)
    return write_whole(path, data.getvalue(), "the picture")


def _draw_series(panel: object, history: History, series: Series) -> None:
    from matplotlib.axes import Axes

    assert isinstance(panel, Axes)
    factor, unit = SCALES.get(history.metric.unit, (1.0, history.metric.unit))
    places = [index for index, point in enumerate(series.points) if point.measured.samples]
    for index in places:
        samples = [factor * value for value in series.points[index].measured.samples]
        panel.plot([index] * len(samples), samples, "o", color=COLOUR, alpha=0.45, markersize=4)
    medians = [factor * float(series.points[index].measured.value or 0) for index in places]
    panel.plot(places, medians, "-", color=COLOUR, linewidth=1.2)
    for index, point in enumerate(series.points):
        if point.change:
            panel.axvline(index - 0.5, color=MARK, linestyle="--", linewidth=1.2)
            panel.annotate(
                "change", (index - 0.5, 1.0), xycoords=("data", "axes fraction"), color=MARK, fontsize=8,
                xytext=(3, -10), textcoords="offset points",
            )  # fmt: skip
    names = [(point.commit or point.when[:10])[:7] for point in series.points]
    panel.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=7)
    panel.set_xlim(-0.7, len(names) - 0.3)
    panel.set_ylabel(f"{history.metric.name}" + (f" ({unit})" if unit in ("ms", "MiB") else ""), fontsize=8)
    panel.set_title(series.label, fontsize=8, loc="left")
    panel.grid(axis="y", alpha=0.3)
