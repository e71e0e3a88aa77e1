"""Facts about the machine and the code that ran on it. Imports nothing it reports on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import musebench

PACKAGES = ("torch", "transformers", "triton", "numpy", "safetensors", "gguf", "nvidia-ml-py")
"""Packages whose version a number may depend on."""

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(?:^|[-_.])(token|secret|password|passwd|api[-_]?key|credentials?)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"\b(hf_|sk-|gh[pousr]_|github_pat_)[A-Za-z0-9_-]{8,}|(?<=://)[^/@\s]+(?=@)|(?<=Bearer )\S+"
)


class Commit(NamedTuple):
    """The checkout that musebench runs from; both None when it runs from none."""

    commit: str | None = None
    dirty: bool | None = None


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's own name."""
    try:
        with cpuinfo.open() as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name" and value.strip():
                    return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or None


def cores() -> int | None:
    """Logical processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Linux only
        return os.cpu_count()


def platform_name() -> str:
    """Operating system, kernel and architecture; no host name."""
    return platform.platform()


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    """Of Python, musebench and the packages, by name; None for one that is not installed."""
    made: dict[str, str | None] = {"python": platform.python_version(), "musebench": musebench.__version__}
    for name in packages:
        made[name] = version(name)
    return made


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(folder: Path | None = None) -> Commit:
    """The commit of the checkout that holds `folder` (None: this package), and whether files there differ.

    A folder that lies inside somebody's checkout without being part of it (an installed package in a
    project's virtual environment) has no commit.
    """
    folder = folder or Path(musebench.__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    head = _git(folder, "rev-parse", "HEAD") if tracked is not None else None
    if not head:
        return Commit()
    changes = _git(folder, "status", "--porcelain", "--", ".")
    return Commit(head, None if changes is None else bool(changes))


def command_line(arguments: Sequence[str]) -> list[str]:
    """An argument vector fit to be stored: the program's name without its folder, secrets as "***".

    A secret is the value of an option whose name ends with token, secret, password, api-key or credential,
    the user part of a URL, and what looks like a token of a known service.
    """
    made: list[str] = []
    hide_next = False
    for index, argument in enumerate(arguments):
        name, equals, _ = argument.partition("=")
        named = bool(_SECRET_NAME.search(name))
        if hide_next:
            made.append(HIDDEN)
        elif index == 0:
            made.append(Path(argument).name)
        elif named and equals:
            made.append(f"{name}={HIDDEN}")
        else:
            made.append(_SECRET_VALUE.sub(HIDDEN, argument))
        hide_next = not hide_next and named and not equals and argument.startswith("-")
    return made


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says in `folder`; None when there is no git, no checkout, or it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # `status` then leaves the index as it is
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=10, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
