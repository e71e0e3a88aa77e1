"""Several simulated replicas behind a router, on one virtual time."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from affine_costs import use

from musebench.core.errors import UsageError
from musebench.core.request import Prefix, Request
from musebench.plugin import builtin
from musebench.plugin.registry import Registry
from musebench.report.codec import encode
from musebench.report.files import read, write
from musebench.report.replicas import parts
from musebench.report.schema import Report
from musebench.report.verdict import judge, verdicts_of
from musebench.routers.least_tokens import LeastTokensRouter
from musebench.routers.prefix_affinity import PrefixAffinityRouter
from musebench.run import RunOptions, run
from musebench.run.assembly import assemble
from musebench.run.fleet import FleetRepeat
from musebench.run.repeat import Repeat

REGISTRY = Registry(strict=True)
REGISTRY.add(builtin, "musebench", "0")


def workload(tmp_path: Path, rows: list[tuple[float, int, int]]) -> str:
    path = tmp_path / f"trace-{len(rows)}.csv"
    lines = [f"{arrival},{prompt},{output}\n" for arrival, prompt, output in rows]
    path.write_text("arrival,prompt_tokens,output_tokens\n" + "".join(lines))
    return str(path)


def drawn(count: int) -> list[tuple[float, int, int]]:
    source = np.random.default_rng(7)
    arrivals = np.cumsum(source.exponential(0.05, count))
    return [
        (float(at), int(source.integers(5, 400)), int(source.integers(1, 60))) for at in arrivals.tolist()
    ]


def options(trace: str, **more) -> RunOptions:
    given = {
        "device": "sim:affine", "model": "llama-3.2-1b", "executor": "graph", "max_sessions": 8,
        "workload": trace,
    }  # fmt: skip
    return RunOptions(**{**given, **more})


def closed(trace: str, concurrency: int, **more) -> RunOptions:
    settings = {"workload": {"arrivals": {"closed": concurrency}}}
    return options(trace, settings=settings, **more)


@pytest.fixture(autouse=True)
def _affine(monkeypatch):
    use(monkeypatch)


def measured(report: Report) -> list[dict]:
    return [encode(one) for one in report.runs]


@pytest.mark.parametrize("make", [options, lambda trace, **more: closed(trace, 5, **more)])
def test_one_replica_in_a_fleet_does_what_an_engine_alone_does(tmp_path, make):
    chosen = make(workload(tmp_path, drawn(60)))
    made = []
    for kind in (Repeat, FleetRepeat):
        repeat = kind(chosen, REGISTRY, assemble(chosen, REGISTRY))
        assert repeat.serve(nullcontext()) is None
        made.append(parts(repeat.data())[0])
    alone, fleet = made
    assert encode(replace(fleet.requests, replica=None)) == encode(alone.requests)
    assert encode(replace(fleet.steps, replica=None)) == encode(alone.steps)
    assert encode(fleet.pool) == encode(alone.pool)
    assert (fleet.counters, fleet.left_in_use) == (alone.counters, alone.left_in_use)


def test_round_robin_over_n_times_the_load_is_n_copies(tmp_path):
    rows = drawn(40)
    alone = run(options(workload(tmp_path, rows)), REGISTRY)
    thrice = workload(tmp_path, [row for row in rows for _ in range(3)])
    tripled = run(options(thrice, replicas=3), REGISTRY)
    for copy in parts(tripled.runs[0]):
        assert encode(copy.requests.finish_seconds) == encode(alone.runs[0].requests.finish_seconds)
        assert encode(replace(copy.steps, replica=None)) == encode(alone.runs[0].steps)
        assert encode(copy.pool) == encode(alone.runs[0].pool)
    assert tripled.runs[0].requests.replica == [place for _ in rows for place in range(3)]


@pytest.mark.parametrize("router", ["round-robin", "least-tokens", "prefix-affinity"])
@pytest.mark.parametrize("make", [options, lambda trace, **more: closed(trace, 9, **more)])
def test_stepped_and_in_bulk_are_the_same_and_every_check_holds(tmp_path, router, make):
    trace = workload(tmp_path, drawn(80))
    bulk = run(make(trace, replicas=3, router=router), REGISTRY)
    stepped = run(make(trace, replicas=3, router=router, stepwise=True), REGISTRY)
    assert measured(bulk) == measured(stepped)
    checks = [component.make({}) for component in REGISTRY.components("check")]
    assert judge([bulk], checks)[0].valid
    said = verdicts_of([bulk], checks)
    assert {f"prompt tokens, replica {place}" for place in range(3)} <= {one.what for one in said}
    whole, each = bulk.runs[0], parts(bulk.runs[0])
    assert sorted(name for one in each for name in one.requests.id) == sorted(whole.requests.id)
    assert sum(len(one.steps) for one in each) == len(whole.steps)
    assert whole.pool.most_in_use == sum(one.pool.most_in_use for one in each)
    write(bulk, tmp_path / "report.json")
    assert encode(read(tmp_path / "report.json")) == encode(bulk)


def test_more_replicas_wait_less(tmp_path):
    trace = workload(tmp_path, [(0.0, 200, 30)] * 64)
    waits = []
    for replicas in (1, 4):
        requests = run(options(trace, replicas=replicas), REGISTRY).runs[0].requests
        waits.append(np.mean(np.asarray(requests.first_token_seconds)))
    assert waits[1] < waits[0] / 2


def test_a_doctored_replica_is_found(tmp_path):
    report = run(options(workload(tmp_path, drawn(30)), replicas=2), REGISTRY)
    (made,) = report.runs
    swapped = [1 - place for place in made.requests.replica]
    wrong = replace(report, runs=[replace(made, requests=replace(made.requests, replica=swapped))])
    assert not judge([wrong], [component.make({}) for component in REGISTRY.components("check")])[0].valid


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"device": "cpu", "replicas": 2}, "--replicas 2: replicas are simulated; use --device sim:"),
        ({"replicas": 0}, "--replicas is 0; at least 1 is wanted"),
        ({"replicas": 2, "router": "leest-tokens"}, "least-tokens"),
        ({"replicas": 10**8}, "--replicas is 100,000,000; at most 1,024"),
        ({"router": "round-robin"}, "--router round-robin routes between several replicas"),
        ({"settings": {"router": {"most_ahead": "1"}}}, "--set router.…: one replica has no router"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, more, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as refused:
        run(options(workload(tmp_path, drawn(3)), **more), REGISTRY)
    assert "\n" not in str(refused.value)


class Held:
    """A replica of given numbers."""

    waiting = running = 0

    def __init__(self, queued: int, running: int) -> None:
        self.queued_tokens, self.running_tokens = queued, running


def test_least_tokens_counts_queued_and_running():
    router = LeastTokensRouter(LeastTokensRouter.Options())
    request = Request("r", [1], 1)
    assert router.route(request, [Held(5, 5), Held(9, 0), Held(0, 9)]) == 1
    assert router.route(request, [Held(1, 1), Held(0, 2), Held(2, 0)]) == 0


def asked(name: str, *blocks: int) -> Request:
    return Request(name, range(8), 1, prefix=Prefix(blocks, 4))


def test_prefix_affinity_follows_the_longest_known_prefix():
    router = PrefixAffinityRouter(PrefixAffinityRouter.Options())
    idle = [Held(0, 0), Held(0, 0)]
    assert router.route(asked("a", 1, 2), idle) == 0
    assert router.route(asked("b", 7, 8), [Held(3, 3), Held(0, 0)]) == 1
    assert router.route(asked("c", 1, 3), [Held(9, 9), Held(0, 0)]) == 0
    assert router.route(asked("d", 7, 9), [Held(0, 0), Held(9, 9)]) == 1
    assert router.route(Request("e", [4, 5, 6], 1), [Held(9, 9), Held(0, 0)]) == 1
    assert router.route(Request("f", [4, 5, 6], 1), [Held(0, 0), Held(9, 9)]) == 1
    assert router.route(Request("g", range(3), 1), [Held(0, 0), Held(9, 9)]) == 0


def test_prefix_affinity_leaves_a_replica_that_is_far_ahead():
    router = PrefixAffinityRouter(PrefixAffinityRouter.Options(most_ahead=10))
    assert router.route(asked("a", 1), [Held(0, 0), Held(0, 0)]) == 0
    assert router.route(asked("b", 1), [Held(9, 0), Held(0, 0)]) == 0
    assert router.route(asked("c", 1), [Held(9, 1), Held(0, 0)]) == 1
