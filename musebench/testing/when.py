"""At which of its calls a planted fault strikes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class When:
    """From call `first` (from 0) on, `times` calls in a row; 0 times: all of them. `next` counts a call."""

    first: int
    times: int
    calls: int = field(default=0)

    def next(self) -> bool:
        """Whether the fault strikes at this call."""
        call, self.calls = self.calls, self.calls + 1
        return call >= self.first and (not self.times or call < self.first + self.times)


def settings(text: str) -> dict[str, str]:
    """ "NAME=VALUE;NAME=VALUE" as a mapping, for the options of what is wrapped."""
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
