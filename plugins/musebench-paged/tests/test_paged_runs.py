"""`paged` in whole runs of the bundled model in float32 on the CPU, and in simulated ones: the tokens of any
other pool, fewer of them computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from musebench.backends import simulated
from musebench.plugin.registry import Registry
from musebench.report.verdict import judge
from musebench.run import RunOptions, run

REGISTRY = Registry.installed()
BUSY = {"requests": 18, "preamble": {"tokens": 37, "groups": 2}, "output_tokens": {"uniform": [4, 20]}}
"""37 tokens in common: two whole blocks of 16, and a part of one that is computed each time."""


def report_of(pool="paged", model="bundled", device="cpu", workload="shared-preamble", progress=None, **more):
    own = dict(more.pop("workload_values", BUSY))
    settings = {"pool": more.pop("pool_options", {}), "workload": own, "backend": more.pop("backend", {})}
    options = RunOptions(
        workload, model=model, device=device, pool=pool, settings=settings,
        **{"max_sessions": 4, "max_context": 256, "token_budget": 48, **more},
    )  # fmt: skip
    made = run(options, REGISTRY, progress)
    assert made.status == "complete", made.message
    assert judge([made], [c.make({}) for c in REGISTRY.components("check")])[0].line() == "VALID"
    return made


def tokens_of(report) -> dict[str, list[int]]:
    requests, at, made = report.runs[0].requests, 0, {}
    for name, count in zip(requests.id, requests.generated_tokens, strict=True):
        made[name] = list(requests.token_ids[at : at + count])
        at += count
    return made


def reused(report) -> int:
    return sum(report.runs[-1].requests.reused_tokens or ())


@pytest.fixture(scope="module")
def unshared():
    return report_of("geometric")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pool_options": {"block": 1}},
        {"pool_options": {"block": 7}, "scheduler": "continuous"},
        {"overlap": True},
        {"pool_options": {"capacity": 208, "block": 8}},  # evictions and preemptions
        {"backend": {"poison": True}},  # scratch, and rows that nobody wrote, hold NaN
    ],
    ids=["16", "1", "7", "overlap", "small", "poison"],
)
def test_tokens_are_those_of_a_pool_that_shares_nothing(unshared, changes):
    shared = report_of(**changes)
    assert tokens_of(shared) == tokens_of(unshared)
    assert reused(shared) > 0
    run_ = shared.runs[0]
    assert len(run_.pool.growths) > 1
    if not sum(run_.requests.preemptions):
        assert sum(run_.steps.prefill_tokens) + reused(shared) == sum(run_.requests.prompt_tokens)


def test_a_small_pool_evicts_and_preempts_and_the_preempted_find_their_own_blocks():
    made = report_of(pool_options={"capacity": 208, "block": 8})
    run_ = made.runs[0]
    assert run_.pool.counters["blocks evicted"] > 0
    assert sum(run_.requests.preemptions) > 0
    assert run_.pool.most_in_use <= 208
    again = [row for row, times in enumerate(run_.requests.preemptions) if times]
    assert any(run_.requests.reused_tokens[row] > 32 for row in again)


def test_who_shares_a_prefix_is_not_touched_when_another_ends_or_is_cancelled(unshared):
    def cancel(engine, repeat):
        if len(engine.recorder.steps) == 9:
            victims = [one for one in engine.running.all() if one.reused]
            assert victims
            engine.cancel(victims[0].request.id)

    made = report_of(progress=cancel)
    ends = dict(zip(made.runs[0].requests.id, made.runs[0].requests.finish_reason, strict=True))
    assert list(ends.values()).count("cancelled") == 1
    expected = tokens_of(unshared)
    for name, tokens in tokens_of(made).items():
        assert tokens == (expected[name][: len(tokens)] if ends[name] == "cancelled" else expected[name])


def test_a_repeat_does_not_find_the_prompts_of_the_run_before():
    once, twice = report_of(), report_of(repeat=2, warmup=1)
    assert reused(twice) == reused(once)
    assert twice.runs[0].pool.counters["blocks found"] == once.runs[0].pool.counters["blocks found"]


def test_a_simulated_run_reuses_what_a_real_one_does():
    real = report_of()
    simulated = report_of(device="sim:h200", model="llama-3.2-1b", overlap=False)
    assert simulated.runs[0].requests.reused_tokens == real.runs[0].requests.reused_tokens
    for name in ("blocks looked up", "blocks found", "blocks evicted"):
        assert simulated.runs[0].pool.counters[name] == real.runs[0].pool.counters[name]


@pytest.mark.parametrize("options", [{}, {"capacity": 208, "block": 8}, {"retain": 4096}])
def test_taking_many_steps_at_once_changes_nothing(options):
    made = [
        report_of(device="sim:h200", model="llama-3.2-1b", pool_options=options, stepwise=stepwise).runs[0]
        for stepwise in (False, True)
    ]
    assert made[0].pool == made[1].pool
    assert made[0].requests == made[1].requests
    assert list(made[0].steps.in_use) == list(made[1].steps.in_use)


def test_captured_graphs_stay_until_rows_move():
    made = report_of(
        device="sim:h200",
        model="llama-3.2-1b",
        executor="graph",
        pool_options={"start": 4096, "capacity": 4096},
    )  # fmt: skip
    counters = made.runs[0].counters
    assert reused(made) > 0
    assert counters["replays"] > 0
    assert counters.get("recaptures", 0) == 0


TRACE = (
    Path(__file__).resolve().parents[4] / "shared" / "data" / "traces" / "mooncake_conversation_trace.jsonl"
)


PROFILES = Path(simulated.__path__[0]) / "profiles"
HAS_TRACE = pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is not there")
ROOM = 200_000_000
"""Cells for all of the trace at once."""


def mooncake(folder: Path, scheduler: str, cells: int, requests: int | None = None) -> dict[str, float]:
    """The pool's counters over the trace, on a device that has memory for all of it."""
    profile = json.loads((PROFILES / "h200.json").read_text())
    large = folder / "large.json"
    large.write_text(json.dumps({**profile, "name": "large", "memory_bytes": 1 << 47}))
    made = run(
        RunOptions(
            str(TRACE), model="llama-3.1-8b", device=f"sim:{large}", pool="paged", scheduler=scheduler,
            token_budget=16384,
            settings={
                "pool": {"block": 512, "capacity": cells, "retain": cells},
                "workload": {"requests": requests} if requests else {},
            },
        ),
        REGISTRY,
    )  # fmt: skip
    assert made.status == "complete", made.message
    pool = made.runs[0].pool
    assert pool.most_in_use <= cells
    return pool.counters


