"""The first files of a plugin package: one that installs and passes its tests as it is."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from musebench.core.errors import InputError, UsageError
from musebench.plugin.hookspecs import HOOK_VERSION, KINDS

TEMPLATES = Path(__file__).parent / "templates"
PREFIX = "musebench-"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Sketch:
    """What the first version of a component does, and a command that shows it."""

    summary: str
    example: str


SKETCHES: dict[str, Sketch] = {
    "executor": Sketch(
        "launches every operation, a few sequences a forward", "musebench run capitals --executor {name}"
    ),
    "pool": Sketch("grows by a fixed number of rows", "musebench run capitals --pool {name}"),
    "scheduler": Sketch(
        "decodes first, then prompts, a few new ones a step", "musebench run capitals --scheduler {name}"
    ),
    "trace": Sketch(
        "reads a CSV of milliseconds, prompt and output tokens",
        "musebench run --trace FILE --device sim:h200 --model llama-3.2-1b",
    ),
    "check": Sketch(
        "holds the longest time to a first token against a bound",
        "musebench check REPORT --set {name}.longest-wait=2",
    ),
}
"""The kinds that a package can be made for."""


@dataclass(frozen=True)
class Scaffold:
    """A package `musebench-NAME` with one component.

    Raises:
        UsageError: a name that cannot be one, or is that of an installed package.
    """

    kind: str
    name: str

    def __post_init__(self) -> None:
        if self.name.startswith(PREFIX):
            raise UsageError(
                f"{self.name!r}: the package is named {PREFIX}NAME by itself; leave {PREFIX} out"
            )
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.kind} {self.name!r} is no name; a lowercase letter, then such letters and digits, "
                "with single hyphens between, are wanted"
            )
        if any(True for _ in metadata.distributions(name=self.package)):
            raise UsageError(f"a package {self.package!r} is installed; choose another name")
        if importlib.util.find_spec(self.module) is not None:
            raise UsageError(f"a module {self.module!r} can be imported already; choose another name")

    @property
    def package(self) -> str:
        return PREFIX + self.name

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")

    def write(self, parent: Path) -> list[Path]:
        """Make the folder of the package in `parent`; the files, in order of path.

        Raises:
            UsageError: the folder is there already.
            InputError: it cannot be written.
        """
        folder = parent / self.package
        if folder.exists() or folder.is_symlink():
            raise UsageError(f"{folder} is there already; remove it, or name another place with --out")
        made = []
        try:
            for path, text in sorted(self._files()):
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
                made.append(place)
        except OSError as error:
            raise InputError(f"{folder}: cannot write it: {error.strerror or error}") from error
        return made

    def _files(self) -> Iterator[tuple[str, str]]:
        # Imported here: only what makes a package needs it.
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
        )
        sketch, title = SKETCHES[self.kind], "".join(part.capitalize() for part in self.name.split("-"))
        facts = {
            "kind": self.kind,
            "name": self.name,
            "package": self.package,
            "module": self.module,
            "cls": title + {"trace": "Reader"}.get(self.kind, self.kind.capitalize()),
            "column": self.name.replace("-", "_"),
            "hook": KINDS[self.kind],
            "hook_version": HOOK_VERSION,
            "summary": sketch.summary,
            "example": sketch.example.format(name=self.name),
        }
        short = self.name.replace("-", "_")
        places = {
            "pyproject.toml.j2": "pyproject.toml",
            "README.md.j2": "README.md",
            "gitignore.j2": ".gitignore",
            "workflow.yml.j2": ".github/workflows/test.yml",
            "__init__.py.j2": f"{self.module}/__init__.py",
            f"{self.kind}/component.py.j2": f"{self.module}/{self.kind}.py",
            f"{self.kind}/test.py.j2": f"tests/test_{short}.py",
            f"{self.kind}/conformance.py.j2": f"tests/test_{short}_conformance.py",
        }
        yield "LICENSE", (TEMPLATES / "LICENSE").read_text(encoding="utf-8")
        for template, path in places.items():
            yield path, environment.get_template(template).render(facts)
