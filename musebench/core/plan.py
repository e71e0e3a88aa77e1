"""Who runs in one step, with how many tokens: the scheduler's answer, and the limits it must keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from musebench.core.errors import UsageError

if TYPE_CHECKING:
    from musebench.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program takes in one forward, or a scheduler may put in one step.

    `fewest_prefill` and `most_prefill` bound the tokens of one prefill slice, `most_sequences` the slices,
    `most_tokens` all tokens together. Decodes (slices of the one newest token) are not prefills.
    """

    fewest_prefill: int = 1
    most_prefill: int = 2048
    most_sequences: int = 256
    most_tokens: int = 2048

    def __post_init__(self) -> None:
        if self.fewest_prefill < 1:
            raise UsageError(f"fewest tokens of a prefill is {self.fewest_prefill}; at least 1 is needed")
        if self.most_sequences < 1:
            raise UsageError(f"most sequences is {self.most_sequences}; at least 1 is needed")
        # A prompt of r tokens, longer than one slice, must split into slices of at least `fewest`. With
        # most >= 2 x fewest - 1 every r does: what is left below 2 x fewest still fits one slice.
        wanted = 2 * self.fewest_prefill - 1
        for what, value in (("prefill", self.most_prefill), ("step", self.most_tokens)):
            if value < wanted:
                raise UsageError(
                    f"most tokens of a {what} is {value}; a fewest prefill of {self.fewest_prefill} needs at "
                    f"least {wanted}, or a prompt could not be split"
                )

    def within(self, other: Limits) -> Limits:
        """The limits that satisfy both."""
        return Limits(
            max(self.fewest_prefill, other.fewest_prefill),
            min(self.most_prefill, other.most_prefill),
            min(self.most_sequences, other.most_sequences),
            min(self.most_tokens, other.most_tokens),
        )


def slots_of_all(sequences: tuple[Sequence, ...]) -> np.ndarray:
    """Slots of sequences, int32, in order."""
    return np.array([sequence.slot for sequence in sequences], np.int32)


def slice_tokens(remaining: int, budget: int, limits: Limits) -> int:
    """How many of `remaining` tokens the next slice takes within `budget`; 0 when none can.

    No slice is below the fewest of a prefill, and none leaves a rest below it: the slice is cut so that the
    rest reaches the bound. A sequence of fewer tokens than the bound is taken whole (the executor pads).
    """
    count = min(remaining, budget, limits.most_prefill)
    if count == remaining:
        return count
    if remaining - count < limits.fewest_prefill:
        count = remaining - limits.fewest_prefill
    return count if count >= limits.fewest_prefill else 0


@dataclass(frozen=True, slots=True)
class Slice:
    """The next `count` tokens of one sequence, from its first that is not computed."""

    sequence: Sequence
    count: int


@dataclass(frozen=True, init=False)
class StepPlan:
    """The slices of one step, in order: decodes (one token each) first, then prefills.

    Frozen, and built of tuples: whoever receives a plan can read it and nothing else. A sequence wants a
    next token when its slice reaches the last token it has. Sequences that are still waiting are admitted
    by being in the plan.
    """

    decodes: tuple[Sequence, ...] = ()
    prefills: tuple[Slice, ...] = ()

    tokens: int = field(init=False, repr=False, compare=False)
    slices: int = field(init=False, repr=False, compare=False)

    def __init__(self, decodes: tuple[Sequence, ...] = (), prefills: tuple[Slice, ...] = ()) -> None:
        tokens = slices = len(decodes)
        if prefills:
            tokens += sum([piece.count for piece in prefills])
            slices += len(prefills)
        self.__dict__.update(decodes=decodes, prefills=prefills, tokens=tokens, slices=slices)

    @property
    def empty(self) -> bool:
        return not self.decodes and not self.prefills

    def slots_from(self, slots_of: Callable[[tuple[Sequence, ...]], np.ndarray]) -> StepPlan:
        """This plan, where somebody may know the slots of its decodes already."""
        self.__dict__["_slots_of"] = slots_of
        return self

    @cached_property
    def decode_slots(self) -> np.ndarray:
        """Slots of the decodes, int32; valid once all its sequences are admitted."""
        slots_of: Callable[[tuple[Sequence, ...]], np.ndarray] = self.__dict__.get("_slots_of", slots_of_all)
        return slots_of(self.decodes)

    @cached_property
    def slots(self) -> np.ndarray:
        """Slots of all sequences in plan order, int32; valid once they are admitted."""
        if not self.prefills:
            return self.decode_slots
        more = np.array([piece.sequence.slot for piece in self.prefills], np.int32)
        return np.concatenate([self.decode_slots, more])

    def sequences(self) -> list[Sequence]:
        """All sequences in plan order."""
        return [*self.decodes, *(piece.sequence for piece in self.prefills)]
