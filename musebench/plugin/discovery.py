"""Which installed packages have the entry point, by their metadata alone: nothing of theirs is imported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

ENTRY_POINT_GROUP = "musebench"


@dataclass(frozen=True)
class Found:
    """One entry point and its package; or, where the package's list of them cannot be read, the `error`."""

    package: str
    version: str
    entry: metadata.EntryPoint | None = None
    error: Exception | None = None


def installed() -> list[Found]:
    """Every entry point of the group, in order of package and entry name."""
    try:
        made = [_found(entry) for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    except Exception:  # some package's list is malformed, which stops them all: ask each package alone
        made = of(metadata.distributions())
    return sorted(
        made, key=lambda found: (found.package, found.version, found.entry.name if found.entry else "")
    )


def of(distributions: Iterable[metadata.Distribution]) -> list[Found]:
    """The entry points of each distribution, asked alone: a malformed one is an error of its own."""
    made: dict[str, list[Found]] = {}
    for distribution in distributions:
        package, version = _facts(distribution)
        if package in made:  # further down the import path: hidden by the first
            continue
        try:
            entries = distribution.entry_points.select(group=ENTRY_POINT_GROUP)
            made[package] = [_found(entry) for entry in entries]
        except Exception as error:
            made[package] = [Found(package, version, error=error)] if _concerns_us(distribution) else []
    return [found for each in made.values() for found in each]


def _concerns_us(distribution: metadata.Distribution) -> bool:
    """Whether a list of entry points that cannot be read names our group; one that is no text may."""
    try:
        return f"[{ENTRY_POINT_GROUP}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:
        return True


def _found(entry: metadata.EntryPoint) -> Found:
    package, version = (entry.value, "of unknown version") if entry.dist is None else _facts(entry.dist)
    return Found(package, version, entry)


def _facts(distribution: metadata.Distribution) -> tuple[str, str]:
    """Name and version, as far as its metadata has them."""
    try:
        return distribution.name or "of unknown name", distribution.version or "of unknown version"
    except Exception:
        return "of unknown name", "of unknown version"
