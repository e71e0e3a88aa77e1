"""Latencies of the requests of a report, numpy only. Seconds.

Only requests that are *counted* have any: those that succeeded and made at least one token (`metrics`).
Of one request (all from the clock of its run)
    TTFT = first token - arrival. TPOT = (last token - first token) / (tokens - 1), None for one token, and
    for several that came in one piece. ITL = the gaps between one token and the next, each token at the end
    of the step that made it, so that tokens of one step lie 0 apart. E2E = finish - arrival. Wait = first
    admission - arrival.
Percentiles
    Over the samples of all runs together, linear between the two nearest (numpy's default).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from musebench.report.column import Runs
from musebench.report.schema import Report, RequestColumns, RunData


@dataclass(frozen=True)
class Weighted:
    """Seconds of which there are `counts` samples each, float64 and int64 [values]."""

    values: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __iter__(self) -> Iterator[float]:
        return iter(np.repeat(self.values, self.counts).tolist())


Samples = list[float] | np.ndarray | Weighted
"""Seconds, one a sample; an array where there may be millions, weighted where there may be more."""


@dataclass(frozen=True)
class Summary:
    """Of some samples: how many, mean and percentiles; all None when there are none."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


def summary(samples: Iterable[float]) -> Summary:
    if isinstance(samples, Weighted):
        return _weighted_summary(samples)
    values = samples if isinstance(samples, np.ndarray) else np.asarray(list(samples), np.float64)
    if not len(values):
        return Summary(0)
    p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
    return Summary(len(values), float(values.mean()), p50, p90, p99)


def _weighted_summary(samples: Weighted) -> Summary:
    """What `summary` says of all samples written out."""
    number = len(samples)
    if not number:
        return Summary(0)
    order = np.argsort(samples.values)
    values, upto = samples.values[order], np.cumsum(samples.counts[order])
    mean = float(np.dot(samples.values, samples.counts)) / number

    def percentile(share: float) -> float:
        place = share * (number - 1)
        low, high = np.searchsorted(upto, (math.floor(place), math.ceil(place)), side="right")
        return float(values[low] + (values[high] - values[low]) * (place - math.floor(place)))

    return Summary(number, mean, percentile(0.5), percentile(0.9), percentile(0.99))


def ttft(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.first_token_seconds, requests.arrival_seconds)


def e2e(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.finish_seconds, requests.arrival_seconds)


def wait(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.scheduled_seconds, requests.arrival_seconds)


def tpot(run: RunData) -> list[float]:
    requests = run.requests
    made = _counted(requests, requests.generated_tokens)
    first = _counted(requests, requests.first_token_seconds)
    last = _counted(requests, requests.last_token_seconds)
    several = made > 1
    if requests.chunks is not None:  # what came in one piece says nothing of its tokens
        several &= _counted(requests, requests.chunks) > 1
    return _known((last[several] - first[several]) / (made[several] - 1))


def itl(run: RunData) -> Samples:
    """All gaps of all counted requests; empty where neither steps nor times of the tokens were kept."""
    requests = run.requests
    if not requests.token_steps and not requests.token_seconds:
        return []
    ends = np.asarray(run.steps.end, np.float64)
    made = np.asarray(requests.generated_tokens, np.int64)
    counts = np.zeros(len(made), bool)
    counts[requests.counted] = True
    if isinstance(requests.token_steps, Runs):
        return _gaps_of_runs(ends, requests.token_steps, np.cumsum(made), counts)
    if requests.token_steps:
        times = ends[np.asarray(requests.token_steps, np.int64)]
    else:
        times = np.array(requests.token_seconds, np.float64)  # None becomes NaN
    owners = np.repeat(np.arange(len(made)), made)
    within = (owners[1:] == owners[:-1]) & counts[owners[1:]]
    gaps = np.diff(times)[within]
    gaps = gaps[~np.isnan(gaps)]
    return gaps if len(gaps) else []


def _gaps_of_runs(ends: np.ndarray, steps: Runs, cuts: np.ndarray, counts: np.ndarray) -> Samples:
    """Gaps between neighbouring steps, each as often as a run of some request's tokens goes over it, and
    those from one run of a request to its next. `cuts` are where the requests' tokens end."""
    owners = np.searchsorted(cuts, steps.starts, side="right")
    mine = counts[owners]
    firsts, lasts, owners = steps.firsts[mine], (steps.firsts + steps.counts - 1)[mine], owners[mine]
    over = np.bincount(firsts, minlength=len(ends)) - np.bincount(lasts, minlength=len(ends))
    again = np.flatnonzero(owners[1:] == owners[:-1])
    between = ends[firsts[again + 1]] - ends[lasts[again]]
    gaps = Weighted(
        np.concatenate([np.diff(ends), between]),
        np.concatenate([np.cumsum(over)[: len(ends) - 1], np.ones(len(between), np.int64)]),
    )
    return gaps if len(gaps) else []


LATENCIES: dict[str, Callable[[RunData], Samples]] = {
    "TTFT": ttft,
    "TPOT": tpot,
    "ITL": itl,
    "E2E": e2e,
    "wait": wait,
}
"""By the name a table shows: the samples of one run, in seconds."""


def summaries(report: Report) -> dict[str, Summary]:
    """A summary of each of `LATENCIES` over all runs."""
    if not report.runs:
        return {name: Summary(0) for name in LATENCIES}
    return {
        name: summary(_together([samples(run) for run in report.runs])) for name, samples in LATENCIES.items()
    }


def _together(parts: list[Samples]) -> Samples:
    if not any(isinstance(part, Weighted) for part in parts):
        return np.concatenate([np.asarray(part, np.float64) for part in parts])
    weighted = [
        part if isinstance(part, Weighted) else Weighted(np.asarray(part), np.ones(len(part), np.int64))
        for part in parts
    ]
    return Weighted(
        np.concatenate([part.values for part in weighted]), np.concatenate([part.counts for part in weighted])
    )


def _differences(
    requests: RequestColumns, ends: Sequence[float | None], starts: Sequence[float | None]
) -> list[float]:
    return _known(_counted(requests, ends) - _counted(requests, starts))


def _counted(requests: RequestColumns, column: Sequence[float | None]) -> np.ndarray:
    """Of the counted requests, float64; NaN where it is missing."""
    made: np.ndarray = np.array(column, np.float64)[requests.counted]  # None becomes NaN
    return made


def _known(values: np.ndarray) -> list[float]:
    made: list[float] = values[~np.isnan(values)].tolist()
    return made
