"""A pytest plugin: the fixture `musebench` runs a workload under pytest-benchmark.

    def test_capitals(musebench):
        report = musebench("capitals", pool="fixed", repeat=5)
        assert report.runs[0].pool.growths.step == []

Its rounds are the run's repeats, and a round's time is the span of that repeat on the run's own clock, real
or virtual: loading, warm-up and capture are outside of it. Without `repeat` there are --benchmark-min-rounds,
and without `warmup` one where --benchmark-warmup is on; with --benchmark-disable it is one repeat, not timed.
Throughput, latencies, memory and counts are in `extra_info`. A report that is INVALID fails the test.

Nothing of musebench is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from musebench.report.schema import Report

FIXTURE = "musebench"


class RoundClock:
    """The timer that pytest-benchmark reads before and after a round: each round is one known span."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._spans: Iterator[float] = iter(())

    def load(self, spans: list[float]) -> None:
        self._spans = iter(spans)

    def now(self) -> float:
        """Seconds of all rounds so far."""
        return self._seconds

    def next_round(self) -> None:
        self._seconds += next(self._spans)


_CLOCK = pytest.StashKey[RoundClock]()


class Musebench:
    """What the fixture is: call it once in a test."""

    def __init__(self, benchmark: Any, clock: RoundClock, rounds: int, warm: bool) -> None:
        self._benchmark, self._clock = benchmark, clock
        self._rounds, self._warm = rounds, warm

    def __call__(
        self,
        workload: str = "capitals",
        *,
        repeat: int | None = None,
        warmup: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **choices: Any,
    ) -> Report:
        """Run `workload` and return its report; the repeats become the rounds of `benchmark`.

        `choices` are those of `musebench.run.RunOptions` (executor, pool, scheduler, model, device, ...),
        `settings` are option values by KIND.NAME, as `--set` takes them.

        Raises:
            MusebenchError: a choice that cannot be used.
        """
        from musebench.plugin.registry import Registry, parse_settings
        from musebench.report.benchmark_json import extra_info, spans
        from musebench.report.verdict import judge
        from musebench.run import RunOptions, run

        enabled = self._benchmark.enabled
        options = RunOptions(
            workload=workload,
            repeat=(self._rounds if repeat is None else repeat) if enabled else 1,
            warmup=(int(self._warm) if warmup is None else warmup) if enabled else 0,
            settings=parse_settings(f"{name}={value}" for name, value in (settings or {}).items()),
            **choices,
        )
        registry = Registry.installed()
        report = run(options, registry)
        checks = list(registry.made("check").values())
        (judgement,) = judge([report], checks)
        if not judgement.valid:
            pytest.fail(judgement.line(), pytrace=False)
        rounds = spans(report)
        self._clock.load(rounds)
        self._benchmark.extra_info.update(extra_info([report]))
        self._benchmark.pedantic(self._clock.next_round, rounds=len(rounds), iterations=1)
        return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give pytest-benchmark the clock of the rounds, before it makes its own fixture."""
    if FIXTURE not in getattr(item, "fixturenames", ()):
        return
    clock = item.stash[_CLOCK] = RoundClock()
    marker = item.get_closest_marker("benchmark")
    given = dict(marker.kwargs) if marker else {}
    item.add_marker(pytest.mark.benchmark(**{**given, "timer": clock.now}), append=False)


@pytest.fixture
def musebench(request: pytest.FixtureRequest, benchmark: Any) -> Musebench:
    """Runs a workload under pytest-benchmark: `musebench("capitals", pool="fixed")` -> its report."""
    marker = request.node.get_closest_marker("benchmark")
    given = marker.kwargs if marker else {}
    rounds = given.get("min_rounds", request.config.getoption("benchmark_min_rounds"))
    warm = given.get("warmup", request.config.getoption("benchmark_warmup"))
    return Musebench(benchmark, request.node.stash[_CLOCK], int(rounds), bool(warm))
