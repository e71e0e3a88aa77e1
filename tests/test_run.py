"""`musebench run`, from the command line to the report."""

from __future__ import annotations

import json

import click
import pytest
import torch
from click.testing import CliRunner
from run_reports import tokens_of

from musebench.backends.torch_backend import TorchBackend
from musebench.cli import root
from musebench.cli.plugins import registry_of
from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.journal import Journal, recover
from musebench.run import RunOptions
from musebench.run import run as run_workload


def invoke(*arguments: str):
    return CliRunner().invoke(root, ["run", *arguments])


@pytest.fixture
def ran(tmp_path):
    """Runs into a report, and reads it."""

    def run(*arguments: str, code: int | None = 0):
        out = tmp_path / "report.json"
        result = invoke(*arguments, "--out", str(out))
        assert code in (None, result.exit_code), result.output
        return result, files.read(out)

    return run


def test_a_seed_that_no_report_can_hold_is_refused():
    result = invoke("single", "--seed", str(2**63))
    assert result.exit_code == 2
    assert "--seed is 9223372036854775808; at most" in result.output


def test_capitals_are_answered_and_shown(ran):
    result, report = ran("capitals")
    requests = report.runs[0].requests
    for text, capital in zip(requests.text, ("Paris", "Tokyo", "Rome", "Paris", "Berlin"), strict=True):
        assert capital in text
    assert requests.correct == [True] * 5
    assert "VALID" in result.output
    # The preamble is longer than one forward takes.
    assert max(requests.prompt_tokens) > report.choices.limits.most_tokens


@pytest.mark.parametrize("scheduler", ["solo", "static", "continuous", "chunked"])
@pytest.mark.parametrize("pool", ["geometric", "fixed"])
def test_drawn_tokens_depend_on_seed_and_position_alone(ran, scheduler, pool):
    sampling = ("--set", "workload.sampling.temperature=12", "--set", "workload.sampling.top_k=50")
    _, alone = ran("capitals", "--scheduler", "solo", *sampling, code=None)
    _, report = ran("capitals", "--scheduler", scheduler, "--pool", pool, "--overlap", *sampling, code=None)
    assert tokens_of(report) == tokens_of(alone)
    _, greedy = ran("capitals")
    assert tokens_of(report) != tokens_of(greedy)


def test_a_full_pool_preempts_and_makes_the_same_tokens(ran):
    arguments = ("mixed-small", "--max-sessions", "8")
    _, roomy = ran(*arguments)
    _, tight = ran(*arguments, "--set", "pool.capacity=200")
    assert tight.runs[0].pool.preemptions > 0
    assert tokens_of(tight) == tokens_of(roomy)
    assert max(tight.runs[0].steps.in_use) <= 200


def test_a_request_that_can_never_fit_is_refused_with_its_sum_and_the_others_finish(ran):
    _, report = ran("capitals", "--set", "pool.capacity=200", code=1)
    reasons = [str(reason) for reason in report.runs[0].requests.finish_reason]
    assert reasons.count("refused") == 1
    message = next(message for message in report.runs[0].requests.message if message)
    assert "prompt +" in message
    assert "200" in message


def test_repeats_and_warm_up_are_kept_apart(ran):
    _, report = ran("single", "--warmup", "1", "--repeat", "3")
    assert len(report.runs) == 3
    assert report.costs.seconds["warmup"] > 0
    # The pool keeps what it grew in the warm-up.
    assert all(len(run.pool.growths) == 0 for run in report.runs)


def test_margins_are_recorded_for_every_token(ran):
    _, report = ran("single", "--margins")
    requests = report.runs[0].requests
    assert len(requests.margins) == requests.generated_tokens[0]
    assert min(requests.margins) > 1.0