@HAS_TRACE
def test_mooncakes_conversations_reach_their_known_reuse_in_an_unlimited_pool(tmp_path):
    """288,500 blocks, of which 105,710 were there before: 0.366. 118 of these are last ones that are not
    full, which are never shared. One request at a time, as the figure counts them."""
    counters = mooncake(tmp_path, "solo", ROOM)
    assert counters["blocks looked up"] == 288_500
    assert counters["blocks found"] == 105_710 - 118
    assert counters["block hit rate"] == pytest.approx(0.366, abs=5e-4)
    assert counters["blocks evicted"] == 0


@HAS_TRACE
def test_a_bounded_pool_finds_less_of_mooncakes_conversations(tmp_path):
    requests = 2000
    known, looked, there = set(), 0, 0
    for line in TRACE.read_text().splitlines()[:requests]:
        row = json.loads(line)
        full = row["hash_ids"][: row["input_length"] // 512]
        looked += len(row["hash_ids"])
        there += sum(name in known for name in full)
        known.update(full)
    unlimited = mooncake(tmp_path, "solo", ROOM, requests)
    assert (unlimited["blocks looked up"], unlimited["blocks found"]) == (looked, there)
    bounded = mooncake(tmp_path, "solo", 1_000_000, requests)
    assert bounded["blocks looked up"] == looked
    assert 0 < bounded["blocks found"] < 0.9 * there
    assert bounded["blocks evicted"] > 0
