"""A whole recorded hour through the simulator, from the command line to the table.

Targets for the Azure conversation trace (19,366 requests, 4.09 million output tokens, an 8B model): 3 s in
bulk and under 400 MB, 15 s stepped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRACE = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_conv.csv"

COMMAND = """
import resource, sys
from musebench.cli import root
try:
    root.main(sys.argv[1:], prog_name="musebench")
finally:
    print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.skipif(not TRACE.is_file(), reason=f"the trace {TRACE.name} is not in ../shared")
@pytest.mark.parametrize("how", ["bulk", "stepped"])
def test_a_recorded_hour(benchmark, tmp_path, how):
    arguments = [
        "run", "--device", "sim:h200", "--model", "llama-3.1-8b", "--trace", str(TRACE), "--out",
        str(tmp_path / "report.json"), *(["--stepwise"] if how == "stepped" else []),
    ]  # fmt: skip

    def once() -> str:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    shown = benchmark.pedantic(once, rounds=1 if how == "stepped" else 3)
    assert "VALID" in shown
    assert "19,366" in shown
    benchmark.extra_info["peak_bytes"] = int(shown.rpartition("PEAK")[2])
