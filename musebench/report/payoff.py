"""After how many tokens one-off work pays off against another report's."""

from __future__ import annotations

from musebench.report import metrics
from musebench.report.schema import Report

NOT_PER_RUN = ("import", "load", "ready", "warmup")
"""Costs of every executor alike, sums of other costs, and runs made on purpose."""


def one_off_seconds(report: Report) -> float:
    """Seconds spent once on launching steps: kernels and programs compiled or exported, graphs captured."""
    named = sum(value for name, value in report.costs.seconds.items() if name not in NOT_PER_RUN)
    captures = report.costs.counters.get("capture seconds", 0.0)
    return named + float(captures)


def payoff_tokens(report: Report, against: Report) -> float | None:
    """Output tokens after which `report` has made up for its one-off work, at both reports' throughputs.

    n = (its one-off seconds - the other's) / (the other's seconds a token - its seconds a token); 0 when it
    costs no more. None where it never does, being no faster, and where a throughput is not known.
    """
    rates = [metrics.throughput(one).output_tokens_per_second for one in (report, against)]
    if rates[0] is None or rates[1] is None or not all(rates):
        return None
    gained = 1.0 / rates[1] - 1.0 / rates[0]
    if gained <= 0.0:
        return None
    return max(one_off_seconds(report) - one_off_seconds(against), 0.0) / gained
