"""The recorded traces beside the repository: their statistics as published, and their oddities."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from musebench.workload.traces import read_trace

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "traces"

# shared/data/SOURCES.md: n; prompt and output mean, p50, p90, p99, min, max; sums; duration in seconds
STATISTICS = {
    "AzureLLMInferenceTrace_conv.csv": (
        "azure", 19_366, (1154.7, 1020, 2734, 4142, 2, 14050), (211.1, 129, 424, 601, 7, 1000),
        (22_361_870, 4_088_665), 3501.722, 5.530, 1.09,
    ),
    "vidur_splitwise_conv.csv": (
        "vidur", 19_366, (1154.7, 1020, 2734, 4142, 2, 14050), (211.1, 129, 424, 601, 7, 1000),
        (22_361_870, 4_088_665), 3501.722, 5.530, 1.09,
    ),
    "vidur_splitwise_code.csv": (
        "vidur", 8_819, (2047.8, 1469, 5188, 7436, 3, 7437), (27.9, 13, 55, 251, 6, 1899),
        (18_059_974, 245_896), 3435.948, 2.567, 13.15,
    ),
    "mooncake_conversation_trace.jsonl": (
        "mooncake", 12_031, (12035.1, 6909, 27367, 85400, 891, 126195), (342.6, 350, 597, 1119, 1, 2000),
        (144_793_823, 4_122_048), 3536.999, 3.401, 3.03,
    ),
    "llmservingsim_sharegpt-llama-3.1-8b-300-sps10.jsonl": (
        "llmservingsim", 300, (857.5, 732, 1460, 2765, 262, 3998), (652.5, 632, 770, 784, 512, 1021),
        (None, None), 29.137, 10.30, 0.94,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_the_real_files_are_those_that_were_published(name):
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside the repository")
    format, count, prompt, output, sums, duration, rate, cv = STATISTICS[name]
    trace = read_trace(path)
    assert trace.format == format
    assert len(trace.rows) == count
    assert trace.left_out == {}
    times = np.array([row.arrival_seconds for row in trace.rows])
    for wanted, total, values in (
        (prompt, sums[0], np.array([row.prompt_tokens for row in trace.rows])),
        (output, sums[1], np.array([row.output_tokens for row in trace.rows])),
    ):
        found = (values.mean(), *np.percentile(values, [50, 90, 99]), values.min(), values.max())
        assert found == pytest.approx(wanted, abs=0.5001)
        assert found[0] == pytest.approx(wanted[0], abs=0.05)
        assert total is None or values.sum() == total
    gaps = np.diff(times)
    assert times[-1] == pytest.approx(duration, abs=0.0005)
    assert count / times[-1] == pytest.approx(rate, abs=0.005)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.005)


def test_the_two_records_of_the_azure_conversation_agree():
    azure, vidur = (DATA / name for name in ("AzureLLMInferenceTrace_conv.csv", "vidur_splitwise_conv.csv"))
    if not (azure.is_file() and vidur.is_file()):
        pytest.skip("the traces are not beside the repository")
    for one, other in zip(read_trace(azure).rows, read_trace(vidur).rows, strict=True):
        assert (one.prompt_tokens, one.output_tokens) == (other.prompt_tokens, other.output_tokens)
        assert one.arrival_seconds == pytest.approx(other.arrival_seconds, abs=1e-6)


def test_mooncake_blocks_cover_every_prompt_and_are_reused_as_published():
    path = DATA / "mooncake_conversation_trace.jsonl"
    if not path.is_file():
        pytest.skip("the trace is not beside the repository")
    rows = read_trace(path).rows
    for row in rows:
        assert len(row.tags["hash_ids"]) == -(-row.prompt_tokens // 512)
    blocks = list(itertools.chain.from_iterable(row.tags["hash_ids"] for row in rows))
    assert (len(blocks), len(set(blocks))) == (288_500, 182_790)


def test_a_real_azure_file_has_crlf_and_no_last_line_end():
    path = DATA / "AzureLLMInferenceTrace_conv.csv"
    if not path.is_file():
        pytest.skip("the trace is not beside the repository")
    raw = path.read_bytes()
    assert (raw.count(b"\r\n"), raw[-1:], raw[:1]) == (19_366, b"3", b"T")
    last = read_trace(path).rows[-1]
    assert f"{last.prompt_tokens},{last.output_tokens}".encode() == raw.rpartition(b"\n")[2].split(b",", 1)[1]


def test_mooncake_comes_in_bins_of_three_seconds_up_to_28_at_once():
    path = DATA / "mooncake_conversation_trace.jsonl"
    if not path.is_file():
        pytest.skip("the trace is not beside the repository")
    times = np.array([row.arrival_seconds for row in read_trace(path).rows])
    bins, sizes = np.unique(times, return_counts=True)
    assert (len(bins), sizes.max(), int((np.diff(times) == 0).sum())) == (1_180, 28, 10_851)
    assert (np.diff(bins).min(), np.diff(bins).max()) == pytest.approx((2.997, 3.003))


def test_real_token_ids_are_kept():
    path = DATA / "llmservingsim_sharegpt-llama-3.1-8b-300-sps10.jsonl"
    if not path.is_file():
        pytest.skip("the trace is not beside the repository")
    rows = read_trace(path, most_rows=20).rows
    assert all(len(row.prompt_ids) == row.prompt_tokens for row in rows)
    assert list(rows[0].prompt_ids[:3]) == [5971, 2927, 220]
