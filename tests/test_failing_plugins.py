"""Plugins that raise, exit or answer wrongly in every method: one line that names them, and nothing lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from plugins_for_tests.install import install_source

from musebench.cli import root
from musebench.core.errors import PluginError
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.run import RunOptions, run

SIMULATED = ("--device", "sim:h200", "--model", "llama-3.2-1b", "--out", "report.json", "--no-progress")
RUN = ("run", "mixed-small", "--requests", "3", *SIMULATED)

# Each component is a built-in one whose <method> is the fault.
SOURCE = """
import math
from musebench.core.options import NoOptions
from musebench.executors.eager import EagerExecutor
from musebench.matrix.launch import LocalLauncher
from musebench.models.shape_source import ShapeSource
from musebench.pools.geometric import GeometricPool
from musebench.routers.round_robin import RoundRobinRouter
from musebench.schedulers.chunked import ChunkedScheduler
from musebench.workload.traces import TraceRow

class Check:
    def __init__(self, options): pass
    def check(self, reports): return []

class Trace:
    def __init__(self, options): pass
    def recognises(self, head, filename): return head.startswith(b"FAULTY")
    def read(self, path): return iter([TraceRow(0.0, 5, 3, row=1), TraceRow(0.5, 5, 3, row=2)])

class Generator:
    def __init__(self, options): pass
    def requests(self, context): return []

class Source(ShapeSource):
    def claims(self, text): return text == "faulty"
    def facts(self, text, dtype): return super().facts("llama-3.2-1b", dtype)

def fault(*arguments, **more):
    <fault>

KINDS = dict(executors=EagerExecutor, pools=GeometricPool, schedulers=ChunkedScheduler, checks=Check,
    routers=RoundRobinRouter, trace_formats=Trace, workloads=Generator, models=Source,
    launchers=LocalLauncher)

class Faulty(KINDS["<kind>"]):
    name = "faulty"
    <method> = <as>(fault)

Faulty.Counted = Faulty

@hookimpl
def register_<kind>(register):
    register("faulty", Faulty, options=getattr(Faulty, "Options", NoOptions), summary="fails")