def test_poisoned_scratch_reaches_nobody(ran):
    _, clean = ran("capitals")
    _, poisoned = ran("capitals", "--set", "backend.poison=true")
    assert tokens_of(poisoned) == tokens_of(clean)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--executor", "graph"), ("graph", "CUDA", "--executor eager")),
        (("--device", "cuda"), ("cuda", "--device cpu")),
        (("--executor", "eagre"), ("eagre", "eager")),
        (("--pool", "fix"), ("fix", "fixed")),
        (("--scheduler", "chunkd"), ("chunkd", "chunked")),
        (("--device", "tpu"), ("tpu", "cpu")),
        (("--model", "random:lama-3.2-1b"), ("lama", "llama-3.2-1b")),
        (("--set", "pool.facter=2"), ("facter", "factor")),
        (("--set", "pool.factor=0.5"), ("factor", "0.5", "1")),
        (("--set", "trace.sort=true"), ("trace",)),
        (("--dtype", "float12"), ("float12", "float32")),
        (("--max-sessions", "0"), ("--max-sessions", "0", "1")),
        (("--max-sessions", "9" * 24), ("--max-sessions", "2,147,483,647")),
        (("--token-budget", "9" * 24), ("--token-budget", "2,147,483,647")),
        (("--device", "sim:h200", "--trust-remote-code"), ("--trust-remote-code", "sim:h200")),
        (("--token-budget", "-3"), ("--token-budget", "-3", "1")),
        (("--repeat", "0"), ("--repeat", "0", "1")),
        (("--repeat", str(2**64)), ("--repeat", "at most 1,000,000")),
        (("--warmup", str(2**63)), ("--warmup", "at most 1,000,000")),
        (("--seed", "-1"), ("seed", "-1")),
        (("nowhere",), ("nowhere", "capitals")),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out_and_exit_2(arguments, words, tmp_path):
    out = tmp_path / "report.json"
    result = invoke(*arguments, "--out", str(out))
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("musebench: error:")]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]
    assert not out.exists()


def test_the_report_is_strict_json_and_names_its_conditions(ran, tmp_path):
    _, report = ran("single")
    text = (tmp_path / "report.json").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} in a report"))
    assert report.conditions.versions["torch"]
    assert report.conditions.model.weights_sha256
    assert report.conditions.workload.sha256
    assert report.memory.computed.rows == report.runs[0].pool.bytes


def test_tables_come_in_other_formats(tmp_path):
    result = invoke("single", "--format", "json", "--out", str(tmp_path / "a.json"))
    assert json.loads(result.stdout)["verdict"]["valid"] is True


@pytest.mark.parametrize("overlap", [False, True])
def test_an_interrupted_run_keeps_the_tokens_of_requests_that_were_still_served(overlap):
    def stop(engine, repeat):
        if len(engine.recorder.steps) == 3:
            raise KeyboardInterrupt

    registry = registry_of(click.Context(root))
    made = run_workload(RunOptions(overlap=overlap), registry, stop)
    assert (made.status, made.message) == ("incomplete", "interrupted")
    requests = made.runs[0].requests
    assert sum(requests.generated_tokens) == len(requests.token_steps) > 0
    assert set(requests.token_steps) <= {0, 1, 2}


class Keeping:
    """Keeps the journal of a run, however it ends."""

    noting = True

    def __init__(self, path):
        self.path = path

    def begin(self, head, virtual):
        self.journal = Journal(self.path, head)

    def note(self, entry):
        self.journal.note(entry)


def test_a_journal_says_when_requests_were_preempted(tmp_path):
    keeping = Keeping(tmp_path / "one.journal")
    options = RunOptions("mixed-small", settings={"pool": {"capacity": "600"}})
    made = run_workload(options, registry_of(click.Context(root)), keeper=keeping)
    keeping.journal.close(remove=False)
    requests = made.runs[0].requests
    assert sum(requests.preemptions) > 0
    assert [len(pauses) for pauses in requests.pauses] == [2 * count for count in requests.preemptions]
    assert recover(keeping.path).runs[0].requests.pauses == requests.pauses


def test_memory_that_is_refused_while_a_run_opens_is_one_line(monkeypatch):
    def refused(self, bounds, record_margins=False):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 16384.00 GiB")

    monkeypatch.setattr(TorchBackend, "open", refused)
    with pytest.raises(UsageError, match=r"--model bundled on --device cpu .*16384\.00 GiB.*--max-sessions"):
        run_workload(RunOptions("capitals"), Registry.installed())


def test_an_error_that_is_not_of_memory_stays_what_it_is(monkeypatch):
    monkeypatch.setattr(TorchBackend, "open", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        run_workload(RunOptions("capitals"), Registry.installed())
