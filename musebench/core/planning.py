"""A scheduler's helper: it puts slices into a plan and keeps the limits and the pool's room."""

from __future__ import annotations

from musebench.core.plan import Limits, Slice, StepPlan, slice_tokens
from musebench.core.protocols import Pool, Running
from musebench.core.sequence import Phase, Sequence
from musebench.core.sharing import Sharing, most_shared, sharing_of


def check_plan(plan: StepPlan, running: Running, limits: Limits, free_slots: int) -> None:
    """Hold a scheduler's plan against what it may plan, before anything changes.

    Raises:
        ValueError: a sequence that is planned twice, that neither runs nor waits, a decode of one that
            prefills, a slice that is empty or longer than what is left, a plan beyond the limits, or more
            admissions than there are slots.
    """
    if plan.decodes is not running.decoding:
        known = set(running.decoding)
        for sequence in plan.decodes:
            if sequence not in known:
                raise ValueError(f"{sequence} cannot decode now, or is planned twice")
            known.remove(sequence)
    if plan.tokens > limits.most_tokens or plan.slices > limits.most_sequences:
        raise ValueError(
            f"{plan.tokens} tokens of {plan.slices} sequences; at most {limits.most_tokens} tokens of "
            f"{limits.most_sequences} sequences are allowed"
        )
    if not plan.prefills:
        return
    admitted = 0
    planned: set[Sequence] = set()
    for piece in plan.prefills:
        sequence = piece.sequence
        if sequence in planned or (sequence.phase is Phase.DECODE and sequence in plan.decodes):
            raise ValueError(f"{sequence} is planned twice")
        planned.add(sequence)
        if sequence.phase is Phase.WAITING:
            admitted += 1
        elif sequence not in running.prefilling and sequence not in running.decoding:
            raise ValueError(f"{sequence} neither waits nor has anything left to plan")
        if not 1 <= piece.count <= min(sequence.remaining, limits.most_prefill):
            raise ValueError(
                f"a slice of {piece.count} tokens of {sequence}, which has {sequence.remaining} left; "
                f"a prefill takes at most {limits.most_prefill}"
            )
    if admitted > free_slots:
        raise ValueError(f"{admitted} sequences admitted; {free_slots} slots are free")


class PlanBuilder:
    """Builds one plan. What it is asked for and cannot place it answers with False or fewer tokens.

    A sequence is admitted only when all its tokens fit beside what the running ones still owe and one more
    decode of each: so an admission is not undone by the next step, and a preempted sequence does not come
    back before there is room for progress.
    """

    def __init__(self, limits: Limits, pool: Pool, running: Running) -> None:
        self.limits = limits
        self.tokens_left = limits.most_tokens
        self._pool = pool
        self._running = running
        self._sequences = len(running)
        self._decodes: tuple[Sequence, ...] = ()
        self._prefills: list[Slice] = []
        self._room: int | None = None
        self._sharing: Sharing | None = None  # known once the room is

    def decode(self, sequences: tuple[Sequence, ...]) -> None:
        """One token each, as many as the limits take, in order."""
        fits = min(len(sequences), self.tokens_left, self.limits.most_sequences)
        self._decodes = sequences if fits == len(sequences) else sequences[:fits]
        self.tokens_left -= fits

    def prefill(self, sequence: Sequence) -> bool:
        """The next slice of a running sequence; False when no slice fits this step any more."""
        return self._slice(sequence, sequence.remaining)

    def _slice(self, sequence: Sequence, remaining: int) -> bool:
        if len(self._decodes) + len(self._prefills) >= self.limits.most_sequences:
            return False
        count = slice_tokens(remaining, self.tokens_left, self.limits)
        if count == 0:
            return False
        self._prefills.append(Slice(sequence, count))
        self.tokens_left -= count
        return True

    def admit(self, sequence: Sequence) -> bool:
        """The first slice of a waiting sequence; False when limits or room have no place for it now. What the
        pool has of it already is not planned.

        Running sequences stay so few that when all others decode in a step, a slice of any prompt still fits:
        2 x fewest - 1 tokens are what the worst rest of a prompt takes.
        """
        limits = self.limits
        if self._sequences >= min(limits.most_sequences, limits.most_tokens - 2 * limits.fewest_prefill + 2):
            return False
        if self._room is None:
            owed = sum(self._pool.quote(one) for one in self._running.prefilling)
            owed += len(self._running.decoding) * self._pool.decode_cells
            self._room = self._pool.room - owed
            self._sharing = sharing_of(self._pool)
        quote = self._pool.quote(sequence)
        if quote + self._sequences * self._pool.decode_cells > self._room:
            return False
        held = 0 if self._sharing is None else self._sharing.held(sequence, most_shared(sequence, limits))
        if not self._slice(sequence, sequence.remaining - held):
            return False
        self._room -= quote
        self._sequences += 1
        return True

    def plan(self) -> StepPlan:
        return StepPlan(self._decodes, tuple(self._prefills))
