"""`musebench conformance`, and the kit where hypothesis is missing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry
from musebench.testing.laws import search as searching

REGISTRY = Registry.installed()


def test_the_command_prints_a_line_a_law():
    result = CliRunner().invoke(root, ["conformance", "geometric", "--examples", "20", "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    assert {"owners", "last cell", "generation", "errors"} <= {row["law"] for row in rows}
    assert {row["kind"] for row in rows} == {"pool"}


def test_the_command_refuses_what_has_no_laws_in_one_line():
    with pytest.raises(
        Exception, match="nothing that has laws is named 'geometrix'; did you mean 'geometric'"
    ):
        CliRunner().invoke(root, ["conformance", "geometrix"], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("names", "way"),
    [
        (["pool", "geometric"], "say: musebench conformance geometric --kind pool"),
        (["geometric", "fixed"], "run it once for each"),
    ],
)
def test_the_command_refuses_several_names_and_knows_a_kind_among_them(names, way):
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(root, ["conformance", *names], standalone_mode=False, catch_exceptions=False)
    assert str(refused.value) == f"conformance takes one NAME, not 2 ({', '.join(names)}); {way}"


def test_without_hypothesis_the_kit_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "hypothesis", None)
    with pytest.raises(
        Exception, match=r"hypothesis, which is not installed; pip install 'musebench\[testing\]'"
    ):
        searching.strategies()
