"""A request while it is served, and the columns that hold the numbers of all of them.

The engine touches every running sequence in every step, so what changes each step lives in numpy columns
(`SequenceTable`, indexed by slot) and is updated for a whole batch at once. `Sequence` is the handle: it
knows its row and does the sums.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from musebench.core.request import FinishReason, Request

SCRATCH_SLOT = 0
"""Slot 0 belongs to nobody: padding tokens write and read there."""

PENDING = -1
"""Stands for a token that is being sampled: the device knows it already, the host not yet."""


NO_TOKEN = -2
"""Equals no token and no `PENDING`: fills the unused places of stop lists."""


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
        self.temperature = np.zeros(rows, np.float32)
        self.top_k = np.zeros(rows, np.int32)
        self.top_p = np.ones(rows, np.float32)
        self.seed = np.zeros(rows, np.int64)

    def widen(self, width: int, stops: int = 0) -> None:
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
        self.pauses: list[float] = []  # seconds: preempted, admitted again, preempted, ...
        self.rest: np.ndarray | None = None  # generated tokens kept over a preemption, int32
        self.rest_steps: np.ndarray | None = None
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
        return self.length - self.computed

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
        prompt = self.request.prompt
        count = len(prompt)
        table.tokens[slot, :count] = prompt
        table.token_step[slot, :count] = -1
        if self.rest is not None and self.rest_steps is not None:
            table.tokens[slot, count : count + len(self.rest)] = self.rest
            table.token_step[slot, count : count + len(self.rest)] = self.rest_steps
        table.length[slot] = self.length  # still reads the resting tokens: slot is set last
        table.computed[slot] = 0
        table.limit[slot] = self.limit
        table.stop[slot] = NO_TOKEN
        table.stop[slot, : len(self.request.stop_tokens)] = self.request.stop_tokens
        sampling = self.request.sampling
        table.temperature[slot], table.top_k[slot] = sampling.temperature, sampling.top_k
        table.top_p[slot], table.seed[slot] = sampling.top_p, sampling.seed
        self.slot = slot

    def leave(self) -> int:
        """Give the slot back, keeping the generated tokens and the steps that made them."""
        slot, table = self.slot, self.table
        length, count = int(table.length[slot]), self.prompt_tokens
        self.rest = table.tokens[slot, count:length].copy()
        self.rest_steps = table.token_step[slot, count:length].copy()
        table.length[slot] = table.computed[slot] = table.limit[slot] = 0
        table.temperature[slot] = 0.0
        self.slot = 0
        return slot

    def generated_tokens(self) -> list[int]:
        """The tokens made so far, in order, without those in flight."""
        if self.slot:
            row = self.table.tokens[self.slot, self.prompt_tokens : self.length]
        else:
            row = np.empty(0, np.int32) if self.rest is None else self.rest
        return [token for token in row.tolist() if token != PENDING]

    def generated_steps(self) -> list[int]:
        """The steps that made them; those of tokens in flight, which stand last, are not known yet."""
        if self.slot:
            row = self.table.token_step[self.slot, self.prompt_tokens : self.length]
        else:
            row = np.empty(0, np.int32) if self.rest_steps is None else self.rest_steps
        return row.tolist()
