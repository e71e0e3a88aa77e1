"""A pool as an onlooker sees it: counts, and cells only where it gave them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.plan import StepPlan
from musebench.core.protocols import Pool, PoolBounds, Resize
from musebench.core.sequence import Sequence
from musebench.testing.laws import pool_laws as laws
from musebench.testing.laws.counters import Counted
from musebench.testing.laws.law import History, counted, listed


def names_of(sequences: Iterable[Sequence]) -> str:
    return listed(sequence.request.id for sequence in sequences)


class WatchedRows:
    """Sees every resize of a storage, and keeps what the rows hold as a device would."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.content: list[Any] = []
        self.done: list[tuple[int, int, Resize]] = []
        self.failures = 0
        self._inner = storage.resize
        storage.resize = self._resize
        if hasattr(storage, "move"):
            self._inner_move = storage.move
            storage.move = self._move

    def _resize(self, rows: int, live: int) -> Resize:
        try:
            made: Resize = self._inner(rows, live)
        except OutOfMemory:
            self.failures += 1
            raise
        kept = self.content[:live]
        self.content = kept[:rows] + [None] * (rows - len(kept))
        self.done.append((rows, self.storage.bytes, made))
        return made

    def _move(self, runs: Iterable[tuple[int, int, int]]) -> int:
        runs = list(runs)
        copied: int = self._inner_move(runs)
        for source, target, count in runs:
            self.content[target : target + count] = self.content[source : source + count]
        return copied


