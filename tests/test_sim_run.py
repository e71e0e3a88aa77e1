"""`--device sim:…` from the command line: the plans of a real run, one report a command, no torch."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from affine_costs import AffineCosts, use
from click.testing import CliRunner

from musebench.cli import root
from musebench.core import planning
from musebench.core.plan import StepPlan
from musebench.report import files
from musebench.report.schema import Report

TRACE = "arrival,prompt_tokens,output_tokens\n" + "".join(
    f"{index * 0.07:.2f},{20 + 37 * index % 200},{3 + 11 * index % 50}\n" for index in range(40)
)


@pytest.fixture
def affine(monkeypatch):
    use(monkeypatch)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def run(tmp_path: Path, *arguments: str, code: int = 0) -> Report:
    out = tmp_path / "report.json"
    result = CliRunner().invoke(root, ["run", *arguments, "--out", str(out)])
    assert result.exit_code == code, result.output
    return files.read(out)


def without_dates(report: Report) -> str:
    """The report's text but for its id, its date, and the command that names where it was written."""
    conditions = dataclasses.replace(report.conditions, command=[])
    bare = dataclasses.replace(report, id="", created="", conditions=conditions)
    return files.dumps(bare).decode()


class Recorded:
    """Every plan that a scheduler's helper made, as (sessions that decode, (session, tokens) of slices)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans: list[tuple[list[int], list[tuple[int, int]]]] = []
        inner = planning.PlanBuilder.plan

        def plan(builder: planning.PlanBuilder) -> StepPlan:
            made = inner(builder)
            decodes = [one.session for one in made.decodes]
            self.plans.append((decodes, [(piece.sequence.session, piece.count) for piece in made.prefills]))
            return made

        monkeypatch.setattr(planning.PlanBuilder, "plan", plan)

    def take(self) -> list[tuple[list[int], list[tuple[int, int]]]]:
        taken, self.plans = self.plans, []
        return taken


@pytest.mark.parametrize(
    ("pool", "options"),
    [("geometric", ("pool.start=16", "pool.factor=1.3", "pool.capacity=330")), ("fixed", ())],
)
@pytest.mark.parametrize("scheduler", ["chunked", "continuous", "static", "solo"])
def test_a_real_run_and_its_simulation_make_the_same_plans_growths_and_preemptions(
    tmp_path, monkeypatch, affine, scheduler, pool, options
):
    choices = [
        "mixed-small", "--scheduler", scheduler, "--pool", pool, "--overlap", "--token-budget", "96",
        "--set", "workload.requests=10", "--set", "workload.output_tokens.uniform=[5, 40]",
    ]  # fmt: skip
    for option in options:
        choices += ["--set", option]
    recorded = Recorded(monkeypatch)
    real = run(tmp_path, *choices)
    real_plans = recorded.take()
    stepped = run(tmp_path, *choices, "--device", "sim:affine", "--dtype", "float32", "--stepwise")
    simulated_plans = recorded.take()
    bulk = run(tmp_path, *choices, "--device", "sim:affine", "--dtype", "float32")
    assert len(recorded.take()) < len(simulated_plans)
    assert simulated_plans == real_plans
    counts = (
        "decode_tokens", "prefill_tokens", "padded_tokens", "sequences", "forwards", "rows", "in_use",
        "generation", "waiting", "running", "programs",
    )  # fmt: skip
    for simulated in (stepped, bulk):
        for name in counts:
            assert getattr(simulated.runs[0].steps, name) == getattr(real.runs[0].steps, name), name
        ours, theirs = simulated.runs[0].pool, real.runs[0].pool
        for name in ("step", "rows", "bytes", "copied_bytes", "peak_bytes"):
            assert getattr(ours.growths, name) == getattr(theirs.growths, name), name
        assert (ours.preemptions, ours.refusals, ours.most_in_use) == (
            theirs.preemptions, theirs.refusals, theirs.most_in_use,
        )  # fmt: skip
        assert simulated.runs[0].requests.preemptions == real.runs[0].requests.preemptions
        assert simulated.runs[0].requests.token_steps == real.runs[0].requests.token_steps
    if pool == "geometric" and scheduler != "solo":
        assert real.runs[0].pool.preemptions > 0 or scheduler == "static"
        assert len(real.runs[0].pool.growths) > 3


@pytest.mark.parametrize("executor", ["eager", "graph", "compiled"])
def test_one_command_makes_one_report_stepped_or_in_bulk(tmp_path, affine, trace, executor):
    choices = [trace, "--device", "sim:affine", "--model", "llama-3.2-1b", "--executor", executor]
    first = run(tmp_path, *choices)
    again = run(tmp_path, *choices)
    stepped = run(tmp_path, *choices, "--stepwise")
    assert without_dates(first) == without_dates(again)
    assert without_dates(first) == without_dates(stepped)
    assert first.conditions.clock == "virtual"
    assert first.choices.limits.most_tokens > 0


class SlowCosts(AffineCosts):
    """The same numbers after a hundred times the work."""

    def step(self, shape, program):
        return [super(SlowCosts, self).step(shape, program) for _ in range(100)][-1]

    def decode_stretch(self, contexts, steps, program, padded=0):
        made = [super(SlowCosts, self).decode_stretch(contexts, steps, program, padded) for _ in range(100)]
        return made[-1]


@pytest.mark.parametrize("stepwise", [False, True])
def test_no_host_clock_leaks_into_a_report(tmp_path, monkeypatch, trace, stepwise):
    use(monkeypatch)
    choices = [
        trace, "--device", "sim:affine", "--model", "llama-3.2-1b", "--executor", "graph", "--warmup", "1",
    ]  # fmt: skip
    choices += ["--stepwise"] if stepwise else []
    plain = run(tmp_path, *choices)
    use(monkeypatch, SlowCosts())
    ticks = iter(range(1, 1 << 62))
    for name in ("perf_counter", "monotonic", "process_time"):
        monkeypatch.setattr(time, name, lambda: float(next(ticks) ** 2))
    slow = run(tmp_path, *choices)
    monkeypatch.undo()
    assert without_dates(plain) == without_dates(slow)


def test_every_part_of_a_step_is_charged(tmp_path, monkeypatch, trace):
    def seconds(executor: str = "eager", overlap: str = "--overlap", **changes: float) -> float:
        use(monkeypatch, AffineCosts(**changes))
        choices = [trace, "--device", "sim:affine", "--model", "llama-3.2-1b"]
        choices += ["--executor", executor, overlap]
        steps = run(tmp_path, *choices).runs[0].steps
        return sum(steps.end) - sum(steps.start)

    usual = seconds()
    assert seconds(fixed=8e-3) > usual
    assert seconds(launch=2e-2) > usual  # the host launches longer than the device works
    assert seconds("graph") < usual
    # Without overlap host work stands between the steps; with it, behind the device's.
    assert seconds(overlap="--no-overlap", host=2e-3) > seconds(overlap="--no-overlap", host=1e-3)
    one = run(tmp_path, trace, "--device", "sim:affine", "--model", "llama-3.2-1b", "--executor", "graph")
    counters = one.runs[0].counters
    captures = counters["captures"]
    assert counters["capture seconds"] > 0.1 * captures > 0
    assert counters["recapture seconds"] >= 0.1 * counters["recaptures"] > 0
    growths = one.runs[0].pool.growths
    assert all(
        seconds == pytest.approx(1e-4 + copied / 1e12)
        for seconds, copied in zip(growths.seconds, growths.copied_bytes, strict=True)
    )


def test_what_a_simulated_run_cannot_do_is_one_line(tmp_path, affine, trace):
    def refusal(*arguments: str) -> str:
        result = CliRunner().invoke(root, ["run", *arguments])
        assert result.exit_code == 2
        return result.output

    assert "without weights" in refusal(trace, "--model", "llama-3.1-8b")
    assert "no logits" in refusal(trace, "--model", "llama-3.2-1b", "--device", "sim:affine", "--margins")
    assert "--stepwise is for simulated devices" in refusal(trace, "--stepwise")
    large = refusal(trace, "--model", "mixtral-8x7b-v0.1", "--device", "sim:affine")
    assert "GiB beside its cells" in large


def test_a_simulation_imports_neither_torch_nor_transformers(tmp_path, trace):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import pytest
from affine_costs import use
use(pytest.MonkeyPatch())
from musebench.cli import root
try:
    root.main(["run", {trace!r}, "--device", "sim:affine", "--out", {str(tmp_path / "r.json")!r}])
except SystemExit as ended:
    assert not ended.code, ended.code
import json
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "tokenizers"} & set(json.loads(done.stdout.splitlines()[-1]))


def test_the_mean_step_of_a_simulated_run_is_explained(tmp_path, trace):
    choices = ["run", trace, "--device", "sim:h200", "--model", "llama-3.1-8b", "--explain-step"]
    shown = CliRunner().invoke(root, [*choices, "--format", "json", "--out", str(tmp_path / "r.json")])
    assert shown.exit_code == 0, shown.output
    tables = json.loads(shown.output[: shown.output.rindex("}") + 1])["tables"]
    (table,) = [table for table in tables if table["title"] == "the mean step"]
    names = [row["name"] for row in table["rows"]]
    assert any(name.startswith("device: ") for name in names)
    assert any(name.startswith("host: ") for name in names)
    assert {row["values"]["bound"] for row in table["rows"]} <= {
        "compute", "bandwidth", "launch", "host", "network",
    }  # fmt: skip
    assert "bound by launch" in table["notes"][0]  # eager: 8B decodes wait for their launches
    refused = CliRunner().invoke(root, ["run", "--explain-step"])
    assert refused.exit_code == 2
    assert "--explain-step is for simulated devices" in refused.output


def test_a_datasheet_is_called_one_wherever_it_is_shown(tmp_path, trace):
    out = tmp_path / "r.json"
    choices = ["run", trace, "--device", "sim:h100", "--model", "llama-3.1-8b", "--out", str(out)]
    shown = CliRunner().invoke(root, choices)
    assert shown.exit_code == 0, shown.output
    assert "h100 (datasheet) in virtual time" in shown.output.splitlines()[0]
    assert files.read(out).conditions.backend["profile"] == "h100 (datasheet)"


@pytest.mark.parametrize("stepwise", [(), ("--stepwise",)])
def test_where_memory_has_no_room_to_grow_the_newest_wait_and_all_succeed(tmp_path, monkeypatch, stepwise):
    use(monkeypatch, memory_bytes=int(3.4 * 2**30))  # 135 MB for rows beside weights and activations
    choices = [
        "mixed", "--device", "sim:affine", "--model", "llama-3.2-1b", "--set", "workload.requests=60",
        "--set", "backend.memory=1", "--max-sessions", "60", "--token-budget", "512", *stepwise,
    ]  # fmt: skip
    report = run(tmp_path, *choices)
    assert all(reason.succeeded for reason in report.runs[0].requests.finish_reason)
    pool = report.runs[0].pool
    assert pool.capacity == pool.growths.rows[-1] - 1
    assert pool.preemptions > 0
    held = report.memory.computed
    assert held.weights + held.workspace + max(pool.growths.peak_bytes) <= 3.4 * 2**30
    result = CliRunner().invoke(root, ["run", *choices, "--pool", "fixed"])
    assert result.exit_code == 2
    assert "lower --max-sessions or --max-context" in result.output


@pytest.mark.parametrize("budget", ["1024", "4096", "16384"])
def test_a_simulated_device_that_is_closed_holds_its_weights_alone(tmp_path, budget):
    made = run(
        tmp_path, "mixed-small", "--model", "llama-3.1-8b", "--device", "sim:h200", "--executor", "graph",
        "--token-budget", budget,
    )  # fmt: skip
    snapshots = made.memory.snapshots
    assert snapshots["opened"].allocated > snapshots["loaded"].allocated
    assert snapshots["closed"].allocated == snapshots["loaded"].allocated


def test_drawn_stops_are_the_same_in_bulk_by_the_step_and_over_replicas_and_another_seed_draws_others(
    tmp_path, trace
):
    def made(*arguments: str) -> dict[str, tuple[int, str]]:
        report = run(
            tmp_path, "--device", "sim:h200", "--model", "llama-3.1-8b", "--trace", trace,
            "--set", "backend.stop_after=12", *arguments,
        )  # fmt: skip
        requests = report.runs[-1].requests
        return {
            one: (count, reason)
            for one, count, reason in zip(
                requests.id, requests.generated_tokens, requests.finish_reason, strict=True
            )
        }

    bulk = made()
    assert {reason for _, reason in bulk.values()} == {"stop", "length"}
    assert made("--stepwise") == bulk
    assert made("--replicas", "2") == bulk
    assert made("--scheduler", "static", "--executor", "graph") == bulk
    assert made("--seed", "1") != bulk
