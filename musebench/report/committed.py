"""Reports as git has them: every version that was ever committed, and the order of commits."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from musebench.core.errors import InputError
from musebench.report.files import loads_any
from musebench.report.groups import SUFFIXES, Source

SECONDS = 60


@dataclass(frozen=True)
class Committed:
    """`sources` with each version of each file, newest first; `skipped` names those that cannot be read."""

    sources: tuple[Source, ...]
    skipped: tuple[str, ...]


def committed(folder: Path) -> Committed:
    """All versions of the reports below `folder` in its repository's history; none where there is no git."""
    listed = _git(
        folder, "log", "--format=%x00%H", "--name-only", "--diff-filter=AMR", "--relative", "--", "."
    )
    sources: list[Source] = []
    skipped: list[str] = []
    commit = ""
    for line in (listed or b"").decode(errors="replace").splitlines():
        if line.startswith("\0"):
            commit = line[1:]
        elif line.endswith(SUFFIXES):
            data = _git(folder, "show", f"{commit}:./{line}")
            name = f"{folder / line} of commit {commit[:10]}"
            try:
                sources.append(Source(loads_any(data or b"", name), folder / line, folder))
            except InputError as error:
                skipped.append(str(error))
    return Committed(tuple(sources), tuple(skipped))


def commit_order(folder: Path) -> dict[str, int]:
    """Place of every commit that the checkout around `folder` has, the oldest first; empty without git."""
    listed = _git(folder, "rev-list", "--topo-order", "--reverse", "HEAD")
    return {commit: place for place, commit in enumerate((listed or b"").decode().split())}


def _git(folder: Path, *arguments: str) -> bytes | None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotepath=off", "-C", str(folder), *arguments],
            capture_output=True, timeout=SECONDS, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
