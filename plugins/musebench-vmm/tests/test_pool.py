"""The pool on a CPU, where virtual memory is as real as on a GPU, and on a virtual clock."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from musebench_vmm.host import HostSpan
from musebench_vmm.pool import VmmOptions, VmmPool
from musebench_vmm.source import VirtualMemory

from musebench.backends.probe import LayerShape
from musebench.backends.torch_device import CpuDevice
from musebench.backends.torch_storage import TorchStorage
from musebench.checks.options import PoolOptions
from musebench.checks.pool import PoolCheck
from musebench.core.errors import OutOfMemory, UnsupportedError, UsageError
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import PoolBounds, Resize
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.plugin.registry import Registry
from musebench.run import RunOptions, run

LAYERS = (LayerShape(4, 2, 16, 8, torch.float32, 0), LayerShape(4, 2, 16, 8, torch.float32, 0))
ROW = 2 * (128 + 64)
PAGE = 4096


def storage(rows: int = 10_000, poison: bool = False, pieces: bool = False) -> TorchStorage:
    made = TorchStorage(LAYERS, CpuDevice(), poison)
    made.reserve(rows, VirtualMemory(PAGE, pieces))
    return made


def served(pool: str, **settings):
    chosen = {"pool": settings, "backend": {"poison": True}}
    return run(RunOptions(pool=pool, max_sessions=4, settings=chosen), Registry.installed())


def test_growing_in_place_keeps_addresses_contents_and_generation():
    rows = storage()
    assert replace_seconds(rows.resize(20, 0)) == Resize(False, 0, 4 * PAGE)
    before = [tensor.data_ptr() for tensor in rows.buffers.tensors]
    for tensor in rows.buffers.tensors:
        tensor[:] = torch.arange(20.0)[:, None, None]
    grown = rows.resize(9_000, 20)
    assert not grown.moved
    assert grown.copied_bytes == 0
    assert [tensor.data_ptr() for tensor in rows.buffers.tensors] == before
    assert rows.generation == 0
    for tensor in rows.buffers.tensors:
        assert tensor.shape[0] == 9_000
        assert tensor[:20, 1, 3].tolist() == list(range(20))
        tensor[8_999] = 1.0  # the last row is there
    assert 0 <= rows.bytes - 9_000 * rows.cell_bytes < rows.slack_bytes == 4 * PAGE
    assert rows.bytes == rows.bytes_for(9_000)


def replace_seconds(done: Resize) -> Resize:
    return Resize(done.moved, done.copied_bytes, done.peak_bytes)


def test_what_is_given_back_is_gone_and_comes_back_empty():
    rows = storage(pieces=True)
    rows.resize(5_000, 0)
    for tensor in rows.buffers.tensors:
        tensor.fill_(7.0)
    rows.resize(100, 100)
    assert rows.bytes == rows.bytes_for(100)
    rows.resize(5_000, 100)
    for tensor in rows.buffers.tensors:
        assert tensor[:100].eq(7.0).all()
        assert tensor[4_999].eq(0.0).all()


def test_fresh_rows_are_poisoned_where_they_stay_too():
    rows = storage(poison=True)
    rows.resize(6, 0)
    for tensor in rows.buffers.tensors:
        tensor[1:] = 1.0
    rows.resize(9, 4)
    for tensor in rows.buffers.tensors:
        assert tensor[:, 0, 0].isnan().tolist() == [True, False, False, False, *[True] * 5]


def test_memory_that_is_short_is_refused_whole(monkeypatch):
    rows = storage()
    rows.resize(50, 0)
    held, tensors = rows.bytes, rows.buffers
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda self: 10_000)
    with pytest.raises(OutOfMemory, match="10,000 are free"):
        rows.resize(5_000, 50)
    assert (rows.rows, rows.bytes) == (50, held)
    assert rows.buffers is tensors


def test_a_span_that_fails_takes_back_what_the_others_added(monkeypatch):
    rows = storage()
    rows.resize(50, 0)
    held, back, calls = rows.bytes, HostSpan.back, []

    def failing(span, needed):
        calls.append(needed)
        if len(calls) % 6 == 4:  # the fourth buffer, and the second attempt's too
            raise OutOfMemory(needed, 0, "mapping rows")
        back(span, needed)

    monkeypatch.setattr(HostSpan, "back", failing)
    with pytest.raises(OutOfMemory, match="5,000 rows"):
        rows.resize(5_000, 50)
    assert (rows.rows, rows.bytes) == (50, held)


def test_addresses_are_reserved_once_and_more_than_them_is_refused():
    rows = storage(100)
    with pytest.raises(RuntimeError, match="reserved once"):
        rows.reserve(100, VirtualMemory(PAGE))
    with pytest.raises(ValueError, match="101 rows of 100 reserved"):
        rows.resize(101, 0)
    rows.close()
    rows.close()
    assert (rows.rows, rows.bytes) == (0, 0)


def test_what_is_not_mapped_cannot_be_touched():
    """So that a kernel that reads beyond the rows would end these tests, not pass them."""
    touch = (
        "import ctypes; from musebench_vmm.source import VirtualMemory\n"
        f"span = VirtualMemory({PAGE}).open('cpu').reserve({4 * PAGE}); span.back({PAGE})\n"
        f"ctypes.c_byte.from_address(span.address + {PAGE - 1}).value = 1; print('mapped', flush=True)\n"
        f"ctypes.c_byte.from_address(span.address + {PAGE}).value = 1"
    )
    ended = subprocess.run([sys.executable, "-c", touch], capture_output=True, text=True)
    assert ended.stdout == "mapped\n"
    assert ended.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("options", [{}, {"give_back": True}, {"capacity": 360}])
def test_tokens_are_those_of_geometric_through_growth_and_preemption(options):
    plain, ours = served("geometric"), served("vmm", granule=PAGE, **options)
    assert ours.status == "complete"
    assert list(ours.runs[0].requests.token_ids) == list(plain.runs[0].requests.token_ids)
    data = ours.runs[0]
    assert len(data.pool.growths) > 1
    assert sum(data.pool.growths.copied_bytes) == 0
    assert max(data.steps.generation) == 0
    assert data.left_in_use == 0
    assert ours.memory.bound.rows >= data.pool.bytes
    verdicts = PoolCheck(PoolOptions()).check([ours])
    # What a process adds to its resident set is for the acceptance run: here tests ran before in it.
    assert not [one for one in verdicts if not one.valid and "generation adds" not in str(one)]


def test_the_report_holds_the_pool_to_rows_needed_and_a_granule_a_buffer():
    report = served("vmm", granule=PAGE, capacity=477)
    data = report.runs[0]
    assert data.pool.slack_bytes == 8 * PAGE
    assert "bytes of granules that are not full" in report.memory.bound.sums["rows"]
    greedy = replace(data, pool=replace(data.pool, bytes=data.pool.bytes + data.pool.slack_bytes + 1))
    verdicts = PoolCheck(PoolOptions()).check([replace(report, runs=[greedy])])
    assert any(not one.valid and "bytes = rows x bytes per cell" in str(one) for one in verdicts)


def test_a_full_pool_preempts_and_the_tokens_stay():
    work = {"requests": 8, "prompt_tokens": 20, "output_tokens": 60}

    def mixed(pool: str, settings: dict):
        chosen = {"pool": settings, "workload": work}
        options = RunOptions(workload="mixed", pool=pool, max_sessions=8, max_context=128, settings=chosen)
        return run(options, Registry.installed()).runs[0]

    plain, ours = mixed("geometric", {}), mixed("vmm", {"granule": PAGE, "capacity": 250, "give_back": True})
    assert ours.pool.preemptions > 0
    assert plain.pool.preemptions == 0
    assert list(ours.requests.token_ids) == list(plain.requests.token_ids)
    assert ours.left_in_use == 0


def test_cancelled_sequences_leave_their_cells_and_the_others_their_tokens():
    work = {"requests": 6, "prompt_tokens": 20, "output_tokens": 60}
    chosen = {"pool": {"granule": PAGE}, "workload": work}
    options = RunOptions(workload="mixed", pool="vmm", max_sessions=6, max_context=128, settings=chosen)
    registry = Registry.installed()

    def stop(engine, repeat):
        if len(engine.recorder.steps) == 10:
            for sequence in engine.recorder.sequences[2:]:
                engine.cancel(sequence.request.id)

    whole, ours = run(options, registry).runs[0], run(options, registry, stop).runs[0]
    ends = list(ours.requests.finish_reason)
    assert ends.count("cancelled") == 4
    assert [tokens for tokens, end in zip(each(ours), ends, strict=True) if end == "length"] == [
        tokens for tokens, end in zip(each(whole), ends, strict=True) if end == "length"
    ]
    assert ours.left_in_use == 0
    assert max(ours.pool.growths.rows) < max(whole.pool.growths.rows) / 2  # their cells were used again


def each(data):
    """The tokens of each request."""
    ends = np.cumsum(data.requests.generated_tokens)[:-1]
    return [part.tolist() for part in np.split(np.array(data.requests.token_ids), ends)]


def test_a_journal_holds_the_rule_of_the_rows(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "musebench", "run", "--pool", "vmm", "--set", f"pool.granule={PAGE}"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "INVALID" not in ended.stdout


def test_a_virtual_clock_pays_for_mapping_and_for_no_copy():
    def simulated(pool: str):
        options = RunOptions(
            pool=pool, model="llama-3.2-1b", device="sim:h200", executor="graph", workload="mixed",
            settings={"workload": {"requests": 32}},
        )  # fmt: skip
        return run(options, Registry.installed())

    ours, plain = simulated("vmm"), simulated("geometric")
    mapped = ours.runs[0].pool
    assert mapped.bytes < plain.runs[0].pool.bytes
    assert sum(mapped.growths.copied_bytes) == 0
    assert sum(mapped.growths.seconds) == pytest.approx(mapped.bytes * 1e-4 / 2**30)
    assert max(ours.runs[0].steps.generation) == 0


def test_rows_are_given_back_at_the_next_step():
    rows = TorchStorage(LAYERS, CpuDevice())
    pool = VmmPool(VmmOptions(PAGE, give_back=True), PoolBounds(2, 5_000), rows)
    table = SequenceTable(2)
    one, two = (Sequence(slot, Request(str(slot), range(4_000), 1), table) for slot in (1, 2))
    one.enter(1)
    two.enter(2)
    pool.reserve(StepPlan(prefills=(Slice(one, 10),)))
    pool.reserve(StepPlan(prefills=(Slice(two, 4_000),)))
    most = rows.bytes
    pool.release(2)
    assert rows.bytes == most  # a step that was launched may still use them
    pool.reserve(StepPlan(prefills=(Slice(one, 1),)))
    assert rows.bytes < most / 10
    assert pool.counters()["given back"] > 3_000
    assert [bool(done.moved) for _, _, done in pool.resizes] == [False] * 3


def test_mistakes_are_one_line():
    class Plain:
        rows = 0

    with pytest.raises(UnsupportedError, match="Plain does not; use --pool geometric"):
        VmmPool(VmmOptions(), PoolBounds(2, 8), Plain())
    with pytest.raises(UsageError, match=r"pool.granule=1000: cpu maps multiples of 4,096 bytes"):
        VmmPool(VmmOptions(1000), PoolBounds(2, 8), TorchStorage(LAYERS, CpuDevice()))
