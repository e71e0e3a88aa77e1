"""`geometric`: starts small, grows by a factor; a token claims the lowest free cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.options import option
from musebench.core.protocols import PoolBounds, Storage
from musebench.pools.growing import CountedCells, GrowingPool


@dataclass(frozen=True)
class GeometricOptions:
    start: int = option(64, "rows of the first allocation", unit="cells", minimum=1)
    factor: float = option(2.0, "rows grow at least by this factor", above=1.0, maximum=1e6)
    capacity: int | None = option(None, "most rows; none: as many as memory holds", unit="cells", minimum=1)


class GeometricPool(GrowingPool):
    """rows = min(capacity, max(needed, rows x factor)), from `start`.

    Without a capacity of its own or of the run it takes what every session could ask for, as far as memory
    holds: growing needs old and new rows at once, so that counts a growth from half.
    """

    name: ClassVar[str] = "geometric"
    Options = GeometricOptions
    Counted: ClassVar[type[GeometricPool]]

    def __init__(self, options: GeometricOptions, bounds: PoolBounds, storage: Storage) -> None:
        self.options = options
        super().__init__(bounds, storage, options.capacity)

    def affordable(self, free_bytes: int) -> int:
        # The last growth copies: rows / factor old ones are still there beside the new ones.
        return int(free_bytes / self.storage.cell_bytes / (1 + 1 / self.options.factor)) - 1

    def most_rows(self, cells: int) -> int:
        return min(self._capacity, max(self.options.start, math.ceil(cells * self.options.factor)))

    def passing_rows(self, cells: int) -> int:
        """It grows when the rows do not suffice, so the old ones are fewer than the cells needed."""
        return min(cells, self._capacity)

    def rows_for(self, needed: int) -> int:
        if not self.cells.rows:
            return min(self._capacity, max(needed, self.options.start))
        return min(self._capacity, max(needed, math.ceil(self.cells.rows * self.options.factor)))


class CountedGeometricPool(CountedCells, GeometricPool):
    """The same policy over cells that are only counted."""


GeometricPool.Counted = CountedGeometricPool
