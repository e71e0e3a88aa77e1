"""A whole recorded hour through the simulator, from the command line to the table, and many of them.

Targets for the Azure conversation trace (19,366 requests, 4.09 million output tokens, an 8B model): 3 s in
bulk and under 400 MB, 15 s stepped; time that grows with the number of requests, up to a million, which takes
minutes and is run with MUSEBENCH_BENCH_REQUESTS=1000000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from musebench.workload.traces import read_trace

TRACE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_conv.csv"
MOST_REQUESTS = int(os.environ.get("MUSEBENCH_BENCH_REQUESTS", 100_000))

# As installed, with modules compiled before.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

COMMAND = """
import json, resource, sys
from musebench.cli import root
from musebench.measure.memory import host_peak
try:
    root.main(sys.argv[1:], prog_name="musebench")
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not ru_maxrss, which begins at that of whoever started this.
    print("USED", json.dumps([used.ru_utime + used.ru_stime, host_peak()]))
"""

pytestmark = pytest.mark.skipif(not TRACE.is_file(), reason=f"the trace {TRACE.name} is not in ../shared")


def simulate(trace: Path, out: Path, *more: str) -> tuple[str, float, int]:
    """What the command printed, its processor seconds and its largest resident set, bytes."""
    arguments = ["run", "--device", "sim:h200", "--model", "llama-3.1-8b", "--trace", str(trace)]
    command = [sys.executable, "-c", COMMAND, *arguments, "--out", str(out), *more]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    seconds, peak = json.loads(shown.rpartition("USED")[2])
    return shown, seconds, peak


@pytest.mark.parametrize("how", ["bulk", "stepped"])
def test_a_recorded_hour(benchmark, tmp_path, how):
    more = ["--stepwise"] if how == "stepped" else []
    shown, seconds, peak = benchmark.pedantic(
        simulate, (TRACE, tmp_path / "report.json", *more), rounds=1 if how == "stepped" else 3
    )
    assert "VALID" in shown
    assert "19,366" in shown
    benchmark.extra_info.update(processor_seconds=seconds, peak_bytes=peak)


def hours(path: Path, requests: int) -> Path:
    """The recorded hour again and again, until there are that many requests."""
    rows = read_trace(TRACE).rows
    arrivals = np.array([row.arrival_seconds for row in rows])
    with path.open("w") as file:
        file.write("arrival,prompt_tokens,output_tokens\n")
        for place in range(requests):
            hour, index = divmod(place, len(rows))
            row = rows[index]
            file.write(f"{hour * 3600 + arrivals[index]:.7f},{row.prompt_tokens},{row.output_tokens}\n")
    return path


def test_time_grows_with_the_number_of_requests(benchmark, tmp_path):
    """A tenth, a third and all of the most requests, in turn, and the last one's report read back."""
    sizes = (MOST_REQUESTS // 10, MOST_REQUESTS // 3, MOST_REQUESTS)
    traces = {size: hours(tmp_path / f"{size}.csv", size) for size in sizes}
    out = tmp_path / "report.json"

    def grow() -> dict[int, tuple[float, int, int]]:
        made = {}
        for size, trace in traces.items():
            shown, seconds, peak = simulate(trace, out)
            assert f"{size:,}" in shown
            made[size] = (seconds, peak, out.stat().st_size)
        return made

    measured = benchmark.pedantic(grow, rounds=1)
    least = measured[sizes[0]][0] / sizes[0]
    for size, (seconds, peak, written) in measured.items():
        benchmark.extra_info[f"{size:,} requests"] = {
            "processor_seconds": seconds,
            "peak_bytes": peak,
            "report_bytes": written,
            "seconds a request, of those with the fewest": seconds / size / least,
        }
    shown = subprocess.run(
        [sys.executable, "-m", "musebench", "report", str(out)], capture_output=True, text=True, check=True
    ).stdout
    assert f"{sizes[-1]:,}" in shown
