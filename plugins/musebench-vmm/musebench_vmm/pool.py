"""`vmm`: rows are mapped as they are needed, at addresses that were reserved once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from musebench.core.errors import UnsupportedError
from musebench.core.options import option
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, RowRule, Storage
from musebench.core.spans import GrowsInPlace
from musebench.pools.growing import CountedCells, GrowingPool
from musebench_vmm.source import GRANULE_BYTES, VirtualMemory


@dataclass(frozen=True)
class VmmOptions:
    granule: int = option(
        GRANULE_BYTES,
        "memory is mapped in multiples of this, itself a multiple of what the device maps at least (2 MiB on "
        "CUDA, a page on a CPU)",
        unit="bytes",
        minimum=1,
    )
    capacity: int | None = option(None, "most rows; none: as many as memory holds", unit="cells", minimum=1)
    give_back: bool = option(
        False, "unmap trailing granules when a step begins with fewer than half of the rows needed"
    )


class VmmPool(GrowingPool):
    """rows = as many as the granules that the needed rows begin can hold, at most the capacity.

    The addresses of the whole capacity are reserved when the pool is made; growth maps granules behind the
    rows and moves nothing, so the generation stays. A token claims the lowest free cell.
    """

    name: ClassVar[str] = "vmm"
    Options = VmmOptions
    Counted: ClassVar[Callable[[VmmOptions, PoolBounds, Storage], VmmPool]]

    def __init__(self, options: VmmOptions, bounds: PoolBounds, storage: Storage) -> None:
        if not isinstance(storage, GrowsInPlace):
            raise UnsupportedError(
                f"pool 'vmm' needs a storage that grows in place, and {type(storage).__name__} does not; use "
                "--pool geometric"
            )
        self.options = options
        self._in_place: GrowsInPlace = storage
        limits = [limit for limit in (options.capacity, bounds.capacity) if limit is not None]
        most = min(limits) if limits else bounds.max_sessions * bounds.max_context
        storage.reserve(most + 1, VirtualMemory(options.granule, pieces=options.give_back))
        super().__init__(bounds, storage, options.capacity)
        self._given_back = 0

    def counters(self) -> dict[str, int | float]:
        return {**super().counters(), "given back": self._given_back}

    # -- what it may come to --------------------------------------------------------------------------

    def affordable(self, free_bytes: int) -> int:
        """No row is ever there twice; each buffer's last granule may be nearly empty."""
        return (free_bytes - self._in_place.slack_bytes) // self.storage.cell_bytes - 1

    def rows_for(self, needed: int) -> int:
        return min(self._capacity, self._in_place.rows_within(needed + 1) - 1)

    def most_rows(self, cells: int) -> int:
        return self.rows_for(max(cells, 1))

    def bytes_for(self, rows: int) -> int:
        """Bytes that so many rows hold, scratch included."""
        return self._in_place.bytes_for(rows)

    @property
    def row_rule(self) -> RowRule:
        """The rows needed and what the granules that they begin hold beside them."""
        return RowRule(slack=-(-self._in_place.slack_bytes // self.storage.cell_bytes))

    # -- giving back ----------------------------------------------------------------------------------

    def reserve(self, plan: StepPlan) -> np.ndarray:
        """See `musebench.core.protocols.Pool`. Rows are given back here, at the beginning of a step, so that
        the report has them as it has every growth."""
        if self.options.give_back:
            self._give_back(plan)
        return super().reserve(plan)

    def lasting(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Lasting`: none where rows are to be given back first."""
        if self.options.give_back and self._spare(plan):
            return 0
        return super().lasting(plan)

    def _spare(self, plan: StepPlan) -> int:
        """Rows to give back before a plan."""
        used = np.flatnonzero(self.cells.owners[1:])
        last = int(used[-1]) + 1 if len(used) else 0
        wanted = self.rows_for(max(last, self.need(plan), 1))
        return self.cells.rows - wanted if 2 * wanted <= self.cells.rows else 0

    def _give_back(self, plan: StepPlan) -> None:
        if spare := self._spare(plan):
            self._given_back += spare
            wanted = self.cells.rows - spare
            done = self.storage.resize(wanted + 1, wanted + 1)
            self.cells.shrink(wanted)
            self.resizes.append((wanted + 1, self.storage.bytes, done))


class CountedVmmPool(CountedCells, VmmPool):
    """The same policy over cells that are only counted."""


def _counted(options: VmmOptions, bounds: PoolBounds, storage: Storage) -> VmmPool:
    """Which cell is the last can only be known of cells that are kept."""
    made = VmmPool if options.give_back else CountedVmmPool
    return made(options, bounds, storage)


VmmPool.Counted = staticmethod(_counted)
