"""Whose code an error came from, so that a plugin's failure is told by the name of its package."""

from __future__ import annotations

import sys
import traceback
from types import ModuleType

_OWNERS: dict[str, str] = {}


def own(module: str, origin: str) -> None:
    """Errors raised in `module`, or below it, are from now on those of the package `origin` ("name 1.0")."""
    if module.partition(".")[0] not in sys.stdlib_module_names | {"", "musebench"}:
        _OWNERS[module] = origin


def module_of(plugin: object) -> str:
    """The module that a plugin is, or is from; "" where it does not say."""
    name = plugin.__name__ if isinstance(plugin, ModuleType) else getattr(plugin, "__module__", "")
    return name if isinstance(name, str) else ""


def place_of(error: BaseException) -> str | None:
    """The function of a plugin that musebench had called last when it was raised, "MyPool.reserve of
    my-package 1.0"; None: it had called none."""
    found, inside = None, False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        origin = _owner(module)
        if origin is not None and not inside:
            found, inside = f"{frame.f_code.co_qualname} of {origin}", True
        elif module.partition(".")[0] == "musebench":
            inside = False
    return found


def told(error: BaseException, asked: object = None) -> str:
    """The error in one line: type, text, and where it was raised if that was in a plugin; otherwise whose the
    part is that was `asked`, if that is one of a plugin."""
    if getattr(error, "names_plugin", False):  # musebench.core.errors.PluginError, which is above this
        return " ".join(str(error).split())
    place = place_of(error)
    if place is None and (origin := _owner(module_of(type(asked)))) is not None:
        place = f"{type(asked).__qualname__} of {origin}"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(f"{text}{'' if place is None else f' (in {place})'}".split())


def _owner(module: str) -> str | None:
    while module:
        if module in _OWNERS:
            return _OWNERS[module]
        module = module.rpartition(".")[0]
    return None


def described(who: object, method: str) -> str:
    """How messages name a part's method: "MyPool.reserve of my-package 1.0"."""
    origin = _owner(module_of(type(who)))
    return f"{type(who).__qualname__}.{method}{'' if origin is None else f' of {origin}'}"
