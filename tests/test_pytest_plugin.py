"""The pytest fixture, and reports as pytest-benchmark's files: what that tool makes of them, and back."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from report_examples import mixed_run, pool, report, request, requests, steps

from musebench.cli import root
from musebench.core.errors import InputError
from musebench.report import files
from musebench.report.benchmark_json import REPORTS, from_benchmarks, to_benchmarks
from musebench.report.groups import Group
from musebench.report.schema import RunData

pytest_plugins = ["pytester"]
pytest.importorskip("pytest_benchmark")

PLUGIN = ("-p", "musebench.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist")


def taking(*seconds):
    """A report of one repeat for each of `seconds`, in which one request took that long."""
    runs = [
        RunData(
            requests(
                request("x", first_token_seconds=each, last_token_seconds=each, finish_seconds=each),
                token_steps=[0],
            ),
            steps([each]),
            pool(),
        )
        for each in seconds
    ]
    return report(*runs)


# -- the fixture --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Everything that a run imports is there: pytest's inner sessions forget what they import themselves, and
    torch cannot be imported twice."""
    out = tmp_path_factory.mktemp("loaded") / "a.json"
    for policy in ("geometric", "fixed"):
        result = CliRunner().invoke(root, ["run", "single", "--pool", policy, "--out", str(out)])
        assert result.exit_code == 0, result.output


@pytest.fixture(autouse=True)
def not_among_workers(monkeypatch):
    """pytest-benchmark measures nothing in a worker of pytest-xdist, which an inner session is not."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def ran(loaded, pytester):
    """Run a test file with the plugin; returns the outcome and the benchmarks by name."""

    def run(source, *arguments):
        pytester.makepyfile(source)
        result = pytester.runpytest_inprocess(*PLUGIN, "--benchmark-json=out.json", *arguments)
        text = (pytester.path / "out.json").read_text() if (pytester.path / "out.json").exists() else ""
        found = json.loads(text)["benchmarks"] if text else []
        return result, {one["name"]: one for one in found}

    return run


def test_repeats_are_rounds_and_a_round_takes_the_span_of_its_repeat(ran):
    result, benchmarks = ran(
        """
        def test_it(musebench):
            report = musebench("single", pool="fixed", repeat=3, warmup=1)
            assert len(report.runs) == 3
            assert report.costs.seconds["warmup"] > 0
            assert report.choices.pool.name == "fixed"
        """
    )
    result.assert_outcomes(passed=1)
    made = benchmarks["test_it"]
    (report,) = from_benchmarks(json.dumps({"benchmarks": [made]}).encode(), "out.json")
    assert made["stats"]["rounds"] == 3
    assert made["stats"]["data"] == pytest.approx(
        [max(run.requests.finish_seconds) - min(run.requests.arrival_seconds) for run in report.runs]
    )
    info = made["extra_info"]
    assert info["output_tokens_per_second"] > 0
    assert info["pool_bytes"] == report.runs[0].pool.bytes
    assert (info["steps"], info["pool"]) == (sum(len(run.steps) for run in report.runs), "fixed")


def test_rounds_and_warm_up_follow_pytest_benchmarks_own_options_and_marker(ran):
    result, benchmarks = ran(
        """
        import pytest

        def test_option(musebench):
            report = musebench("single", settings={"pool.start": 32})
            assert "warmup" in report.costs.seconds
            assert report.choices.pool.options["start"] == 32

        @pytest.mark.benchmark(min_rounds=4, warmup=False, group="mine")
        def test_marker(benchmark, musebench):
            assert "warmup" not in musebench("single").costs.seconds
        """,
        "--benchmark-min-rounds=2",
        "--benchmark-warmup=on",
    )
    result.assert_outcomes(passed=2)
    assert benchmarks["test_option"]["stats"]["rounds"] == 2
    assert benchmarks["test_marker"]["stats"]["rounds"] == 4
    assert benchmarks["test_marker"]["group"] == "mine"


def test_disabled_it_runs_once_and_skipped_not_at_all(ran):
    source = """
        def test_it(musebench):
            assert len(musebench("single", repeat=5).runs) == 1
        """
    ran(source, "--benchmark-disable")[0].assert_outcomes(passed=1)
    ran(source, "--benchmark-skip")[0].assert_outcomes(skipped=1)


def test_an_invalid_report_fails_the_test_and_is_no_benchmark(ran, pytester):
    pytester.path.joinpath("wrong.yaml").write_text(
        "max_new_tokens: 4\nprompts:\n  - {chat: 'What is the capital of France?', expect: Zanzibar}\n"
    )
    result, benchmarks = ran(
        """
        def test_it(musebench):
            musebench("wrong.yaml", repeat=2)
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INVALID: 2 of 2 answers are wrong*"])
    assert not benchmarks


