"""Cells and who owns them: pure bookkeeping over numpy columns, shared by all pool policies."""

from __future__ import annotations

import numpy as np


class Cells:
    """Owners of cells 1..`rows`, and each slot's cells in order of position.

    `owners[cell]` counts the sequences that own a cell (0: free), so a shared prefix costs one count and no
    copy; the sequences themselves are those whose `table` row names the cell. `table[slot, position]` int32
    is the cell of a token, valid below `held[slot]`. Cell 0 is scratch and never given out. `in_use` counts
    cells with at least one owner.
    """

    def __init__(self, slots: int) -> None:
        self.rows = 0
        self.in_use = 0
        self.most_in_use = 0
        self.owners = np.ones(1, np.int32)
        self.table = np.zeros((slots + 1, 64), np.int32)
        self.held = np.zeros(slots + 1, np.int32)
        self._lowest = 1  # every cell below it is owned
        self._edited: dict[int, int] = {}
        self.forked = False  # ever

    @property
    def free(self) -> int:
        return self.rows - self.in_use

    def grow(self, rows: int) -> None:
        """Append free cells; none is renumbered."""
        self.owners = np.concatenate([self.owners, np.zeros(rows - self.rows, np.int32)])
        self.rows = rows

    def shrink(self, rows: int) -> None:
        """Drop the cells from `rows` + 1 on, which are free.

        Raises:
            ValueError: one of them is owned; nothing has changed.
        """
        if self.owners[rows + 1 :].any():
            raise ValueError(f"a cell above {rows:,} is owned")
        self.owners = self.owners[: rows + 1].copy()
        self.rows = rows
        self._lowest = min(self._lowest, rows + 1)

    def lowest(self, count: int) -> np.ndarray:
        """The `count` lowest free cells in ascending order, int32; there must be as many.

        Nothing is claimed. Scans forward from the lowest cell that may be free, in windows that double, so
        that a step's claim costs about the cells it passes over.
        """
        found: list[np.ndarray] = []
        start, missing, window = self._lowest, count, max(2 * count, 256)
        while missing > 0:
            if start > self.rows:
                raise ValueError(f"{count} cells wanted, {count - missing} are free")
            hits = np.flatnonzero(self.owners[start : start + window] == 0)[:missing]
            found.append(hits + start)
            missing -= len(hits)
            start += window
            window *= 2
        return np.concatenate(found).astype(np.int32) if found else np.empty(0, np.int32)

    def claim(self, slots: np.ndarray, positions: np.ndarray, cells: np.ndarray) -> None:
        """Give free `cells` to `slots` at `positions` (int32 [n] each, each slot's positions ascending from
        `held`)."""
        if not len(cells):
            return
        self._widen(int(positions.max()) + 1)
        self.owners[cells] = 1
        self.table[slots, positions] = cells
        # The last write of a slot wins, and a slot's positions ascend.
        self.held[slots] = positions + 1
        self.in_use += len(cells)
        self.most_in_use = max(self.most_in_use, self.in_use)

    def _widen(self, width: int) -> None:
        if width > self.table.shape[1]:
            grown = max(width, 2 * self.table.shape[1])
            self.table = np.pad(self.table, ((0, 0), (0, grown - self.table.shape[1])))

    def taken_below(self, cell: int) -> None:
        """Every cell below `cell` is owned now: where the next scan starts."""
        self._lowest = cell

    def fork(self, source: int, target: int, upto: int) -> None:
        """Let an empty slot `target` own the first `upto` cells of `source` too."""
        if self.held[target]:
            raise ValueError(f"slot {target} holds {self.held[target]} cells; only an empty slot can fork")
        if not 0 <= upto <= self.held[source]:
            raise ValueError(f"slot {source} holds {self.held[source]} cells; {upto} cannot be shared")
        self.forked = True
        self.share(target, self.table[source, :upto])

    def share(self, target: int, cells: np.ndarray) -> None:
        """Let an empty slot `target` own `cells`, int32, as its first ones, beside whoever does."""
        if self.held[target]:
            raise ValueError(f"slot {target} holds {self.held[target]} cells; only an empty slot can share")
        if not (count := len(cells)):
            return
        self._widen(count)
        self.in_use += int(np.count_nonzero(self.owners[cells] == 0))
        self.most_in_use = max(self.most_in_use, self.in_use)
        self.owners[cells] += 1
        self.table[target, :count] = cells
        self.held[target] = count
        self._edited[target] = count

    def move(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Renumber owned cells `sources` as `targets`, int32 [n], each free or itself a source; whoever owns
        one keeps it. Contents are the storage's."""
        owners = self.owners[sources]
        self.owners[sources] = 0
        self.owners[targets] = owners
        renumbered = np.arange(self.rows + 1, dtype=np.int32)
        renumbered[sources] = targets
        for slot in np.flatnonzero(self.held).tolist():
            held = int(self.held[slot])
            cells = renumbered[self.table[slot, :held]]
            if (cells != self.table[slot, :held]).any():
                self.table[slot, :held] = cells
                self._edited[slot] = held
        self._lowest = 1

    def rewind(self, slot: int, to: int) -> None:
        """Give back a slot's cells from position `to` on; a cell is free when its last owner lets go."""
        held = int(self.held[slot])
        if not 0 <= to <= held:
            raise ValueError(f"slot {slot} holds {held} cells; it cannot be rewound to {to}")
        cells = self.table[slot, to:held]
        self.owners[cells] -= 1
        freed = cells[self.owners[cells] == 0]
        if len(freed):
            self.in_use -= len(freed)
            self._lowest = min(self._lowest, int(freed.min()))
        self.held[slot] = to
        if slot in self._edited:
            self._edited[slot] = min(self._edited[slot], to)

    def take_edits(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """(slot, first position, cells) of table rows changed by forks and moves since last asked."""
        if not self._edited:
            return ()
        edits = tuple(
            (slot, 0, self.table[slot, :upto].copy()) for slot, upto in self._edited.items() if upto
        )
        self._edited.clear()
        return edits
