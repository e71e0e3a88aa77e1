"""Dataclasses to plain JSON values and back, strictly: driven by type hints, refusing what they do not say.

Knows what the report's schema is built of: int, float, str, bool, None, unions with None, `list`, `tuple` of
one kind, `dict` with text keys, enumerations of text, dataclasses, and `Any` for free JSON. A list of plain
values (a column) is checked by the set of its types, so that a million values cost no loop in Python.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy as np

from musebench.report.column import Column
from musebench.report.packing import Unpackable, pack, unpack

MOST_BITS = 63
"""Of a whole number: columns are counted with as int64."""

PLAIN = {int, float, str, bool, type(None)}

_NAMES = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null",
    list: "a list", dict: "an object",
}  # fmt: skip


class Mismatch(ValueError):
    """A JSON value that is not what the schema says; the text names its place and what was wanted."""


def encode(value: Any) -> Any:
    """The JSON value of a dataclass, an enumeration, a numpy array or scalar, a tuple, or plain JSON.

    Long lists are packed, see `musebench.report.packing`; short columns are handed on as they are.

    Raises:
        TypeError: something else, or an object key that is not text.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: encode(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Column):
        return pack(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return pack(list(value) if _plain(value) else [encode(entry) for entry in value])
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"an object's key is {wrong[0]!r}; a text is wanted")
        return {key: encode(entry) for key, entry in value.items()}
    raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")


def _plain(values: Iterable[Any]) -> bool:
    """Whether they are JSON as they are: plain values, or objects of these under plain keys."""
    kinds = set(map(type, values))
    if kinds == {dict}:
        keys = set().union(*values)
        inner = {type(entry) for value in values for entry in value.values()}
        return set(map(type, keys)) <= {str} and inner <= PLAIN
    return kinds <= PLAIN


def decode(hint: Any, data: Any, place: str = "") -> Any:
    """The value of type `hint` that `data` (from `json.loads`) stands for; `place` starts the error's text.

    A whole number is taken where a number is wanted and becomes a float. A dataclass needs every field that
    has no default and takes no other key.

    Raises:
        Mismatch: the first thing that does not fit, with its place ("runs[0].steps.start: ...").
    """
    if hint is Any:
        return _free(data, place)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        if data is None and len(kinds) < len(typing.get_args(hint)):
            return None
        return decode(kinds[0], data, place)
    if origin in (list, tuple):
        inner = typing.get_args(hint)[0]
        if isinstance(data, dict) and "packed" in data:
            try:
                data = unpack(data)
            except Unpackable as error:
                raise Mismatch(f"{place} {error}") from error
        if isinstance(data, Column) and _takes(inner, data):
            return data if origin is list else tuple(data)
        if not isinstance(data, list | Column):
            raise _wrong(data, "a list", place)
        made = _column(inner, list(data), place)
        return made if origin is list else tuple(made)
    if origin is dict:
        if not isinstance(data, dict):
            raise _wrong(data, "an object", place)
        inner = typing.get_args(hint)[1]
        return {key: decode(inner, entry, f"{place}.{_key(key)}") for key, entry in data.items()}
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast(type, hint), data, place)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(data)
        except ValueError:
            known = ", ".join(str(member.value) for member in hint)
            raise _wrong(data, f"one of {known}", place) from None
    if hint is float:
        return _number(data, place)
    if type(data) is not hint:
        raise _wrong(data, _NAMES[hint], place)
    return _held(data, place) if hint is int else data


def _record(kind: type, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(data, "an object", place)
    hints = _hints(kind)
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}
    dot = f"{place}." if place else ""
    for key in data:
        if key not in entries:
            raise Mismatch(f"{dot}{_key(key)} is not known; {place or 'a report'} has {', '.join(entries)}")
    made = {}
    for name, entry in entries.items():
        if name in data:
            made[name] = decode(hints[name], data[name], f"{dot}{name}")
        elif entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
            raise Mismatch(f"{dot}{name} is missing")
    try:
        return kind(**made)
    except Exception as error:  # a check of the dataclass's own (`Limits`, the lengths of columns)
        raise Mismatch(f"{place}: {error}" if place else str(error)) from error


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _column(inner: Any, data: list[Any], place: str) -> list[Any]:
    optional = typing.get_origin(inner) in (typing.Union, types.UnionType)
    kinds = set(typing.get_args(inner)) if optional else {inner}
    if not kinds <= {int, float, str, bool, type(None)}:
        return [decode(inner, entry, f"{place}[{index}]") for index, entry in enumerate(data)]
    if float not in kinds:
        if not set(map(type, data)) <= kinds:
            index = next(i for i, entry in enumerate(data) if type(entry) not in kinds)
            raise _wrong(
                data[index], " or ".join(sorted(_NAMES[kind] for kind in kinds)), f"{place}[{index}]"
            )
        if int in kinds:
            numbers = [entry for entry in data if entry is not None] if optional else data
            for number in (min(numbers, default=0), max(numbers, default=0)):
                _held(number, place)
        return data
    return [
        None if entry is None and optional else _number(entry, f"{place}[{index}]")
        for index, entry in enumerate(data)
    ]


def _takes(inner: Any, column: Column) -> bool:
    """Whether a column's numbers are what the list's hint says, as they are."""
    kinds = typing.get_args(inner) or (inner,)
    return (float if column.at(np.zeros(1, np.int64)).dtype.kind == "f" else int) in kinds


def _held(number: int, place: str) -> int:
    """A whole number that everything behind can count with."""
    if number.bit_length() > MOST_BITS:
        raise Mismatch(f"{place} has a number of {number.bit_length():,} bits; at most {MOST_BITS} are taken")
    return number


def _number(data: Any, place: str) -> float:
    if type(data) not in (int, float):
        raise _wrong(data, "a number", place)
    try:
        made = float(data)
    except OverflowError:
        made = math.inf
    if not math.isfinite(made):
        raise Mismatch(f"{place} is not a finite number")
    return made


def _free(data: Any, place: str) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        raise Mismatch(f"{place} is not a finite number")
    if type(data) is int:
        return _held(data, place)
    if isinstance(data, list):
        return [_free(entry, f"{place}[{index}]") for index, entry in enumerate(data)]
    if isinstance(data, dict):
        return {key: _free(entry, f"{place}.{_key(key)}") for key, entry in data.items()}
    return data


def _key(key: str) -> str:
    """A key as a place in a message shows it: as it is when it is a short word, else quoted and cut."""
    return key if len(key) <= 40 and key.isascii() and key.isprintable() else ascii(key[:40])


def _wrong(data: Any, wanted: str, place: str) -> Mismatch:
    shown = repr(data)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    what = _NAMES.get(type(data), type(data).__name__)
    seen = shown if data is None or isinstance(data, bool) else f"{what} ({shown})"
    return Mismatch(f"{place} is {'null' if data is None else seen}; {wanted} is wanted")
