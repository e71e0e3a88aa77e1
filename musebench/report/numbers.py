"""Every number that reports are compared by: its name, unit, which way is better, and how to read it off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.report import latencies, metrics, payoff
from musebench.report.schema import Report

NOT_ONE_OFF = ("ready", "warmup")
"""Among the costs: a sum of others, and runs made on purpose."""

MORE, LESS, NEITHER = 1, -1, 0


class Numbers:
    """All numbers of one report, each kind computed once."""

    def __init__(self, report: Report) -> None:
        self.report = report

    throughput = cached_property(lambda self: metrics.throughput(self.report))
    latencies = cached_property(lambda self: latencies.summaries(self.report))
    steps = cached_property(lambda self: metrics.step_totals(self.report))
    pool = cached_property(lambda self: metrics.pool_totals(self.report))
    outcome = cached_property(lambda self: metrics.outcome(self.report))

    @cached_property
    def tokens_per_joule(self) -> float | None:
        return metrics.tokens_per_joule(self.report)

    @cached_property
    def right(self) -> int | None:
        return self.outcome.right if self.outcome.expected else None

    @cached_property
    def wrong(self) -> int | None:
        return self.outcome.wrong if self.outcome.expected else None

    @cached_property
    def one_off_seconds(self) -> float | None:
        """Import, load and all that launching steps took once; no sums of these, and no warm-up runs."""
        named = [value for name, value in self.report.costs.seconds.items() if name not in NOT_ONE_OFF]
        return sum(named) if named else None

    @cached_property
    def preparation_seconds(self) -> float:
        return payoff.one_off_seconds(self.report)

    @cached_property
    def device_peak(self) -> int | None:
        snapshot = self.report.memory.snapshots.get("peak")
        return None if snapshot is None else snapshot.peak

    @cached_property
    def memory_bytes(self) -> int | None:
        """Weights, rows, workspace and graphs together; those that are not known count nothing."""
        computed = self.report.memory.computed
        parts = (computed.weights, computed.rows, computed.workspace, computed.graphs)
        known = [part for part in parts if part is not None]
        return sum(known) if computed.weights is not None and computed.rows is not None else None


@dataclass(frozen=True)
class Metric:
    """`key` names it in expressions, `name` in tables, `unit` is one of `musebench.report.table.Row`'s.

    `speed`: measured in time (or energy), so that it has noise and an INVALID report's is worth nothing; all
    others are exact. `better` is `MORE`, `LESS` or `NEITHER`. `of_report`: one value a report, whatever its
    repeats. `host`: the host's time even where steps run on a virtual clock. `shown`: in a comparison that
    names no columns.
    """

    key: str
    name: str
    unit: str
    speed: bool
    better: int
    value: Callable[[Numbers], Any]
    of_report: bool = False
    host: bool = False
    shown: bool = True


def _latency(name: str, field: str) -> Callable[[Numbers], Any]:
    return lambda numbers: getattr(numbers.latencies[name], field)


def _pool(field: str) -> Callable[[Numbers], Any]:
    return lambda numbers: getattr(numbers.pool, field, None)


def _latencies() -> list[Metric]:
    return [
        Metric(
            f"{name.lower()}_{at}", f"{name} {at}", "s", True, LESS, _latency(name, at),
            shown=at in ("p50", "p99"),
        )
        for name in latencies.LATENCIES
        for at in ("mean", "p50", "p90", "p99")
    ]  # fmt: skip


def _rate(key: str, name: str) -> Metric:
    return Metric(key, name, "/s", True, MORE, attrgetter(f"throughput.{key}"))


def _count(key: str, value: Callable[[Numbers], Any], better: int = LESS, name: str = "") -> Metric:
    return Metric(key, name or key.replace("_", " "), "count", False, better, value)


def _bytes(key: str, name: str, value: Callable[[Numbers], Any]) -> Metric:
    return Metric(key, name, "bytes", False, LESS, value)


METRICS: tuple[Metric, ...] = (
    _rate("output_tokens_per_second", "output tokens/s"),
    _rate("prompt_tokens_per_second", "prompt tokens/s"),
    _rate("requests_per_second", "requests/s"),
    *_latencies(),
    Metric("span_seconds", "span", "s", True, LESS, attrgetter("throughput.span_seconds"), shown=False),
    Metric("tokens_per_joule", "output tokens/J", "tokens/J", True, MORE, attrgetter("tokens_per_joule")),
    Metric("device_seconds", "device time", "s", True, LESS, attrgetter("steps.device_seconds")),
    Metric("host_seconds", "host time", "s", True, LESS, attrgetter("steps.host_seconds")),
    Metric("one_off_seconds", "one-off time", "s", True, LESS, attrgetter("one_off_seconds"), True, True),
    _count("requests", attrgetter("outcome.requests"), NEITHER),
    _count("succeeded", attrgetter("outcome.succeeded"), MORE),
    _count("answers_right", attrgetter("right"), MORE),
    _count("answers_wrong", attrgetter("wrong")),
    _count("generated_tokens", attrgetter("outcome.generated_tokens"), NEITHER),
    _count("steps", attrgetter("steps.steps")),
    _count("forwards", attrgetter("steps.forwards")),
    _count("padded_tokens", attrgetter("steps.padded_tokens")),
    _count("preemptions", attrgetter("outcome.preemptions")),
    _bytes("pool_bytes", "pool bytes", _pool("bytes")),
    _bytes("pool_peak_bytes", "pool passing peak", _pool("peak_bytes")),
    _count("most_cells_in_use", _pool("most_in_use")),
    _count("growths", _pool("growths")),
    _bytes("copied_bytes", "bytes copied", _pool("copied_bytes")),
    Metric("memory_bytes", "memory", "bytes", False, LESS, attrgetter("memory_bytes"), True),
    Metric("device_peak_bytes", "device peak", "bytes", False, LESS, attrgetter("device_peak"), True),
)
"""In the order of a table."""

BY_KEY = {metric.key: metric for metric in METRICS}


def metric(text: str) -> Metric:
    """The metric of that key, or of that name in tables.

    Raises:
        UsageError: there is none; names the nearest.
    """
    wanted = text.strip()
    for one in METRICS:
        if wanted == one.name:
            return one
    key = wanted.replace("-", "_").replace(" ", "_").lower()
    if key not in BY_KEY:
        raise UsageError(f"there is no metric {wanted!r}; {nearest(key, BY_KEY)}")
    return BY_KEY[key]
