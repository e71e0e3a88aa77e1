"""What every pool policy promises: `musebench.core.protocols.Pool` and the contracts of cells and growth."""

from __future__ import annotations

from musebench.testing.laws.law import Law

START = Law("start", "nothing is allocated before the first reservation")
CELLS = Law("cells", "a reservation gives one cell a token in plan order, int32, none twice")
SCRATCH = Law("scratch", "cell 0, scratch, is never given to a sequence")
OWNERS = Law("owners", "a cell that a sequence owns is given to no other")
ROWS = Law("rows", "every cell given is within the rows, and rows are the storage's without scratch")
TOKENS = Law("tokens", "a sequence finds its own tokens in its cells, whatever grew, ended or was forked")
IN_USE = Law("in use", "in_use counts the cells that sequences own, each once")
MOST_IN_USE = Law("most in use", "most_in_use is the most that in_use ever was")
CAPACITY = Law("capacity", "rows and cells in use never exceed the capacity, nor that the run's")
ROOM = Law("room", "room is at most the capacity less the cells in use, and all of it in an empty pool")
QUOTE = Law("quote", "what quote says fits the room is not refused as full")
DECODES = Law("decode cells", "decodes that decode_cells says fit the room are not refused as full")
LAST_CELL = Law("last cell", "a request that refusal lets pass fits an empty pool, to the last cell")
REFUSAL = Law("refusal", "a refused plan leaves the pool as it was")
GROWTH = Law("growth", "rows are no more than most_rows and row_rule say of the most cells in use")
GENERATION = Law("generation", "the generation rises exactly when addresses moved")
RESIZES = Law("resizes", "resizes holds every change of the rows, as the storage made it")
PLAN = Law("plan", "a reservation changes neither the plan nor its sequences")
REWIND = Law("rewind", "rewind gives back the cells from a position on, and those before it stay")
FORK = Law("fork", "a fork copies nothing, and take_edits tells its cells once")
SHARING = Law("sharing", "what a pool adopts for a new sequence is told by take_edits, and holds its tokens")
RELEASE = Law("release", "when everybody has let go, no cell is left in use")
COUNTERS = Law("counters", "counters are numbers of at least 0; those that count never fall")
BULK = Law("bulk", "reserve_steps leaves the counts of as many single steps, without growing")

POOL_LAWS = (
    START, CELLS, SCRATCH, OWNERS, ROWS, TOKENS, IN_USE, MOST_IN_USE, CAPACITY, ROOM, QUOTE, DECODES,
    LAST_CELL, REFUSAL, GROWTH, GENERATION, RESIZES, PLAN, REWIND, FORK, SHARING, RELEASE, COUNTERS, BULK,
)  # fmt: skip
