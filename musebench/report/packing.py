"""Long columns in a report's text: numbers as compressed bytes, repeated values once, equal records by field.

A list of more than `PACKED_FROM` values becomes an object with the key "packed" and its length, "of":

    {"packed": "numbers", "type": "<f8", "data": TEXT}   float64, or "<i8": differences of int64; TEXT is
                                                         base64 of zlib of the first byte of all, the second
                                                         byte of all, ...
    {"packed": "runs", "firsts": ..., "counts": ...}     `musebench.report.column.Runs`
    {"packed": "same", "value": VALUE}                   one value again and again
    {"packed": "records", "columns": {NAME: ...}}        objects that have the same keys
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

import numpy as np

from musebench.report.column import Column, Runs

PACKED_FROM = 1 << 14
"""Values of a list that is packed: shorter ones stay as people and other programs read them."""

MOST_VALUES = 1 << 28
"""Most values that a packed list is taken to have, and of plain Python values a sixteenth of that."""

KINDS = ("numbers", "runs", "same", "records")


class Unpackable(ValueError):
    """A packed list that is none; the text says why."""


def pack(values: Any) -> Any:
    """A list or column as its JSON value: packed where it is long and can be, else as it is.

    Raises:
        ValueError: a number that is not finite.
    """
    if len(values) < PACKED_FROM:
        return values
    if isinstance(values, Runs):
        firsts, counts = pack(Column(values.firsts)), pack(Column(values.counts))
        return {"packed": "runs", "of": len(values), "firsts": firsts, "counts": counts}
    if isinstance(values, Column):
        return _numbers(values.array)
    kinds = set(map(type, values))
    if kinds == {dict}:
        return _records(values)
    if kinds <= {int, float, str, bool, type(None)} and len(kinds) == 1:
        if values.count(values[0]) == len(values):
            return {"packed": "same", "of": len(values), "value": values[0]}
        if kinds == {float}:
            return _numbers(np.array(values, np.float64))
        if kinds == {int} and min(values) > -(2**62) and max(values) < 2**62:
            return _numbers(np.array(values, np.int64))
    return values


def _numbers(array: np.ndarray) -> dict[str, Any]:
    if array.dtype.kind == "f":
        made = array.astype("<f8")
        if not np.isfinite(made).all():
            raise ValueError("Out of range float values are not JSON compliant")
    else:
        made = np.diff(array.astype("<i8"), prepend=0).astype("<i8")
    planes = made.view(np.uint8).reshape(-1, 8).T.tobytes()
    data = base64.b64encode(zlib.compress(planes, 1)).decode("ascii")
    return {"packed": "numbers", "of": len(array), "type": made.dtype.str, "data": data}


def _records(values: list[dict[str, Any]]) -> Any:
    names = list(values[0])
    if not names or any(list(value) != names for value in values):
        return values
    columns = {name: pack([value[name] for value in values]) for name in names}
    return {"packed": "records", "of": len(values), "columns": columns}


def unpack(data: dict[str, Any]) -> Any:
    """The list or column of a packed one.

    Raises:
        Unpackable: it is not what it should be.
    """
    kind, count = data.get("packed"), data.get("of")
    if kind not in KINDS:
        raise Unpackable(f"is packed as {json.dumps(kind)}; one of {', '.join(KINDS)} is wanted")
    most = MOST_VALUES if kind in ("numbers", "runs") else MOST_VALUES // 16
    if type(count) is not int or not 1 <= count <= most:
        raise Unpackable(f"has {json.dumps(count)} packed values; 1 to {most:,} are taken")
    try:
        made = _UNPACK[kind](data, count)
    except KeyError as error:
        raise Unpackable(f"has no {error} in its packed {kind}") from error
    if len(made) != count:
        raise Unpackable(f"has {len(made):,} packed values and says {count:,}")
    return made


def _unpack_numbers(data: dict[str, Any], count: int) -> Column:
    if data["type"] not in ("<f8", "<i8") or not isinstance(data["data"], str):
        raise Unpackable("has packed numbers of an unknown type")
    try:
        packed = base64.b64decode(data["data"], validate=True)
        unpacking = zlib.decompressobj()
        planes = unpacking.decompress(packed, 8 * count + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise Unpackable(f"has packed numbers that cannot be read: {error}") from error
    if len(planes) != 8 * count or not unpacking.eof:
        raise Unpackable(f"has packed numbers of other than {count:,} values")
    array = np.frombuffer(planes, np.uint8).reshape(8, count).T.copy().view(data["type"])[:, 0]
    if data["type"] == "<i8":
        return Column(np.cumsum(array, dtype=np.int64))
    if not np.isfinite(array).all():
        raise Unpackable("has packed numbers that are not finite")
    return Column(array.astype(np.float64, copy=False))


def _unpack_runs(data: dict[str, Any], count: int) -> Runs:
    firsts, counts = (_whole(data[name]) for name in ("firsts", "counts"))
    if len(firsts) != len(counts) or not len(counts) or counts.min() < 1 or counts.max() > MOST_VALUES:
        raise Unpackable("has packed runs whose firsts and counts do not belong together")
    return Runs(firsts, counts)


def _whole(values: Any) -> np.ndarray:
    if isinstance(values, dict):
        values = unpack(values)
    if isinstance(values, Column):
        array = np.asarray(values)
    elif isinstance(values, list) and set(map(type, values)) <= {int}:
        if values and not (min(values) > -(2**62) and max(values) < 2**62):
            raise Unpackable("has packed runs beyond 62 bits")
        array = np.array(values, np.int64)
    else:
        array = np.empty(0)
    if array.dtype != np.int64:
        raise Unpackable("has packed runs of other than whole numbers")
    return array


def _unpack_same(data: dict[str, Any], count: int) -> list[Any]:
    value = data["value"]
    if isinstance(value, dict | list):
        raise Unpackable("has packed values that are no plain ones")
    return [value] * count


def _unpack_records(data: dict[str, Any], count: int) -> list[Any]:
    columns = data["columns"]
    if not isinstance(columns, dict) or not columns:
        raise Unpackable("has packed records without columns")
    made = [unpack(column) if isinstance(column, dict) else column for column in columns.values()]
    if any(not isinstance(column, list | Column) or len(column) != count for column in made):
        raise Unpackable("has packed records whose columns are not of one length")
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*made, strict=True)]


_UNPACK = {
    "numbers": _unpack_numbers, "runs": _unpack_runs, "same": _unpack_same, "records": _unpack_records,
}  # fmt: skip
