"""What a workload hands over, and how it can end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field, replace
from enum import StrEnum

from musebench.core.errors import InputError


class FinishReason(StrEnum):
    """How a request ended. `STOP` wins over `LENGTH` when both fall on one token."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def succeeded(self) -> bool:
        """Only these count for throughput and percentiles."""
        return self in (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from the logits.

    `temperature` 0 is greedy: the lowest id among the largest logits. Otherwise logits are divided by the
    temperature, cut to the `top_k` largest (0: all), then to the smallest set whose probability reaches
    `top_p`, and one is drawn with the random number of (`seed`, position of the new token) alone, so that
    neither the batch nor the executor changes it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise InputError(f"temperature {self.temperature} is not a number of at least 0")
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is negative; 0 means all")
        if not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top_p {self.top_p} is not in (0, 1]")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed {self.seed} is not in [0, 2**63)")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a prompt begins with, for runs in which nobody has its ids: block i of `block_tokens` tokens is
    called `names[i]`.

    A name stands for the block's tokens and for all before them: prompts with one name at one place are equal
    up to the end of that block, or of the shorter prompt.
    """

    names: tuple[int, ...]
    block_tokens: int

    def __post_init__(self) -> None:
        if self.block_tokens < 1:
            raise InputError(f"a prefix in blocks of {self.block_tokens} tokens; at least 1 is needed")


@dataclass(frozen=True, slots=True)
class After:
    """Makes a request a later turn of a session: it arrives `think_seconds` after the request `former` has
    ended, and its prompt is that one's prompt and answer, then its own tokens. `most_tokens` are the most
    that there can be before its own."""

    former: str
    think_seconds: float = 0.0
    most_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.think_seconds < float("inf"):
            raise InputError(f"a turn {self.think_seconds} s after {self.former!r}; at least 0 is needed")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and what is wanted of it.

    `prompt` holds token ids. A simulated request may pass a `range` of the right length: it costs no
    memory and stands for ids that nobody reads. `max_new_tokens` may be 0: the request ends at once,
    counted as finished, never as throughput. `arrival_seconds` counts from the start of the run.
    `expect` is text that the answer must contain; None where nothing is known. `tags` (tenant, priority,
    trace row, ...) are for schedulers and routers and are copied into the report. `prefix` says what a prompt
    of unknown ids shares with others; None: nothing. `said` is what the ids were made of: a raw text, or
    turns of (role, content) that went through the chat template; None for others.
    With `after` the prompt is only what the turn adds, until
    `continued` makes it whole.
    """

    id: str
    prompt: Ordered[int]
    max_new_tokens: int
    stop_tokens: tuple[int, ...] = ()
    sampling: Sampling = Sampling()
    arrival_seconds: float = 0.0
    expect: str | None = None
    tags: dict[str, object] = field(default_factory=dict)
    prefix: Prefix | None = None
    said: str | tuple[tuple[str, str], ...] | None = None
    after: After | None = None

    def __post_init__(self) -> None:
        if len(self.prompt) < 1:
            raise InputError(f"request {self.id!r} has an empty prompt; at least 1 token is needed")
        if self.max_new_tokens < 0:
            raise InputError(
                f"request {self.id!r} asks for {self.max_new_tokens} tokens; at least 0 is needed"
            )
        if not 0.0 <= self.arrival_seconds < float("inf"):
            raise InputError(f"request {self.id!r} arrives at {self.arrival_seconds} s; at least 0 is needed")

    @property
    def most_tokens(self) -> int:
        """Most tokens it can ever have, those of the turns before it among them."""
        before = 0 if self.after is None else self.after.most_tokens
        return before + len(self.prompt) + self.max_new_tokens

    @property
    def cells_needed(self) -> int:
        """Most cells it can ever hold: the last token it makes is never fed back, so it needs none."""
        return self.most_tokens - (1 if self.max_new_tokens else 0)


def continued(turn: Request, former: Request, answer: Ordered[int], finish_seconds: float) -> Request:
    """A turn, whole: behind the prompt and the answer of the one before it, which ended at `finish_seconds`.

    A simulated session names its blocks (`prefix`) one after the other, and goes on with that.
    """
    assert turn.after is not None
    count = len(former.prompt) + len(answer) + len(turn.prompt)
    prompt: Ordered[int] = range(count)
    if not isinstance(turn.prompt, range):
        prompt = array("i", [*former.prompt, *answer, *turn.prompt])
    prefix = former.prefix
    if prefix is not None and turn.prefix is None:
        names, more = prefix.names, -(-count // prefix.block_tokens) - len(prefix.names)
        prefix = replace(prefix, names=names + tuple(range(names[-1] + 1, names[-1] + 1 + more)))
    arrival = finish_seconds + turn.after.think_seconds
    return replace(turn, prompt=prompt, prefix=prefix, arrival_seconds=arrival, after=None)
