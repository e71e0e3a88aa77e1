"""A request while it is served, and the columns that hold the numbers of all of them.

The engine touches every running sequence in every step, so what changes each step lives in numpy columns
(`SequenceTable`, indexed by slot) and is updated for a whole batch at once. `Sequence` is the handle: it
knows its row and does the sums.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from enum import Enum
from typing import Any

import numpy as np

from musebench.core.request import FinishReason, Request

SCRATCH_SLOT = 0
"""Slot 0 belongs to nobody: padding tokens write and read there."""

PENDING = -1
"""Stands for a token that is being sampled: the device knows it already, the host not yet."""


NO_TOKEN = -2
"""Equals no token and no `PENDING`: fills the unused places of stop lists."""


Tokens = Any
"""What a table keeps of a sequence that has no slot, ids or steps: it has a length and a last entry."""


class Phase(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class SequenceTable:
    """Columns over slots 1..`slots`; row 0 is scratch.

    `tokens[slot, position]` int32, prompt then generated, `PENDING` where a sample is in flight;
    `token_step[slot, position]` int32, the step that made a generated token; `length` tokens known or in
    flight; `computed` tokens whose keys and values are written (by a launched step); `limit` prompt + most
    new tokens; `stop[slot, :]` stop ids, `NO_TOKEN` where unused; `temperature`, `top_k`, `top_p`, `seed` as
    in `Sampling`. Widths grow by doubling with the longest
    sequence and the longest list of stop ids.
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

    def widen(self, width: int, stops: int = 0) -> None:
        """Make room for sequences of `width` tokens with `stops` stop ids."""
        if stops > self.stop.shape[1]:
            more = max(stops, 2 * self.stop.shape[1]) - self.stop.shape[1]
            self.stop = np.pad(self.stop, ((0, 0), (0, more)), constant_values=NO_TOKEN)
        if width > self.width:
            self._widen_tokens(width)

    def _widen_tokens(self, width: int) -> None:
        while self.width < width:
            self.width *= 2
        grow = self.width - self.tokens.shape[1]
        self.tokens = np.pad(self.tokens, ((0, 0), (0, grow)))
        self.token_step = np.pad(self.token_step, ((0, 0), (0, grow)), constant_values=-1)

    # -- tokens of a slot -----------------------------------------------------------------------------

    def put(self, slot: int, prompt: Ordered[int], rest: Tokens | None, steps: Tokens | None) -> None:
        """Write a sequence's prompt, and what it had generated before a preemption."""
        count = len(prompt)
        self.tokens[slot, :count] = prompt
        self.token_step[slot, :count] = -1
        if rest is not None and steps is not None:
            self.tokens[slot, count : count + len(rest)] = rest
            self.token_step[slot, count : count + len(rest)] = steps

    def expect(self, slots: np.ndarray, positions: np.ndarray) -> None:
        """Tokens are on their way to these places."""
        self.tokens[slots, positions] = PENDING

    def land(self, slots: np.ndarray, positions: np.ndarray, tokens: np.ndarray, row: int) -> None:
        """Tokens came back; `row` is that of the step that made them."""
        self.tokens[slots, positions] = tokens
        self.token_step[slots, positions] = row

    def land_steps(self, slots: np.ndarray, first: np.ndarray, steps: int, token: int, row: int) -> None:
        """`steps` tokens a slot came back, from position `first` and from the step at `row` on; all of them
        are `token`."""
        columns = first[:, None] + np.arange(steps, dtype=np.int32)
        self.tokens[slots[:, None], columns] = token
        self.token_step[slots[:, None], columns] = row + np.arange(steps, dtype=np.int32)

    def known(self, slot: int, prompt_tokens: int) -> int:
        """How many generated tokens of a slot came back."""
        row = self.tokens[slot, prompt_tokens : int(self.length[slot])]
        pending = np.flatnonzero(row == PENDING)
        return int(pending[0]) if len(pending) else len(row)

    def take(self, slot: int, prompt_tokens: int) -> tuple[Tokens, Tokens]:
        """The generated tokens of a slot, and the rows of the steps that made them."""
        own = slice(prompt_tokens, int(self.length[slot]))
        return self.tokens[slot, own].copy(), self.token_step[slot, own].copy()


