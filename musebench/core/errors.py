"""What can go wrong, as types.

`MusebenchError` and its children are for people: their text is one line that names the thing, the value,
the limit and the way out, and the command line prints it without a traceback and exits with 2.
"""

from __future__ import annotations

from typing import Any

from musebench.core.blame import told


class MusebenchError(Exception):
    """A mistake of the user, or a limit that the user can move."""


class UsageError(MusebenchError):
    """An option, a name or a combination that cannot be used."""


class InputError(MusebenchError):
    """A file that cannot be read as what it is meant to be; names file, place and what was wanted."""


class UnsupportedError(MusebenchError):
    """Something this machine, model or build does not have; names what to use instead."""


class PluginError(MusebenchError):
    """A plugin raised something, or answered with what it may not; names its package. Its own exception is
    chained."""

    names_plugin = True


class PoolFull(Exception):
    """`Pool.reserve` refused a plan: nothing has changed, and `needed` exceeds `available`.

    Both count cells. The engine answers by preempting the newest running sequence.
    """

    def __init__(self, needed: int, available: int, capacity: int) -> None:
        super().__init__(f"{needed:,} cells needed, {available:,} of {capacity:,} available")
        self.needed = needed
        self.available = available
        self.capacity = capacity


class OutOfMemory(Exception):
    """A storage could not grow, or a forward had no room: rows, addresses and contents are as before.

    `needed_bytes` None: nobody said how much was asked for.
    """

    def __init__(self, needed_bytes: int | None, free_bytes: int | None, what: str) -> None:
        free = "unknown" if free_bytes is None else f"{free_bytes:,}"
        needed = "more bytes than there are" if needed_bytes is None else f"{needed_bytes:,} bytes"
        super().__init__(f"{what} needs {needed}; {free} are free")
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.what = what


class NonFiniteLogits(FloatingPointError):
    """Logits hold NaN or infinity in these `rows` of a forward's `count`; nothing can be sampled from them.

    `tokens` are those of all rows, int32 [count]: the other rows' are right. `sessions` are the sequences
    whose rows they are, once somebody who knows has filled them in (`blame`).
    """

    def __init__(self, rows: list[int], count: int, tokens: Any) -> None:
        super().__init__(f"the logits of rows {rows} of {count} are not finite")
        self.rows = rows
        self.tokens = tokens
        self.sessions: list[int] = []

    def blame(self, sessions: list[int], names: list[str]) -> NonFiniteLogits:
        """Itself, naming the sequences by their requests."""
        self.sessions = sessions
        self.args = (f"the logits of request {' and '.join(map(repr, names))} are not finite",)
        return self


class StepFailed(Exception):
    """A step raised. It was rolled back: no sequence advanced and no cell was lost.

    `step` is its index, `sessions` the ids of the sequences that the failure ends, `running` what was in it,
    in words; the cause is chained. `prefill_tokens` and `slices` are its plan's, and `reserving` says that it
    failed before anything was launched, for want of rows.
    """

    def __init__(
        self,
        step: int,
        sessions: list[int],
        cause: BaseException,
        running: str = "",
        prefill_tokens: int = 0,
        slices: int = 0,
        reserving: bool = False,
    ) -> None:
        what = running or f"sessions {sessions}"
        super().__init__(f"step {step} ({what}) failed: {told(cause)}")
        self.step = step
        self.sessions = sessions
        self.cause = cause
        self.prefill_tokens = prefill_tokens
        self.slices = slices
        self.reserving = reserving
