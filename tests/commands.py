"""Runs `musebench` in a test: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from musebench.cli import root

REPOSITORY = Path(__file__).resolve().parents[1]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments), prog_name="musebench")


def failed(*arguments: str) -> str:
    """The one line on standard error of a command that ends with 2 and shows nothing else."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("musebench: error: ")
    return line.removeprefix("musebench: error: ")


def in_process(*arguments: str, path: Path | None = None, **options) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MUSEBENCH_STRICT_PLUGINS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *([str(path)] if path else [])])
    environment |= options.pop("environment", {})
    command = [sys.executable, "-m", "musebench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)
