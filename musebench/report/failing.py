"""`--fail-if` and `--filter`: expressions over a comparison.

A difference of times fires only where it exceeds the noise. What cannot be believed is never taken for "no
regression": a missing value, an INVALID report and an INVALID baseline fire, with that reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.report.compare import Comparison
from musebench.report.difference import Measured
from musebench.report.expression import Condition, Expression, conditions, holds, parse, require_unit
from musebench.report.groups import factors
from musebench.report.numbers import BY_KEY, Metric, metric
from musebench.report.table import pretty


@dataclass(frozen=True)
class Outcome:
    """`fired`: a line for each group in which the expression holds. `notes`: what was not judged, and why."""

    fired: tuple[str, ...]
    notes: tuple[str, ...]


def check_expression(text: str) -> Expression:
    """The expression of a `--fail-if`, its metrics and units checked.

    Raises:
        UsageError: no expression, an unknown metric, a unit that does not fit.
    """
    expression = parse(text, "--fail-if")
    for one in conditions(expression):
        require_unit(one, metric(one.name).unit, "--fail-if")
    return expression


def fail_if(comparison: Comparison, text: str) -> Outcome:
    """Where `text` holds: in every group that has a baseline, or in every group when nothing is relative.

    Raises:
        UsageError: as `check_expression`; a relative expression without anything to compare with.
    """
    expression = check_expression(text)
    relative = any(one.value is not None and one.value.relative for one in conditions(expression))
    bases, labels = comparison.bases, comparison.labels
    judged = [i for i in range(len(labels)) if not relative or bases[i] not in (i, None)]
    if not judged:
        raise UsageError(
            f"--fail-if {text!r} compares with a baseline, and there is nothing beside it; name more reports"
        )
    fired, notes = [], []
    for index in judged:
        said = _Part(comparison, index)
        if holds(expression, said.test):
            fired.append(f"{text}: {labels[index]}: {'; '.join(said.reasons)}")
        notes += [f"{text}: {labels[index]}: {note}" for note in said.notes]
    return Outcome(tuple(fired), tuple(notes))


class _Part:
    """Tests parts in one group, and keeps what is to be said about them."""

    def __init__(self, comparison: Comparison, index: int) -> None:
        self.comparison, self.index = comparison, index
        self.reasons: list[str] = []
        self.notes: list[str] = []

    def test(self, condition: Condition) -> bool:
        what = metric(condition.name)
        quantity = require_unit(condition, what.unit, "--fail-if")
        if (reason := self._unbelievable(what, self.index)) is not None:
            self.reasons.append(reason)
            return True
        measured = self.comparison.measured[what.key][self.index]
        if not quantity.relative:
            return self._beyond(condition, what, measured, quantity.limit(), "")
        base = self.comparison.bases[self.index]
        difference = self.comparison.difference(what, self.index)
        if base is None or difference is None:
            self.notes.append(f"not judged, it has no counterpart in {self.comparison.baseline}")
            return False
        if not difference.judged:
            self.notes.append(f"{what.name} is not judged, the baseline is of another machine")
            return False
        if (reason := self._unbelievable(what, base)) is not None:
            self.reasons.append(f"the baseline {self.comparison.labels[base]}: {reason}")
            return True
        start = self.comparison.measured[what.key][base].value
        assert isinstance(start, int | float)
        of = f" of the baseline's {pretty(start, what.unit)}"
        if difference.differs is False and not difference.exact:
            if self._beyond(condition, what, measured, quantity.limit(start), of, said=False):
                self.notes.append(f"{what.name} is {difference.remark()}: it does not count")
            return False
        if difference.differs is None:
            self.notes.append(f"{what.name} is judged by one sample, its noise is unknown")
        return self._beyond(condition, what, measured, quantity.limit(start), of)

    def _beyond(
        self, condition: Condition, what: Metric, measured: Measured, limit: float, of: str, said: bool = True
    ) -> bool:
        """Whether the median, or any sample of what is exact, is where the condition says."""
        values = measured.samples if measured.exact else (measured.value,)
        found = [value for value in values if condition.compare(value, limit)]
        if found and said:
            shown = pretty(found[0], what.unit)
            self.reasons.append(f"{what.name} is {shown} ({condition.operator} {condition.text}{of})")
        return bool(found)

    def _unbelievable(self, what: Metric, index: int) -> str | None:
        judgement = self.comparison.judgements[index]
        if what.speed and not judgement.valid:
            return judgement.line()
        if self.comparison.measured[what.key][index].value is None:
            return f"it has no {what.name}"
        return None


def keep(comparison: Comparison, text: str) -> list[int]:
    """Indices of the groups for which a `--filter` holds: metrics by their median, factors as text.

    Raises:
        UsageError: no expression, a name that is neither, or a unit that does not fit.
    """
    expression = parse(text, "--filter")
    every = [factors(group.reports[0]) for group in comparison.groups]
    known = {name for one in every for name in one}
    for one in conditions(expression):
        if one.name not in known:
            if one.name not in BY_KEY:
                names = [*known, *BY_KEY]
                raise UsageError(f"--filter: there is no {one.name!r}; {nearest(one.name, names)}")
            if require_unit(one, metric(one.name).unit, "--filter").relative:
                raise UsageError(f"--filter: {one.name} is compared with a number, not with the baseline")
        elif one.operator not in ("=", "!="):
            raise UsageError(f"--filter: {one.name} is text; = and != compare it")
    return [
        index for index in range(len(every)) if holds(expression, _Filter(comparison, index, every[index]))
    ]


class _Filter:
    """Tests parts in one group; what is missing passes no filter."""

    def __init__(self, comparison: Comparison, index: int, names: dict[str, str]) -> None:
        self.comparison, self.index, self.names = comparison, index, names

    def __call__(self, condition: Condition) -> bool:
        if condition.name in self.names:
            return condition.compare(self.names[condition.name], condition.text)
        value = self.comparison.measured[metric(condition.name).key][self.index].value
        if value is None or condition.value is None:
            return False
        return condition.compare(value, condition.value.limit())


def order(comparison: Comparison, name: str, chosen: Sequence[int]) -> list[int]:
    """`chosen` sorted by a metric, the best first; INVALID ones (in speed) and missing values last."""
    what = metric(name)
    values = comparison.measured[what.key]

    def place(index: int) -> tuple[bool, float]:
        value = values[index].value
        ranked = isinstance(value, int | float) and (comparison.judgements[index].valid or not what.speed)
        return not ranked, -what.better * float(value) if isinstance(value, int | float) else 0.0

    return sorted(chosen, key=place)
