"""The tables of own runs against their simulations, and of the run of LLMServingSim's trace."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import llmservingsim
from own_runs import Pair, Timings, launch, pairs, spread, timings

from musebench.plugin.registry import Registry
from musebench.run import RunOptions, run

HELD_OUT = "mixed"
"""The workload that nothing was fitted to."""

OLDER = ("mixed-1b-graph-fixed", "mixed-1b-graph-geometric")
"""Runs of code with more products and other kernels a layer, see results/baselines/h200: counts alone."""

TARGETS = {"output_tok_s": 0.05, "tpot_p50": 0.05, "ttft_p50": 0.10}

REASONS = {
    "mixed-llama-3.2-1b-compiled": (
        "prefills are the host's: this run's took 1.4 times as long to launch as those of the same "
        "shape in steady, and its decodes' host work 1.6 times as long"
    ),
    "mixed-llama-3.2-1b-eager": (
        "all steps are the host's, which took 11 to 25 ms for equal decodes within this run; the "
        "profile says 15.0. First tokens came later: some prefills still compiled, below the limit"
    ),
    "steady-llama-3.1-8b-1-compiled": ("first token: its graph was captured in 55 ms, 94 are predicted"),
    "steady-llama-3.1-8b-64-compiled": (
        "one of its four prefills that are kept took 34 ms, the others 191 to 200; decodes are within 2 %"
    ),
    "steady-llama-3.2-1b-64-compiled": (
        "two captures, 35 and 34 ms where 48 are predicted; steps are within 4 %"
    ),
    "steady-smollm2-135m-256-compiled": (
        "prefills are the host's: this run's launches took 1.4 times the profile's; decodes are within 3 %"
    ),
    "steady-smollm2-135m-256-graph": (
        "prefills are the host's, and took 27 to 45 ms for equal work within this run; decodes are within 1 %"
    ),
    "steady-smollm2-135m-64-compiled": (
        "prefills are the host's, 1.1 times the profile's; decodes are within 1 %"
    ),
    "steady-smollm2-135m-64-graph": (
        "every prefill compiled; two captures, 84 and 117 ms where 85 are predicted; decodes are within 1 %"
    ),
}
"""Why a run misses a target: read from its steps."""

OWN = """\
{equal} of {all} runs make the same steps as their simulations: tokens, padding, forwards, programs, rows,
cells, growths, captures, recaptures and preemptions, step by step.

`h200` has six numbers fitted to device times of the workload `steady` (see its sources) and launches that are
medians over those runs; `mixed` was kept out of it. Median errors of tok/s and TPOT: {fitted} fitted,
{held_out} held out. Before the fit they were 13.4% and 10.2%, and 13.8% and 9.3% with a launch cost that came
from `mixed` itself. Errors of a run stand in one row: tokens per second, and the medians of first token,
later tokens and whole requests. Beside them is how far the run's own equal steps lie apart: the range of half
of its prefills, and of its decodes, over the simulation's, as a share of the median. Launch is the host's
time an operation in prefills that the host bounds, 25 us in the profile and 87 compiled: it varied more
between and within these runs than what is asked of the model. A step that compiled kernels, of more than four
times the device time of its peers, is left out on both sides, and the step before it, in which its launch
fell; "-" where more than half of the first tokens fall into these.
"""

SERVED = """\
The 300 requests of its ShareGPT trace as vLLM 0.19.0 served them on an RTX PRO 6000, against
`sim:rtx-pro-6000` (datasheet), executor `compiled`, 128 sequences and 2,048 tokens a step as that run had;
one run to warm up, as that engine captured its graphs and took its pool before the first request. Targets:
mean TPOT and throughput 10%, TTFT 25%. One real run is there, and no spread of it.
"""


def error(real: float | None, made: float | None) -> float | None:
    return None if real is None or made is None else made / real - 1


def errors(pair: Pair) -> dict[str, float | None]:
    """By the names of `Timings`."""
    real, made = timings(pair.measured, pair.left_out), timings(pair.simulated, pair.left_out)
    return {name: error(getattr(real, name), getattr(made, name)) for name in Timings.__dataclass_fields__}


def missed(pair: Pair) -> list[str]:
    """The targets that a run's errors miss."""
    found = errors(pair)
    return [name for name, most in TARGETS.items() if abs(found[name] or 0.0) > most]


def compared(found: Sequence[Pair]) -> list[Pair]:
    """Those whose times count."""
    return [pair for pair in found if pair.name not in OLDER]


def own_text(found: Sequence[Pair]) -> str:
    groups = {held: [pair for pair in compared(found) if pair.name.startswith(HELD_OUT) == held]
              for held in (False, True)}  # fmt: skip
    median = {
        held: " and ".join(
            f"{statistics.median(abs(errors(pair)[name] or 0.0) for pair in group):.1%}"
            for name in ("output_tok_s", "tpot_p50")
        )
        for held, group in groups.items()
    }
    equal = sum(not pair.differences for pair in found)
    return OWN.format(equal=equal, all=len(found), fitted=median[False], held_out=median[True])


def own_rows(found: Sequence[Pair]) -> list[tuple[str, ...]]:
    rows = []
    for pair in compared(found):
        of, own = errors(pair), launch(pair)
        rows.append((
            pair.name, "held out" if pair.name.startswith(HELD_OUT) else "fitted",
            *(_percent(of[name], "+.1%") for name in ("output_tok_s", "ttft_p50", "tpot_p50", "e2e_p50")),
            f"{_percent(spread(pair, True), '.0%')}, {_percent(spread(pair, False), '.0%')}",
            "-" if own is None else f"{own * 1e6:.0f} us",
            f"{int(pair.left_out.sum())} of {len(pair.left_out):,}",
            REASONS[pair.name] if missed(pair) else "",
        ))  # fmt: skip
    return rows


def served_rows(data: Path) -> list[tuple[str, str, str, str]]:
    """Figure, vLLM, simulated, error."""
    trace = data / "traces" / "llmservingsim_sharegpt-llama-3.1-8b-300-sps10.jsonl"
    options = RunOptions(
        workload=str(trace), model="llama-3.1-8b", device="sim:rtx-pro-6000", executor="compiled",
        max_sessions=128, token_budget=2048, warmup=1,
    )  # fmt: skip
    made = llmservingsim.served(run(options, Registry.installed()))
    return llmservingsim.compared(llmservingsim.measured(data), made)


def _percent(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


__all__ = ["own_rows", "own_text", "pairs", "served_rows"]
