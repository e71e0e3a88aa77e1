"""Sharing: a pool keeps the cells of tokens it has seen, for sequences that begin with the same.

Optional, and a pool without it costs nothing. The scheduler's helper asks a pool what it has of a waiting
sequence (`held`) and plans what is left; when the engine has given the sequence its slot it lets it own those
cells (`adopt`), which then count as computed and as reused. From there on they are cells like any others:
`rewind` and `release` give them back, whether the sequence ends, is preempted or its first step fails.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Protocol, cast

from musebench.core.plan import Limits, Slice, StepPlan, slice_tokens
from musebench.core.sequence import Sequence


class Sharing(Protocol):
    """A pool that shares. A token's keys and values follow from the token, those before it and the model, so
    cells may be shared exactly where all tokens up to theirs are the same.

    Cells of a step that was launched may be given to the next one: a device runs steps in order, and a step
    that fails is rolled back after all that were launched behind it.
    """

    def forget(self) -> None:
        """Keep nothing that no sequence owns. Called before a run: a repeat would find all its prompts."""

    def held(self, sequence: Sequence, most: int) -> int:
        """How many tokens of a waiting sequence `adopt` would give it now. Changes nothing."""

    def adopt(self, sequence: Sequence, most: int) -> int:
        """Let a sequence, which has a slot and no cell yet, own the cells of its first tokens; how many, at
        most `most`. The changed rows of the cell table are in `take_edits`."""


def sharing_of(pool: object) -> Sharing | None:
    """The pool, if it shares. Cheap: asked in every step in which somebody may be admitted."""
    return cast("Sharing", pool) if callable(getattr(pool, "adopt", None)) else None


def most_shared(sequence: Sequence, limits: Limits) -> int:
    """Most tokens that may be adopted: the last one is always computed, for its logits are wanted, and no
    fewer than a prefill takes."""
    return max(sequence.length - limits.fewest_prefill, 0)


def adopt(sharing: Sharing, plan: StepPlan, admitted: Ordered[Sequence], limits: Limits) -> StepPlan:
    """Let the sequences that a plan admits own what there is of them; the plan without those tokens, where a
    scheduler did not know of them."""
    for sequence in admitted:
        count = sharing.adopt(sequence, most_shared(sequence, limits))
        sequence.table.adopt(sequence.slot, count)
        sequence.reused += count
    if all(piece.count <= piece.sequence.remaining for piece in plan.prefills):
        return plan
    return StepPlan(plan.decodes, tuple(_shorter(piece, limits) for piece in plan.prefills))


def _shorter(piece: Slice, limits: Limits) -> Slice:
    left = piece.sequence.remaining
    return Slice(piece.sequence, slice_tokens(left, piece.count, limits) or min(left, piece.count))
