"""A request while it is served: the handle of its row in a table, which holds the numbers of all."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from enum import Enum

import numpy as np

from musebench.core.request import FinishReason, Request
from musebench.core.table import NO_TOKEN, PENDING, SequenceTable, Tokens

__all__ = ["NO_TOKEN", "PENDING", "SCRATCH_SLOT", "Phase", "Sequence", "SequenceTable", "Tokens"]

SCRATCH_SLOT = 0
"""Slot 0 belongs to nobody: padding tokens write and read there."""


class Phase(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


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
        "limit",
        "message",
        "pauses",
        "phase",
        "preemptions",
        "prompt_tokens",
        "request",
        "rest",
        "rest_steps",
        "reused",
        "scheduled_seconds",
        "session",
        "slot",
        "table",
    )

    def __init__(self, session: int, request: Request, table: SequenceTable) -> None:
        self.session = session
        self.table = table
        self.ask(request)
        self.slot = 0
        self.phase = Phase.WAITING
        self.admitted = -1  # rank of the first admission: lower is older
        self.preemptions = 0
        self.reused = 0  # tokens whose cells the pool had already, over all admissions
        self.pauses: tuple[float, ...] = ()  # seconds: preempted, admitted again, preempted, ...
        self.rest: Tokens | None = None  # generated tokens kept over a preemption
        self.rest_steps: Tokens | None = None
        self.scheduled_seconds: float | None = None
        self.first_token_seconds: float | None = None
        self.last_token_seconds: float | None = None
        self.finish_seconds: float | None = None
        self.finish_reason: FinishReason | None = None
        self.message: str | None = None

    def ask(self, request: Request) -> None:
        """Be of this request; of another than before only while it has no token."""
        self.request = request
        self.prompt_tokens = len(request.prompt)
        self.limit = self.prompt_tokens + request.max_new_tokens  # most tokens it may ever have
        self.arrival_seconds = request.arrival_seconds

    def __repr__(self) -> str:
        return f"<sequence {self.session} of {self.request.id!r}, {self.phase.value}, slot {self.slot}>"

    # -- sums -----------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Tokens it has: prompt and generated, those in flight included."""
        if self.slot:
            return self.table.length_of(self.slot)
        return self.prompt_tokens + (0 if self.rest is None else len(self.rest))

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in cells."""
        return self.table.computed_of(self.slot) if self.slot else 0

    @property
    def remaining(self) -> int:
        """Tokens it has that are not computed: 1 when it decodes, more when it prefills."""
        if slot := self.slot:
            return self.table.length_of(slot) - self.table.computed_of(slot)
        return self.length

    @property
    def generated(self) -> int:
        return self.length - self.prompt_tokens

    # -- rows -----------------------------------------------------------------------------------------

    def enter(self, slot: int) -> None:
        """Take a slot."""
        self.table.enter(slot, self)  # still reads the resting tokens: slot is set last
        self.slot = slot

    def leave(self) -> int:
        """Give the slot back, keeping the generated tokens and the steps that made them."""
        slot, self.slot = self.slot, 0
        self.rest, self.rest_steps = self.table.leave(slot, self.prompt_tokens)
        return slot

    def generated_tokens(self) -> list[int]:
        """The tokens made so far, in order, without those in flight."""
        row = self.table.take(self.slot, self.prompt_tokens)[0] if self.slot else self.rest
        return [] if row is None else [token for token in np.asarray(row).tolist() if token != PENDING]

    def answer(self) -> Ordered[int]:
        """The tokens of a sequence that has ended; of a simulated one a range of as many."""
        if self.rest is None or isinstance(self.rest, range):
            return self.rest or ()
        return self.generated_tokens()

    def generated_steps(self) -> list[int]:
        """The steps that made them; those of tokens in flight, which stand last, are not known yet."""
        row = self.table.take(self.slot, self.prompt_tokens)[1] if self.slot else self.rest_steps
        return [] if row is None else np.asarray(row).tolist()
