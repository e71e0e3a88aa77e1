"""All checks over honest reports, over old ones and over those that were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from doctored import (
    verdicts,
    with_requests,
    with_run,
)

from musebench.report.files import read
from musebench.report.verdict import judge, verdicts_of

H200 = Path(__file__).resolve().parents[2] / "results" / "baselines" / "h200"


def test_every_check_passes_honest_reports_and_shows_its_sums(registry, honest, alone):
    for component in registry.components("check"):
        made = verdicts(registry, component.name, honest, alone)
        assert made, component.name
        assert all(one.check == component.name and one.valid for one in made)
        assert any(one.judged for one in made), component.name
        for one in made:
            assert (one.measured and one.bound and one.sums) if one.judged else one.reason, one


def test_an_old_report_is_not_judged_where_it_holds_nothing(registry, honest):
    bare = with_run(honest, audit=None, wall_seconds=None)
    bare = replace(bare, runs=bare.runs[:1], reference=None, memory=replace(honest.memory, bound=None))
    for name in ("reference", "bound"):
        assert not any(one.judged for one in verdicts(registry, name, bare))
    assert all(one.valid for one in verdicts(registry, "honest", bare))


def test_a_judgement_says_a_reason_once(registry, honest):
    """Checks restate with their sums what every report is held to; a table's line of reasons does not."""
    wrong = with_requests(honest, correct=[False] * 5)
    checks = [component.make({}) for component in registry.components("check")]
    (judgement,) = judge([wrong], checks)
    assert judgement.reasons == ("5 of 10 answers are wrong",)


def test_the_reports_measured_on_an_h200_pass_every_check(registry):
    reports = [read(path) for path in sorted(H200.glob("*.json.gz"))]
    assert reports
    checks = [component.make({}) for component in registry.components("check")]
    made = verdicts_of(reports, checks)
    assert [one.reason for one in made if not one.valid] == []
    judged = {one.check for one in made if one.judged}
    assert {"answers", "tokens", "pool", "accounting", "honest"} <= judged


def test_the_star_measured_on_an_h200_passes_every_check_of_what_a_run_made(registry):
    """Not `weights` and `bound`: of SmolLM2, one process kept a copy on the device beside the first run's.

    What transformers' manager leaves in the allocator's cache, 290 MiB after the 8B shape, is its own.
    """
    reports = {path.name: read(path) for path in sorted((H200 / "matrix").glob("*.json.gz"))}
    assert reports
    components = [one for one in registry.components("check") if one.name not in ("weights", "bound")]
    checks = [component.make({}) for component in components]
    made = verdicts_of(list(reports.values()), checks)
    leaves = reports["mixed64-llama-3.1-8b-transformers-batch.json.gz"]
    left = [one.reason for one in verdicts_of([leaves], checks) if not one.valid]
    assert [reason.partition(":")[0] for reason in left] == ["nothing is left, says NVML"]
    assert [one.reason for one in made if not one.valid] == left
    assert {"answers", "tokens", "pool", "accounting", "honest"} <= {one.check for one in made if one.judged}
