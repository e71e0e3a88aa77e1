"""The tutorial of plugins/README.md is run, block after block, and prints what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from environment import CLEARED, TOP, Environment

DOCUMENT = TOP / "plugins" / "README.md"
BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>[^\n]+) -->\n)?```(?P<language>sh|python)\n(?P<text>.*?)```\n"
    r"|<!-- printed -->\n(?P<printed>.*?)<!-- end -->",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A file to write, commands to run, or what the last commands printed."""

    file: str | None
    language: str | None
    text: str


def blocks(document: str) -> list[Block]:
    return [
        Block(match["file"], match["language"], match["text"] if match["language"] else match["printed"])
        for match in BLOCK.finditer(document)
    ]


def give_commands(environment: Environment) -> Path:
    """A folder with the commands that a reader types; pip builds with what is there and downloads nothing."""
    folder = environment.folder / "typed"
    folder.mkdir()
    python = shlex.quote(str(environment.python))
    pip = f'{shlex.quote(sys.executable)} -m pip --disable-pip-version-check --python {python} "$1"'
    for name, line in {
        "python": f'{python} "$@"',
        "musebench": f'{python} -m musebench "$@"',
        "pip": f'{pip} --no-deps --no-index --no-build-isolation "${{@:2}}"',
    }.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\nexec {line}\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_tutorial_goes_from_an_empty_folder_to_a_row_in_the_table(install, tmp_path):
    environment = install()
    typed = {name: value for name, value in os.environ.items() if name not in CLEARED}
    typed |= {"PATH": f"{give_commands(environment)}{os.pathsep}{typed['PATH']}", "COLUMNS": "80"}
    found = blocks(DOCUMENT.read_text(encoding="utf-8"))
    assert {block.language for block in found} == {"sh", "python", None}
    printed = ""
    for block in found:
        if block.file is not None:
            assert (tmp_path / block.file).exists(), "a tutorial changes files that new-plugin made"
            (tmp_path / block.file).write_text(block.text)
        elif block.language is None:
            assert "| calm " in printed
            shown = "".join(f"    {line}".rstrip() + "\n" for line in printed.splitlines())
            assert block.text == shown, f"plugins/README.md shows another table; it is now\n{shown}"
        else:
            printed = ""
            for command in block.text.splitlines():
                done = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=typed, capture_output=True, text=True,
                )  # fmt: skip
                assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
                printed = done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```sh\nls\n```\n", Block(None, "sh", "ls\n")),
        ("<!-- file: a/b.py -->\n```python\nx = 1\n```\n", Block("a/b.py", "python", "x = 1\n")),
        ("<!-- printed -->\n    a\n<!-- end -->", Block(None, None, "    a\n")),
    ],
)
def test_blocks_are_found_in_a_document(text, expected):
    assert blocks(f"before\n{text}after\n") == [expected]
