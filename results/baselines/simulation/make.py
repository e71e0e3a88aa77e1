"""Writes README.md beside it: predictions of the cost model against what others measured.

    PYTHONPATH=. python3 results/baselines/simulation/make.py [DATA]

DATA is the folder with measured_results.csv and measured/ (default ../shared/data).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from kernel_tables import own_steps, splitwise, vidur_products  # noqa: E402
from own_tables import SERVED, own_rows, own_text, pairs, served_rows  # noqa: E402
from reasons import LIMIT, reason  # noqa: E402
from rows import FIGURES, Compared, compare_all  # noqa: E402

UNITS = {"output_tok_s": "tok/s", "decode_tok_s": "decode tok/s", "tpot_ms": "TPOT ms", "ttft_ms": "TTFT ms",
         "prefill_tok_s": "prefill tok/s"}  # fmt: skip

INTRODUCTION = """\
# The cost model against measurements

Every prediction of others' measurements is made from shapes and a datasheet profile, and nothing was fitted
to the rows that are predicted; most are in closed form. The efficiencies in
`musebench/backends/simulated/profiles/defaults.json` come from other measurements: Vidur's tables of single
products and all-reduces, and an H200. Written by

    PYTHONPATH=. python3 results/baselines/simulation/make.py ../shared/data

from `measured_results.csv`, whose rows name their sources. An error is predicted over measured, less one. The
first figure of a row is the one that its error counts: tokens per second where the row has them, else TPOT,
else TTFT; all others stand beside it.
"""

SPLITWISE = """\
llama2-70b and bloom-176b. Medians over the table's batches and lengths. On eight H100s a token of llama2-70b
took 28 ms and more at every batch size up to 16, five times the bytes' time and no less than on four: time of
that engine's host, which no profile has.
"""

STEPS = """\
Replayed decodes at 1,024 cells a sequence, milliseconds, against `results/baselines/h200`. The profile's
small kernels and its reductions were fitted to these steps; products and attention were measured by
themselves.
"""


def figures_of(compared: Compared) -> str:
    return "; ".join(
        f"{predicted:,.4g} for {measured:,.4g} {UNITS[name]} ({predicted / measured - 1:+.0%})"
        for name, measured, predicted in compared.figures
    )


def table(rows: Iterable[Sequence[object]], heads: Sequence[str]) -> str:
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return tabulate(cells, heads, tablefmt="github", disable_numparse=True)


def compared_table(rows: list[Compared]) -> str:
    """Worst first, those without a prediction at the end."""
    ordered = sorted(rows, key=lambda one: -abs(one.error) if one.error is not None else 1.0)
    return table(
        (
            (
                one.row["id"],
                f"{one.row['engine']} {one.row['engine_version']}".strip(),
                f"{one.row['n_devices']} x {one.row['device']}",
                one.row["model"],
                one.conditions,
                "-" if one.error is None else f"{one.error:+.1%}",
                figures_of(one) or "-",
                one.why_not or reason(one),
            )
            for one in ordered
        ),
        ("row", "engine", "device", "model", "mode, batch / prompt / output", "error",
         "predicted for measured",
         "reason"),
    )  # fmt: skip


def medians(rows: list[Compared]) -> str:
    errors = [abs(one.error) for one in rows if one.error is not None]
    every = [abs(predicted / measured - 1) for one in rows for _, measured, predicted in one.figures]
    over = sum(error > LIMIT for error in errors)
    return (
        f"{len(errors)} of {len(rows)} rows predicted. **Median error {statistics.median(errors):.1%}**, "
        f"mean {statistics.mean(errors):.1%}, {over} over {LIMIT:.0%}; over all {len(every)} figures, the "
        f"median is {statistics.median(every):.1%}."
    )


def by_engine(rows: list[Compared]) -> str:
    """Median error of each figure by engine, model and device."""
    groups: dict[tuple[str, str, str], list[Compared]] = {}
    for one in rows:
        groups.setdefault((one.row["engine"], one.row["model"], one.row["device"]), []).append(one)
    lines = []
    for key, members in groups.items():
        made: list[object] = [*key, len(members)]
        for name in FIGURES:
            errors = [abs(p / m - 1) for one in members for figure, m, p in one.figures if figure == name]
            made.append(f"{statistics.median(errors):.0%}" if errors else "-")
        lines.append(made)
    return table(lines, ("engine", "model", "device", "rows", *(UNITS[name] for name in FIGURES)))


def main(data: Path) -> None:
    everything = compare_all(data)
    dense = [one for one in everything if one.dense]
    quantized = [one for one in everything if not one.dense]
    own = pairs()
    parts = [
        INTRODUCTION,
        "## Own runs on an H200\n",
        own_text(own),
        table(own_rows(own), ("run", "workload", "tok/s", "TTFT p50", "TPOT p50", "E2E p50", "own spread",
                              "launch", "left out", "reason of a miss")) + "\n",
        "## A served trace: LLMServingSim's real run of vLLM\n",
        SERVED,
        table(served_rows(data), ("figure", "vLLM", "simulated", "error")) + "\n",
        "## Dense models with weights of 16 bits\n",
        medians(dense) + "\n",
        compared_table(dense) + "\n",
        "## Quantized weights and mixtures of experts\n",
        "The same model, beyond the target: bytes per weight, rates of 8 and 4 bits, two devices, experts.\n",
        medians(quantized) + "\n",
        by_engine(quantized) + "\n",
        compared_table(quantized) + "\n",
        "## Single products: Vidur's tables\n",
        "The default efficiencies were fitted to these: their errors say how well the form fits.\n",
        table(vidur_products(data), ("table", "products", "median error", "mean error", "bias")) + "\n",
        "## Prompts and tokens on several devices: splitwise-sim's table\n",
        SPLITWISE,
        table(splitwise(data), ("model", "device", "devices", "rows", "prompt error", "token error")) + "\n",
        "## Steps of an H200 with the profile `h200`\n",
        STEPS,
        table(own_steps(), ("model", "sequences", "graph", "predicted", "error",
                            "compiled, captured", "predicted",
                            "error")),
    ]  # fmt: skip
    (HERE / "README.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data"))
