"""What parts of a run answer, held to its type where a wrong one would be found too late, or never."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from musebench.core.blame import described, told
from musebench.core.errors import PluginError
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, Pool, RowRule

Answer = TypeVar("Answer")

SHOWN_CHARACTERS = 60


def answered(answer: object, wanted: type[Answer], who: object, method: str) -> Answer:
    """The answer, which `who` gave when `method` was asked.

    Raises:
        PluginError: it is of another type.
    """
    if not isinstance(answer, wanted):
        raise wrong(answer, f"a {wanted.__name__}", who, method)
    return answer


def wrong(answer: object, wanted: str, who: object, method: str) -> PluginError:
    """The error of an answer that is not what is `wanted`."""
    shown = repr(answer)
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
    return PluginError(f"{described(who, method)} gave {shown}; {wanted} is wanted")


def numbers_of(who: Any, method: str, optional: bool = False) -> dict[str, int | float]:
    """What a method without arguments gives, finite numbers by name; `optional`: empty where there is none.

    Raises:
        PluginError: something else.
    """
    answer: object = {} if optional and not hasattr(who, method) else getattr(who, method)()
    if not isinstance(answer, Mapping) or not all(
        isinstance(name, str) and isinstance(value, int | float) and math.isfinite(value)
        for name, value in answer.items()
    ):
        raise wrong(answer, "a mapping of names to finite numbers", who, method)
    return dict(answer)


def memory_of(who: Any) -> MemorySnapshot:
    """What `who.memory` gives.

    Raises:
        PluginError: something else than whole numbers and None.
    """
    return answered(who.memory(), MemorySnapshot, who, "memory")


def check_pool(pool: Pool) -> None:
    """Hold what a new pool says of itself to its type.

    Raises:
        PluginError: a count that is none, a list or a rule that is none.
    """
    for name in ("capacity", "room", "rows", "in_use", "generation"):
        value = getattr(pool, name)
        try:
            operator.index(value)
        except TypeError:
            raise wrong(value, "a whole number", pool, name) from None
        if value < 0:
            raise wrong(value, "at least 0", pool, name)
    answered(pool.resizes, list, pool, "resizes")
    if (rule := getattr(pool, "row_rule", None)) is not None:
        answered(rule, RowRule, pool, "row_rule")


def check_limits(limits: object, who: object) -> None:
    """Hold what an executor says that it takes to its type."""
    answered(limits, Limits, who, "limits")


class Asking:
    """Asks parts of a run that has ended for what its report says of them: one that fails, or answers what it
    may not, costs no report. `trouble` is the first such thing."""

    def __init__(self) -> None:
        self.trouble: str | None = None

    def numbers(self, what: str, who: Any, method: str, optional: bool = False) -> dict[str, int | float]:
        """As `numbers_of`; empty where that fails."""
        return self(what, lambda: numbers_of(who, method, optional), dict[str, int | float]())

    def memory(self, what: str, who: Any) -> MemorySnapshot:
        """As `memory_of`; without any number where that fails."""
        return self(what, lambda: memory_of(who), MemorySnapshot())

    def __call__(self, what: str, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return ask()
        except (Exception, SystemExit) as error:
            if self.trouble is None:
                self.trouble = f"the {what} could not be asked at the end: {told(error)}"
            return otherwise
