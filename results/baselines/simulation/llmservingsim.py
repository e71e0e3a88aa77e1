"""A simulated run of LLMServingSim's ShareGPT trace against the real vLLM run of the same requests.

    PYTHONPATH=. python3 results/baselines/simulation/llmservingsim.py REPORT [DATA]

REPORT is the report of a run of traces/llmservingsim_sharegpt-llama-3.1-8b-300-sps10.jsonl on
sim:rtx-pro-6000 with the limits of that vLLM run (128 sequences, 2,048 tokens a step) and a run to warm up.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from musebench.report import files, latencies, metrics
from musebench.report.schema import Report

RUN = Path("measured") / "llmservingsim" / "RTXPRO6000" / "Llama-3.1-8B"


@dataclass(frozen=True, slots=True)
class Served:
    """One run: seconds by request (first token after arrival, each later token, the whole request), and
    output tokens per second from the first arrival to the last token."""

    ttft: list[float]
    tpot: list[float]
    latency: list[float]
    output_tok_s: float


def measured(data: Path) -> Served:
    """The vLLM run. Its stamps are on one monotonic clock; `queued_ts` is when the engine had the request."""
    with (data / RUN / "requests.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    span = max(row["last_token_ts"] for row in rows) - min(row["queued_ts"] for row in rows)
    return Served(
        [row["first_token_ts"] - row["queued_ts"] for row in rows],
        [
            (row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1)
            for row in rows
            if row["output_toks"] > 1
        ],
        [row["last_token_ts"] - row["queued_ts"] for row in rows],
        sum(row["output_toks"] for row in rows) / span,
    )


def served(report: Report) -> Served:
    """The first run of a report.

    Raises:
        SystemExit: nothing succeeded in it.
    """
    run = report.runs[0]
    rate = metrics.run_throughput(run).output_tokens_per_second
    if rate is None:
        raise SystemExit(f"{report.id}: nothing succeeded in it")
    return Served(latencies.ttft(run), latencies.tpot(run), latencies.e2e(run), rate)


def compared(real: Served, made: Served) -> list[tuple[str, str, str, str]]:
    """Name, measured, simulated and error of every figure; parts and sums together."""
    rows = [("output tok/s", real.output_tok_s, made.output_tok_s)]
    for name, factor in (("ttft", 1.0), ("tpot", 1e3), ("latency", 1.0)):
        unit = "ms" if factor > 1 else "s"
        first, second = getattr(real, name), getattr(made, name)
        for what, of in (("mean", statistics.fmean), ("p50", statistics.median)):
            rows.append((f"{name} {what} {unit}", of(first) * factor, of(second) * factor))
    return [(name, f"{a:,.4g}", f"{b:,.4g}", f"{b / a - 1:+.1%}") for name, a, b in rows]


if __name__ == "__main__":
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "../shared/data")
    lines = compared(measured(folder), served(files.read(sys.argv[1])))
    print(tabulate(lines, ("figure", "vLLM", "simulated", "error"), tablefmt="github", disable_numparse=True))
