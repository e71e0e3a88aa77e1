"""A workload: its spec, where it came from, and the requests that it makes."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.request import Request
from musebench.workload.arrivals import Closed
from musebench.workload.build import Built, build
from musebench.workload.decode import Mismatch, decode, plain
from musebench.workload.spec import Context, Defaults, WorkloadSpec
from musebench.workload.yamlfile import parse_yaml

HASH_VERSION = 1
"""Rises when the same file comes to mean other requests."""


@dataclass(frozen=True)
class Workload:
    """What makes requests. `values` are the file's own, `label` starts each error about it, and relative
    paths in it start at `folder`. Made by `musebench.workload.load_workload`."""

    values: Mapping[str, Any]
    label: str
    folder: Path
    stem: str

    @cached_property
    def spec(self) -> WorkloadSpec:
        """The values as the schema's dataclasses. Raises InputError."""
        try:
            return decode(WorkloadSpec, self.values)
        except Mismatch as error:
            raise InputError(f"{self.label}: {error}") from error

    @property
    def name(self) -> str:
        return self.spec.name or self.stem

    @property
    def description(self) -> str:
        return " ".join(self.spec.description.split())

    @property
    def defaults(self) -> Defaults:
        """Options of the run that a flag overrides."""
        return self.spec.defaults

    @property
    def concurrency(self) -> int | None:
        """How many requests there are at a time; None where they do not wait for one another."""
        arrivals = self.spec.arrivals
        return arrivals.concurrency if isinstance(arrivals, Closed) else None

    @cached_property
    def sha256(self) -> str:
        """Names what decides the requests: two workloads that make the same have the same.

        The spec without name, description and defaults, and the content of a trace instead of its path.
        The seed, the model's vocabulary and its tokenizer are the run's, not the workload's.

        Raises:
            InputError: the trace cannot be read.
        """
        bare = dataclasses.replace(self.spec, name=None, description="", defaults=Defaults())
        values = plain(bare)
        if self.spec.trace is not None:
            path = self.folder / self.spec.trace.file
            try:
                with path.open("rb") as file:
                    values["trace"]["file"] = hashlib.file_digest(file, "sha256").hexdigest()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise InputError(f"{path}: cannot read the trace: {reason}") from error
        text = json.dumps([HASH_VERSION, values], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def build(self, context: Context) -> Built:
        """The requests in order of arrival, and notes (rows of a trace that were left out).

        Raises:
            InputError: the workload or its trace cannot be used with this model.
            UsageError: a tokenizer, vocabulary or plugin is missing.
        """
        trace = self.spec.trace
        named = trace is not None and trace.file == self.label  # a bare trace: its errors name it already
        return build(self.spec, context, self.folder, "" if named else self.label)

    def requests(self, context: Context) -> list[Request]:
        """The requests in order of arrival; raises as `build`."""
        return self.build(context).requests

    def with_overrides(self, values: Mapping[str, Any]) -> Workload:
        """This workload with other values: `{"requests": 16, "sampling.temperature": "0.7"}`.

        A key is a path of keys with dots, list places as numbers from 0; text is read as YAML, other values
        are taken as they are. A kind of lengths or arrivals other than the file's replaces it:
        `prompt_tokens.fixed`. A `trace.file` is relative to the working folder.

        Raises:
            UsageError: an unknown key, or a value that it does not take.
        """
        changed = copy.deepcopy(dict(self.values))
        for key, value in values.items():
            parts = key.replace("-", "_").split(".")
            if isinstance(value, str):
                try:
                    value = parse_yaml(value, f"the value of {key}")
                except InputError as error:
                    raise UsageError(str(error)) from error
            if parts[0] == "trace" and parts[1:] in ([], ["file"]) and isinstance(value, str):
                value = str(Path(value).absolute())
            _put(changed, parts, value, key)
        made = Workload(changed, self.label, self.folder, self.stem)
        try:
            made.spec  # noqa: B018 - a mistake is an option's, not the file's: found out here
        except InputError as error:
            keys = ", ".join(values)
            raise UsageError(f"{error} (with {keys} changed)" if keys else str(error)) from error
        return made


_CHOICES = ("prompt_tokens", "output_tokens", "arrivals")


def _put(target: Any, parts: list[str], value: Any, key: str) -> None:
    """Set the value at a path of keys, making mappings on the way."""
    *way, last = parts
    shorthand = {"trace": "file", "generator": "name"}
    for depth, part in enumerate(way):
        if isinstance(target, list):
            target = target[_place(target, part, key)]
            continue
        inner = target.get(part)
        if depth == 0 and part in _CHOICES and not (isinstance(inner, dict) and parts[1] in inner):
            inner = {}  # another kind replaces the one that was there
        elif depth == 0 and part in shorthand and isinstance(inner, str):
            inner = {shorthand[part]: inner}
        elif inner is None:
            inner = {}
        if not isinstance(inner, dict | list):
            raise UsageError(f"{key}: {part!r} holds no keys to change; give it a whole value")
        target[part] = inner
        target = inner
    if isinstance(target, list):
        target[_place(target, last, key)] = value
    else:
        target[last] = value


def _place(items: list[Any], part: str, key: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(items)):
        raise UsageError(f"{key}: {part!r} is no place in a list of {len(items)}; 0 to {len(items) - 1} are")
    return int(part)
