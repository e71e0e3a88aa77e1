"""A trace file to rows: which format it is, in which order, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.blame import told
from musebench.core.errors import InputError, MusebenchError, UsageError
from musebench.core.options import nearest, parse
from musebench.workload.traces.azure import AzureReader
from musebench.workload.traces.burstgpt import BurstGptReader
from musebench.workload.traces.lines import check_start
from musebench.workload.traces.llmservingsim import LlmServingSimReader
from musebench.workload.traces.mooncake import MooncakeReader
from musebench.workload.traces.plain import PlainCsvReader, PlainJsonReader
from musebench.workload.traces.reader import Reader
from musebench.workload.traces.row import TraceFormat, TraceRow
from musebench.workload.traces.splitwise import SplitwiseReader
from musebench.workload.traces.vidur import VidurReader

HEAD_BYTES = 1 << 16

Factory = Callable[[Mapping[str, Any]], Any]
"""Makes a `TraceFormat` from option values (text or plain values by name)."""

READERS: dict[str, type[Reader]] = {
    "azure": AzureReader,
    "burstgpt": BurstGptReader,
    "llmservingsim": LlmServingSimReader,
    "mooncake": MooncakeReader,
    "plain-csv": PlainCsvReader,
    "plain-jsonl": PlainJsonReader,
    "splitwise": SplitwiseReader,
    "vidur": VidurReader,
}
"""The built-in formats. Each class is made with its `Options`."""


@dataclass(frozen=True)
class Trace:
    """The rows of a trace in order of time, and what was left out of it.

    `left_out` counts rows by reason; `first_bad` is the text about the first that could not be read.
    """

    path: Path
    format: str
    rows: list[TraceRow]
    left_out: Mapping[str, int]
    first_bad: str | None = None

    def notes(self) -> tuple[str, ...]:
        """One line for each reason why rows were left out."""
        made = [f"{self.path}: {count:,} left out: {reason}" for reason, count in self.left_out.items()]
        if self.first_bad is not None:
            made.append(f"the first bad row: {self.first_bad}")
        return tuple(made)


def builtin_formats() -> dict[str, Factory]:
    """Factories of the built-in formats by name."""

    def factory(name: str, reader: type[Reader]) -> Factory:
        return lambda values: reader(parse(reader.Options, values, f"trace format {name!r}"))

    return {name: factory(name, reader) for name, reader in READERS.items()}


def read_trace(
    path: Path,
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sort: bool = False,
    most_rows: int | None = None,
    duration_seconds: float | None = None,
    formats: Mapping[str, Factory] | None = None,
) -> Trace:
    """Read a trace; `format` None recognises it by its content. Time and memory grow with the rows taken.

    Rows have to be in order of time, unless `sort` puts them so (rows of one time keep their order); then
    times count from the earliest. Of these rows, only those less than `duration_seconds` after the first
    are taken, and `most_rows` at most; without `sort`, what lies behind them is not read.

    Raises:
        InputError: the file cannot be read as such a trace, or has no rows; names file, row, column and what
            was wanted.
        UsageError: there is no such format, or it has no such option.
    """
    known = builtin_formats() if formats is None else formats
    if format is None:
        format = recognise(path, known, options or {})
    elif format not in known:
        raise UsageError(f"there is no trace format {format!r}; {nearest(format, known)}")
    reader = known[format](options or {})
    try:
        rows = _sorted(reader, path) if sort else _in_order(reader.read(path), path)
        taken = list(_cut(rows, most_rows, duration_seconds))
        left_out = dict(getattr(reader, "left_out", {}))
    except MusebenchError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(reader, Reader):
            raise
        raise InputError(f"{path}: trace format {format!r} failed: {told(error, reader)}") from error
    if not taken:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        why = f"all rows were left out: {reasons}" if reasons else "there are no rows after the header"
        raise InputError(f"{path} has no request: {why}")
    return Trace(path, format, taken, left_out, getattr(reader, "first_bad", None))


def recognise(path: Path, formats: Mapping[str, Factory], options: Mapping[str, Any] | None = None) -> str:
    """The name of the one format that recognises a file by its first 64 KiB.

    Formats whose `fallback` is true are asked only when no other one recognises it.

    Raises:
        InputError: not there, empty, or recognised by none or by several; lists what was tried.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot read the trace: {getattr(error, 'strerror', None) or error}"
        ) from error
    check_start(path, head)
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError(f"{path} is empty; a trace with a header and rows is wanted")
    first: list[str] = []
    second: list[str] = []
    tried: list[str] = []
    for name in sorted(formats):
        try:
            reader = _for_recognising(formats[name], options or {})
            recognised = reader is not None and reader.recognises(head, path.name)
        except (Exception, SystemExit) as error:  # a plugin's that fails takes no file from the others
            tried.append(f"{name} (failed: {told(error)})")
            continue
        tried.append(name)
        if recognised:
            (second if getattr(reader, "fallback", False) else first).append(name)
    found = first or second
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            f"{path} is in no format known here; tried: {', '.join(tried)}; a plain CSV has the "
            "columns arrival, prompt_tokens and output_tokens"
        )
    raise InputError(f"{path} could be {' or '.join(found)}; name its format")


def _for_recognising(factory: Factory, options: Mapping[str, Any]) -> TraceFormat | None:
    """The options may be for one format only: the others are asked without them."""
    for values in (options, {}):
        try:
            made: TraceFormat = factory(values)
        except UsageError:
            continue
        return made
    return None


def _in_order(rows: Iterator[TraceRow], path: Path) -> Iterator[TraceRow]:
    latest: float | None = None
    for row in rows:
        at = row.arrival_seconds
        if at is not None:
            if latest is not None and at < latest:
                raise InputError(
                    f"{path} row {row.row}: its time is {latest - at:.6f} s before an earlier row's; rows in "
                    "order of time are wanted; the option sort puts them so"
                )
            latest = at
        yield row


def _sorted(reader: TraceFormat, path: Path) -> Iterator[TraceRow]:
    rows = list(reader.read(path))
    if any(row.arrival_seconds is None for row in rows):
        return iter(rows)
    rows.sort(key=_arrival)
    earliest = _arrival(rows[0]) if rows else 0.0
    if earliest == 0.0:
        return iter(rows)
    return (
        TraceRow(
            _arrival(row) - earliest, row.prompt_tokens, row.output_tokens, row.prompt_ids, row.tags, row.row
        )
        for row in rows
    )


def _arrival(row: TraceRow) -> float:
    return row.arrival_seconds or 0.0


def _cut(rows: Iterator[TraceRow], most: int | None, duration_seconds: float | None) -> Iterator[TraceRow]:
    for number, row in enumerate(rows):
        if most is not None and number >= most:
            return
        if duration_seconds is not None:
            if row.arrival_seconds is None:
                raise InputError(f"row {row.row} has no time, which a duration needs")
            if row.arrival_seconds >= duration_seconds:
                return
        yield row
