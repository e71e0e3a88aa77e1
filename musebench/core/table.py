"""What a run keeps of the sequences that hold a slot: their tokens, and how far each has come.

The engine touches every running sequence in every step, so what changes each step lives in numpy columns,
indexed by slot, and is updated for a whole batch at once. `musebench.core.counted.CountedTable` keeps counts
alone, where nobody reads a token.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from musebench.core.flight import Flight
    from musebench.core.packing import Packed
    from musebench.core.plan import StepPlan
    from musebench.core.sequence import Sequence

PENDING = -1
"""Stands for a token that is being sampled: the device knows it already, the host not yet."""

NO_TOKEN = -2
"""Equals no token and no `PENDING`: fills the unused places of stop lists."""

Tokens = Any
"""What a table keeps of a sequence that has no slot, ids or steps: it has a length and a last entry."""


class Contexts(NamedTuple):
    """Tokens that the `decodes` of a step attend to, each its own included: their sum, and `each` of
    them, int64 [decodes], which is not worked out before it is asked for."""

    decodes: int
    total: int
    each: Callable[[], np.ndarray]


NOWHERE = np.empty(0, np.int32)


class SequenceTable:
    """Columns over slots 1..`slots`; row 0 is scratch.

    `tokens[slot, position]` int32, prompt then generated, `PENDING` where a sample is in flight;
    `token_step[slot, position]` int32, the step that made a generated token; `length` tokens known or in
    flight; `computed` tokens whose keys and values are written (by a launched step); `limit` prompt + most
    new tokens; `stop[slot, :]` stop ids, `NO_TOKEN` where unused; `temperature`, `top_k`, `top_p`, `seed` as
    in `Sampling`. Widths grow by doubling with the longest sequence and the longest list of stop ids.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.width = 64
        rows = slots + 1
        self.tokens = np.zeros((rows, self.width), np.int32)
        self.token_step = np.full((rows, self.width), -1, np.int32)
        self.length = np.zeros(rows, np.int32)
        self.computed = np.zeros(rows, np.int32)
        self.limit = np.zeros(rows, np.int32)
        self.stop = np.full((rows, 1), NO_TOKEN, np.int32)
        self.stops = False  # whether any sequence ever had a stop id
        self.temperature = np.zeros(rows, np.float32)
        self.top_k = np.zeros(rows, np.int32)
        self.top_p = np.ones(rows, np.float32)
        self.seed = np.zeros(rows, np.int64)

    def _widen(self, width: int, stops: int) -> None:
        """Make room for sequences of `width` tokens with `stops` stop ids."""
        if stops > self.stop.shape[1]:
            more = max(stops, 2 * self.stop.shape[1]) - self.stop.shape[1]
            self.stop = np.pad(self.stop, ((0, 0), (0, more)), constant_values=NO_TOKEN)
        if width <= self.width:
            return
        while self.width < width:
            self.width *= 2
        grow = self.width - self.tokens.shape[1]
        self.tokens = np.pad(self.tokens, ((0, 0), (0, grow)))
        self.token_step = np.pad(self.token_step, ((0, 0), (0, grow)), constant_values=-1)

    # -- one slot -------------------------------------------------------------------------------------

    def enter(self, slot: int, sequence: Sequence) -> None:
        """A sequence takes a slot, with its prompt and what it had generated before a preemption."""
        request, limit = sequence.request, sequence.limit
        self._widen(limit, len(request.stop_tokens))
        self._put(slot, request.prompt, sequence.rest, sequence.rest_steps)
        self.length[slot] = sequence.length
        self.computed[slot] = 0
        self.limit[slot] = limit
        if request.stop_tokens:
            self.stops = True
        if self.stops:
            self.stop[slot] = NO_TOKEN
            self.stop[slot, : len(request.stop_tokens)] = request.stop_tokens
        sampling = request.sampling
        self.temperature[slot], self.top_k[slot] = sampling.temperature, sampling.top_k
        self.top_p[slot], self.seed[slot] = sampling.top_p, sampling.seed

    def leave(self, slot: int, prompt_tokens: int) -> tuple[Tokens, Tokens]:
        """It gives the slot back; returns what `take` does."""
        taken = self.take(slot, prompt_tokens)
        self.length[slot] = self.computed[slot] = self.limit[slot] = 0
        self.temperature[slot] = 0.0
        return taken

    def _put(self, slot: int, prompt: Ordered[int], rest: Tokens | None, steps: Tokens | None) -> None:
        count = len(prompt)
        self.tokens[slot, :count] = prompt
        self.token_step[slot, :count] = -1
        if rest is not None and steps is not None:
            self.tokens[slot, count : count + len(rest)] = rest
            self.token_step[slot, count : count + len(rest)] = steps

    def take(self, slot: int, prompt_tokens: int) -> tuple[Tokens, Tokens]:
        """The generated tokens of a slot, and the rows of the steps that made them."""
        own = slice(prompt_tokens, int(self.length[slot]))
        return self.tokens[slot, own].copy(), self.token_step[slot, own].copy()

    def drop_pending(self, slot: int, prompt_tokens: int) -> None:
        """Nobody waits any more for the tokens of a slot that have not come back."""
        row = self.tokens[slot, prompt_tokens : int(self.length[slot])]
        pending = np.flatnonzero(row == PENDING)
        known = int(pending[0]) if len(pending) else len(row)
        self.length[slot] = prompt_tokens + known

    def length_of(self, slot: int) -> int:
        return int(self.length[slot])

    def computed_of(self, slot: int) -> int:
        return int(self.computed[slot])

    def adopt(self, slot: int, tokens: int) -> None:
        """The first tokens of a sequence that has just entered are computed: it shares their cells."""
        self.computed[slot] = tokens

    def join(self, slot: int) -> None:
        """The sequence of a slot decodes from here on: it has one token left to compute."""

    def part(self, slot: int) -> None:
        """It does so no more."""

    # -- a plan ---------------------------------------------------------------------------------------

    def attended(self, plan: StepPlan) -> int:
        """Over the slices of a plan, tokens of the slice's sequence up to its last."""
        return int(self.computed[plan.slots].sum(dtype=np.int64)) + plan.tokens

    def contexts(self, plan: StepPlan) -> Contexts:
        """Those of the decodes of a plan that is not launched yet."""
        each = self.computed[plan.decode_slots].astype(np.int64) + 1
        return Contexts(len(each), int(each.sum()), lambda: each)

    def places(self, plan: StepPlan, first: Ordered[Sequence]) -> tuple[np.ndarray, np.ndarray]:
        """Slots and positions, int32 each, of the tokens that a plan's decodes and the prefills of `first`
        will make."""
        slots = np.array([*plan.decode_slots.tolist(), *(sequence.slot for sequence in first)], np.int32)
        return slots, self.length[slots]

    def least_left(self, plan: StepPlan) -> int:
        """The fewest tokens that any of a plan's decodes may still make."""
        slots = plan.decode_slots
        return int((self.limit[slots] - self.length[slots]).min())

    def before(self, plan: StepPlan) -> Any:
        """What `undo` needs to take the launch of a plan back; to be asked for before it."""
        slots = plan.slots
        return self.computed[slots], self.length[slots]

    def undo(self, flight: Flight) -> None:
        """Counts of its sequences, of those that have a slot still, are what they were before the launch."""
        counts = zip(flight.sequences, *(column.tolist() for column in flight.before), strict=True)
        for sequence, computed, length in counts:
            if sequence.slot:
                self.computed[sequence.slot] = computed
                self.length[sequence.slot] = length

    def launched(self, plan: StepPlan, packed: Packed) -> None:
        """A forward is launched: the sampled token of each row is its sequence's next, on its way."""
        self.computed[plan.decode_slots] += 1
        for piece in plan.prefills:
            self.computed[piece.sequence.slot] += piece.count
        self.tokens[packed.slots, packed.positions] = PENDING
        self.length[packed.slots] = packed.positions + 1

    def ending(self, flight: Flight) -> list[Sequence]:
        """Sequences whose last token a launched step makes, in its order."""
        full = self.length[flight.slots] >= self.limit[flight.slots]
        if not full.any():
            return []
        ending = set(flight.slots[full].tolist())
        return [sequence for sequence in flight.sequences if sequence.slot in ending]

    def land(self, flight: Flight, tokens: np.ndarray, row: int) -> list[tuple[Sequence, bool]]:
        """Tokens of a step came back, int32 [R]; `row` is its own. Returns who ends there, and whether for a
        stop token."""
        slots, positions, keep = flight.slots, flight.positions, flight.kept()
        if keep is not None:
            slots, positions, tokens = slots[keep], positions[keep], tokens[keep]
        self.tokens[slots, positions] = tokens
        self.token_step[slots, positions] = row
        if not (flight.ending or self.stops):
            return []
        stopped = (self.stop[slots] == tokens[:, None]).any(1)
        ended = stopped | (positions + 1 >= self.limit[slots])
        # What a step in flight makes for one that stopped is dropped.
        self.length[slots[ended]] = positions[ended] + 1
        by_slot = {sequence.slot: sequence for sequence in flight.sequences}
        return [
            (by_slot[slot], stop)
            for slot, stop in zip(slots[ended].tolist(), stopped[ended].tolist(), strict=True)
        ]

    def decoded(self, plan: StepPlan, steps: int, token: int, row: int) -> None:
        """`steps` steps of a plan of decodes were launched and came back, from `row` on; every token of them
        is `token`."""
        slots = plan.decode_slots
        places = self.length[slots][:, None] + np.arange(steps, dtype=np.int32)
        self.tokens[slots[:, None], places] = token
        self.token_step[slots[:, None], places] = row + np.arange(steps, dtype=np.int32)
        self.computed[slots] += steps
        self.length[slots] += steps
