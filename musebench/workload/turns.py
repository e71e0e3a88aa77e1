"""Sessions: requests that go on from one another, drawn from (seed, "turns", the session)."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import replace

import numpy as np

from musebench.core.request import After, Prefix, Request, Sampling
from musebench.workload.draws import check_drawn, contents, generator
from musebench.workload.lengths import Lengths
from musebench.workload.spec import TurnsSpec

BLOCK_TOKENS = 64
MOST_BLOCKS = 2**24
"""Names that a simulated session has for its blocks; those of session i begin at i times as many."""


def sessions(
    turns: TurnsSpec, first: list[Request], prompts: Lengths, outputs: Lengths, seed: int, vocab: int
) -> list[Request]:
    """Each request and the later turns of its session behind it; a later one of session "7" is "7.1".

    `vocab` 0: nobody reads the ids. Its tags are the session and the turn, both from 0.
    """
    made: list[Request] = []
    drawn = 0
    for number, opening in enumerate(first):
        source = generator(seed, "turns", number)
        later = int(turns.count.draw(1, source)[0]) - 1
        lengths = (turns.prompt_tokens or prompts).draw(later, source).tolist()
        answers = outputs.draw(later, source).tolist()
        pauses = _pauses(turns, later, source)
        drawn += sum(lengths) if vocab else 0
        check_drawn(drawn)
        former = replace(opening, tags={**opening.tags, "session": number, "turn": 0})
        if not vocab and former.prefix is None:
            blocks = -(-len(former.prompt) // BLOCK_TOKENS)
            start = number * MOST_BLOCKS
            former = replace(former, prefix=Prefix(tuple(range(start, start + blocks)), BLOCK_TOKENS))
        made.append(former)
        for turn in range(later):
            prompt: Ordered[int] = range(lengths[turn])
            if vocab:
                prompt = contents(source.integers(0, vocab, lengths[turn], np.int32))
            former = replace(
                former,
                id=f"{opening.id}.{turn + 1}",
                prompt=prompt,
                max_new_tokens=answers[turn],
                sampling=_sampling(former.sampling),
                tags={**former.tags, "turn": turn + 1},
                prefix=None,
                after=After(former.id, pauses[turn], former.most_tokens),
            )
            made.append(former)
    return made


def _sampling(sampling: Sampling) -> Sampling:
    return sampling if sampling.greedy else replace(sampling, seed=(sampling.seed + 1) % 2**63)


def _pauses(turns: TurnsSpec, count: int, source: np.random.Generator) -> list[float]:
    if not turns.think_seconds or not turns.think_cv:
        return [turns.think_seconds] * count
    shape = 1 / turns.think_cv**2
    made: list[float] = source.gamma(shape, turns.think_seconds / shape, count).tolist()
    return made
