"""The memory that a configuration may use, summed up before its first step."""

from __future__ import annotations

from collections.abc import Iterable

from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import Pool, PoolBounds
from musebench.report.schema import MemoryBound
from musebench.report.table import Row, Table, pretty

LIBRARY_BYTES = 256 << 20
"""Allowed for what libraries take at first use: cuBLAS workspaces and blocks that torch's allocator holds
(64 MiB on an H200), on a CPU the code of transformers' model classes and the allocator's arenas."""

SPARE = 2
"""Activations are allowed this often: an operation's result exists beside its input, and some are copied."""

GRAPH_BYTES = 2 << 20
"""Of one captured graph beside the pool that all share: a block of torch's allocator."""


def activation_bytes(facts: ModelFacts, tokens: int, logit_rows: int) -> int:
    """The smallest honest peak of one forward's activations: what one layer holds at once, and the logits.

    tokens x (3 x hidden + 2 x (heads + 2 x KV heads) x head dim + 3 x intermediate) x bytes per element, for
    the residual, its norm and attention's output, the packed projection and its parts, gate, up and their
    product; and logit rows x vocabulary x (bytes per element + 4), for the logits and a float32 copy.
    """
    heads = (facts.heads + 2 * facts.kv_heads) * facts.head_dim
    inner = facts.intermediate if not facts.experts else facts.moe_intermediate or facts.intermediate
    width = 3 * facts.hidden + 2 * heads + 3 * inner * max(facts.experts_per_token, 1)
    return tokens * width * facts.element_bytes + logit_rows * facts.vocab * (facts.element_bytes + 4)


def most_cells(cells_needed: Iterable[int], sessions: int) -> int:
    """Most cells that requests can hold together: the `sessions` largest needs."""
    return sum(sorted(cells_needed, reverse=True)[:sessions])


def memory_bound(
    facts: ModelFacts,
    limits: Limits,
    bounds: PoolBounds,
    pool: Pool,
    cell_bytes: int,
    cells_needed: Iterable[int],
    workspace: int,
    graphs: int,
) -> MemoryBound:
    """Weights + rows under the policy + growth + workspace + graphs + activations, in bytes.

    `cells_needed` are the requests', `graphs` how many the executor may capture (0: none). A pool that does
    not say how many rows it may come to (`most_rows`, `passing_rows`) is taken at its capacity; one whose
    rows take memory in granules says how many bytes they hold (`bytes_for`).
    """
    cells = min(most_cells(cells_needed, bounds.max_sessions), pool.capacity)
    rows = _asked(pool, "most_rows", cells)
    passing = _asked(pool, "passing_rows", cells)
    held = (rows + 1) * cell_bytes
    in_granules = getattr(pool, "bytes_for", None)
    granules = 0 if in_granules is None else in_granules(rows + 1) - held
    forward = activation_bytes(facts, limits.most_tokens, min(limits.most_sequences, limits.most_tokens))
    widest = min(limits.most_sequences, limits.most_tokens)
    captured = SPARE * activation_bytes(facts, widest, widest) + graphs * GRAPH_BYTES if graphs else 0
    return MemoryBound(
        weights=facts.weight_bytes,
        rows=held + granules,
        growth=(passing + 1) * cell_bytes if passing else 0,
        workspace=workspace,
        graphs=captured,
        activations=SPARE * forward + LIBRARY_BYTES,
        sums={
            "weights": f"{facts.parameters:,} parameters x {facts.element_bytes} bytes",
            "rows": f"({rows:,} rows under {pool.name!r} + scratch) x {cell_bytes:,} bytes"
            + (f" + {granules:,} bytes of granules that are not full" if granules else "")
            + f"; the requests need at most {cells:,} cells",
            "growth": f"({passing:,} old rows + scratch) x {cell_bytes:,} bytes"
            if passing else "never grows",
            "workspace": "the cell table and the last tokens, their own sizes",
            "graphs": f"{SPARE} x the activations of {widest:,} decodes + {graphs} graphs x "
            f"{pretty(GRAPH_BYTES, 'bytes')}" if graphs else "nothing is captured",
            "activations": f"{SPARE} x {forward:,} (a forward of {limits.most_tokens:,} tokens) + "
            f"{pretty(LIBRARY_BYTES, 'bytes')} for libraries",
        },
    )  # fmt: skip


def bound_table(bound: MemoryBound) -> Table:
    """The parts, their sum, and below how each came about."""
    parts = ("weights", "rows", "growth", "workspace", "graphs", "activations")
    rows = [Row(part, "bytes", (getattr(bound, part),)) for part in parts]
    return Table(
        "memory bound",
        ("at most",),
        (*rows, Row("sum", "bytes", (bound.total,))),
        notes=tuple(f"{part}: {bound.sums[part]}" for part in parts if part in bound.sums),
    )


def _asked(pool: Pool, name: str, cells: int) -> int:
    answer = getattr(pool, name, None)
    return int(answer(cells)) if answer is not None else pool.capacity
