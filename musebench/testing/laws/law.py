"""A law, the history over which it is held, and what came of it, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

FEW = 4
"""Most steps of a history that are told within the sentence; more are listed only."""


@dataclass(frozen=True)
class Law:
    """`text` says what holds, of any component of its kind."""

    name: str
    text: str


ERRORS = Law("errors", "nothing is raised but what the protocol names")


class Broken(Exception):
    """`law` does not hold; `fault` says what was found instead."""

    def __init__(self, law: Law, fault: str) -> None:
        super().__init__(f"{law.name}: {fault}")
        self.law = law
        self.fault = fault


class Impossible(Exception):
    """A history that this component rightly refuses to begin; its text is the reason."""


class History:
    """What is done to a component, step by step in words, and which laws were looked at."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.judged: Counter[str] = Counter()
        self.missing: dict[str, str] = {}  # law -> why it cannot be judged

    def doing(self, what: str) -> None:
        """The next step, as in "opening A with 3 tokens"."""
        self.steps.append(what)

    def gave(self, what: str) -> None:
        """What came of the last step."""
        self.steps[-1] += f": {what}"

    def hold(self, law: Law, holds: bool, fault: str) -> None:
        """Raises Broken where `law` does not hold."""
        self.judged[law.name] += 1
        if not holds:
            raise Broken(law, fault)

    def cannot_judge(self, law: Law, reason: str) -> None:
        self.missing[law.name] = reason


@dataclass(frozen=True)
class Finding:
    """What came of one law. `histories` counts those in which it was looked at; `history` is the shortest
    that breaks it. `reason` says why it was not judged."""

    law: Law
    histories: int = 0
    fault: str = ""
    history: tuple[str, ...] = ()
    reason: str = ""

    @property
    def outcome(self) -> str:
        """ "held", "broken" or "not judged"."""
        if self.fault:
            return "broken"
        return "not judged" if self.reason else "held"

    def sentence(self) -> str:
        """What is the matter, on one line."""
        if self.reason and not self.fault:
            return self.reason
        if not self.fault:
            return f"{self.law.text} ({self.histories:,} histories)"
        done = [step.partition(": ")[0] for step in self.history]
        if not done:
            return self.fault
        if len(done) > FEW:
            return f"after {len(done)} steps, {self.fault}"
        return f"after {listed(done)}, {self.fault}"

    def text(self) -> str:
        """The sentence, and below it the law and the history, a step a line."""
        lines = [f"{self.law.name}: {self.sentence()}"]
        if self.fault:
            lines.append(f"  the law: {self.law.text}")
            lines += [f"  {place}. {step}" for place, step in enumerate(self.history, 1)]
        return "\n".join(lines)


def listed(words: Iterable[object], last: str = "and") -> str:
    """ "a, b and c"."""
    *head, end = [str(word) for word in words] or ["nothing"]
    return f"{', '.join(head)} {last} {end}" if head else end


def counted(number: int, what: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
