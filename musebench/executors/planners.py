"""Cutting a plan into a program's forwards: `bounded` for a ranged one, `ladder` for static widths."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from musebench.core.forwards import cut_to_limits
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Forward
from musebench.executors.ladder import GRAPH, GraphLadder
from musebench.programs.facts import MethodFacts, ProgramFacts


class Planner(Protocol):
    def cut(self, plan: StepPlan) -> list[Forward]:
        """Forwards that hold the plan's tokens in its order, each padded to what one method takes."""


class BoundedPlanner:
    """For one ranged prefill, a decode of one sequence and a ranged one.

    Decodes alone run in a decode. More of them than it takes run in the prefill, where they are within its
    bounds; what is below its fewest becomes several decodes. A forward with a prefill that is below the
    fewest is padded with scratch tokens: no slice is planned below, but whole prompts may be.
    """

    def __init__(self, facts: ProgramFacts, limits: Limits, ladder: GraphLadder | None) -> None:
        self._decodes, (self._prefill,) = facts.decodes, facts.prefills
        self._limits = limits
        self._ladder = ladder

    def cut(self, plan: StepPlan) -> list[Forward]:
        forwards: list[Forward] = []
        for part in (forward.plan for forward in cut_to_limits(plan, self._limits)):
            if part.prefills:
                forwards.append(_in_range(part, self._prefill))
            else:
                forwards += self._decoding(part)
        return forwards

    def _decoding(self, part: StepPlan) -> list[Forward]:
        count, most = len(part.decodes), self._decodes[-1].most_tokens
        if count > most and count >= self._prefill.fewest_tokens:
            return [_in_range(part, self._prefill)]
        parts = [part] if count <= most else _chunks(part, most)
        return [
            _captured(one, self._ladder) or _in_range(one, _next(self._decodes, one.tokens)) for one in parts
        ]


class LadderPlanner:
    """For static widths: every forward is padded to the next one that takes it."""

    def __init__(self, facts: ProgramFacts, limits: Limits, ladder: GraphLadder | None) -> None:
        self._decodes, self._prefills = facts.decodes, facts.prefills
        self._limits = limits
        self._ladder = ladder

    def cut(self, plan: StepPlan) -> list[Forward]:
        forwards: list[Forward] = []
        for part in (forward.plan for forward in cut_to_limits(plan, self._limits)):
            if part.prefills:
                forwards.append(_in_range(part, _next(self._prefills, part.tokens)))
                continue
            widest = self._decodes[-1].most_tokens
            parts = [part] if len(part.decodes) <= widest else _chunks(part, widest)
            forwards += [
                _captured(one, self._ladder) or _in_range(one, _next(self._decodes, one.tokens))
                for one in parts
            ]
        return forwards


def planner_for(facts: ProgramFacts, limits: Limits, ladder: GraphLadder | None) -> Planner:
    """The planner that fits a program's methods; `ladder` holds its captured decodes, if any are."""
    return (LadderPlanner if facts.static else BoundedPlanner)(facts, limits, ladder)


def _in_range(part: StepPlan, method: MethodFacts) -> Forward:
    # More rows than sequences are never wanted, so the fewest rows are what is missing at most.
    return Forward(
        part,
        method.name,
        max(part.tokens, method.fewest_tokens),
        max(part.slices, method.fewest_sequences),
        method.fewest_rows,
    )


def _next(methods: tuple[MethodFacts, ...], tokens: int) -> MethodFacts:
    """The narrowest that takes so many tokens; limits see to it that there is one."""
    return methods[bisect_left([method.most_tokens for method in methods], tokens)]


def _captured(part: StepPlan, ladder: GraphLadder | None) -> Forward | None:
    size = None if ladder is None else ladder.size_for(len(part.decodes))
    return None if size is None else Forward(part, GRAPH, size, size, size)


def _chunks(part: StepPlan, width: int) -> list[StepPlan]:
    return [StepPlan(part.decodes[at : at + width]) for at in range(0, len(part.decodes), width)]
