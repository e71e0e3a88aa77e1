"""Finds components: the built-in ones, and those of installed packages, each package on its own.

A package that cannot be used is left out and becomes a `Problem`; everything else keeps working.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import pluggy

import musebench
from musebench.core import blame
from musebench.core.errors import MusebenchError, UsageError
from musebench.core.options import NoOptions, nearest
from musebench.plugin import builtin, discovery, hookspecs
from musebench.plugin.component import Component

STRICT_VARIABLE = "MUSEBENCH_STRICT_PLUGINS"
TESTING_VARIABLE = "MUSEBENCH_TESTING"
TESTING_PLUGIN = "musebench.testing.faults"
UNSETTABLE_KINDS = ("command",)
"""Kinds whose components take no `--set`."""


def strict() -> bool:
    """Whether the first failure of a plugin is to raise, with its traceback."""
    return os.environ.get(STRICT_VARIABLE, "") not in ("", "0")


@dataclass(frozen=True)
class Problem:
    """Why a package, or one kind of its components, is left out."""

    package: str
    version: str
    what: str
    error: str

    @property
    def line(self) -> str:
        """All of it as one line, naming package and error."""
        return " ".join(f"plugin {self.package} {self.version} {self.what}: {self.error}".split())


class PluginFailed(Exception):
    """In strict mode: a package could not be used. Its own exception is chained, for the traceback."""


class Registry:
    """Components by kind and name.

    `problems` holds what was left out, in the order found; `on_problem` is told of each at once. With
    `strict` the first raises `PluginFailed` instead.
    """

    def __init__(self, *, strict: bool = False, on_problem: Callable[[Problem], None] | None = None) -> None:
        self.problems: list[Problem] = []
        self._strict = strict
        self._on_problem = on_problem
        self._manager = pluggy.PluginManager("musebench")
        self._manager.add_hookspecs(hookspecs)
        self._packages: list[tuple[Any, str, str]] = []
        self._by_kind: dict[str, dict[str, list[Component]]] = {}

    @classmethod
    def installed(cls, on_problem: Callable[[Problem], None] | None = None) -> Registry:
        """The built-in components and those of every installed package with the entry point.

        Strict when the environment sets `MUSEBENCH_STRICT_PLUGINS` to anything but 0; with planted faults
        (musebench.testing) when it sets `MUSEBENCH_TESTING` so.
        """
        registry = cls(strict=strict(), on_problem=on_problem)
        registry.add(builtin, "musebench", musebench.__version__)
        if os.environ.get(TESTING_VARIABLE, "") not in ("", "0"):
            # By name: the planted faults are above this layer, and no part of a normal run.
            registry.add(import_module(TESTING_PLUGIN), "musebench", musebench.__version__)
        for found in discovery.installed():
            registry._load(found)
        return registry

    def add(self, plugin: object, package: str, version: str) -> None:
        """Add one plugin: a module or object whose functions carry `hookimpl`."""
        try:
            _check_hook_version(plugin)
            self._manager.register(plugin)
            self._check_hooks(plugin)
        except Exception as error:
            if self._manager.is_registered(plugin) and all(
                plugin is not known for known, _, _ in self._packages
            ):
                self._manager.unregister(plugin)
            self._leave_out(package, version, "is left out", error)
        else:
            self._packages.append((plugin, package, version))
            if plugin is not builtin:
                blame.own(blame.module_of(plugin), f"{package} {version}")
            self._by_kind.clear()

    def _load(self, found: discovery.Found) -> None:
        try:
            if found.error is not None:
                raise found.error
            assert found.entry is not None
            plugin = found.entry.load()
        except (Exception, SystemExit) as error:
            self._leave_out(found.package, found.version, "is left out", error)
        else:
            self.add(plugin, found.package, found.version)

    def components(self, kind: str) -> list[Component]:
        """All of one kind in order of name, without names that two packages claim.

        Raises:
            UsageError: no such kind.
        """
        return [found[0] for _, found in sorted(self._of_kind(kind).items()) if len(found) == 1]

    def conflicts(self, kind: str) -> list[str]:
        """One line for each name that more than one package registered, naming the packages."""
        return [_conflict(found) for _, found in sorted(self._of_kind(kind).items()) if len(found) > 1]

    def get(self, kind: str, name: str) -> Component:
        """The component of that name.

        Raises:
            UsageError: no such kind or name (with the nearest), or a name that two packages claim.
        """
        by_name = self._of_kind(kind)
        found = by_name.get(name)
        if found is None:
            raise UsageError(f"there is no {kind} {name!r}; {nearest(name, by_name)}")
        if len(found) > 1:
            raise UsageError(_conflict(found))
        return found[0]

    def made(self, kind: str, usual: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """One of each of a kind, by name, made with the option values `usual`; one of a plugin package that
        cannot be made is left out.

        Raises:
            UsageError: no such kind.
        """
        made = {}
        for component in self.components(kind):
            try:
                made[component.name] = component.make(usual)
            except MusebenchError as error:
                if component.built_in:
                    raise
                self._leave_out(component.package, component.version, f"adds no {component.where}", error)
        return made

    def _of_kind(self, kind: str) -> dict[str, list[Component]]:
        if kind not in hookspecs.KINDS:
            raise UsageError(f"there is no kind of component {kind!r}; {nearest(kind, hookspecs.KINDS)}")
        if kind not in self._by_kind:
            by_name: dict[str, list[Component]] = {}
            for plugin, package, version in self._packages:
                for component in self._ask(kind, plugin, package, version):
                    by_name.setdefault(component.name, []).append(component)
            self._by_kind[kind] = by_name
        return self._by_kind[kind]

    def _ask(self, kind: str, plugin: object, package: str, version: str) -> Iterable[Component]:
        """What one plugin registers of a kind: all of it, or nothing when its hook raises."""
        made: dict[str, Component] = {}

        def register(
            name: str,
            factory: Callable[..., Any] | str,
            options: type[Any] | str = NoOptions,
            summary: str = "",
        ) -> None:
            component = Component(kind, name, factory, options, summary, package, version)
            if not component.built_in and isinstance(factory, str):
                blame.own(factory.partition(":")[0], component.origin)
            if name in made:
                raise UsageError(f"{component.where} is registered twice by {package}")
            made[name] = component

        hook = hookspecs.KINDS[kind]
        others = [other for other, _, _ in self._packages if other is not plugin]
        try:
            self._manager.subset_hook_caller(hook, others)(register=register)
        except (Exception, SystemExit) as error:
            self._leave_out(package, version, f"adds no {kind}, its {hook} failed", error)
            return ()
        return made.values()

    def _check_hooks(self, plugin: object) -> None:
        """Beyond pluggy's check of arguments: every hook is known, and there is one at all."""
        callers = self._manager.get_hookcallers(plugin) or []
        if not callers:
            raise UsageError("it implements no hook; decorate its functions with musebench.plugin.hookimpl")
        for caller in callers:
            if not caller.has_spec():
                hooks = hookspecs.KINDS.values()
                raise UsageError(f"there is no hook {caller.name!r}; {nearest(caller.name, hooks)}")
            for implementation in caller.get_hookimpls():
                if implementation.plugin is plugin and "register" not in implementation.argnames:
                    raise UsageError(f"its {caller.name} takes no argument named 'register'")

    def _leave_out(self, package: str, version: str, what: str, error: BaseException) -> None:
        text = str(error) if isinstance(error, MusebenchError) else f"{type(error).__name__}: {error}"
        problem = Problem(package, version, what, text)
        if self._strict:
            raise PluginFailed(problem.line) from error
        self.problems.append(problem)
        if self._on_problem is not None:
            self._on_problem(problem)


