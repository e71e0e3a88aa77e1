"""A component: what a plugin registered under a name, made only when it is used."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from musebench.core import blame
from musebench.core.errors import MusebenchError, OutOfMemory, PluginError, UnsupportedError, UsageError
from musebench.core.options import NoOptions, OptionInfo, describe, parse

BUILT_IN = "musebench"
"""The package of the components that are always there."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TARGET = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


@dataclass(frozen=True)
class Component:
    """A factory under a name, its options, and the package (with version) that registered it.

    `factory` and `options` may be "package.module:attribute": imported at first use.

    Raises:
        UsageError: a name, factory or options that cannot be registered.
    """

    kind: str
    name: str
    factory: Callable[..., Any] | str
    options: type[Any] | str = NoOptions
    summary: str = ""
    package: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.kind} {self.name!r} is no name; lowercase letters and digits, with single hyphens "
                "between, are wanted"
            )
        for what, value, usable in (
            ("factory", self.factory, callable(self.factory)),
            ("options", self.options, _holds_options(self.options)),
        ):
            if not (_TARGET.fullmatch(value) if isinstance(value, str) else usable):
                wanted = "a dataclass" if what == "options" else "something to call"
                raise UsageError(
                    f"{self.where}: {what} is {value!r}; {wanted} or 'package.module:name' is wanted"
                )

        if not isinstance(self.summary, str):
            raise UsageError(f"{self.where}: summary is {self.summary!r}; text is wanted")

    @property
    def where(self) -> str:
        """How messages name it: "pool 'geometric'"."""
        return f"{self.kind} {self.name!r}"

    @property
    def origin(self) -> str:
        """Package and version: "musebench 0.1.0"."""
        return f"{self.package} {self.version}".strip()

    @property
    def built_in(self) -> bool:
        """Whether it is one of musebench's own."""
        return self.package == BUILT_IN

    def load(self) -> Any:
        """The factory itself, imported if it was named by text.

        Raises:
            UnsupportedError: something that it imports is not installed, or the text names nothing.
        """
        return self._resolve(self.factory)

    def options_type(self) -> type[Any]:
        """The dataclass of its options, imported if it was named by text; raises as `load`."""
        options = self._resolve(self.options)
        if not _holds_options(options):
            raise UnsupportedError(f"{self.where} of {self.origin}: {self.options} is no dataclass")
        return options

    def describe(self) -> list[OptionInfo]:
        """Its options, in order; raises as `load`.

        Raises:
            UsageError: one has no default that can be shown and typed.
        """
        options = self.options_type()
        with self._named():
            try:
                return describe(options)
            except UsageError as error:
                raise UsageError(f"{self.where} of {self.origin}: {error}") from error

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Its options as their dataclass, from text or plain values; raises as `make`."""
        with self._named():
            return parse(self.options_type(), values, self.where)

    def make(self, values: Mapping[str, Any], *arguments: Any) -> Any:
        """Parse `values` into the component's options and return `factory(options, *arguments)`.

        Raises:
            UsageError: an unknown option, or a value that is not one.
            UnsupportedError: something that the component imports is not installed.
            PluginError: it is a plugin's and raised something else.
        """
        options = self.parse(values)
        factory = self.load()
        with self._named():
            try:
                return factory(options, *arguments)
            except ModuleNotFoundError as error:
                raise self._not_importable(error) from error

    def _resolve(self, target: Any) -> Any:
        if not isinstance(target, str):
            return target
        module, _, path = target.partition(":")
        try:
            with self._named((ImportError, AttributeError)):
                found: Any = importlib.import_module(module)
                for attribute in path.split("."):
                    found = getattr(found, attribute)
        except ImportError as error:
            raise self._not_importable(error) from error
        except AttributeError as error:
            raise UnsupportedError(f"{self.where} of {self.origin} names {target}: {error}") from error
        return found

    @contextmanager
    def _named(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """What a plugin's code raises in here names its package, except `but` and what memory refuses."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if self.built_in or isinstance(error, (MusebenchError, OutOfMemory, MemoryError, *but)):
                raise
            raise PluginError(f"{self.where} of {self.origin} failed: {blame.told(error)}") from error

    def _not_importable(self, error: ImportError) -> UnsupportedError:
        who = f"{self.where} of {self.origin}"
        wanted = (error.name or "").partition(".")[0]
        own = re.split("[.:]", str(self.factory))[0]
        if not isinstance(error, ModuleNotFoundError) or wanted in ("", own):
            return UnsupportedError(f"{who} cannot be imported: {' '.join(str(error).split())}")
        extra = _extra_with(self.package, wanted)
        way_out = f"pip install '{self.package}[{extra}]'" if extra else "install it"
        return UnsupportedError(f"{who} needs the module {error.name!r}, which is not installed; {way_out}")


def _holds_options(options: Any) -> bool:
    return isinstance(options, type) and dataclasses.is_dataclass(options)


def _extra_with(package: str, module: str) -> str | None:
    """The extra of `package` that brings the distribution of the same name as `module`, if there is one."""
    try:
        requirements = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        named = re.match(r"""([\w.-]+).*\bextra\s*==\s*["']([^"']+)""", requirement)
        if named and re.sub(r"[-_.]+", "_", named[1]).lower() == module.lower():
            return named[2]
    return None
