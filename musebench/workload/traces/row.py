"""What a trace is read into, and what a reader of one format promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from musebench.core.options import option

_NO_TAGS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace.

    `arrival_seconds` counts from the first row of the file, and is None where the format has no times.
    `prompt_ids` are the prompt's token ids where the trace has them; `tags` whatever else is worth keeping.
    `row` is the line that it starts on, as an editor counts: the first line is 1.

    Two tags have a meaning: "hash_ids" (tuple of whole numbers) names the blocks of `block_tokens` tokens
    that the prompt consists of, in order; rows that share a block share its tokens.
    """

    arrival_seconds: float | None
    prompt_tokens: int
    output_tokens: int
    prompt_ids: Ordered[int] | None = None
    tags: Mapping[str, object] = field(default_factory=lambda: _NO_TAGS)
    row: int = 0


@dataclass(frozen=True)
class RowOptions:
    """What every reader takes."""

    skip_bad_rows: bool = option(False, "leave out and count rows that cannot be read, instead of refusing")


class TraceFormat(Protocol):
    """Reads one format. Made by `factory(options)`.

    `left_out` counts, by reason, the rows that the last `read` did not give; `first_bad` is the text about
    the first that could not be read.
    """

    left_out: dict[str, int]
    first_bad: str | None

    def recognises(self, head: bytes, filename: str) -> bool:
        """Whether a file that starts with `head` (its first 64 KiB) is of this format."""

    def read(self, path: Path) -> Iterator[TraceRow]:
        """The rows, in the file's order, one by one.

        Raises:
            InputError: names file, row, column and what was wanted.
        """


class BadRow(Exception):
    """A row cannot be read. `column` "" means the row as a whole."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f", column {listed([column])}: {problem}" if column else f": {problem}")


def listed(names: Iterable[str]) -> str:
    """Names out of a file as an error shows them: on one line, and not too long."""
    text = ", ".join(name.strip() if name.strip().isprintable() else repr(name) for name in names)
    return text if len(text) <= 200 else f"{text[:200]}..."