"""

ARGUMENTS = {
    "executors": (*RUN, "--executor", "faulty"),
    "pools": (*RUN, "--pool", "faulty"),
    "schedulers": (*RUN, "--scheduler", "faulty"),
    "routers": (*RUN, "--router", "faulty", "--replicas", "2"),
    "checks": RUN,
    "trace_formats": ("run", "--trace", "a.trace", *SIMULATED),
    "workloads": ("run", "made.yaml", *SIMULATED),
    "models": (*RUN, "--model", "faulty"),
    "launchers": ("matrix", "mixed-small", "--scheduler", "solo", "--on", "faulty", "--out", "folder",
                  "--device", "sim:h200", "--model", "llama-3.2-1b"),
}  # fmt: skip

BEFORE = [  # fails before the first step
    ("executors", "__init__"), ("executors", "prepare"), ("executors", "counters"),
    ("pools", "__init__"), ("pools", "room"), ("pools", "in_use"), ("pools", "capacity"),
    ("schedulers", "__init__"), ("routers", "__init__"),
    ("trace_formats", "__init__"), ("trace_formats", "recognises"), ("trace_formats", "read"),
    ("workloads", "__init__"), ("workloads", "requests"), ("models", "facts"),
    ("launchers", "__init__"), ("launchers", "launch"),
]  # fmt: skip
DURING = [
    ("executors", "cut"), ("executors", "execute"), ("executors", "stretch"), ("executors", "close"),
    ("pools", "reserve"), ("pools", "release"), ("pools", "quote"), ("pools", "take_edits"),
    ("pools", "lasting"), ("pools", "reserve_steps"),
    ("schedulers", "plan"), ("schedulers", "steady"), ("routers", "route"), ("checks", "check"),
]  # fmt: skip

PROPERTIES = ("room", "in_use", "capacity")
FAULTS = {
    "raises": "raise ValueError('no\\n luck')",
    "system": "raise FileNotFoundError(2, 'No such file', 'own.cfg')",
    "exits": "raise SystemExit(0)",
}
WRONG = {"none": "return None", "text": "return 'x'", "nan": "return math.nan"}
ANSWERING = [one for one in BEFORE if one[1] not in ("__init__", "recognises")] + [
    one
    for one in DURING
    if one[1] not in ("close", "release", "reserve_steps", "take_edits", "stretch", "quote")
]


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """Installs a package with one faulty component; returns a function that runs musebench with it."""
    monkeypatch.delenv("MUSEBENCH_STRICT_PLUGINS", raising=False)
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    (tmp_path / "a.trace").write_text("FAULTY\n")
    (tmp_path / "made.yaml").write_text("name: made\ngenerator: faulty\n")

    def invoke(kind: str, method: str, fault: str, arguments: tuple[str, ...] | None = None):
        source = SOURCE.replace("<kind>", kind).replace("<method>", method).replace("<fault>", fault)
        install_source(site, "faulty-package", source.replace("<as>", "property" * (method in PROPERTIES)))
        return CliRunner().invoke(root, arguments or ARGUMENTS[kind], prog_name="musebench")

    yield invoke
    sys.modules.pop("faulty_package", None)


def only_line(result) -> str:
    assert isinstance(result.exception, SystemExit), result.exception
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "method"), BEFORE)
def test_what_fails_before_the_first_step_is_one_line_with_the_package(faulty, kind, method, fault):
    result = faulty(kind, method, FAULTS[fault])
    assert result.exit_code == 2
    assert "of faulty-package 1.0" in only_line(result)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "method"), DURING)
def test_what_fails_in_a_run_is_in_its_report_with_the_package(faulty, kind, method, fault):
    result = faulty(kind, method, FAULTS[fault])
    assert result.exit_code == 1
    made = files.read(Path("report.json"))
    said = result.stdout if kind == "checks" else made.message
    assert "of faulty-package 1.0" in " ".join(said.split())
    assert "\n" not in (made.message or "")
    assert len(made.runs) == 1


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize(("kind", "method"), ANSWERING)
def test_wrong_answer_is_told_with_the_package(faulty, kind, method, fault):
    result = faulty(kind, method, WRONG[fault])
    assert isinstance(result.exception, SystemExit), result.exception
    report = Path("report.json").read_text() if Path("report.json").exists() else ""
    assert result.exit_code in (1, 2)
    assert "faulty-package 1.0" in result.stderr + result.stdout + report


def test_counters_that_fail_at_the_end_cost_no_report(faulty):
    once = "fault.calls = getattr(fault, 'calls', 0) + 1\n    if fault.calls > 1: raise ValueError"
    once += "\n    return {}"
    assert faulty("executors", "counters", once).exit_code == 1
    made = files.read(Path("report.json"))
    assert len(made.runs[0].requests.id) == 3
    assert (
        "the executor could not be asked at the end: ValueError (in fault of faulty-package" in made.message
    )


def test_check_that_fails_fails_musebench_check_too(faulty):
    assert faulty("checks", "check", "return []").exit_code == 0
    sys.modules["faulty_package"].Faulty.check = lambda self, reports: [None]
    result = CliRunner().invoke(root, ["check", "report.json"], prog_name="musebench")
    assert result.exit_code == 1
    assert "Faulty.check of faulty-package 1.0 gave [None]; a list of verdicts is wanted" in " ".join(
        result.stdout.split()
    )


def test_check_and_model_that_cannot_be_made_are_left_out_with_a_warning(faulty):
    for kind in ("checks", "models"):
        result = faulty(kind, "__init__", FAULTS["raises"], RUN)
        assert result.exit_code == 0
        assert result.stderr.startswith("musebench: warning: plugin faulty-package 1.0 adds no ")
        sys.modules.pop("faulty_package")
        for left in Path("site").glob("faulty_package*/*"):
            left.unlink()
        for left in Path("site").glob("faulty_package*/"):
            left.rmdir()


def test_source_that_fails_to_claim_takes_no_model_from_the_others(faulty):
    assert faulty("models", "claims", FAULTS["raises"], (*RUN, "--model", "tiny-llama-3")).exit_code == 2
    assert CliRunner().invoke(root, RUN, prog_name="musebench").exit_code == 0


@pytest.mark.parametrize("command", [["list"], ["list", "--format", "json"], ["--help"], list(RUN)])
@pytest.mark.parametrize("kind", ["pools", "checks", "models"])
@pytest.mark.parametrize(
    "options",
    ["x: int", "x: int = option(object(), '')", "x: 'Nothing' = option(3, '')", "x: dict = option({}, '')"],
)
def test_options_that_cannot_be_shown_stop_nobody_else(faulty, kind, options, command):
    source = "return None\nimport dataclasses\nfrom musebench.core.options import option\nclass Odd:\n"
    source += f"    {options}"
    source += "\nfault.Options = dataclasses.dataclass(Odd)\n"
    result = faulty(kind, "Options", f"{source}\nODD = fault.Options", tuple(command))
    assert result.exit_code == 0, result.output


def test_two_requests_of_one_id_are_refused_before_the_run(faulty):
    result = faulty("trace_formats", "read", "return iter([TraceRow(0.0, 5, 3), TraceRow(0.5, 5, 3)])")
    assert result.exit_code == 2
    assert "two requests have the id 'row-0'" in only_line(result)


def test_strict_mode_shows_the_traceback(faulty, monkeypatch):
    monkeypatch.setenv("MUSEBENCH_STRICT_PLUGINS", "1")
    assert isinstance(faulty("executors", "prepare", FAULTS["raises"]).exception, ValueError)


def test_run_in_python_raises_the_same_line(faulty):
    faulty("executors", "prepare", FAULTS["raises"], ("list",))
    options = RunOptions("mixed-small", model="llama-3.2-1b", device="sim:h200", executor="faulty")
    with pytest.raises(PluginError, match=r"ValueError: no luck \(in fault of faulty-package 1\.0\)"):
        run(options, Registry.installed())


def test_command_of_a_plugin_exits_as_it_likes(faulty):
    body = """pass
import click
@click.command()
@click.argument("way")
def act(way):
    if way == "raise": raise ValueError("no luck")
    raise SystemExit(3)
@hookimpl
def register_commands(register): register("act", act)
"""
    assert faulty("checks", "none", body, ("act", "exit")).exit_code == 3
    result = CliRunner().invoke(root, ["act", "raise"], prog_name="musebench")
    assert result.exit_code == 2
    assert only_line(result) == "musebench: error: ValueError: no luck (in act of faulty-package 1.0)"
