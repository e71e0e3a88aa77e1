"""`musebench explain`: a table, machine-readable rows, and mistakes in one line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root


def explain(*arguments: str) -> str:
    result = CliRunner().invoke(root, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_names_the_profile_its_kind_and_what_bounds_the_step():
    shown = explain("--device", "sim:a100-80g", "--model", "llama-3.1-8b", "--executor", "graph")
    assert shown.startswith("Llama-3.1-8B in bfloat16 on 1 x a100-80g (datasheet), graph\n")
    assert "decode attention" in shown
    assert shown.rstrip().endswith("bound by bandwidth")


def test_json_rows_are_plain_numbers_in_base_units():
    rows = json.loads(
        explain("--model", "llama-3.1-8b", "--decodes", "64", "--prefill", "512", "--format", "json")
    )
    by_name = {row["operation"]: row for row in rows}
    assert by_name["prefill attention"]["flops"] == 32 * 4 * 32 * 128 * 512 * 513 / 2
    assert by_name["decode attention"]["bytes"] == 64 * 1024 * 131072
    assert by_name["launches"]["count"] == 32 * 35 + 23


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "llama-3.1-8b", "--device", "cuda"], "not simulated; sim:PROFILE is wanted"),
        (["--model", "llama-3.1-8b", "--device", "sim:h20"], "no profile 'h20'"),
        (["--model", "llama-3.1-9b"], "did you mean 'llama-3.1-8b'"),
        (["--model", "llama-3.1-8b", "--executor", "grph"], "did you mean 'graph'"),
        (["--model", "llama-3.1-8b", "--decodes", "0"], "a step without a token"),
        (["--model", "llama-3.1-8b", "--device", "sim:t4"], "no rate for bfloat16"),
    ],
)
def test_a_mistake_is_one_line_and_exits_with_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        root.main(["explain", *arguments], prog_name="musebench")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
