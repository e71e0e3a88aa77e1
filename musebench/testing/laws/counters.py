"""Counts that only rise, as every component reports them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from musebench.testing.laws.law import History, Law


class Counted:
    """Holds the counters of one component against what they were; with `rates` those that are no whole
    numbers may fall."""

    def __init__(self, law: Law, rates: bool = False) -> None:
        self._law = law
        self._rates = rates
        self._last: dict[str, int | float] = {}

    def look(self, counters: Mapping[str, int | float], history: History) -> None:
        for name, value in counters.items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            history.hold(self._law, number, f"counter {name!r} is {value!r}, no finite number")
            history.hold(self._law, value >= 0, f"counter {name!r} is {value}, below 0")
            before = self._last.get(name, 0)
            if self._rates and isinstance(value, float):
                continue
            history.hold(self._law, value >= before, f"counter {name!r} fell from {before} to {value}")
        self._last = dict(counters)
