"""Mistakes are one line and the exit code 2; the options stand in the list without Ray being imported."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest


def test_a_place_where_nothing_answers_is_one_line(matrix):
    with socket.socket() as held:  # bound and not listening: nobody else can, meanwhile
        held.bind(("127.0.0.1", 0))
        assert_one_line(
            matrix, f"launcher.address=127.0.0.1:{held.getsockname()[1]}", "nothing answers there"
        )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("launcher.address=somewhere", "HOST:PORT, auto or local is wanted"),
        ("launcher.cpus=0", "cpus"),
        ("launcher.adress=auto", "did you mean 'address'"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(matrix, setting, words):
    assert_one_line(matrix, setting, words)


def assert_one_line(matrix, setting: str, words: str) -> None:
    process = matrix("single", "--on", "ray", "--set", setting)
    out, errors = process.communicate()
    assert process.returncode == 2
    (line,) = errors.splitlines()
    assert line.startswith("musebench: error: ")
    assert words in line
    assert out == ""


def test_the_list_shows_the_options_and_imports_no_ray():
    code = (
        "import sys; from click.testing import CliRunner; from musebench.cli import root\n"
        "print(CliRunner().invoke(root, ['list', 'launcher']).output); print('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "| ray " in done.stdout
    assert "address" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
