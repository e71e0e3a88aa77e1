"""Strict numbers from the fields of a trace: whole and not negative where tokens are counted."""

from __future__ import annotations

import re
import reprlib
from typing import Any

from musebench.workload.lengths import MOST_TOKENS
from musebench.workload.traces.row import BadRow

MOST_TIME = 2**63
"""Times are below this many of their own units: 292 years of nanoseconds."""

_WHOLE = re.compile(r"\d+(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


def tokens(value: Any, column: str, fewest: int) -> int:
    """A count of tokens from text ("374", "374.0") or a JSON number; at least `fewest`."""
    if type(value) is int:
        count = value
    elif type(value) is str and len(value) < 10 and value.isdigit() and value.isascii():
        count = int(value)
    else:
        count = _rare_count(value, column, fewest)
    if count < fewest:
        raise BadRow(column, f"{count:,} tokens; at least {fewest} is wanted")
    if count > MOST_TOKENS:
        raise BadRow(column, f"{shown(count)} tokens; at most {MOST_TOKENS:,} is wanted")
    return count


def _rare_count(value: Any, column: str, fewest: int) -> int:
    if isinstance(value, str):
        text = value.strip()
        if len(text) <= 32 and _WHOLE.fullmatch(text):
            return int(text.partition(".")[0])
        if len(text) <= 32 and text.startswith("-") and _WHOLE.fullmatch(text[1:]):
            return -int(text[1:].partition(".")[0])
    elif isinstance(value, float) and value.is_integer():  # not infinite, not NaN
        return int(value)
    raise BadRow(column, f"{shown(value)}; a whole number of tokens, at least {fewest}, is wanted")


def time(value: Any, column: str) -> int | float:
    """A finite time from text or a JSON number, in the format's own unit; whole where it is written so."""
    made: int | float | None = None
    if isinstance(value, str):
        text = value.strip()
        if len(text) <= 64 and _NUMBER.fullmatch(text):
            made = int(text) if text.lstrip("+-").isdigit() else float(text)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        made = value
    if made is None or not -MOST_TIME < made < MOST_TIME:
        raise BadRow(column, f"{shown(value)}; a finite time as a number is wanted")
    return made


def ids(value: Any, column: str) -> list[int]:
    """A JSON list of token ids or block names: whole numbers from 0 to 2**63 - 1."""
    if not isinstance(value, list):
        raise BadRow(column, f"{shown(value)}; a list of whole numbers is wanted")
    for item in value:
        if type(item) is not int or not 0 <= item < 2**63:
            raise BadRow(column, f"a list with {shown(item)}; whole numbers of at least 0 are wanted")
    return value


def shown(value: Any) -> str:
    """A value as an error shows it: short, on one line."""
    if isinstance(value, int) and not isinstance(value, bool):
        # str() refuses numbers of more than some thousand digits
        return f"{value:,}" if abs(value) < 2**64 else f"a number of {value.bit_length()} bits"
    if value is None:
        return "nothing"
    if value == "":
        return "empty"
    return reprlib.repr(value)
