"""Pictures of reports, through matplotlib (the extra `plot`), which is imported when one is drawn.

A kind of picture is a function of the entries that are shown together, and makes a figure. `KINDS` names
them; `write` saves one. The same reports give the same bytes of SVG with the same matplotlib.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.options import nearest
from musebench.report.entries import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
MOST_PANELS = 8
"""Most reports in a picture that has a panel or a line for each."""


@dataclass(frozen=True)
class Settings:
    """What a picture may be told: the place of the run (repeat) that is drawn where it shows one, from 0."""

    run: int = 0


@dataclass(frozen=True)
class Kind:
    """A kind of picture: its name, one line on what it shows, the module with its function `draw`, whether it
    takes any number of reports, and whether it wants at least two to be drawn unasked."""

    name: str
    summary: str
    many: bool = False

    def draw(self, entries: Sequence[Entry], settings: Settings) -> Figure:
        """Draw it.

        Raises:
            UsageError: more reports than it has room for, or a run that a report does not have.
            UnsupportedError: matplotlib is not installed.
        """
        if not self.many and len(entries) > MOST_PANELS:
            raise UsageError(
                f"picture {self.name!r} has room for {MOST_PANELS} reports, not {len(entries)}; name fewer, "
                "or put all of them on one page: musebench report REPORT... --html out.html"
            )
        for entry in entries:
            if settings.run >= len(entry.report.runs) and not self.many:
                raise UsageError(
                    f"{entry.label} has {len(entry.report.runs)} runs; there is no run {settings.run + 1}"
                )
        require_matplotlib()
        module = importlib.import_module(f"musebench.report.plots.{self.name}")
        draw: Callable[[Sequence[Entry], Settings], Figure] = module.draw
        return draw(entries, settings)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("pool", "rows of the pool against cells in use over time, and where it grew"),
        Kind("steps", "time of a step against its tokens and its sequences, by what it holds"),
        Kind("requests", "what each request was doing when: waiting, prefill, decode, preempted"),
        Kind("latency", "how ITL and TTFT are distributed"),
        Kind("rates", "latency and throughput over the rate at which requests arrive", many=True),
        Kind("pareto", "throughput against TTFT and against memory; what nothing else beats", many=True),
    )
}
"""Every kind of picture, by name."""


def require_kind(name: str) -> Kind:
    """The kind of that name.

    Raises:
        UsageError: there is none; names the nearest.
    """
    if name not in KINDS:
        raise UsageError(f"there is no picture {name!r}; {nearest(name, tuple(KINDS))}")
    return KINDS[name]


def require_matplotlib() -> None:
    """Raises:
    UnsupportedError: it is not installed.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed: pip install 'musebench[plot]'"
        ) from error


def write(
    kind: Kind,
    entries: Sequence[Entry],
    folder: Path,
    formats: Sequence[str],
    settings: Settings = Settings(),
) -> list[Path]:
    """Draw one picture and save it as `folder`/KIND.FORMAT, a file for each of `FORMATS` asked for.

    Raises:
        UsageError, UnsupportedError: as `Kind.draw`.
        InputError: the place cannot be written.
    """
    require_matplotlib()
    from musebench.report.plots.style import save, styled

    paths = [folder / f"{kind.name}.{form}" for form in formats]
    with styled():
        figure = kind.draw(entries, settings)
        for path in paths:
            save(figure, path)
    return paths
