"""On an NVIDIA GPU: rows that are mapped after a capture are read by it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_graph_reads_rows_that_were_mapped_after_it():
    pytest.importorskip("cuda.bindings")
    runpy.run_path(str(Path(__file__).parents[1] / "gpu_check.py"))["probe"]()
