"""Whole runs of the bundled model on the CPU, a round a repeat."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked"])
@pytest.mark.parametrize("pool", ["geometric", "fixed"])
def test_mixed_small(musebench, pool, scheduler):
    report = musebench("mixed-small", pool=pool, scheduler=scheduler, repeat=5, warmup=1)
    assert len(report.runs) == 5
