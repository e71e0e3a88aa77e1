"""Cutting a plan into the forwards that a program takes."""

from __future__ import annotations

from collections.abc import Iterator

from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import Forward


def cut_to_limits(plan: StepPlan, limits: Limits, program: str = "") -> list[Forward]:
    """Forwards of at most `limits` that hold the plan's tokens in the plan's order.

    A plan that fits is one forward, the plan itself. A prefill slice that is too long is cut, one piece a
    forward (a piece starts where the one before ended, once that is computed), so that no piece falls below
    the fewest tokens of a prefill (which `Limits` makes always possible); a slice that is shorter as it comes
    stays so, and whoever runs it pads.
    """
    if (
        plan.tokens <= limits.most_tokens
        and plan.slices <= limits.most_sequences
        and (
            plan.tokens <= limits.most_prefill
            or all(piece.count <= limits.most_prefill for piece in plan.prefills)
        )
    ):
        return [Forward(plan, program)]
    return [Forward(part, program) for part in _parts(plan, limits)]


def _parts(plan: StepPlan, limits: Limits) -> Iterator[StepPlan]:
    width = min(limits.most_tokens, limits.most_sequences)
    decodes = [plan.decodes[i : i + width] for i in range(0, len(plan.decodes), width)]
    yield from (StepPlan(part) for part in decodes[:-1])
    first = decodes[-1] if decodes else ()
    pieces: list[Slice] = []
    left = limits.most_tokens - len(first)
    for piece in plan.prefills:
        remaining = piece.count
        while remaining:
            count = min(remaining, left, limits.most_prefill)
            if 0 < remaining - count < limits.fewest_prefill:
                count = remaining - limits.fewest_prefill
            full = len(first) + len(pieces) >= limits.most_sequences
            if full or count <= 0 or (count < remaining and count < limits.fewest_prefill):
                yield StepPlan(first, tuple(pieces))
                first, pieces, left = (), [], limits.most_tokens
                continue
            pieces.append(Slice(piece.sequence, count))
            left -= count
            remaining -= count
            if remaining:  # a sequence has one slice in a forward
                yield StepPlan(first, tuple(pieces))
                first, pieces, left = (), [], limits.most_tokens
    if first or pieces:
        yield StepPlan(first, tuple(pieces))
