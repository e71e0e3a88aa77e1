"""What can go wrong, as types.

`MusebenchError` and its children are for people: their text is one line that names the thing, the value,
the limit and the way out, and the command line prints it without a traceback and exits with 2.
"""

from __future__ import annotations


class MusebenchError(Exception):
    """A mistake of the user, or a limit that the user can move."""


class UsageError(MusebenchError):
    """An option, a name or a combination that cannot be used."""


class InputError(MusebenchError):
    """A file that cannot be read as what it is meant to be; names file, place and what was wanted."""


class UnsupportedError(MusebenchError):
    """Something this machine, model or build does not have; names what to use instead."""


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
    """A storage could not grow: its rows, addresses and contents are as before."""

    def __init__(self, needed_bytes: int, free_bytes: int | None, what: str) -> None:
        free = "unknown" if free_bytes is None else f"{free_bytes:,}"
        super().__init__(f"{what} needs {needed_bytes:,} bytes; {free} are free")
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.what = what


class StepFailed(Exception):
    """A step raised. It was rolled back: no sequence advanced and no cell was lost.

    `step` is its index, `sessions` the ids of the sequences that were in it; the cause is chained.
    """

    def __init__(self, step: int, sessions: list[int], cause: BaseException) -> None:
        super().__init__(f"step {step} with sessions {sessions} failed: {type(cause).__name__}: {cause}")
        self.step = step
        self.sessions = sessions
        self.cause = cause
