"""What is fuzzed: one function a parser, from bytes to nothing. It returns, or raises what nobody should see.

Every target allows the errors that are for people (`MusebenchError`, in one line) and nothing else. What can
be read is then used, as a command would use it.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from samples import CONFIG, JOURNAL, REPORT

from musebench.core.errors import MusebenchError
from musebench.core.facts import ModelFacts
from musebench.models.config import facts_from_config
from musebench.plugin import discovery
from musebench.plugin.registry import Registry, parse_settings
from musebench.report import files, tables
from musebench.report.compare import compare
from musebench.report.journal import recover
from musebench.report.verdict import judge
from musebench.workload import Context
from musebench.workload.traces import builtin_formats, read_trace
from musebench.workload.workload import Workload
from musebench.workload.yamlfile import parse_yaml

Target = Callable[[bytes], None]

MOST_REQUESTS = 2_000
"""Workloads that ask for more are parsed and checked, and not built: many requests are no fault."""

MOST_ERROR = 40_000
"""Characters of an error: an input of `fuzz.MOST_BYTES`, quoted; nothing multiplies it."""

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, "", "x", "\n", "\ud800", "1",
    [], [None], [[]], {}, {"": None}, "stop",
)  # fmt: skip
"""Values put in the place of others."""

_FOLDER = Path(
    tempfile.mkdtemp(prefix="musebench-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
)
_REGISTRY = Registry.installed()
_FORMATS = sorted(builtin_formats())


class Unreadable(Exception):
    """An error for people that people cannot read: empty, or of several lines."""


def allowed(act: Callable[[], object]) -> object:
    """What `act` returns, None after an error for people; that one has to be one line of text."""
    try:
        return act()
    except MusebenchError as error:
        text = str(error)
        if not text or len(text.splitlines()) != 1:
            raise Unreadable(repr(text[:200])) from error
        if len(text) > MOST_ERROR:
            raise Unreadable(f"{len(text):,} characters: {text[:200]!r}") from error
        text.encode()  # a lone surrogate would end the printing of it
    return None


def yaml(data: bytes) -> None:
    """Text to plain values."""
    allowed(lambda: parse_yaml(data.decode("utf-8", "replace"), "f.yaml"))


def workload(data: bytes) -> None:
    """A workload file to requests and the hash of the workload."""

    def act() -> None:
        values = parse_yaml(data.decode("utf-8", "replace"), "f.yaml")
        if not isinstance(values, dict):
            return
        made = Workload(values, "f.yaml", _FOLDER, "f")
        count = made.spec.requests or 1
        if made.spec.trace is None and count <= MOST_REQUESTS:
            made.requests(Context(vocab=50, seed=1, contents=False))
            assert made.sha256

    allowed(act)


def trace(data: bytes) -> None:
    """A trace file, its format recognised, or forced by the first byte; in order or sorted."""
    if not data:
        return
    first, data = data[0], data[1:]
    path = _FOLDER / "f.trace"
    path.write_bytes(data)
    format = None if first % 2 else _FORMATS[first // 2 % len(_FORMATS)]
    options = {"skip_bad_rows": True} if first & 64 else {}
    allowed(lambda: read_trace(path, format=format, sort=bool(first & 128), options=options).notes())


def edited(data: bytes, sample: Any) -> Any:
    """A copy of plain values with entries changed, taken out or doubled, as the bytes say.

    What mutations of JSON text seldom reach: a text that still parses, with one value that is wrong.
    """
    made = copy.deepcopy(sample)
    numbers = iter(data)
    for _ in range(1 + next(numbers, 0) % 4):
        target, parent, key = made, None, None
        depth = 1 + next(numbers, 0) % 7
        while depth and isinstance(target, dict | list) and target:
            place = next(numbers, 0) % len(target)
            parent, key = target, list(target)[place] if isinstance(target, dict) else place
            target, depth = parent[key], depth - 1
        if parent is None:
            continue
        act = next(numbers, 0) % (len(ODD) + 3)
        if act < len(ODD):
            parent[key] = copy.deepcopy(ODD[act])
        elif act == len(ODD):
            del parent[key]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(target))
        elif isinstance(target, int | float) and not isinstance(target, bool):
            parent[key] = -target if act % 2 else target * 2
    return made


def report_values(data: bytes) -> None:
    """A report with values changed here and there."""
    report(json.dumps(edited(data, json.loads(REPORT))).encode())


def config_values(data: bytes) -> None:
    """A config.json with values changed here and there."""
    config(json.dumps(edited(data, CONFIG)).encode())


def report(data: bytes) -> None:
    """A report, then everything that is shown of it; read back, it is the same."""

    def act() -> None:
        made = files.loads(data, "f.json")
        judge([made])
        tables.show(made, "github")
        compare([made, made], ["a", "b"], None).show("json")
        assert files.loads(files.dumps(made), "again") == made

    allowed(act)


def journal(data: bytes) -> None:
    """A journal to the report that it stands for, which can be written and read."""
    path = _FOLDER / "f.json.journal"
    path.write_bytes(data)

    def act() -> None:
        made = recover(path)
        judge([made])
        assert files.loads(files.dumps(made), "again") == made

    allowed(act)


def journal_values(data: bytes) -> None:
    """A journal with one line's values changed."""
    lines = JOURNAL.splitlines()
    row = data[0] % len(lines) if data else 0
    lines[row] = json.dumps(edited(data[1:], json.loads(lines[row]))).encode()
    journal(b"\n".join(lines) + b"\n")


def metadata_(data: bytes) -> None:
    """A package's METADATA and entry_points.txt, as an installed distribution has them."""
    first, _, second = data.partition(b"\n\x00\n")
    folder = _FOLDER / "sample-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "entry_points.txt").write_bytes(first)
    (folder / "METADATA").write_bytes(second or b"Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    found = discovery.of([metadata.PathDistribution(folder)])
    for one in found:
        assert (one.entry is None) != (one.error is None)


def options(data: bytes) -> None:
    """`--set` texts, one a line, parsed for every component of the kind they name."""

    def act() -> None:
        settings = parse_settings(data.decode("utf-8", "replace").split("\n"))
        for kind, values in settings.items():
            for component in _REGISTRY.components(kind):
                allowed(lambda component=component, values=values: component.parse(values))

    allowed(act)


def config(data: bytes) -> None:
    """A model's config.json to its facts."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        made = allowed(lambda: facts_from_config(values, "float32", "fuzzed"))
        if isinstance(made, ModelFacts):
            assert made.cell_bytes > 0
            assert made.weight_bytes > 0


TARGETS: dict[str, Target] = {
    "yaml": yaml,
    "workload": workload,
    "trace": trace,
    "report": report,
    "report-values": report_values,
    "journal": journal,
    "journal-values": journal_values,
    "metadata": metadata_,
    "options": options,
    "config": config,
    "config-values": config_values,
}
