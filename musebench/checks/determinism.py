"""`determinism`: the same choices and conditions give the same tokens again, and in virtual time the same
report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from musebench.checks.divergence import pair, same_shapes
from musebench.checks.options import TokensOptions
from musebench.checks.tokens import verdict_of
from musebench.checks.verdicts import Judge
from musebench.report.codec import encode
from musebench.report.schema import Report
from musebench.report.verdict import Verdict

DATED = ("id", "created")
HOST_CONDITIONS = ("command", "cpu", "cores", "platform", "commit", "dirty")
"""What names the machine and the call, not what was simulated."""


class DeterminismCheck:
    """Repeats within a report, and reports of equal choices, workload, model, seed, device and versions.

    Two runs whose steps fell out differently, as arrivals on a host's clock may make them, are held as
    `tokens` holds other shapes.
    """

    def __init__(self, options: TokensOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        groups: dict[str, list[Report]] = {}
        for report in reports:
            if report.runs:
                groups.setdefault(_key(report), []).append(report)
        made: list[Verdict] = []
        for first, *others in groups.values():
            for report in (first, *others):
                for index in range(1, len(report.runs)):
                    made.append(self._runs(report, 0, report, index, f"run {index + 1} as run 1"))
            for other in others:
                made.append(self._runs(first, 0, other, 0, f"as {first.id}, of the same choices"))
                if other.conditions.clock == "virtual":
                    made.append(_whole(first, other))
            if not others and len(first.runs) == 1:
                judge = Judge("determinism", first.id)
                made.append(judge.missing("the same again", "neither a repeat nor a second report of it"))
        return made

    def _runs(self, first: Report, one: int, other: Report, two: int, what: str) -> Verdict:
        judge = Judge("determinism", other.id)
        left, right = first.runs[one], other.runs[two]
        paired = pair(left, right)
        if not paired.compared:
            return judge.missing(what, "no request that both answered, with its ids")
        exact = same_shapes(left, right)
        return verdict_of(judge, f"same tokens, {what}", paired, exact, other, self.options.logit_scale)


def _key(report: Report) -> str:
    conditions = report.conditions
    values = [
        encode(report.choices), encode(conditions.workload), encode(conditions.model), conditions.seed,
        conditions.device, conditions.clock, encode(conditions.versions),
    ]  # fmt: skip
    return json.dumps(values, sort_keys=True)


def _whole(first: Report, other: Report) -> Verdict:
    """Everything but dates, names of the machine, and the host's own seconds and memory."""
    left, right = _timeless(first), _timeless(other)
    differing = list(_differing(left, right, ""))
    return Judge("determinism", other.id).found(
        f"same report as {first.id}", differing, "every value but dates, the call, and the host's own costs"
    )


def _timeless(report: Report) -> Any:
    values = encode(report)
    for name in DATED:
        del values[name]
    for name in HOST_CONDITIONS:
        del values["conditions"][name]
    del values["costs"]["seconds"], values["memory"]["snapshots"]
    for run in values["runs"]:
        run["wall_seconds"] = run["waited_seconds"] = None
    return values


def _differing(left: Any, right: Any, place: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in dict.fromkeys([*left, *right]):
            yield from _differing(left.get(name), right.get(name), f"{place}.{name}".lstrip("."))
    elif _is_list(left) and _is_list(right) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        at = next((index for index, (one, two) in pairs if one != two), None)
        if at is not None:
            yield from _differing(left[at], right[at], f"{place}[{at}]")
    elif left != right:
        yield f"{place} is {_short(right)}, and was {_short(left)}"


def _is_list(value: Any) -> bool:
    """A list or a column, whatever it is kept in."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
