"""`pool`: rows and bytes are what the policy says, generation adds the pool and activations, none is
left."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from musebench.checks.options import PoolOptions
from musebench.checks.verdicts import Judge, runs
from musebench.core.protocols import RowRule
from musebench.report.bound import activation_bytes
from musebench.report.schema import COMPLETE, PoolData, Report, RunData
from musebench.report.table import pretty
from musebench.report.verdict import Verdict


class PoolCheck:
    """Rows are counted without scratch where a policy is held to them, with it where bytes are."""

    def __init__(self, options: PoolOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge = Judge("pool", report.id)
        made: list[Verdict] = []
        for where, run in runs(report):
            pool = run.pool
            if pool is None or not len(run.steps):
                why = (
                    "there is no step" if pool is not None else "the engine tells neither steps nor its pool"
                )
                made.append(judge.missing(f"pool{where}", why))
                continue
            made += [_room(judge, where, run, pool), _bytes(judge, where, run, pool)]
            made += _policy(judge, where, report, run, pool)
            made.append(_cells_left(judge, where, report, run))
        made.append(self._generation(judge, report))
        made += self._left(judge, report)
        return made

    def _generation(self, judge: Judge, report: Report) -> Verdict:
        """Peak over what was there with everything open, against the pool, its growths and an allowance."""
        what = "generation adds the pool and activations"
        opened, peak = (report.memory.snapshots.get(phase) for phase in ("opened", "peak"))
        if opened is None or peak is None or not report.runs:
            return judge.missing(what, "memory when opened, or its peak, is not in the report")
        pools = [run.pool for run in report.runs if run.pool is not None]
        if not pools:
            return judge.missing(what, "the engine does not tell its pool")
        if peak.peak is not None and opened.allocated is not None:
            added, source = peak.peak - opened.allocated, "torch's allocator"
            sums = f"peak {peak.peak:,} - {opened.allocated:,} opened"
        elif report.choices.backend.name != "cuda" and None not in (peak.host_peak, opened.host_resident):
            assert peak.host_peak is not None and opened.host_resident is not None  # noqa: PT018
            added, source = peak.host_peak - opened.host_resident, "the process's resident set"
            sums = f"peak {peak.host_peak:,} - {opened.host_resident:,} opened"
        else:
            return judge.missing(what, "no source counts it")
        passing = [peak for pool in pools for peak in pool.growths.peak_bytes]
        most = max([*passing, *(pool.bytes for pool in pools)])
        graphs, allowance = report.memory.computed.graphs or 0, self.options.activation_allowance
        smallest = ""
        limits = report.choices.limits
        if report.conditions.model.facts is not None and limits is not None:
            rows = min(limits.most_sequences, limits.most_tokens)
            least = activation_bytes(report.conditions.model.facts, limits.most_tokens, rows)
            smallest = (
                f"; the smallest honest allowance is {pretty(least, 'bytes')}: {limits.most_tokens:,} tokens "
                f"x a layer's widths + {rows:,} rows of logits"
            )
        bound = most + graphs + allowance
        return judge.held(
            what,
            added <= bound,
            pretty(added, "bytes"),
            pretty(bound, "bytes"),
            f"{source}: {sums}; bound: pool with its passing peak {most:,} + graphs {graphs:,} + activations "
            f"{allowance:,}{smallest}",
        )

    def _left(self, judge: Judge, report: Report) -> list[Verdict]:
        """After everything was closed, against what was there with the weights loaded."""
        loaded, closed = (report.memory.snapshots.get(phase) for phase in ("loaded", "closed"))
        graphs = report.memory.computed.graphs or 0
        made = []
        for source, fields, allowance in (
            ("torch's allocator", ("allocated",), self.options.left_allocated),
            ("NVML", ("process_used", "device_used"), self.options.left_device),
        ):
            what = f"nothing is left, says {source}"
            pairs = [(getattr(loaded, field, None), getattr(closed, field, None)) for field in fields]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            if not known:
                name = "torch" if source.startswith("torch") else "NVML"
                made.append(judge.missing(what, report.memory.reasons.get(name, "not in the report")))
                continue
            before, after = known[0]
            made.append(
                judge.held(
                    what,
                    after - before <= graphs + allowance,
                    pretty(after - before, "bytes"),
                    pretty(graphs + allowance, "bytes"),
                    f"{after:,} closed - {before:,} loaded; bound: graphs' pool {graphs:,} + libraries "
                    f"{allowance:,}",
                )
            )
        return made


def final_rows(run: RunData, pool: PoolData) -> int:
    """The rows at the run's end, scratch included."""
    if len(pool.growths):
        return max(pool.growths.rows[-1], run.steps.rows[-1])
    return run.steps.rows[-1] or pool.start_rows


