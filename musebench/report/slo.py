"""Objectives of latency: which requests meet all of them, and how many a second do (goodput).

A request meets an objective when its own latency is at most the limit. One that did not succeed misses all of
them: whoever waited for it got nothing. A request without the latency (TPOT of one token) cannot miss it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.report import metrics
from musebench.report.schema import Report, RequestColumns, RunData

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_TERM = re.compile(r"\s*([a-z0-9]+)\s*=\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Attainment:
    """Of all runs: `met` of `requests` meet every objective; `missed` counts by objective those that miss it,
    a request in several too. Rates are over the runs' spans, None where they are 0 or unknown."""

    requests: int
    met: int
    missed: dict[str, int]
    goodput: float | None
    goodput_tokens: float | None

    @property
    def share(self) -> float | None:
        """None without a request."""
        return self.met / self.requests if self.requests else None


def parse(terms: Iterable[str]) -> dict[str, float]:
    """Seconds by objective from terms such as "ttft=500ms".

    Raises:
        UsageError: a term that is none, an unknown latency or unit, a limit of 0, or one that is given twice.
    """
    made: dict[str, float] = {}
    for term in terms:
        found = _TERM.fullmatch(term)
        if found is None:
            raise UsageError(
                f"--slo {term!r} is no objective; NAME=LIMIT is wanted, a time above 0 such as ttft=500ms"
            )
        name, number, unit = found[1].lower(), found[2], found[3].lower()
        if name not in LATENCIES:
            raise UsageError(f"--slo {term!r}: there is no latency {name!r}; {nearest(name, LATENCIES)}")
        if unit not in UNITS:
            raise UsageError(f"--slo {term!r} has no unit of time; write {name}={number}ms or {number}s")
        seconds = float(number) * UNITS[unit]
        if not 0.0 < seconds < math.inf:
            raise UsageError(f"--slo {term!r}: a limit above 0 is wanted")
        if name in made:
            raise UsageError(f"--slo gives {name} twice")
        made[name] = seconds
    return made


def attainment(report: Report) -> Attainment:
    """Over all runs, by the report's own objectives."""
    requests = met = tokens = 0
    missed = dict.fromkeys(report.slo, 0)
    spans: list[float | None] = []
    for run in report.runs:
        columns = run.requests
        requests += len(columns)
        good = np.ones(len(columns), bool)
        for name, limit in report.slo.items():
            misses = _misses(columns, name, limit)
            missed[name] += int(misses.sum())
            good &= ~misses
        met += int(good.sum())
        tokens += int(np.asarray(columns.generated_tokens, np.int64)[good].sum())
        spans.append(metrics.span(columns))
    known = [span for span in spans if span is not None]
    seconds = sum(known) if known and len(known) == len(spans) else 0.0
    rates = (met / seconds, tokens / seconds) if seconds > 0 else (None, None)
    return Attainment(requests, met, missed, *rates)


def run_attainment(run: RunData, slo: Mapping[str, float]) -> float:
    """The share of one run's requests that meet every objective; 1 without a request."""
    missed = np.zeros(len(run.requests), bool)
    for name, limit in slo.items():
        missed |= _misses(run.requests, name, limit)
    return 1.0 - float(missed.mean()) if len(missed) else 1.0


def _misses(requests: RequestColumns, name: str, limit: float) -> np.ndarray:
    succeeded = np.fromiter(
        (reason is not None and reason.succeeded for reason in requests.finish_reason), bool, len(requests)
    )
    with np.errstate(invalid="ignore"):
        return ~succeeded | (LATENCIES[name](requests) > limit)  # NaN is above nothing


def _column(values: Iterable[float | None]) -> np.ndarray:
    return np.array(values, np.float64)  # None becomes NaN


def _ttft(requests: RequestColumns) -> np.ndarray:
    return _column(requests.first_token_seconds) - _column(requests.arrival_seconds)


def _tpot(requests: RequestColumns) -> np.ndarray:
    gaps = np.asarray(requests.generated_tokens, np.float64) - 1
    gaps[gaps < 1] = np.nan
    return (_column(requests.last_token_seconds) - _column(requests.first_token_seconds)) / gaps


def _e2e(requests: RequestColumns) -> np.ndarray:
    return _column(requests.finish_seconds) - _column(requests.arrival_seconds)


LATENCIES = {"ttft": _ttft, "tpot": _tpot, "e2e": _e2e}
"""By the name of an objective: seconds of each request, float64, NaN where it has none."""