def parse_settings(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """`KIND.NAME=VALUE` texts as {kind: {option: value}}; hyphens in option names become underscores.

    Raises:
        UsageError: a text of another form, an unknown kind, or an option set twice.
    """
    settings: dict[str, dict[str, str]] = {}
    kinds = [kind for kind in hookspecs.KINDS if kind not in UNSETTABLE_KINDS]
    for text in texts:
        target, equals, value = text.partition("=")
        kind, dot, option = target.strip().partition(".")
        option = option.replace("-", "_")
        if not (equals and dot and option):
            raise UsageError(f"--set {text!r} is not KIND.NAME=VALUE, as in --set pool.factor=1.5")
        if kind not in kinds:
            raise UsageError(f"--set {text!r}: there is no kind {kind!r} to set; {nearest(kind, kinds)}")
        if option in settings.setdefault(kind, {}):
            name = f"{kind}.{option}" if option.isprintable() else repr(f"{kind}.{option}")
            raise UsageError(f"--set {name} is given twice; give it once")
        settings[kind][option] = value.strip()
    return settings


def _check_hook_version(plugin: object) -> None:
    wanted = getattr(plugin, "musebench_hook_version", hookspecs.HOOK_VERSION)
    if not isinstance(wanted, int):
        raise UsageError(f"musebench_hook_version is {wanted!r}; a whole number is wanted")
    if wanted > hookspecs.HOOK_VERSION:
        raise UsageError(
            f"it wants hook version {wanted} and musebench {musebench.__version__} has "
            f"{hookspecs.HOOK_VERSION}; upgrade musebench"
        )


def _conflict(found: list[Component]) -> str:
    origins = " and ".join(component.origin for component in found)
    return f"{found[0].where} is registered by {origins}; uninstall all but one of them"