def test_a_slower_run_fails_under_benchmark_compare_fail_and_an_equal_one_does_not(ran, pytester):
    source = """
        def test_it(musebench):
            musebench("single", repeat=2)
        """
    result, _ = ran(source)
    result.assert_outcomes(passed=1)
    saved = json.loads((pytester.path / "out.json").read_text())
    for factor, code in ((0.001, 1), (1000, 0)):
        stats = saved["benchmarks"][0]["stats"]
        changed = {**stats, "min": stats["min"] * factor, "mean": stats["mean"] * factor}
        content = {**saved, "benchmarks": [{**saved["benchmarks"][0], "stats": changed}]}
        path = pytester.path / f"stored{factor}.json"
        path.write_text(json.dumps(content))
        again = pytester.runpytest_inprocess(
            *PLUGIN, f"--benchmark-compare={path}", "--benchmark-compare-fail=min:10%"
        )
        assert (again.ret != 0) == bool(code), again.stdout.str()


# -- files --------------------------------------------------------------------------------------------------


def test_reports_come_back_the_same():
    reports = [taking(0.1, 0.3), taking(0.2)]
    made = to_benchmarks([Group("a", (reports[0],)), Group("b", (reports[1],))])
    assert from_benchmarks(json.dumps(made).encode(), "x.json") == reports


def test_repeats_of_one_group_are_the_rounds_of_one_benchmark():
    made = to_benchmarks([Group("a", (taking(0.1, 0.3), taking(0.2)))])
    (benchmark,) = made["benchmarks"]
    assert benchmark["stats"]["data"] == [0.1, 0.3, 0.2]
    assert benchmark["stats"]["median"] == 0.2
    assert benchmark["extra_info"]["pool_bytes"] == 16384


def test_pytest_benchmark_compares_two_converted_files(tmp_path, monkeypatch):
    from pytest_benchmark.cli import main

    paths = []
    for name, seconds in (("old", 0.1), ("new", 0.2)):
        path = files.write(taking(seconds, seconds), tmp_path / f"{name}.json")
        out = tmp_path / "bench" / f"{name}.json"
        result = CliRunner().invoke(root, ["convert", str(path), "--out", str(out)])
        assert result.exit_code == 0, result.output
        paths.append(str(out))
    csv = tmp_path / "compared"
    arguments = ["--storage", str(tmp_path), "compare", *paths, "--csv", str(csv), "--sort", "name"]
    monkeypatch.setattr("sys.argv", ["pytest-benchmark", *arguments])
    main()
    text = csv.with_suffix(".csv").read_text()
    assert text.count("musebench::chat[tiny-float32-cuda-graph-geometric-continuous]") == 2
    assert "0.1" in text
    assert "0.2" in text


def test_the_command_converts_back_into_files_named_by_id(tmp_path):
    source = files.write(taking(0.1), tmp_path / "a.json")
    out = tmp_path / "bench.json"
    assert CliRunner().invoke(root, ["convert", str(source), "--out", str(out)]).exit_code == 0
    result = CliRunner().invoke(
        root, ["convert", str(out), "--to", "musebench", "--out", str(tmp_path / "back")]
    )
    assert result.exit_code == 0, result.output
    assert files.read(tmp_path / "back" / f"{report().id}.json") == taking(0.1)


def test_an_invalid_report_is_not_converted():
    wrong = report(mixed_run(), status="incomplete", message="stopped")
    with pytest.raises(InputError, match="INVALID: the run is incomplete"):
        to_benchmarks([Group("a", (wrong,))])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no JSON file of pytest-benchmark"),
        ("[]", "no JSON file of pytest-benchmark"),
        ('{"benchmarks": []}', "holds no benchmark"),
        (
            '{"benchmarks": [{"fullname": "t.py::x", "extra_info": {}}]}',
            "'t.py::x' holds no musebench report",
        ),
        (json.dumps({"benchmarks": [{"fullname": "x", "extra_info": {REPORTS: ["%%"]}}]}), "is broken"),
        (
            json.dumps({"benchmarks": [{"fullname": "x", "extra_info": {REPORTS: ["e30="]}}]}),
            "has no schema number",
        ),
    ],
)
def test_what_is_no_converted_report_is_refused_by_name(content, words):
    with pytest.raises(InputError, match=words) as caught:
        from_benchmarks(content.encode(), "given.json")
    assert str(caught.value).startswith("given.json")
