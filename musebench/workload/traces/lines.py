"""Lines of a text file with their numbers, each of a bounded length, whatever the file holds."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError

MOST_LINE = 1 << 24
"""Most bytes of one line. A prompt of 2 million token ids fits."""

_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"PK": "zip"}


def open_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text with its line end) of each line; a UTF-8 byte order mark is left out.

    Raises:
        InputError: not there, not UTF-8, or a line of more than `MOST_LINE` bytes, with its number.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE + 1):
                number += 1
                if len(line) > MOST_LINE:
                    raise InputError(f"{path} row {number} is longer than {MOST_LINE:,} bytes")
                if number == 1:
                    check_start(path, line)
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield number, line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path} row {number} is not UTF-8 text (byte {error.start + 1})"
                    ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError(
            f"{path}: cannot read the trace: {getattr(error, 'strerror', None) or error}"
        ) from error


def check_start(path: Path, head: bytes) -> None:
    """Raise InputError when a file's first bytes say that it is no UTF-8 text."""
    for mark, name in _OTHER_ENCODINGS.items():
        if head.startswith(mark):
            raise InputError(f"{path} is {name}; uncompressed UTF-8 text is wanted")


def csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, fields) of each record of a CSV file, blank lines left out.

    Raises:
        InputError: no CSV, or a record whose lines together have more than `MOST_LINE` characters.
    """
    start, taken = 1, 0  # of the record that is being read: its first line, and its characters so far

    def texts() -> Iterator[str]:
        nonlocal taken
        for _, text in open_lines(path):
            taken += len(text)
            if taken > MOST_LINE:
                raise InputError(f"{path} row {start} has a record of more than {MOST_LINE:,} characters")
            yield text

    reader = csv.reader(texts())
    while True:
        start, taken = reader.line_num + 1, 0
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path} row {start} is not CSV: {error}") from error
        if record is None:
            return
        if record:
            yield start, record


def json_records(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, object) of each line of a JSONL file, blank ones left out; text says why a line is none."""
    for number, text in open_lines(path):
        if not text.isspace():
            yield number, parse_object(text)


def parse_object(text: str) -> dict[str, Any] | str:
    """The JSON object in a text, or the reason why it is none."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return f"not JSON at character {error.pos + 1}: {error.msg}"
    except RecursionError:
        return "JSON that is nested too deep"
    except ValueError as error:  # NaN, Infinity, or a number of very many digits
        return str(error).partition(";")[0]
    return value if isinstance(value, dict) else "not a JSON object ({...})"


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
