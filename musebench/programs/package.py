"""Reads the facts of a package, a .pt2 archive, without torch."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
import zipfile
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError
from musebench.programs.facts import FORMAT, ProgramFacts

FACTS_RECORD = "extra/musebench.json"
TOKENIZER_FOLDER = "extra/tokenizer/"
WEIGHTS_FOLDER = "data/musebench/"
METHODS_FOLDER = "data/aotinductor/"
"""Records of a package, below the folder that torch puts all of an archive's records in."""

SUFFIX = ".pt2"


def method_folder(method: str) -> str:
    """The folder of a method's library, below `METHODS_FOLDER`; what torch calls the model's name.

    No such name begins with another: torch 2.11 takes for `prefill-1` what begins so, `prefill-12` too, and
    runs the other's library without a word.
    """
    return f"{method}.method"


def read_facts(path: str | Path) -> ProgramFacts:
    """The facts of the program in the package at `path`.

    Raises:
        InputError: no such file, one that is cut off, not musebench's, or made by a newer musebench.
    """
    with open_archive(path) as archive:
        text = read_record(archive, FACTS_RECORD)
    if text is None:
        raise InputError(f"{path} was not made by musebench: it has no {FACTS_RECORD}; make one with {_MAKE}")
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: its {FACTS_RECORD} is no JSON ({error}); export it again") from error
    version = values.get("format") if isinstance(values, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"{path}: its {FACTS_RECORD} says no format; export it again")
    if version > FORMAT:
        raise InputError(
            f"{path} has format {version}, this musebench reads up to {FORMAT}; update musebench, or export "
            "it again here"
        )
    try:
        facts: ProgramFacts = _decoded(values, ProgramFacts, "facts")
    except _Unfit as error:
        raise InputError(f"{path}: its {FACTS_RECORD} does not fit: {error}; export it again") from error
    if not facts.prefills or not facts.decodes:
        raise InputError(f"{path}: a decode and a prefill are wanted; export it again")
    return facts


def encoded(facts: ProgramFacts) -> str:
    """The facts as they stand in a package."""
    return json.dumps(dataclasses.asdict(facts), indent=1, allow_nan=False)


def open_archive(path: str | Path) -> zipfile.ZipFile:
    """The package as a zip archive, which it is.

    Raises:
        InputError: no such file, or one that is no archive, as when its end is cut off.
    """
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path} is no package or is cut off ({error}); copy it again, or make one with {_MAKE}"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}); make one with {_MAKE}"
        ) from error


def read_record(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """A record by its name below the archive's folder; None where there is none.

    Raises:
        InputError: the record is damaged.
    """
    full = record_name(archive, name)
    if full is None:
        return None
    try:
        return archive.read(full)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise InputError(f"{archive.filename}: record {name} is damaged ({error}); copy it again") from error


def check_records(path: str | Path, folder: str) -> None:
    """Read what stands below `folder` and hold it against the archive's checksums.

    Raises:
        InputError: a record is damaged: a library would be loaded as it is.
    """
    with open_archive(path) as archive:
        for full in archive.namelist():
            name = full.partition("/")[2]
            if name.startswith(folder):
                read_record(archive, name)


def record_name(archive: zipfile.ZipFile, name: str) -> str | None:
    """The full name of a record, its archive's folder in front."""
    return next((full for full in archive.namelist() if full.partition("/")[2] == name), None)


_MAKE = "musebench export --model MODEL --out FILE.pt2"


class _Unfit(Exception):
    """A value of another type than its dataclass wants; names the place."""


def _decoded(value: Any, hint: Any, where: str) -> Any:
    """`value`, of JSON, as the type `hint`: dataclasses, tuples, dicts of text, optional and plain values.

    Unknown keys are refused: a number that means something is not dropped.
    """
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _decoded(value, next(one for one in typing.get_args(hint) if one is not type(None)), where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise _Unfit(f"{where} is no mapping")
        hints = typing.get_type_hints(hint)
        if unknown := sorted(set(value) - set(hints)):
            raise _Unfit(f"{where} has an unknown {unknown[0]!r}")
        try:
            return hint(**{k: _decoded(one, hints[k], f"{where}.{k}") for k, one in value.items()})  # type: ignore[operator]
        except TypeError as error:
            raise _Unfit(f"{where} lacks an entry ({error})") from error
    if origin is tuple:
        if not isinstance(value, list):
            raise _Unfit(f"{where} is no list")
        inner = typing.get_args(hint)[0]
        return tuple(_decoded(one, inner, f"{where}[{index}]") for index, one in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _Unfit(f"{where} is no mapping")
        inner = typing.get_args(hint)[1]
        return {key: _decoded(one, inner, f"{where}.{key}") for key, one in value.items()}
    fits = isinstance(value, int | float) if hint is float else isinstance(value, hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise _Unfit(f"{where} is {value!r}, {hint.__name__} is wanted")
    return value