class PoolState:
    """What is known of one pool. `cells` are those of each slot in order of position, as the device's cell
    table has them."""

    def __init__(self, pool: Pool, bounds: PoolBounds, rows: WatchedRows, history: History) -> None:
        self.pool = pool
        self.bounds = bounds
        self.rows = rows
        self.history = history
        self.cells: dict[int, list[int]] = {}
        self.sequences: dict[int, Sequence] = {}
        self._counters = Counted(laws.COUNTERS, rates=True)
        self._contents: dict[int, list[Any]] = {}
        self.most = 0
        self._generation = pool.generation
        self._seen = 0
        self._capacity = pool.capacity

    def enter(self, sequence: Sequence) -> None:
        """A sequence took a slot."""
        self.sequences[sequence.slot] = sequence
        self._contents[sequence.slot] = []

    def leave(self, slot: int) -> None:
        """It gave the slot back, and with it all cells."""
        self.cells.pop(slot, None)
        del self.sequences[slot]

    def keep(self, slot: int, count: int) -> None:
        """A slot's cells were given back from position `count` on."""
        self.cells[slot] = self.cells.get(slot, [])[:count]

    @property
    def owned(self) -> set[int]:
        return {cell for cells in self.cells.values() for cell in cells}

    def owners(self, cell: int) -> int:
        return sum(cell in cells for cells in self.cells.values())

    def facts(self) -> dict[str, Any]:
        """All that a refusal must leave as it was."""
        pool = self.pool
        return {
            "rows": pool.rows, "in_use": pool.in_use, "most_in_use": pool.most_in_use, "room": pool.room,
            "capacity": pool.capacity, "generation": pool.generation, "resizes": len(pool.resizes),
            "rows of the storage": self.rows.storage.rows,
        }  # fmt: skip

    def refused(self, before: dict[str, Any], refused: PoolFull | OutOfMemory, memory: bool) -> None:
        """A plan was refused; `memory`: because rows could not be had, which may lower the capacity."""
        hold, after = self.history.hold, self.facts()
        if memory:
            hold(laws.CAPACITY, after["capacity"] <= before["capacity"], "the capacity rose in a refusal")
            for facts in (before, after):
                facts["room"] = facts["capacity"] = None
        changed = [
            f"{name} went from {was} to {after[name]}" for name, was in before.items() if after[name] != was
        ]
        hold(laws.REFUSAL, not changed, f"the refused plan changed the pool: {listed(changed)}")
        if isinstance(refused, PoolFull):
            said = f"{refused.needed} needed, {refused.available} available"
            hold(laws.REFUSAL, refused.needed > refused.available, f"it was refused though {said}")
        else:
            hold(laws.REFUSAL, memory, f"OutOfMemory was raised, and no resize failed: {refused}")
        self.take_edits()
        ghosts = sorted(set(self.cells) - set(self.sequences))
        hold(laws.REFUSAL, not ghosts, f"the refused plan left cells in the table for slots {ghosts}")
        self.look()

    def take_edits(self) -> None:
        """Rows of the device's cell table that changed other than by a step's own cells."""
        for slot, first, cells in self.pool.take_edits():
            row = self.cells.get(slot, [])
            self.cells[slot] = row[:first] + np.asarray(cells).tolist()

    def given(self, plan: StepPlan, given: Any, told: bool) -> None:
        """The cells of a step: who has them, and what is written there."""
        hold, count = self.history.hold, plan.tokens
        array = isinstance(given, np.ndarray) and given.dtype == np.int32 and given.shape == (count,)
        hold(
            laws.CELLS,
            array,
            f"reserve gave {given!r} for {counted(count, 'token')}; int32 [{count}] is wanted",
        )
        cells = given.tolist()
        if told:
            self.history.gave(f"{'cell' if count == 1 else 'cells'} {listed(cells)}")
        hold(
            laws.SCRATCH,
            0 not in cells,
            f"cell 0, which is scratch, was given to {self._whose(plan, cells, 0)}",
        )
        twice = sorted({cell for cell in cells if cells.count(cell) > 1})
        hold(laws.CELLS, not twice, f"{_named(twice)} was given twice in one step" if twice else "")
        self.take_edits()
        for cell in cells:
            for slot, others in self.cells.items():
                if cell in others:
                    who = self._whose(plan, cells, cell)
                    hold(
                        laws.OWNERS,
                        False,
                        f"cell {cell} was given to {who} and belongs to {self._name(slot)}",
                    )
        hold(laws.OWNERS, True, "")
        rows = self.rows.storage.rows
        outside = [cell for cell in cells if not 0 < cell < rows]
        hold(
            laws.ROWS,
            not outside,
            f"{_named(outside)} was given, and the storage has {rows} rows" if outside else "",
        )
        self._write(plan, cells)
        self.most = max(self.most, len(self.owned))

    def _write(self, plan: StepPlan, cells: list[int]) -> None:
        at = 0
        pieces = [(one, 1) for one in plan.decodes] + [
            (piece.sequence, piece.count) for piece in plan.prefills
        ]
        for sequence, count in pieces:
            row = self.cells.setdefault(sequence.slot, [])
            del row[sequence.computed :]
            content = self._content(sequence.slot, sequence.computed + count)
            for written in content[sequence.computed :]:
                self.rows.content[cells[at]] = written
                row.append(cells[at])
                at += 1

    def _content(self, slot: int, count: int) -> list[Any]:
        """What the cells of a slot's first `count` tokens hold: each depends on all tokens up to its own."""
        made = self._contents[slot]
        tokens = self.sequences[slot].table.tokens[slot]
        while len(made) < count:
            place = len(made)
            made.append((hash((made[-1] if made else None, int(tokens[place]))), place))
        return made[:count]

    def look(self) -> None:
        """Hold everything that is true at any time."""
        pool, hold, owned = self.pool, self.history.hold, self.owned
        missing = pool.in_use - len(owned)
        lost = "owned by nobody but counted in use" if missing > 0 else "owned and not counted in use"
        hold(
            laws.RELEASE if not owned else laws.IN_USE,
            missing == 0,
            f"{counted(abs(missing), 'cell')} {'is' if abs(missing) == 1 else 'are'} {lost} (in_use is "
            f"{pool.in_use}, the sequences own {len(owned)})",
        )
        self.most = max(self.most, len(owned))
        most = pool.most_in_use
        hold(laws.MOST_IN_USE, most == self.most, f"most_in_use is {most}; in_use was at most {self.most}")
        self._limits()
        self._growth()
        self._reads()
        self._counters.look(pool.counters(), self.history)

    def _limits(self) -> None:
        pool, hold, capacity = self.pool, self.history.hold, self.pool.capacity
        for what, value in (("rows", pool.rows), ("in_use", pool.in_use)):
            hold(laws.CAPACITY, value <= capacity, f"{what} is {value}; the capacity is {capacity}")
        given = self.bounds.capacity
        hold(
            laws.CAPACITY,
            given is None or capacity <= given,
            f"the capacity is {capacity}; the run's is {given}",
        )
        hold(
            laws.CAPACITY,
            capacity <= self._capacity,
            f"the capacity rose from {self._capacity} to {capacity}",
        )
        self._capacity = capacity
        free = capacity - pool.in_use
        hold(
            laws.ROOM,
            0 <= pool.room <= free,
            f"room is {pool.room}; {free} of {capacity} cells are not in use",
        )
        if not self.cells:
            hold(laws.ROOM, pool.room == capacity, f"room is {pool.room} in an empty pool of {capacity}")

    def _growth(self) -> None:
        pool, hold, rows = self.pool, self.history.hold, self.rows.storage.rows
        hold(
            laws.ROWS,
            rows == (pool.rows + 1 if pool.rows else 0),
            f"rows is {pool.rows}; the storage has {rows}",
        )
        self._bounded()
        done = self.rows.done
        hold(laws.RESIZES, list(pool.resizes) == done, f"resizes is {pool.resizes}; the storage did {done}")
        moved = sum(resize.moved for _, _, resize in done[self._seen :])
        rose = pool.generation - self._generation
        if moved:
            hold(laws.GENERATION, rose > 0, f"addresses moved, and the generation is still {pool.generation}")
        else:
            was = f"the generation went from {self._generation} to {pool.generation}"
            hold(laws.GENERATION, rose == 0, f"{was}, and no address moved")
        self._seen, self._generation = len(done), pool.generation

    def _bounded(self) -> None:
        """By `most_rows` or `row_rule`, which a pool may have."""
        pool, cells = self.pool, self.most
        bounds: dict[str, int] = {}
        if (most_rows := getattr(pool, "most_rows", None)) is not None:
            bounds[f"most_rows({cells})"] = int(most_rows(cells))
        if (rule := getattr(pool, "row_rule", None)) is not None:
            bounds[f"row_rule.most({cells})"] = int(rule.most(cells))
        for what, most in bounds.items():
            known = f"there are {pool.rows} rows; {what} is {most}"
            self.history.hold(laws.GROWTH, pool.rows <= most, known)
        if not bounds:
            self.history.cannot_judge(laws.GROWTH, "it has no most_rows, and may grow to its capacity")

    def _reads(self) -> None:
        for slot, cells in self.cells.items():
            for position, (cell, written) in enumerate(
                zip(cells, self._content(slot, len(cells)), strict=True)
            ):
                found = self.rows.content[cell] if cell < len(self.rows.content) else None
                if found != written:
                    what = "nothing" if found is None else "another token"
                    fault = (
                        f"cell {cell} holds {what}, where token {position} of {self._name(slot)} was written"
                    )
                    self.history.hold(laws.TOKENS, False, fault)
        self.history.hold(laws.TOKENS, True, "")

    # -- words ----------------------------------------------------------------------------------------

    def _name(self, slot: int) -> str:
        return self.sequences[slot].request.id

    def _whose(self, plan: StepPlan, cells: list[int], cell: int) -> str:
        """To whom a plan's cell was given."""
        names = [one.request.id for one in plan.decodes]
        for piece in plan.prefills:
            names += [piece.sequence.request.id] * piece.count
        return names[cells.index(cell)] if cell in cells else "nobody"


def _named(cells: list[int]) -> str:
    return f"cell {cells[0]}" if len(cells) == 1 else f"each of cells {listed(cells)}"
