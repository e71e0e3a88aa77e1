"""Options declared once, as a dataclass: for the file, the flag and the help.

    @dataclass(frozen=True)
    class Options:
        factor: float = option(2.0, "rows grow by at least this factor", above=1.0)

`parse` turns text or YAML values into such a dataclass, and names what it cannot.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from musebench.core.errors import UsageError

T = TypeVar("T")

_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True)
class NoOptions:
    """For a component that has none."""


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with help and bounds: `minimum <= value <= maximum`, `above < value`."""
    bounds = {"minimum": minimum, "above": above, "maximum": maximum}
    return dataclasses.field(
        default=default, metadata={"help": help, "unit": unit, "choices": choices, **bounds}
    )


@dataclass(frozen=True)
class OptionInfo:
    """One option, as help shows it."""

    name: str
    type: str
    default: Any
    help: str
    unit: str


def describe(options: type) -> list[OptionInfo]:
    """The options of a dataclass, in order.

    Raises:
        UsageError: one has no default that can be shown and typed.
    """
    hints = typing.get_type_hints(options)
    for entry in dataclasses.fields(options):
        if not _plain(entry.default):
            shown = "no default" if entry.default is dataclasses.MISSING else f"the default {entry.default!r}"
            raise UsageError(
                f"option {entry.name!r} has {shown}; a finite number, text, true or false, none, or a tuple "
                "of these is wanted"
            )
    return [
        OptionInfo(
            entry.name, _type_name(hints[entry.name]), entry.default,
            entry.metadata.get("help", ""), entry.metadata.get("unit", ""),
        )
        for entry in dataclasses.fields(options)
    ]  # fmt: skip


def _plain(value: Any) -> bool:
    """Whether it is what JSON and a command line can hold."""
    if isinstance(value, tuple):
        return all(_plain(part) for part in value)
    return (
        value is None or isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """ ", did you mean 'x'?" or the list of what there is: the tail of an error about a name."""
    known = sorted(known)
    # More than half alike: 'backend' is exactly half of 'trace', and no help to who wrote that.
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.51)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(known)}" if known else "there are none"


def parse(options: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make an `options` from text or plain values; `where` ("pool 'geometric'") starts each error.

    Raises:
        UsageError: an unknown name, a value of another type, or one outside its bounds.
    """
    entries = {entry.name: entry for entry in dataclasses.fields(options)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(options)
    made = {}
    for name, value in values.items():
        entry = entries.get(name.replace("-", "_"))
        if entry is None:
            raise UsageError(f"{where} has no option {name!r}; {nearest(name, entries)}")
        made[entry.name] = _convert(value, hints[entry.name], entry, where)
    return options(**made)


def _convert(value: Any, hint: Any, entry: dataclasses.Field[Any], where: str) -> Any:
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = typing.get_args(hint) if union else (hint,)
    kinds = [kind for kind in members if kind is not type(None)]
    optional = type(None) in members
    if optional and (value is None or (isinstance(value, str) and value.lower() in ("none", "null", ""))):
        return None
    kind = kinds[0]
    try:
        made = _as(value, kind)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{where}: {entry.name} is {value!r}; {_type_name(hint)} is wanted") from None
    low, above, high = (entry.metadata.get(key) for key in ("minimum", "above", "maximum"))
    if isinstance(made, int | float) and not isinstance(made, bool):
        if low is not None and made < low:
            raise UsageError(f"{where}: {entry.name} is {made}; at least {low} is wanted")
        if above is not None and made <= above:
            raise UsageError(f"{where}: {entry.name} is {made}; more than {above} is wanted")
        if high is not None and made > high:
            raise UsageError(f"{where}: {entry.name} is {made}; at most {high} is wanted")
        if isinstance(made, float) and not math.isfinite(made):
            raise UsageError(f"{where}: {entry.name} is {made}; a finite number is wanted")
    choices = entry.metadata.get("choices")
    if choices and made not in choices:
        raise UsageError(f"{where}: {entry.name} is {made!r}; {nearest(str(made), choices)}")
    return made


def _as(value: Any, kind: type) -> Any:
    if kind is bool:
        return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
    if isinstance(value, bool):
        raise TypeError
    if kind is int:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError
        return int(value.replace("_", "").replace(",", "")) if isinstance(value, str) else int(value)
    if kind is float:
        return float(value)
    if kind is str:
        if not isinstance(value, str):
            raise TypeError
        return value
    if typing.get_origin(kind) is tuple or kind is tuple:
        parts = value.split(",") if isinstance(value, str) else list(value)
        inner = (typing.get_args(kind) or (str,))[0]
        return tuple(_as(part.strip() if isinstance(part, str) else part, inner) for part in parts)
    raise TypeError(f"options of type {kind} are not supported")


def _type_name(hint: Any) -> str:
    args = typing.get_args(hint)
    if type(None) in args:
        return f"{_type_name(next(a for a in args if a is not type(None)))} or none"
    if typing.get_origin(hint) is tuple:
        return f"list of {_type_name(args[0])}"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(hint, str(hint))
