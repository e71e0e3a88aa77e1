"""What cannot be run is one line that names both sides, and exit 2; nothing runs past a program's bounds."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from exported_packages import BOUNDED, changed, damaged, package, package_with_weights_beside, registry

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.cli import root
from musebench.core.audit import Audit
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.errors import InputError, UnsupportedError
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.export.bounds import Bounds, Widths
from musebench.export.exporter import _check
from musebench.models.bundled_source import BundledSource
from musebench.models.program_source import ProgramSource
from musebench.programs.backend import program_backend
from musebench.programs.package import method_folder
from musebench.report import files, metrics


def run(*arguments: str):
    return CliRunner().invoke(root, ["run", "capitals", "--no-progress", *arguments])


def the_error(result) -> str:
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("musebench: error:")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def program():
    return package(BOUNDED)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "other.pt2"


def test_a_report_holds_what_the_program_cost_and_its_methods(program, tmp_path):
    report = tmp_path / "report.json"
    result = run("--model", str(program), "--executor", "exported", "--out", str(report))
    assert result.exit_code == 0, result.output
    made = files.read(report)
    assert made.runs[0].requests.correct == [True] * 5
    assert made.costs.seconds["program load"] > 0.0
    assert made.costs.seconds["program export"] > 0.0
    assert made.costs.counters["program package bytes"] == program.stat().st_size
    assert made.costs.counters["program bytes read"] >= made.conditions.model.facts.weight_bytes
    assert made.costs.counters["program export peak bytes"] > 0
    programs = set(metrics.step_totals(made).programs)
    assert {"decode-1", "prefill"} <= programs <= {"decode-1", "decode", "prefill"}
    assert made.choices.executor.name == "exported"


def test_a_package_tells_its_facts(program):
    shown = CliRunner().invoke(root, ["list", "--program", str(program)])
    assert shown.exit_code == 0
    for words in ("5 to 48 tokens of 2 to 5 sequences", "vocabulary", "torch", torch.__version__, "sha256"):
        assert words in shown.output
    facts = json.loads(
        CliRunner().invoke(root, ["list", "--program", str(program), "--format", "json"]).output
    )
    assert facts["model"]["layers"] == len(facts["layers"]) == 4
    assert [method["name"] for method in facts["methods"]] == ["decode-1", "decode", "prefill"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_cut_off_package_is_one_line(program, out, share):
    content = program.read_bytes()
    out.write_bytes(content[: int(len(content) * share)])
    for result in (
        run("--model", str(out), "--executor", "exported"),
        run("--executor", "exported", "--set", f"executor.program={out}"),
        CliRunner().invoke(root, ["list", "--program", str(out)]),
    ):
        assert "is no package or is cut off" in the_error(result)


def test_a_foreign_package_is_one_line(out):
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("other/archive_format", "pt2")
    assert "was not made by musebench" in the_error(run("--model", str(out), "--executor", "exported"))
    torch.save({"a": torch.zeros(3)}, out)
    assert "was not made by musebench" in the_error(run("--model", str(out), "--executor", "exported"))


def test_a_missing_package_is_one_line(tmp_path):
    wanted = "none.pt2 cannot be read (No such file or directory); make one with musebench export"
    assert wanted in the_error(run("--model", str(tmp_path / "none.pt2"), "--executor", "exported"))


@pytest.mark.parametrize("part", ["prefill.method/", "data/musebench/model.norm.weight"])
def test_a_damaged_part_of_a_package_is_one_line(program, out, part):
    damaged(program, out, part)
    assert "copy it again" in the_error(run("--model", str(out), "--executor", "exported"))


def test_weights_of_a_model_as_a_program_are_read_when_it_is_loaded_not_with_its_methods(program, out):
    damaged(program, out, "data/musebench/model.norm.weight")
    model = ProgramSource(NoOptions()).open(str(out), "float32", "cpu", 0)
    with pytest.raises(InputError, match="copy it again"):
        TorchBackend(TorchOptions(), "cpu", model)


def changes(**values):
    def change(facts):
        for path, value in values.items():
            *parts, last = path.split("__")
            at = facts
            for one in parts:
                at = at[int(one)] if isinstance(at, list) else at[one]
            at[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changes(format=2), "has format 2, this musebench reads up to 1; update musebench"),
        (changes(format="1"), "says no format"),
        (changes(color="red"), "facts has an unknown 'color'"),
        (changes(vocabulary="many"), "facts.vocabulary is 'many', int is wanted"),
        (changes(methods=[]), "a decode and a prefill are wanted"),
        (changes(build__torch="2.1.0+cu121"), "compiled by torch 2.1.0, and this is torch"),
        (changes(build__device="cuda", build__capability="9.0"), "compiled for cuda, and --device is cpu"),
        (changes(build__machine="riscv64"), "compiled for riscv64, and this machine is"),
        (changes(build__instructions="avx9000"), "compiled for avx9000, and this CPU lacks avx9000"),
        (changes(model__dtype="bfloat16"), "was exported in bfloat16, and --dtype is float32"),
        (changes(max_context=64), "takes contexts of at most 64 tokens, and --max-context is"),
    ],
)  # fmt: skip
def test_a_program_of_something_else_is_refused_with_both_sides(program, out, change, words):
    changed(program, out, change)
    for arguments in (("--model", str(out)), ("--set", f"executor.program={out}")):
        assert words in the_error(run("--executor", "exported", *arguments))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            changes(layers__2__kv_heads=3),
            "layer 2: 3 KV heads of 32 and 32 for 4; this model's pool has 2 KV heads of 32 and 32 for 4",
        ),
        (changes(layers__0__window=16), "for 4, window 16; this model's pool has 2 KV heads"),
        (lambda facts: facts["layers"].pop(), "has a pool of 3 layers; this model's pool has 4"),
    ],
)
def test_another_layout_of_the_pool_is_refused_with_both_sides(program, out, change, words):
    changed(program, out, change)
    assert words in the_error(run("--executor", "exported", "--set", f"executor.program={out}"))


def test_other_weights_than_the_models_are_refused(program, out):
    def change(facts):
        facts["weights"]["source_sha256"] = "0123456789abcdef"
        facts["weights"]["tensors"]["model.norm.weight"]["sha256"] = "00"

    changed(program, out, change)
    line = the_error(run("--executor", "exported", "--set", f"executor.program={out}"))
    assert re.search(
        r"from 'bundled' \(weights 0123456789ab\), and --model is 'bundled' \(weights \w{12}\)", line
    )
    assert "model.norm.weight differs" in line


def test_equal_weights_of_another_source_are_taken(program, out, tmp_path):
    changed(program, out, changes(weights__source_sha256="0123456789abcdef"))
    result = run(
        "--executor", "exported", "--set", f"executor.program={out}", "--out", str(tmp_path / "report.json")
    )  # fmt: skip
    assert result.exit_code == 0, result.output


def test_weights_beside_a_package_must_be_there_and_its_own(tmp_path):
    made = package_with_weights_beside(BOUNDED)
    out = Path(shutil.copyfile(made, tmp_path / made.name))
    weights = Path(shutil.copyfile(made.with_suffix(".safetensors"), tmp_path / f"{made.stem}.safetensors"))
    arguments = ("--model", str(out), "--executor", "exported")
    content = bytearray(weights.read_bytes())
    content[-100] ^= 0xFF
    weights.write_bytes(content)
    assert f"is not what {out.name} was exported with" in the_error(run(*arguments))
    weights.write_bytes(content[:1000])
    assert "cannot be read" in the_error(run(*arguments))
    weights.unlink()
    assert f"{weights.name}, which cannot be read" in the_error(run(*arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--executor", "exported"), "needs a program: --set executor.program=FILE.pt2"),
        (("--model", "PROGRAM"), "is a program without a module; use --executor exported"),
        (("--model", "PROGRAM", "--executor", "compiled"), "is a program without a module"),
        (
            ("--model", "PROGRAM", "--executor", "exported", "--set", "executor.program=OTHER"),
            "is another; give one of them",
        ),
        (
            ("--model", "PROGRAM", "--executor", "exported", "--dtype", "bfloat16"),
            "was exported in float32, and --dtype is bfloat16",
        ),
        (
            ("--executor", "exported", "--set", "executor.program=PROGRAM", "--dtype", "bfloat16"),
            "was exported in float32, and --dtype is bfloat16",
        ),
        (
            ("--model", "PROGRAM", "--executor", "exported", "--set", "executor.capture=true"),
            "needs a CUDA device",
        ),
        (
            ("--model", "PROGRAM", "--executor", "exported", "--set", "executor.ladder=1,2"),
            "no graphs without capture",
        ),
        (
            ("--model", "PROGRAM", "--executor", "exported", "--token-budget", "8"),
            "a fewest prefill of 5 needs at least 9",
        ),
    ],
)
def test_a_choice_that_cannot_be_is_one_line(program, tmp_path, arguments, words):
    other = tmp_path / "copy.pt2"
    shutil.copyfile(program, other)
    given = [one.replace("PROGRAM", str(program)).replace("OTHER", str(other)) for one in arguments]
    assert words in the_error(run(*given))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "model.bin"), "a name that ends in .pt2"),
        (("--out", "nowhere/model.pt2"), "there is no folder"),
        (("--out", "model.pt2", "--model", "PROGRAM"), "has no module to export"),
        (("--out", "model.pt2", "--max-context", "4096"), "--max-context is 4,096; 1 to 2,048"),
        (("--out", "model.pt2", "--max-context", "0"), "--max-context is 0; 1 to 2,048"),
        (("--out", "model.pt2", "--fewest", "1"), "--fewest is 1"),
        (("--out", "model.pt2", "--set", "pool.start=3"), "--set pool"),
        (("--out", "model.pt2", "--dtype", "int8"), "--dtype int8"),
        (("--out", "model.pt2", "--device", "tpu"), "tpu"),
    ],
)
def test_an_export_that_cannot_be_is_one_line_and_writes_nothing(
    program, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    given = [one.replace("PROGRAM", str(program)) for one in arguments]
    assert words in the_error(CliRunner().invoke(root, ["export", *given]))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def executor(program):
    model = ProgramSource(NoOptions()).open(str(program), "float32", "cpu", 0)
    backend = TorchBackend(TorchOptions(), "cpu", model)
    backend.open(PoolBounds(8, 64))
    backend.storage().resize(60, 0)
    made = registry().get("executor", "exported").make({}, backend, Limits())
    made.prepare()
    yield made
    made.close()
    backend.close()


def batch_of(layout: BatchLayout) -> StepBatch:
    import numpy as np

    return StepBatch(layout, np.zeros(layout.words, np.int32), 0, 0, 0)


@pytest.mark.parametrize(
    "layout", [BatchLayout(1, 2, 2), BatchLayout(4, 2, 2), BatchLayout(49, 2, 2), BatchLayout(5, 2, 1)]
)
def test_a_forward_outside_of_the_bounds_is_not_launched(executor, layout):
    """A compiled program runs one token below its fewest without a word."""
    launched = []
    executor.backend.forward = launched.append
    with pytest.raises(ValueError, match="outside of what the program takes"):
        executor.execute(batch_of(layout))
    assert launched == []
    executor.execute(batch_of(BatchLayout(5, 2, 2)))
    assert len(launched) == 1


def test_the_program_itself_refuses_it_too(executor):
    backend = executor.backend
    with pytest.raises(ValueError, match="outside of what the program takes"):
        backend.forward(batch_of(BatchLayout(4, 2, 2)))
    assert backend.forward(batch_of(BatchLayout(5, 2, 2))).wait().tolist() == []


def test_backends_without_programs_are_refused():
    class Other:
        name = "other"

    with pytest.raises(UnsupportedError, match="runs programs on cpu and cuda; backend 'other' loads none"):
        registry().get("executor", "exported").make({}, Other(), Limits())


def test_acceptance_runs_the_program_beside_the_others(program):
    given = ("accept", "--executor", "exported", "--program", str(program), "--jobs", "2", "--format", "json")
    result = CliRunner().invoke(root, given)
    assert result.exit_code == 0, result.output
    assert "left out" not in result.stderr
    assert ": one prompt, exported" in result.stderr.split("left out")[-1]


def test_the_program_is_found_behind_what_audits_a_backend():
    backend = Audit().backend(
        TorchBackend(TorchOptions(), "cpu", BundledSource(NoOptions()).open("bundled", "float32", "cpu", 0))
    )
    found = program_backend(backend)
    assert found is not None
    assert found.model_program is None
    assert program_backend(object()) is None


def test_a_library_that_ends_the_process_is_a_refusal_and_leaves_no_package(tmp_path, monkeypatch):
    def killed(command, **_):
        return subprocess.CompletedProcess(command, -signal.SIGSEGV, "", "")

    monkeypatch.setattr("musebench.export.trial.subprocess.run", killed)
    made = tmp_path / "made.pt2"
    made.touch()
    with pytest.raises(UnsupportedError, match=r"SIGSEGV.*CXX"):
        _check(made, "cpu")
    assert not made.exists()


@pytest.mark.parametrize("bounds", [Bounds(), Widths((1, 2, 12, 128), 12)])
def test_no_methods_folder_begins_with_another_ones(bounds):
    folders = [method_folder(method.name) for method in bounds.methods()]
    assert not [(a, b) for a in folders for b in folders if a != b and b.startswith(a)]
