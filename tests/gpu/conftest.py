"""Tests that need an NVIDIA GPU; without one they skip and say so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the cases are those of tests/attention_cases.py


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = None if torch.cuda.is_available() else "torch finds no CUDA device"
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU: {missing}"))
