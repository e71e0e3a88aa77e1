"""Cells against a model of ten lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from musebench.core.cells import Cells

SLOTS = 5


class CellsAgainstAModel(RuleBasedStateMachine):
    """The model: a list of cells a slot. Everything else follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(SLOTS)
        self.model: dict[int, list[int]] = {slot: [] for slot in range(1, SLOTS + 1)}

    def owned(self) -> set[int]:
        return {cell for cells in self.model.values() for cell in cells}

    @rule(rows=st.integers(1, 20))
    def grow(self, rows):
        self.cells.grow(self.cells.rows + rows)

    @rule(slot=st.integers(1, SLOTS), count=st.integers(1, 9))
    def claim(self, slot, count):
        free = sorted(set(range(1, self.cells.rows + 1)) - self.owned())
        if count > len(free):
            with pytest.raises(ValueError, match="are free"):
                self.cells.lowest(count)
            return
        cells = self.cells.lowest(count)
        assert cells.tolist() == free[:count]
        held = len(self.model[slot])
        positions = np.arange(held, held + count, dtype=np.int32)
        self.cells.claim(np.full(count, slot, np.int32), positions, cells)
        self.cells.taken_below(int(cells[-1]) + 1)
        self.model[slot] += cells.tolist()

    @rule(source=st.integers(1, SLOTS), into=st.integers(1, SLOTS), data=st.data())
    def fork(self, source, into, data):
        upto = data.draw(st.integers(0, len(self.model[source])))
        if self.model[into]:
            with pytest.raises(ValueError, match="only an empty slot"):
                self.cells.fork(source, into, upto)
            return
        self.cells.fork(source, into, upto)
        self.model[into] = self.model[source][:upto]

    @precondition(lambda self: any(self.model.values()))
    @rule(slot=st.integers(1, SLOTS), data=st.data())
    def rewind(self, slot, data):
        to = data.draw(st.integers(0, len(self.model[slot])))
        self.cells.rewind(slot, to)
        del self.model[slot][to:]

    @invariant()
    def agrees(self):
        assert self.cells.in_use == len(self.owned())
        assert self.cells.owners[0] == 1
        for cell in range(1, self.cells.rows + 1):
            assert self.cells.owners[cell] == sum(cell in cells for cells in self.model.values())
        for slot, cells in self.model.items():
            assert self.cells.table[slot, : self.cells.held[slot]].tolist() == cells


TestCellsAgainstAModel = CellsAgainstAModel.TestCase
TestCellsAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40)
