"""The headline rows in a table, under their conditions: `results/refresh.py` puts it where a document has
`<!-- headline -->`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from evidence import ENERGY, Evidence, MissingReport
from findings import MATRIX, SHAPES

from musebench.report.entries import facts

HEADINGS = ("workload and model", "output tokens/s", "TTFT p50", "ITL p50", "memory", "energy a token")


def headline(folder: Path = MATRIX) -> str:
    """The headline rows as a table of Markdown under their conditions; nothing without one."""
    of = Evidence(folder)
    rows = [row for work in ("mixed", "longtail") for row in of.known(work, SHAPES)]
    if not rows:
        return "\n"
    reports = [row.first for row in rows]
    conditions = [report.conditions for report in reports]

    def all_of(values: Iterator[object]) -> str:
        return " and ".join(sorted({str(value) for value in values}))

    versions = [one.versions for one in conditions]
    said = (
        f"\nOne {all_of(one.device for one in conditions)}, {all_of(one.created[:10] for one in reports)}, "
        f"driver {all_of(one.driver for one in conditions)}, "
        f"torch {all_of(one['torch'] for one in versions)}, "
        f"transformers {all_of(one['transformers'] for one in versions)}, "
        f"musebench {all_of(one['musebench'] for one in versions)} at "
        f"{all_of(facts(one)['commit'] for one in reports)}; executor `graph`,\n"
        f"pool `geometric`, scheduler `chunked`, {all_of(one.model.dtype for one in conditions)}, after a "
        "run to warm up. Behind a median of several runs stands\nthe interval that holds it at 95 %. "
        "`results/README.md` says the rest in words.\n\n"
    )
    lines = [said, f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}\n"]
    for row in rows:
        timed = ("output_tokens_per_second", "ttft_p50", "itl_p50")
        cells = [
            f"{row.work}, {row.model}",
            *(_or_missing(lambda key=key, row=row: str(row.timed(key))) for key in timed),
            _or_missing(lambda row=row: row.shown("memory_bytes")),
            _or_missing(lambda row=row: str(row.timed(ENERGY))),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines) + "\n"


def _or_missing(said: Callable[[], str]) -> str:
    try:
        return said()
    except MissingReport:
        return "-"
