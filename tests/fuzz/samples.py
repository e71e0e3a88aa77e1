"""Small valid inputs, for targets and seeds."""

from __future__ import annotations

import dataclasses
import json

from report_examples import report, request, requests

from musebench.core.request import FinishReason
from musebench.report import files
from musebench.report.codec import encode
from musebench.report.journal import EndedColumns, JournalEntry, JournalHead

REPORT = files.dumps(report())
ENTRY_POINTS = b"[musebench]\nmine = my_package:plugin [extra]\n[console_scripts]\na = b:c\n"
METADATA = b"Metadata-Version: 2.1\nName: sample\nVersion: 1.0\nRequires-Dist: x; extra == 'y'\n"
SETTINGS = (
    b"pool.factor=1.5",
    b"executor.ladder=1,2,4\npool.capacity=none",
    b"backend.poison=true\nbackend.kernels=triton",
    b"scheduler.slice=16\ntrace.unit=ms\ntrace.skip-bad-rows=on",
)
CONFIG = {
    "model_type": "llama", "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "sliding_window": 4,
    "layer_types": ["full_attention", "sliding_attention"],
}  # fmt: skip


def _journal() -> bytes:
    """A head and two entries: a journal of the sample report's first run, as it would be after each step."""
    made = report()
    run = made.runs[0]
    head = JournalHead(
        dataclasses.replace(made, runs=[], status="incomplete", message="x"),
        requests(*(request(name) for name in run.requests.id)),
    )
    ended = EndedColumns(
        row=[1, 0], scheduled_seconds=[0.0, 0.1], first_token_seconds=[0.1, None],
        last_token_seconds=[0.2, None], finish_seconds=[0.2, 0.3], generated_tokens=[2, 0],
        finish_reason=[FinishReason.STOP, FinishReason.FAILED], message=[None, "x"], preemptions=[0, 1],
        token_ids=[3, 4], token_steps=[0, 1], margins=[0.5, None],
    )  # fmt: skip
    later = dataclasses.replace(ended, row=[3, 2])
    entries = [
        JournalEntry(1, ended, run.steps, run.pool, {"a": 1}),
        JournalEntry(1, later, run.steps, run.pool, {}),
    ]
    lines = [json.dumps(encode(value)).encode() for value in (head, *entries)]
    return b"\n".join(lines) + b"\n"


JOURNAL = _journal()