class Sequence:
    """One request being served. `session` is never issued twice in a run; `slot` is, and 0 means none.

    While it has no slot its tokens rest in `rest` (prompt and what was generated before a preemption).
    """

    __slots__ = (
        "admitted",
        "arrival_seconds",
        "finish_reason",
        "finish_seconds",
        "first_token_seconds",
        "last_token_seconds",
        "message",
        "pauses",
        "phase",
        "preemptions",
        "request",
        "rest",
        "rest_steps",
        "scheduled_seconds",
        "session",
        "slot",
        "table",
    )

    def __init__(self, session: int, request: Request, table: SequenceTable) -> None:
        self.session = session
        self.request = request
        self.table = table
        self.slot = 0
        self.phase = Phase.WAITING
        self.admitted = -1  # rank of the first admission: lower is older
        self.preemptions = 0
        self.pauses: tuple[float, ...] = ()  # seconds: preempted, admitted again, preempted, ...
        self.rest: Tokens | None = None  # generated tokens kept over a preemption
        self.rest_steps: Tokens | None = None
        self.arrival_seconds = request.arrival_seconds
        self.scheduled_seconds: float | None = None
        self.first_token_seconds: float | None = None
        self.last_token_seconds: float | None = None
        self.finish_seconds: float | None = None
        self.finish_reason: FinishReason | None = None
        self.message: str | None = None

    def __repr__(self) -> str:
        return f"<sequence {self.session} of {self.request.id!r}, {self.phase.value}, slot {self.slot}>"

    # -- sums -----------------------------------------------------------------------------------------

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def length(self) -> int:
        """Tokens it has: prompt and generated, those in flight included."""
        if self.slot:
            return int(self.table.length[self.slot])
        return self.prompt_tokens + (0 if self.rest is None else len(self.rest))

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in cells."""
        return int(self.table.computed[self.slot]) if self.slot else 0

    @property
    def remaining(self) -> int:
        """Tokens it has that are not computed: 1 when it decodes, more when it prefills."""
        if slot := self.slot:
            return int(self.table.length[slot]) - int(self.table.computed[slot])
        return self.length

    @property
    def limit(self) -> int:
        """Most tokens it may ever have."""
        return self.prompt_tokens + self.request.max_new_tokens

    @property
    def generated(self) -> int:
        return self.length - self.prompt_tokens

    # -- rows -----------------------------------------------------------------------------------------

    def enter(self, slot: int) -> None:
        """Take a slot: write tokens, limits and stop ids into the columns."""
        table = self.table
        table.widen(self.limit, len(self.request.stop_tokens))
        table.put(slot, self.request.prompt, self.rest, self.rest_steps)
        table.length[slot] = self.length  # still reads the resting tokens: slot is set last
        table.computed[slot] = 0
        table.limit[slot] = self.limit
        if self.request.stop_tokens:
            table.stops = True
        if table.stops:
            table.stop[slot] = NO_TOKEN
            table.stop[slot, : len(self.request.stop_tokens)] = self.request.stop_tokens
        sampling = self.request.sampling
        table.temperature[slot], table.top_k[slot] = sampling.temperature, sampling.top_k
        table.top_p[slot], table.seed[slot] = sampling.top_p, sampling.seed
        self.slot = slot

    def leave(self) -> int:
        """Give the slot back, keeping the generated tokens and the steps that made them."""
        slot, table = self.slot, self.table
        self.rest, self.rest_steps = table.take(slot, self.prompt_tokens)
        table.length[slot] = table.computed[slot] = table.limit[slot] = 0
        table.temperature[slot] = 0.0
        self.slot = 0
        return slot

    def generated_tokens(self) -> list[int]:
        """The tokens made so far, in order, without those in flight."""
        row = self.table.take(self.slot, self.prompt_tokens)[0] if self.slot else self.rest
        return [] if row is None else [token for token in np.asarray(row).tolist() if token != PENDING]

    def generated_steps(self) -> list[int]:
        """The steps that made them; those of tokens in flight, which stand last, are not known yet."""
        row = self.table.take(self.slot, self.prompt_tokens)[1] if self.slot else self.rest_steps
        return [] if row is None else np.asarray(row).tolist()
