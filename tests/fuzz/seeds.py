"""What fuzzing starts from: small valid inputs, so that mutations begin inside the parsers."""

from __future__ import annotations

import json
from pathlib import Path

from samples import CONFIG, ENTRY_POINTS, JOURNAL, METADATA, REPORT, SETTINGS
from test_workload_fuzz import TRACES, YAML

REPOSITORY = Path(__file__).resolve().parents[2]


def seeds(target: str) -> list[bytes]:
    """Valid inputs of a target."""
    shipped = [path.read_bytes() for path in sorted((REPOSITORY / "workloads").glob("*.yaml"))]
    return {
        "yaml": [*YAML, *shipped],
        "workload": [*YAML, *shipped],
        "trace": [bytes([first]) + text for text in TRACES for first in (1, 193)],
        "report": [REPORT],
        "report-values": [bytes([1, 6, 0, 3, 2, 1, place, 7]) for place in range(0, 32, 4)],
        "journal": [JOURNAL],
        "journal-values": [
            bytes([row, 1, 6, 0, 3, 2, 1, place, 7]) for row in range(3) for place in range(6)
        ],
        "metadata": [ENTRY_POINTS + b"\n\x00\n" + METADATA, ENTRY_POINTS],
        "options": list(SETTINGS),
        "config": [
            json.dumps(CONFIG).encode(),
            json.dumps({"text_config": CONFIG, "num_experts": 4}).encode(),
        ],
        "config-values": [bytes([1, 1, place, 4]) for place in range(12)],
    }[target]


def words(target: str) -> list[bytes]:
    """Keys of a format, for a dictionary: what no mutation would find by itself."""
    made: set[bytes] = set()
    for seed in seeds(target):
        for separator in b"{}[],:\n\"'=;. ":
            seed = seed.replace(bytes([separator]), b"\n")
        made.update(word for word in seed.split(b"\n") if 2 <= len(word) <= 24 and word.isascii())
    return sorted(made)
