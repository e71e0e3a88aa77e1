"""The laws of trace readers, held over a file of the format, spoilt in every way that files are."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError
from musebench.testing.laws.law import Broken, Finding, History, Law
from musebench.testing.laws.search import search, strategies
from musebench.workload.traces.row import TraceFormat, TraceRow

RECOGNISES = Law("recognises", "it recognises its own file by the head, and takes no garbage for one")
ROWS = Law("rows", "rows have at least 1 prompt token, 0 output tokens and 0 seconds, or no time at all")
PLACES = Law("places", "rows tell the lines that they start on, in the file's order")
IDS = Law("ids", "a prompt's ids are as many as its tokens")
AGAIN = Law("again", "reading twice gives the same rows and the same counts of what was left out")
ENDINGS = Law("endings", "line ends, a byte order mark and a missing last line end change no row")
REFUSES = Law("refuses", "a file that cannot be read is refused in one line that names it")

TRACE_LAWS = (RECOGNISES, ROWS, PLACES, IDS, AGAIN, ENDINGS, REFUSES)

HEAD_BYTES = 1 << 16

WORDS = (b"", b"-1", b"word", b"nan", b"1e999", b"-0.5", b"\xff\xfe", b'"', b"{", b"0" * 400)
"""What is put in place of a piece of a file."""


@dataclass(frozen=True)
class Spoilt:
    """A file of which the piece from `at` (in thousandths) to the next separator is replaced by `word`, and
    which ends at `cut`, in thousandths."""

    at: int
    word: bytes
    cut: int

    def of(self, example: bytes) -> bytes:
        start = len(example) * self.at // 1000
        ends = [example.find(mark, start + 1) for mark in (b",", b"\n", b":", b"}")]
        end = min((place for place in ends if place >= 0), default=len(example))
        spoilt = example[:start] + self.word + example[end:]
        return spoilt[: len(spoilt) * self.cut // 1000]


def hold_trace(
    make: Callable[[], TraceFormat], example: bytes, filename: str, *, examples: int = 150, seed: int = 0
) -> list[Finding]:
    """A finding a law for the readers that `make()` makes; `example` is a right file, with two rows or more,
    and `filename` what it would be called."""
    st = strategies()
    files = st.builds(
        Spoilt, st.integers(0, 1000), st.sampled_from(WORDS), st.sampled_from([1000, 1000, 700, 1])
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / filename

        def play(drawn: Spoilt, history: History) -> None:
            _right(make, example, path, history)
            _spoilt(make, drawn.of(example), path, history)

        return search(TRACE_LAWS, files, play, examples, seed)


def _right(make: Callable[[], TraceFormat], example: bytes, path: Path, history: History) -> None:
    history.doing(f"reading {path.name} as it is")
    reader, hold = make(), history.hold
    own = reader.recognises(example[:HEAD_BYTES], path.name)
    hold(RECOGNISES, own is True, f"recognises is {own!r} for its own file")
    path.write_bytes(example)
    rows = list(reader.read(path))
    hold(ROWS, len(rows) > 1, f"{len(rows)} rows were read of the example; 2 or more are wanted")
    _rows(rows, history, spoilt=False)
    left, again = dict(reader.left_out), list(reader.read(path))
    hold(AGAIN, again == rows, "the second reading gave other rows")
    hold(
        AGAIN, dict(reader.left_out) == left, f"left_out is {reader.left_out} the second time, and was {left}"
    )
    lines = example.replace(b"\r\n", b"\n")
    for what, content in (
        ("with CRLF line ends", lines.replace(b"\n", b"\r\n")),
        ("without its last line end", lines.rstrip(b"\n")),
        ("with a byte order mark", b"\xef\xbb\xbf" + lines),
    ):
        history.doing(f"reading {path.name} {what}")
        path.write_bytes(content)
        try:
            same = list(make().read(path)) == rows
        except InputError as error:
            raise Broken(ENDINGS, f"it was refused: {error}") from error
        hold(ENDINGS, same, "other rows came of it")
        history.steps.pop()


def _spoilt(make: Callable[[], TraceFormat], content: bytes, path: Path, history: History) -> None:
    history.doing(f"reading {path.name} as {_shown(content)}")
    path.write_bytes(content)
    known = make().recognises(content[:HEAD_BYTES], path.name)
    history.hold(RECOGNISES, isinstance(known, bool), f"recognises gave {known!r}; True or False is wanted")
    garbage = make().recognises(b"\x00\x01\x02 no trace", "garbage.bin")
    history.hold(RECOGNISES, garbage is False, "it takes garbage for its own")
    try:
        rows = list(make().read(path))
    except InputError as error:
        text = str(error)
        history.hold(REFUSES, path.name in text, f"its refusal does not name the file: {text}")
        history.hold(REFUSES, "\n" not in text, f"its refusal has several lines: {text!r}")
        return
    _rows(rows, history, spoilt=True)


def _rows(rows: list[TraceRow], history: History, spoilt: bool) -> None:
    hold, last = history.hold, 0
    for place, row in enumerate(rows):
        where = f"row {place + 1} has"
        for what, value, least in (
            ("prompt tokens", row.prompt_tokens, 1),
            ("output tokens", row.output_tokens, 0),
        ):
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            hold(ROWS, whole, f"{where} {value!r} {what}; a whole number of at least {least} is wanted")
        seconds = row.arrival_seconds
        if seconds is not None:
            # In a spoilt file times may be out of order, which is refused by who asks for rows in order.
            fine = math.isfinite(seconds) and (spoilt or seconds >= 0)
            hold(ROWS, fine, f"{where} the time {seconds!r} s; at least 0 is wanted")
        hold(PLACES, row.row > last, f"{where} the line {row.row}, after {last}")
        last = row.row
        ids: Any = row.prompt_ids
        hold(IDS, ids is None or len(ids) == row.prompt_tokens, f"{where} other ids than {row.prompt_tokens}")


def _shown(content: bytes) -> str:
    text = repr(content)
    return text if len(text) < 200 else f"{text[:200]}... ({len(content):,} bytes)"
