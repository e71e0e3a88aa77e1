"""The files of a run: its report, and beside it the journal for as long as there is no report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import click

from musebench.report.journal import Journal, JournalEntry, JournalHead, path_for
from musebench.report.schema import Report

FOLDER = Path("results")
"""Of reports without `--out`."""


class FileKeeper:
    """See `musebench.keeping.Keeper`. `finish(report, path)` writes and shows a report and gives the exit
    code; `wanted` None keeps a journal unless the run is simulated."""

    def __init__(self, out: Path | None, wanted: bool | None, finish: Callable[[Report, Path], int]) -> None:
        self._out = out
        self._wanted = wanted
        self._finish = finish
        self._journal: Journal | None = None

    def __enter__(self) -> FileKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            self._journal.close(remove=False)

    def begin(self, head: JournalHead, virtual: bool) -> None:
        if self._wanted is False or (self._wanted is None and virtual):
            return
        self._journal = Journal(path_for(self._path(head.report)), head)
        if self._journal.kept is not None:
            _warn(
                f"{self._journal.path} of a run that was cut off is kept as {self._journal.kept}; "
                f"`musebench recover {self._journal.kept}` makes a report of it"
            )

    @property
    def noting(self) -> bool:
        return self._journal is not None and self._journal.error is None

    def note(self, entry: JournalEntry) -> None:
        journal = self._journal
        if journal is None or journal.error is not None:
            return
        journal.note(entry)
        if journal.error is not None:
            _warn(journal.error)

    def end(self, report: Report) -> int:
        """Write and show the report of a run that ended, remove the journal; returns the exit code."""
        code = self._finish(report, self._path(report))
        if self._journal is not None:
            self._journal.close(remove=True)
        return code

    def hung(self, report: Report) -> None:
        """As `end`, with the message on standard error; the journal stays where no report can be made."""
        click.echo(f"musebench: error: {report.message}", err=True)
        self.end(report)
        sys.stdout.flush()
        sys.stderr.flush()

    def _path(self, report: Report) -> Path:
        return FOLDER / f"{report.id}.json" if self._out is None else self._out


def _warn(text: str) -> None:
    click.echo(f"musebench: warning: {text}", err=True)
