"""Reports on disk: written whole or not at all, read strictly."""

from __future__ import annotations

import gzip
import io
import json
import re
import secrets
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from musebench.core.errors import InputError
from musebench.core.whole import write_whole
from musebench.report.codec import Mismatch, decode, encode
from musebench.report.column import Column
from musebench.report.schema import SCHEMA, Report

GZIP_MAGIC = b"\x1f\x8b"

MOST_BYTES = 1 << 29
"""Most bytes of a report's JSON text, unpacked: a million requests fit. Reading takes up to nine times as
much memory."""

MOST_CONTAINERS = 1 << 23
"""Most objects and lists in it, which take more memory than their text by far."""


def write(report: Report, path: Path | str) -> Path:
    """Write a report as compact JSON, gzipped where the name ends with ".gz"; makes the folder.

    Whole or not at all, see musebench.core.whole.

    Raises:
        ValueError: a NaN or infinity somewhere in it.
        InputError: the place cannot be written.
    """
    path = Path(path)
    data = dumps(report)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # the same report gives the same bytes
    return write_whole(path, data, "the report")


def read(path: Path | str) -> Report:
    """Read a report, gzipped or not (its content decides, not its name).

    Raises:
        InputError: it is not there, empty, cut off, of a newer schema, or not what the schema says; one line
            that names the file and the place.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _load(file, str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the report: {error.strerror or error}") from error


def loads_any(data: bytes, name: str) -> Report:
    """A report from the bytes of its file, gzipped or not; `name` starts each error.

    Raises:
        InputError: as `read`.
    """
    return _load(io.BytesIO(data), name)


def _load(file: BinaryIO, name: str) -> Report:
    try:
        head = file.read(2)
        file.seek(0)
        if head == GZIP_MAGIC:
            with gzip.open(file) as unpacked:
                data = unpacked.read(MOST_BYTES + 1)
        else:
            data = file.read(MOST_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{name} is not a whole report: its gzip data is cut off or broken") from error
    if len(data) > MOST_BYTES:
        raise InputError(
            f"{name} has more than {MOST_BYTES:,} bytes of JSON, the most that is read as a report; run "
            "fewer requests or repeats at a time"
        )
    return loads(data, name)


def dumps(report: Report) -> bytes:
    """The compact JSON text of a report, ASCII, one line.

    Raises:
        ValueError: a NaN or infinity somewhere in it.
    """
    columns: dict[str, Column] = {}
    mark = secrets.token_hex(16)  # no text of a report has it

    def marked(value: Any) -> str:
        if not isinstance(value, Column):
            raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")
        if not np.isfinite(value.array).all():
            raise ValueError("Out of range float values are not JSON compliant")
        columns[f"{mark}{len(columns)}."] = value
        return f"{mark}{len(columns) - 1}."

    text = json.dumps(encode(report), allow_nan=False, separators=(",", ":"), default=marked)
    # A column's text is made apart: json.dumps holds one object a number.
    parts = re.split(f'"({mark}[0-9]+[.])"', text)
    parts[1::2] = [columns[part].json() for part in parts[1::2]]
    return "".join(parts).encode("ascii") + b"\n"


def loads(data: bytes, name: str) -> Report:
    """A report from its JSON text; `name` starts each error.

    Raises:
        InputError: as `read`.
    """
    if not data.strip():
        raise InputError(f"{name} is not a report: it is empty")
    try:
        values = strict_json(data)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not a whole report: cut off or broken at line {error.lineno}, column {error.colno} "
            f"({error.msg})"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(f"{name} is not a report: {reason}") from error
    if not isinstance(values, dict) or "schema" not in values:
        raise InputError(f"{name} is not a report: it has no schema number; `musebench run` writes reports")
    schema = values["schema"]
    if type(schema) is not int or schema < 1:
        raise InputError(
            f"{name} is not a report: its schema is {schema!r}; a number from 1 to {SCHEMA} is wanted"
        )
    if schema > SCHEMA:
        raise InputError(
            f"{name} has schema {schema}; this musebench reads up to {SCHEMA}: it is newer, upgrade musebench"
        )
    try:
        made: Report = decode(Report, values)
    except (Mismatch, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(f"{name} is not a report of schema {schema}: {reason}") from error
    return made


def strict_json(data: bytes) -> Any:
    """The JSON value of a text; NaN, Infinity and a key that is there twice are refused.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deep.
    """
    if (containers := data.count(b"{") + data.count(b"[")) > MOST_CONTAINERS:
        raise ValueError(f"it has {containers:,} objects and lists; at most {MOST_CONTAINERS:,} are read")
    return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_object)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"it holds {text}, which is not JSON; null stands for missing")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return made
