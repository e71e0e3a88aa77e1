"""How wide a run is: what a plan may hold, and how many sessions of what length."""

from __future__ import annotations

from musebench.core.errors import UsageError
from musebench.core.plan import Limits
from musebench.core.protocols import Executor, PoolBounds
from musebench.core.request import Request
from musebench.models.source import Model
from musebench.run.options import RunOptions, natural
from musebench.workload.workload import Workload

MOST_SESSIONS = 256
TOKEN_BUDGET = 1024
MOST_INDEX = 2**31 - 1
"""Slots, positions and tokens of a step are numbered in int32."""


def dimensions(
    options: RunOptions, workload: Workload, requests: list[Request], model: Model
) -> tuple[Limits, PoolBounds]:
    """Flags first, then the workload's defaults, then what the requests need."""
    given = workload.defaults
    sessions = options.max_sessions or given.max_sessions or min(len(requests), MOST_SESSIONS)
    budget = options.token_budget or given.token_budget or TOKEN_BUDGET
    for flag, value in (
        ("--max-sessions", options.max_sessions), ("--max-context", options.max_context),
        ("--token-budget", options.token_budget),
    ):  # fmt: skip
        if value is not None:
            natural(flag, value, 1, MOST_INDEX)
    longest = max(request.most_tokens for request in requests)
    context = options.max_context or given.max_context or min(longest, model.facts.max_context)
    if context > model.facts.max_context:
        raise UsageError(
            f"--max-context {context:,} is more than model {model.facts.name!r} was made for "
            f"({model.facts.max_context:,} positions)"
        )
    fewest = given.fewest_prefill or 1
    limits = Limits(fewest, min(given.most_prefill or budget, budget), sessions, budget)
    return limits, PoolBounds(sessions, context, given.capacity)


def plan_limits(limits: Limits, executor: Executor) -> Limits:
    """A plan may be wider than a program, which is then run several times, but no slice too short for it."""
    fewest = max(limits.fewest_prefill, executor.limits.fewest_prefill)
    return Limits(fewest, limits.most_prefill, limits.most_sequences, limits.most_tokens)
