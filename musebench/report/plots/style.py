"""How pictures look: for print in black and white as for a screen, and for eyes that tell few colours apart.

The colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/). None carries a meaning alone: lines differ
in dash too, points in shape, spans in hatching.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from musebench.core.whole import write_whole
from musebench.report.entries import Entry, common_facts, own_facts
from musebench.report.table import pretty

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A7A00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)), (0, (3, 1, 1, 1)))
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*")

WIDTH_INCHES = 7.2
DOTS_PER_INCH = 150
CAPTION_LETTERS = 132
LINE_INCHES = 0.165
FEW_DECADES = 60.0


@contextmanager
def styled() -> Iterator[None]:
    """Settings that every picture is drawn and saved with, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
                "font.size": 8.5,
                "axes.titlesize": 8.5,
                "axes.titlelocation": "left",
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.color": "#d9d9d9",
                "grid.linewidth": 0.5,
                "legend.frameon": False,
                "legend.fontsize": 8,
                "lines.linewidth": 1.4,
                "hatch.linewidth": 0.5,
                "svg.hashsalt": "musebench",  # ids in the SVG are drawn from it, not from chance
                "svg.fonttype": "path",
                "figure.facecolor": "white",
            }
        )
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format of the file's suffix, without a date."""
    dated = {"Date": None} if path.suffix == ".svg" else {}
    data = io.BytesIO()
    figure.savefig(
        data,
        format=path.suffix.removeprefix("."),
        dpi=DOTS_PER_INCH,
        metadata={**dated, "Creator" if dated else "Software": "musebench"},
    )
    write_whole(path, data.getvalue(), "the picture")


def framed(
    title: str,
    entries: Sequence[Entry],
    rows: int,
    columns: int,
    row_inches: float,
    notes: Sequence[str] = (),
    sharex: bool | str = False,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with `rows` x `columns` panels, the title above them and below it the common conditions."""
    lines = caption(entries, notes)
    head = (len(lines) + 2.1) * LINE_INCHES
    height = head + rows * row_inches
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - head / height))  # type: ignore[union-attr,call-arg]
    figure.text(0.012, 1 - 0.5 * LINE_INCHES / height, title, fontsize=11, fontweight="bold", va="top")
    top = 1 - 1.85 * LINE_INCHES / height
    figure.text(0.012, top, "\n".join(lines), fontsize=7.2, color="#404040", va="top", linespacing=1.3)
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex).tolist()  # type: ignore[arg-type]


def caption(entries: Sequence[Entry], notes: Sequence[str] = ()) -> list[str]:
    """Lines below a title: the conditions that all reports share, then the notes, a line or more each."""
    facts = common_facts([entry.report for entry in entries])
    texts = [" · ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts), *notes]
    return [line for text in texts for line in textwrap.wrap(_plain(text), CAPTION_LETTERS)]


def panel_title(entry: Entry, entries: Sequence[Entry]) -> str:
    """The report's name and, when others stand beside it, in what it differs from them."""
    own = own_facts(entry.report, [one.report for one in entries])
    return "\n".join(textwrap.wrap(_plain(" · ".join([entry.name, *own])), CAPTION_LETTERS - 22))


def line_name(entry: Entry) -> str:
    return _plain(entry.name)


def seconds_axis(axis: Axis) -> None:
    """Show an axis of seconds with ms and µs where they read better."""
    axis.set_major_formatter(EngFormatter("s"))


def log_seconds_axis(axis: Axis) -> None:
    """A logarithmic axis of seconds, called when all is drawn: 1, 2 and 5 of every decade are named where
    there are few decades, else the decades."""
    low, high = axis.get_view_interval()
    few = low > 0 and high / low < FEW_DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_minor_formatter(NullFormatter())
    seconds_axis(axis)


def bytes_axis(axes: Axes) -> None:
    """Show the vertical axis from 0 on, with ticks at round numbers of its own binary unit."""
    top = max(axes.get_ylim()[1], 1.0)
    unit = 1024 ** min(int(math.log2(top) // 10), 4)
    axes.set_yticks([tick * unit for tick in MaxNLocator(6).tick_values(0, top / unit)])
    axes.set_ylim(0, top)
    axis = axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: pretty(int(value), "bytes")))


def count_axis(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def empty(axes: Axes, why: str) -> None:
    """A panel that has nothing to show says why."""
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color="#404040")
    axes.set_xticks([])
    axes.set_yticks([])


def _plain(text: str) -> str:
    """Text in one line that starts no formula of matplotlib's."""
    spaced = " ".join(text.split(" "))
    letters = (letter if letter.isprintable() or letter == "\N{NO-BREAK SPACE}" else "?" for letter in spaced)
    return "".join(letters).replace("$", r"\$")