def _room(judge: Judge, where: str, run: RunData, pool: PoolData) -> Verdict:
    rows = final_rows(run, pool) - 1
    return judge.held(
        f"rows hold the cells{where}",
        rows >= pool.most_in_use,
        f"{rows:,} rows",
        f"at least {pool.most_in_use:,}",
        "rows without scratch; most cells in use",
    )


def _bytes(judge: Judge, where: str, run: RunData, pool: PoolData) -> Verdict:
    growths, final = pool.growths, final_rows(run, pool)
    sizes = [(rows, held) for rows, held in zip(growths.rows, growths.bytes, strict=True)]
    sizes.append((final, pool.bytes))
    slack = pool.slack_bytes
    wrong = [
        f"{held:,} bytes for {rows:,} rows"
        for rows, held in sizes
        if not 0 <= held - rows * pool.cell_bytes <= slack
    ]
    granules = f"; + at most {slack:,} bytes of granules that are not full" if slack else ""
    return judge.held(
        f"bytes = rows x bytes per cell{where}",
        not wrong,
        f"{pool.bytes:,} bytes" if not wrong else wrong[-1],
        f"{final:,} x {pool.cell_bytes:,} = {final * pool.cell_bytes:,} bytes",
        f"of the buffers' own sizes; at the end and after each of {len(growths):,} growths{granules}",
    )


def _policy(judge: Judge, where: str, report: Report, run: RunData, pool: PoolData) -> list[Verdict]:
    rows, choice, bounds = final_rows(run, pool) - 1, report.choices.pool, report.choices.bounds
    if choice is None or bounds is None:
        return [
            judge.missing(f"rows under the policy{where}", "the report does not name the policy's options")
        ]
    options = choice.options
    if pool.policy == "fixed":
        sessions = min(options.get("sessions") or bounds.max_sessions, bounds.max_sessions)
        context = options.get("context") or bounds.max_context
        return [
            judge.held(
                f"fixed rows{where}",
                rows == sessions * context,
                f"{rows:,} rows",
                f"{sessions * context:,}",
                f"{sessions:,} sessions x {context:,} tokens",
            )
        ]
    if pool.row_rule is not None:
        return [_stated(judge, where, run, pool, pool.row_rule)]
    if pool.policy != "geometric":
        return [judge.missing(f"rows under the policy{where}", f"no rule is known for {pool.policy!r}")]
    steps = run.steps
    widest = int(np.add(steps.decode_tokens, steps.prefill_tokens, dtype=np.int64).max())
    factor, start = float(options.get("factor", 2.0)), int(options.get("start", 0))
    first = start if pool.capacity is None else min(start, pool.capacity)
    grown = math.ceil(factor * (pool.most_in_use + widest))
    whole = bounds.max_sessions * bounds.max_context
    sums = (
        f"max({first:,} initial rows, {factor:g} x ({pool.most_in_use:,} most cells in use + {widest:,} "
        "tokens of the widest step))"
    )
    made = [
        judge.held(
            f"geometric rows{where}",
            rows <= max(first, grown),
            f"{rows:,} rows",
            f"{max(first, grown):,}",
            sums,
        )
    ]
    what = f"geometric rows below the whole{where}"
    product = f"{bounds.max_sessions:,} sessions x {bounds.max_context:,} tokens"
    if rows >= whole and max(first, grown) >= whole:
        reason = f"growing by the factor reaches {product}: the sessions fill their budgets"
        made.append(judge.missing(what, reason))
    else:
        made.append(judge.held(what, rows < whole, f"{rows:,} rows", f"fewer than {whole:,}", product))
    return made


def _stated(judge: Judge, where: str, run: RunData, pool: PoolData, rule: RowRule) -> Verdict:
    """The rows against what the policy promised."""
    rows, steps = final_rows(run, pool) - 1, run.steps
    widest = int(np.add(steps.decode_tokens, steps.prefill_tokens, dtype=np.int64).max())
    most = rule.most(pool.most_in_use + widest)
    return judge.held(
        f"{pool.policy} rows{where}",
        rows <= most,
        f"{rows:,} rows",
        f"{most:,}",
        f"max({rule.start:,} rows, {rule.factor:g} x ({pool.most_in_use:,} most cells in use + {widest:,} "
        f"tokens of the widest step)) + {rule.slack:,} rows of slack",
    )


def _cells_left(judge: Judge, where: str, report: Report, run: RunData) -> Verdict:
    what, left = f"no cell is left{where}", run.left_in_use
    if left is None or report.status != COMPLETE:
        return judge.missing(what, "the run did not end" if left is not None else "not in the report")
    return judge.held(what, left == 0, f"{left:,} cells", "0 cells", "owned after the last request ended")
