"""The prompts of a trace's rows: its own token ids, shared blocks, or drawn ids of the right number."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from collections.abc import Sequence as Ordered

import numpy as np

from musebench.core.errors import InputError
from musebench.core.request import Prefix
from musebench.workload.draws import contents, generator
from musebench.workload.spec import Context
from musebench.workload.traces import Trace, TraceRow


def prefix_of(row: TraceRow) -> Prefix | None:
    """What a row says that its prompt shares: the blocks that it names."""
    hashes, size = row.tags.get("hash_ids"), row.tags.get("block_tokens")
    return Prefix(hashes, size) if isinstance(hashes, tuple) and isinstance(size, int) else None


def prompt_of(
    trace: Trace, context: Context, use_ids: bool, vocab: int
) -> Callable[[TraceRow], Ordered[int]]:
    """A function from a row to its prompt; to be called once a row, in order.

    Without `context.contents` a prompt is a range of its length. Otherwise, with `use_ids`, a row's own ids
    are taken; a row that names the blocks of its prompt ("hash_ids" and "block_tokens" in its tags) has
    each block drawn from (seed, the block's name), so that rows which share a block share its ids. All
    other ids are drawn from (seed, row).
    """
    if not context.contents:
        return lambda row: range(row.prompt_tokens)

    def drawn(row: TraceRow, start: int = 0) -> np.ndarray:
        source = generator(context.seed, "contents", row.row)
        return source.integers(0, vocab, row.prompt_tokens - start, np.int32)

    def made(row: TraceRow) -> Ordered[int]:
        if not use_ids:
            return contents(drawn(row))
        if row.prompt_ids is not None:
            if max(row.prompt_ids) >= vocab or min(row.prompt_ids) < 0:
                wrong = next(token for token in row.prompt_ids if not 0 <= token < vocab)
                raise InputError(
                    f"{trace.path} row {row.row} has the token id {wrong:,}, outside the model's vocabulary "
                    f"(0 to {vocab - 1:,}); set trace.use_ids to false to draw ids instead"
                )
            return array("i", row.prompt_ids)
        hashes = row.tags.get("hash_ids")
        if isinstance(hashes, tuple):
            return contents(_blocks(row, hashes, drawn))
        return contents(drawn(row))

    def _blocks(row: TraceRow, hashes: tuple[int, ...], rest: Callable[..., np.ndarray]) -> np.ndarray:
        size = row.tags["block_tokens"]
        assert isinstance(size, int)
        needed = hashes[: -(-row.prompt_tokens // size)]
        parts = [
            generator(context.seed, "blocks", name).integers(0, vocab, size, np.int32) for name in needed
        ]
        covered = min(size * len(needed), row.prompt_tokens)
        whole = np.concatenate(parts)[:covered] if parts else np.empty(0, np.int32)
        return whole if covered == row.prompt_tokens else np.concatenate([whole, rest(row, covered)])

    return made
