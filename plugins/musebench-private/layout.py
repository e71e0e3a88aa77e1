"""What contiguous histories cost: rows and copies on a simulated H200, at 8, 32 and 256 sequences.

    python layout.py

The workload `mixed` (100 to 1,024 prompt tokens, 100 to 1,024 made) of that many requests, all at once, for a
Llama-3.2-1B with captured decodes. `moved` are copies inside the storage, `grown` those of growths.
"""

from __future__ import annotations

from musebench.plugin.registry import Registry
from musebench.report import metrics
from musebench.run import RunOptions, run


def main() -> None:
    print("sequences  pool       most cells in use     rows  moved MiB  relocations  grown MiB  out tok/s")
    for sequences in (8, 32, 256):
        for pool in ("geometric", "private"):
            options = RunOptions(
                workload="mixed", model="llama-3.2-1b", device="sim:h200", executor="graph", pool=pool,
                settings={"workload": {"requests": sequences}},
            )  # fmt: skip
            report = run(options, Registry.installed())
            data = report.runs[0].pool
            moved = data.counters.get("moved bytes", 0) / 2**20
            grown = sum(data.growths.copied_bytes) / 2**20
            rate = metrics.throughput(report).output_tokens_per_second or 0.0
            print(
                f"{sequences:9}  {pool:9}  {data.most_in_use:17,}  {data.growths.rows[-1]:7,}  "
                f"{moved:9,.0f}  {data.counters.get('relocations', 0):11,}  {grown:9,.0f}  {rate:9,.0f}"
            )


if __name__ == "__main__":
    main()
