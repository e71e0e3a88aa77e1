"""What the methods of a package shall take, from what was asked for; no torch."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from musebench.core.errors import UsageError
from musebench.core.plan import Limits
from musebench.programs.facts import DECODE, PREFILL, MethodFacts

FEWEST_THAT_VARIES = 2
"""torch.export compiles a size of 0 or 1 as that very number: a size that varies begins at 2."""


@dataclass(frozen=True)
class Bounds:
    """Bounds asked for. `fewest` and `most` tokens of a prefill, `most_sequences` of any forward,
    `most_decodes` of a decode (None: as many as sequences).

    Raises:
        UsageError: bounds that cannot be, with the bound that would do.
    """

    fewest: int = FEWEST_THAT_VARIES
    most: int = 512
    most_sequences: int = 64
    most_decodes: int | None = None

    def __post_init__(self) -> None:
        if self.fewest < FEWEST_THAT_VARIES:
            raise UsageError(
                f"--fewest is {self.fewest}; at least {FEWEST_THAT_VARIES} is wanted: torch.export takes no "
                "size of 1 for one that varies"
            )
        for flag, value, least in (
            ("--most-sequences", self.most_sequences, FEWEST_THAT_VARIES),
            ("--most-decodes", self.decodes, 1),
            ("--most", self.most, self.most_sequences),
        ):
            if value < least:
                raise UsageError(f"{flag} is {value}; at least {least} is wanted")
        if self.decodes > self.most_sequences:
            raise UsageError(
                f"--most-decodes is {self.decodes}; at most --most-sequences, {self.most_sequences}, is "
                "wanted"
            )
        Limits(self.fewest, self.most, self.most_sequences, self.most)

    @property
    def decodes(self) -> int:
        return self.most_sequences if self.most_decodes is None else self.most_decodes

    def methods(self) -> tuple[MethodFacts, ...]:
        """A decode of one sequence, a ranged one where more are asked for, and a ranged `prefill`."""
        sequences = (FEWEST_THAT_VARIES, self.most_sequences)
        several = (MethodFacts(DECODE, True, *(FEWEST_THAT_VARIES, self.decodes) * 3),)
        return (
            MethodFacts(f"{DECODE}-1", True, *(1,) * 6),
            *(several if self.decodes >= FEWEST_THAT_VARIES else ()),
            MethodFacts(PREFILL, False, self.fewest, self.most, *sequences, *sequences),
        )


@dataclass(frozen=True)
class Widths:
    """A ladder of static widths: each is a prefill of so many tokens, and a decode where it is no wider than
    `most_sequences`.

    Raises:
        UsageError: no width, or one below 1.
    """

    widths: Ordered[int]
    most_sequences: int = 64

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise UsageError(f"--widths {list(self.widths)} is wrong; numbers of at least 1 are wanted")
        if self.most_sequences < 1:
            raise UsageError(f"--most-sequences is {self.most_sequences}; at least 1 is wanted")
        if min(self.widths) > self.most_sequences:
            raise UsageError(
                f"--widths begins at {min(self.widths)} and --most-sequences is {self.most_sequences}: no "
                "width is left for decodes; give a smaller width or more sequences"
            )

    def methods(self) -> tuple[MethodFacts, ...]:
        widths = sorted(set(self.widths))
        decodes = [width for width in widths if width <= self.most_sequences]
        return (
            *(MethodFacts(f"{DECODE}-{width}", True, *(width,) * 6) for width in decodes),
            *(
                MethodFacts(
                    f"{PREFILL}-{width}", False, width, width, *(min(width, self.most_sequences),) * 4
                )
                for width in widths
            ),
        )


def bounds_of(
    fewest: int | None, most: int | None, most_sequences: int, most_decodes: int | None, widths: str | None
) -> Bounds | Widths:
    """What the flags of `musebench export` ask for; None is a flag that was not given.

    Raises:
        UsageError: a flag that has no meaning beside another, or a value that cannot be.
    """
    if widths is None:
        return Bounds(
            FEWEST_THAT_VARIES if fewest is None else fewest,
            max(Bounds.most, most_sequences) if most is None else most,
            most_sequences,
            most_decodes,
        )
    ranged = (("--fewest", fewest), ("--most", most), ("--most-decodes", most_decodes))
    for flag, value in ranged:
        if value is not None:
            raise UsageError(f"{flag} is of a range, and --widths makes static programs; give one of them")
    try:
        numbers = tuple(int(part) for part in widths.split(","))
    except ValueError:
        raise UsageError(f"--widths is {widths!r}; numbers with commas between are wanted: 1,2,4,8") from None
    return Widths(numbers, most_sequences)
