"""Draws histories, plays them, and shortens those that break a law.

Hypothesis draws and shortens. It takes failures for different when their types are, so every law has a type
of its own here, and one search finds the shortest history of each law that is broken.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from musebench.core.errors import UnsupportedError
from musebench.testing.laws.law import ERRORS, Broken, Finding, History, Impossible, Law

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

MOST_SHORTENING = 100
"""Histories played to shorten those that break laws."""


def strategies() -> Any:
    """The module hypothesis.strategies.

    Raises:
        UnsupportedError: hypothesis is not installed.
    """
    try:
        from hypothesis import strategies as made
    except ModuleNotFoundError:
        raise UnsupportedError(
            "the conformance kit draws its histories with hypothesis, which is not installed; pip install "
            "'musebench[testing]'"
        ) from None
    return made


def many(parts: Any, lists: int) -> Any:
    """A strategy of tuples of parts, some 5 x `lists` of them; one list alone is rarely longer than 5."""
    st = strategies()
    return st.tuples(*[st.lists(parts) for _ in range(lists)]).map(lambda drawn: sum(map(tuple, drawn), ()))


def search(
    laws: Iterable[Law],
    histories: SearchStrategy[T],
    play: Callable[[T, History], None],
    examples: int,
    seed: int = 0,
) -> list[Finding]:
    """Play `examples` histories; a finding a law, in their order.

    `play` raises Broken at the first law that does not hold, which ends that history, and Impossible for one
    that cannot begin; anything else that it raises breaks `ERRORS`.
    """
    strategies()
    import hypothesis

    laws = (*laws, ERRORS)
    kinds: dict[str, type[AssertionError]] = {
        law.name: type(f"Broken{place}", (AssertionError,), {}) for place, law in enumerate(laws)
    }
    tally = _Tally()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        report_multiple_bugs=True,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(histories)
    def every(drawn: T) -> None:
        if tally.played > examples + MOST_SHORTENING:
            return  # short enough: what is left to try is taken for unbroken
        broken = tally.play(play, drawn)
        if broken is not None:
            raise kinds[broken.law.name]

    try:
        every()
    except (AssertionError, BaseExceptionGroup, hypothesis.errors.HypothesisException):
        if not tally.shortest:
            raise
    return [tally.finding(law) for law in laws]


class _Tally:
    """What all histories say, and the shortest that breaks each law."""

    def __init__(self) -> None:
        self.played = 0
        self.judged: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        self.shortest: dict[str, tuple[Broken, tuple[str, ...]]] = {}
        self.impossible = ""

    def play(self, play: Callable[[T, History], None], drawn: T) -> Broken | None:
        history = History()
        try:
            play(drawn, history)
            broken = None
        except Impossible as error:
            self.impossible = str(error)
            return None
        except Broken as error:
            broken = error
        except Exception as error:
            broken = Broken(ERRORS, _raised(error))
        self.played += 1
        self.missing.update(history.missing)
        for name in history.judged:
            self.judged[name] = self.judged.get(name, 0) + 1
        if broken is not None:
            steps = tuple(history.steps)
            known = self.shortest.get(broken.law.name)
            if known is None or _length(steps) <= _length(known[1]):
                self.shortest[broken.law.name] = broken, steps
        return broken

    def finding(self, law: Law) -> Finding:
        count = self.played if law is ERRORS else self.judged.get(law.name, 0)
        if law.name in self.shortest:
            broken, steps = self.shortest[law.name]
            return Finding(law, count, broken.fault, steps)
        if count:
            return Finding(law, count)
        why = self.missing.get(law.name) or (self.impossible if not self.played else "")
        if self.shortest and not why:
            why = f"every history ended before it, at {', '.join(sorted(self.shortest))}"
        return Finding(law, 0, reason=why or "no history came to it; draw more examples")


def _length(steps: tuple[str, ...]) -> tuple[int, int]:
    return len(steps), sum(map(len, steps))


def _raised(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__} was raised in {Path(frame.filename).name}:{frame.lineno}: {text}"
