"""Plain values (from YAML) to frozen dataclasses, strictly.

An unknown key is named with the nearest known one. A field says what it takes by its type hint and by
`option` or `required`: whole numbers, numbers, text, booleans, lists of these, mappings of anything, other
dataclasses, and a `Choice` between dataclasses.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from musebench.core.errors import InputError
from musebench.core.options import nearest

T = TypeVar("T")

MOST_NUMBER = 2**63 - 1


class Mismatch(Exception):
    """A value is not what a key takes: `path` is the key ("prompts[2].chat", "" for the whole)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}" if path else problem)


@dataclass(frozen=True)
class Choice:
    """One of several dataclasses, written as a mapping of one key: `{uniform: [1, 10]}`.

    The key's value is a mapping of the dataclass's fields, or the fields in order as a list, or the first
    field alone. A kind without required fields may be written as its name. `plain` names the kind that a
    bare number stands for.
    """

    what: str
    kinds: Mapping[str, type]
    plain: str | None = None


def required(
    help: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A dataclass field without a default, with help and bounds as in `musebench.core.options.option`."""
    bounds = {"minimum": minimum, "above": above, "maximum": maximum}
    return dataclasses.field(metadata={"help": help, "unit": unit, "choices": (), **bounds})


def about(help: str, choice: Choice | None = None, shorthand: str | None = None) -> dict[str, Any]:
    """The metadata of a field that holds a dataclass, a list or a mapping.

    With `choice` it holds one of its kinds. With `shorthand`, text stands for the field of that name of the
    dataclass.
    """
    return {"help": help, "choice": choice, "shorthand": shorthand}


def decode(kind: type[T], value: Any, path: str = "") -> T:
    """Make a `kind` from a mapping.

    Raises:
        Mismatch: an unknown or missing key, a value of another type or outside its bounds, or whatever the
            dataclass itself refuses with an InputError.
    """
    if not isinstance(value, dict):
        raise Mismatch(path, f"is {_shown(value)}; a mapping of keys to values is wanted")
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    made = {}
    for key, item in value.items():
        if key not in entries:
            place = f" in {path}" if path else ""
            raise Mismatch("", f"unknown key {key!r}{place}; {nearest(key, entries)}")
        made[key] = _field(hints[key], item, f"{path}.{key}" if path else key, entries[key])
    for name, entry in entries.items():
        if name not in made and not has_default(entry):
            raise Mismatch(path, f"needs the key {name!r}: {entry.metadata.get('help', '')}")
    try:
        return kind(**made)
    except InputError as error:
        raise Mismatch(path, f"cannot be used: {error}" if path else str(error)) from error


def has_default(entry: dataclasses.Field[Any]) -> bool:
    """Whether a field may be left out."""
    return entry.default is not dataclasses.MISSING or entry.default_factory is not dataclasses.MISSING


def _field(hint: Any, value: Any, path: str, entry: dataclasses.Field[Any]) -> Any:
    choice = entry.metadata.get("choice")
    if choice is not None:
        return None if value is None and entry.default is None else _choose(choice, value, path)
    shorthand = entry.metadata.get("shorthand")
    if shorthand and isinstance(value, str):
        value = {shorthand: value}
    made = _typed(hint, value, path)
    bounded = made if isinstance(made, tuple) else (made,)
    for number in bounded:
        if isinstance(number, int | float) and not isinstance(number, bool):
            _check_bounds(number, path, entry)
    choices = entry.metadata.get("choices")
    if choices and made not in choices:
        raise Mismatch(path, f"is {_shown(value)}; {nearest(str(value), choices)}")
    return made


def _check_bounds(number: int | float, path: str, entry: dataclasses.Field[Any]) -> None:
    low, above, high = (entry.metadata.get(key) for key in ("minimum", "above", "maximum"))
    if low is not None and number < low:
        raise Mismatch(path, f"is {number:,}; at least {low:,} is wanted")
    if above is not None and number <= above:
        raise Mismatch(path, f"is {number:,}; more than {above:,} is wanted")
    if high is not None and number > high:
        raise Mismatch(path, f"is {number:,}; at most {high:,} is wanted")


def _typed(hint: Any, value: Any, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        kinds = [kind for kind in args if kind is not type(None)]
        for kind in kinds[:-1]:  # text or a list, say: the first whose outside fits
            if isinstance(value, str) == (kind is str):
                return _typed(kind, value, path)
        return _typed(kinds[-1], value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise Mismatch(path, f"is {_shown(value)}; a list is wanted")
        return tuple(_typed(args[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise Mismatch(path, f"is {_shown(value)}; a mapping of keys to values is wanted")
        return {key: _typed(args[1], item, f"{path}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, path)
    return value if hint is object else _scalar(hint, value, path)


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= 1e300:  # NaN and infinity too
            raise Mismatch(path, f"is {_shown(value)}; a finite number is wanted")
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > MOST_NUMBER:
            raise Mismatch(path, f"is {_shown(value)}; at most {MOST_NUMBER:,} is wanted")
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    wanted = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[hint]
    raise Mismatch(path, f"is {_shown(value)}; {wanted} is wanted")


def _choose(choice: Choice, value: Any, path: str) -> Any:
    names = ", ".join(sorted(choice.kinds))
    if isinstance(value, str):
        value = {value: {}}
    elif choice.plain and isinstance(value, int | float) and not isinstance(value, bool):
        value = {choice.plain: value}
    if not isinstance(value, dict) or len(value) != 1:
        raise Mismatch(path, f"is {_shown(value)}; {choice.what} is wanted: one of {names}")
    ((name, inner),) = value.items()
    kind = choice.kinds.get(name)
    if kind is None:
        raise Mismatch(path, f"is of kind {name!r}, which is not known; {nearest(name, choice.kinds)}")
    return decode(kind, _by_name(kind, inner, f"{path}.{name}"), f"{path}.{name}")


def _by_name(kind: type, inner: Any, path: str) -> Any:
    """A kind's fields as a mapping, from a mapping, a list in order, or the first field alone."""
    if isinstance(inner, dict):
        return inner
    if inner is None:
        return {}
    names = [entry.name for entry in dataclasses.fields(kind)]
    if not names:
        raise Mismatch(path, f"is {_shown(inner)}; it takes no values")
    first_is_list = typing.get_origin(typing.get_type_hints(kind)[names[0]]) is tuple
    if first_is_list or not isinstance(inner, list):
        return {names[0]: inner}
    if len(inner) > len(names):
        raise Mismatch(path, f"has {len(inner)} values; at most {len(names)} are wanted: {', '.join(names)}")
    return dict(zip(names, inner, strict=False))


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        return f"a number of {value.bit_length()} bits"  # str() refuses the very long ones
    return reprlib.repr(value)


def plain(value: Any) -> Any:
    """The JSON values of a decoded dataclass, without the fields that are at their defaults; for hashing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = {"kind": type(value).__name__.lower()}
        for entry in dataclasses.fields(value):
            item = getattr(value, entry.name)
            if not has_default(entry) or item != _default(entry):
                made[entry.name] = plain(item)
        return made
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default
