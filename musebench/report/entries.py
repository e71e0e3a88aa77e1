"""Reports that are shown together: each with its label and its judgement, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from musebench.report.codec import encode
from musebench.report.schema import Report
from musebench.report.verdict import Check, Judgement, judge

COMMIT_LETTERS = 10
SHOWN_VERSIONS = ("musebench", "torch", "transformers", "triton")


@dataclass(frozen=True)
class Entry:
    """One report under the `label` that names it in a legend or a table."""

    label: str
    report: Report
    judgement: Judgement

    @property
    def name(self) -> str:
        """The label, with its verdict where that is INVALID: no picture hides it."""
        return self.label if self.judgement.valid else f"{self.label} (INVALID)"


def entries(reports: Sequence[Report], labels: Sequence[str], checks: Iterable[Check] = ()) -> list[Entry]:
    """One entry a report, judged together as a comparison judges them."""
    judged = judge(reports, checks)
    return [Entry(*row) for row in zip(labels, reports, judged, strict=True)]


def facts(report: Report) -> dict[str, str]:
    """What the numbers depend on, by name, each as a few words: for a title, not for a judgement."""
    conditions, choices = report.conditions, report.choices
    versions = {
        name: f"{name} {conditions.versions[name]}"
        for name in SHOWN_VERSIONS
        if conditions.versions.get(name) is not None
    }
    commit = "commit unknown"
    if conditions.commit is not None:
        changed = " with changes" if conditions.dirty else ""
        commit = f"commit {conditions.commit[:COMMIT_LETTERS]}{changed}"
    virtual = " in virtual time" if conditions.clock == "virtual" else ""
    return {
        "device": conditions.device + virtual,
        "model": f"{conditions.model.name} in {conditions.model.dtype}",
        "workload": f"workload {conditions.workload.name}",
        **{kind: f"{kind} {name}" for kind, name in choices.named().items()},
        **versions,
        "commit": commit,
    }


def common_facts(reports: Sequence[Report]) -> list[str]:
    """The facts that hold for all of the reports."""
    every = [facts(report) for report in reports]
    return [text for name, text in every[0].items() if all(one.get(name) == text for one in every[1:])]


def own_facts(report: Report, reports: Sequence[Report]) -> list[str]:
    """The facts of one of the reports that do not hold for all of them."""
    common = common_facts(reports)
    return [text for text in facts(report).values() if text not in common]


def same_choices(report: Report) -> str:
    """A key that is equal for reports of one device, model and choice of components with their options, and
    of one workload by name: what differs in it may be the rate of arrivals."""
    conditions = report.conditions
    choices = encode(report.choices)
    model, workload = conditions.model, conditions.workload
    return repr((conditions.device, model.name, model.dtype, workload.name, choices))
