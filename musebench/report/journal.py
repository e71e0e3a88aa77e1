"""The journal of a run: what has ended so far, on the disk while the run goes on.

A file beside the report, one JSON value a line. The first is a `JournalHead`: the report as it stood before
the first measured step, and all requests. Each further line is a `JournalEntry`: what has been added since
the one before. A line goes to the system in one write, so that a process that is killed leaves whole lines
and at most one that is cut off; only a machine that goes down can lose more. The report replaces the journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from musebench.core.errors import InputError
from musebench.core.request import FinishReason
from musebench.report import files
from musebench.report.codec import Mismatch, decode, encode
from musebench.report.columns import Columns, PoolData, RequestColumns, RunData, StepColumns
from musebench.report.schema import INCOMPLETE, Report

JOURNAL = 1
"""Rises when a line changes its meaning."""

SUFFIX = ".journal"


@dataclass(frozen=True)
class JournalHead:
    """`report` has the id of the report to come and no runs; `requests` are one run's, before it."""

    report: Report
    requests: RequestColumns
    journal: int = JOURNAL


@dataclass(frozen=True)
class EndedColumns(Columns):
    """Requests that have ended, by their `row` in the head's: what the run added to them, as in
    `RequestColumns`. Their texts are left out: decoding them would cost time inside the run.

    A turn's arrival and prompt are known once the one before it has ended, a follower's arrival once anybody
    has: the head has them as the workload asked.
    """

    FLAT: ClassVar[tuple[str, ...]] = ("token_ids", "token_steps", "margins")
    LATER: ClassVar[tuple[str, ...]] = (
        "pauses", "reused_tokens", "arrival_seconds", "prompt_tokens", "prompt_sha256",
    )  # fmt: skip

    row: list[int]
    scheduled_seconds: list[float | None]
    first_token_seconds: list[float | None]
    last_token_seconds: list[float | None]
    finish_seconds: list[float | None]
    generated_tokens: list[int]
    finish_reason: list[FinishReason]
    message: list[str | None]
    preemptions: list[int]
    token_ids: list[int]
    token_steps: list[int]
    margins: list[float | None] | None = None
    pauses: list[list[float]] | None = None
    reused_tokens: list[int] | None = None
    arrival_seconds: list[float] | None = None
    prompt_tokens: list[int] | None = None
    prompt_sha256: list[str | None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(count < 0 for count in self.generated_tokens):
            raise Mismatch("generated_tokens holds a negative number")
        total = sum(self.generated_tokens)
        for name in self.FLAT:
            column = getattr(self, name)
            if column is not None and len(column) != total:
                raise Mismatch(f"{name} has {len(column):,} values for {total:,} generated tokens")


@dataclass(frozen=True)
class JournalEntry:
    """Of repeat `run` (from 1): requests that have ended and steps that were committed since the entry
    before; the pool and the executor's counters as they were then."""

    run: int
    requests: EndedColumns
    steps: StepColumns
    pool: PoolData
    counters: dict[str, Any]


class Journal:
    """Writes one. A journal that is in the way, of a run that was cut off, is kept under another name
    (`kept`). When a write fails, `error` says so and nothing more is written: the run is worth more.

    Raises:
        InputError: it cannot be written, or another run that is still going writes it.
    """

    def __init__(self, path: Path, head: JournalHead) -> None:
        self.path = path
        self.kept: Path | None = None
        self.error: str | None = None
        self._file: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                if _held(path):
                    raise InputError(
                        f"{path} is written by a run that is still going; wait for its end, or name "
                        "another --out"
                    )
                self.kept = _free_name(path)
                path.rename(self.kept)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{path}: cannot write the journal: {error.strerror or error}") from error
        self._write(encode(head))

    def note(self, entry: JournalEntry) -> None:
        """Write an entry. Inside the run's time, so its columns, plain lists all, go out as they are."""
        rule = entry.pool.row_rule
        pool = {
            **vars(entry.pool),
            "growths": vars(entry.pool.growths),
            "row_rule": None if rule is None else asdict(rule),
        }
        requests, steps = vars(entry.requests), vars(entry.steps)
        self._write({**vars(entry), "requests": requests, "steps": steps, "pool": pool})

    def close(self, *, remove: bool) -> None:
        """End it; `remove` when a report holds all of it. Safe to call twice."""
        if self._file is None:
            return
        # The name may be another run's by now; while this file is open, no other has its identity.
        with contextlib.suppress(FileNotFoundError):
            if remove and os.path.samestat(self.path.stat(), os.fstat(self._file)):
                self.path.unlink()
        os.close(self._file)
        self._file = None

    def _write(self, values: dict[str, Any]) -> None:
        if self._file is None or self.error is not None:
            return
        line = (
            json.dumps(values, allow_nan=False, separators=(",", ":"), default=list).encode("ascii") + b"\n"
        )
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            self.error = f"{self.path}: cannot write the journal any further: {error.strerror or error}"


def _held(path: Path) -> bool:
    """Whether a run that is alive writes it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def path_for(report: Path) -> Path:
    """Where the journal of a report is."""
    return report.with_name(report.name + SUFFIX)


def report_path(journal: Path) -> Path:
    """Where the report of a journal belongs.

    Raises:
        InputError: the name is not that of a journal.
    """
    name = journal.name.partition(SUFFIX)[0]
    if not name or name == journal.name:
        raise InputError(f"{journal} is not named as a journal (REPORT{SUFFIX}); name the report with --out")
    return journal.with_name(name)


def recover(path: Path) -> Report:
    """The incomplete report of a journal: every request and step that it holds, and as unfinished the
    requests that had not ended.

    Raises:
        InputError: it is not there, has no whole first line, or a line (other than the last, which may be cut
            off) that is none of a journal.
    """
    head: JournalHead | None = None
    entries: dict[int, list[JournalEntry]] = {}
    for number, data, whole in _lines(path):
        try:
            values = files.strict_json(data)
            if head is None:
                head = _head(values, f"{path} line {number}")
            else:
                entry = decode(JournalEntry, values)
                entries.setdefault(entry.run, []).append(entry)
        except (ValueError, RecursionError) as error:
            if not whole and head is not None:
                break
            raise InputError(f"{path} line {number} is not a journal's: {_reason(error)}") from error
    if head is None:
        raise InputError(f"{path} is not a journal: it is empty")
    try:
        runs = [_run(head.requests, entries[run]) for run in sorted(entries)]
        ended = sum(reason is not None for run in runs for reason in run.requests.finish_reason)
        message = (
            f"the run was cut off; {ended:,} of {len(head.requests) * max(len(runs), 1):,} requests had ended"
        )
        return dataclasses.replace(head.report, runs=runs, status=INCOMPLETE, message=message)
    except ValueError as error:
        raise InputError(f"{path} is not a whole journal: {_reason(error)}") from error


def _head(values: Any, where: str) -> JournalHead:
    if not isinstance(values, dict) or type(values.get("journal")) is not int:
        raise InputError(f"{where} is not a journal's; `musebench run` writes journals")
    if values["journal"] > JOURNAL:
        raise InputError(f"{where} is of journal version {values['journal']}; this musebench reads {JOURNAL}")
    made: JournalHead = decode(JournalHead, values)
    return made


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Number, text and whether it is whole of each line."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(files.MOST_BYTES + 1):
                number += 1
                if len(line) > files.MOST_BYTES:
                    raise InputError(f"{path} line {number} is longer than {files.MOST_BYTES:,} bytes")
                yield number, line, line.endswith(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot read the journal: {error.strerror or error}") from error


def _run(requests: RequestColumns, entries: list[JournalEntry]) -> RunData:
    every = [entry.name for entry in dataclasses.fields(EndedColumns)]
    plain = [name for name in every if name not in (*EndedColumns.FLAT, "row")]
    columns = {
        entry.name: list(values)
        for entry in dataclasses.fields(RequestColumns)
        if entry.name not in RequestColumns.FLAT and (values := getattr(requests, entry.name)) is not None
    }
    if any(entry.requests.pauses is not None for entry in entries):
        columns["pauses"] = [[] for _ in requests.id]
    if any(entry.requests.reused_tokens is not None for entry in entries):
        columns["reused_tokens"] = [0] * len(requests)
    made: dict[str, dict[int, list[Any]]] = {name: {} for name in EndedColumns.FLAT}
    for entry in entries:
        start = 0
        for place, row in enumerate(entry.requests.row):
            if not 0 <= row < len(requests) or columns["finish_reason"][row] is not None:
                raise Mismatch(f"request {row} has ended, which is none of those that had not")
            for column in plain:
                values = getattr(entry.requests, column)
                if values is not None and column in columns:
                    columns[column][row] = values[place]
            end = start + entry.requests.generated_tokens[place]
            for flat in EndedColumns.FLAT:
                values = getattr(entry.requests, flat)
                if values is not None:
                    made[flat][row] = values[start:end]
            start = end
    flats = {
        flat: [value for row in sorted(by_row) for value in by_row[row]] if by_row else None
        for flat, by_row in made.items()
    }
    return RunData(
        requests=RequestColumns.of(**columns, **flats),
        steps=_joined([entry.steps for entry in entries]),
        pool=entries[-1].pool,
        counters=entries[-1].counters,
    )


def _joined(parts: list[StepColumns]) -> StepColumns:
    names = [entry.name for entry in dataclasses.fields(StepColumns) if entry.name not in StepColumns.FLAT]
    programs = sorted({name for part in parts for name in part.programs})
    flats = [name for name in StepColumns.FLAT if name != "programs"]
    names += [name for name in flats if all(getattr(part, name) is not None for part in parts)]
    return StepColumns.of(
        **{name: [value for part in parts for value in getattr(part, name)] for name in names},
        programs={
            name: [count for part in parts for count in part.programs.get(name, [0] * len(part))]
            for name in programs
        },
    )


def _free_name(path: Path) -> Path:
    number = 1
    while (made := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return made


def _reason(error: BaseException) -> str:
    text = "nested too deep" if isinstance(error, RecursionError) else str(error)
    return " ".join(text.split())
