"""Components with a fault planted in each."""

from __future__ import annotations

from musebench.models.random_source import RandomOptions, RandomSource
from musebench.plugin import hookimpl
from musebench.pools.geometric import GeometricOptions, GeometricPool


class LeakyPool(GeometricPool):
    """Keeps the first cell of every sequence."""

    def release(self, slot):
        self.rewind(slot, min(1, int(self.cells.held[slot])))


class GreedyPool(GeometricPool):
    """Says that it grows, and reserves everything."""

    def rows_for(self, needed):
        return self.capacity


class TwiceSource(RandomSource):
    """Keeps a second copy of the weights."""

    kept: list = []  # noqa: RUF012 - the fault itself: nobody lets it go

    def claims(self, text):
        return text.startswith("twice:")

    def open(self, text, dtype, device, seed):
        model = super().open(text.removeprefix("twice:"), dtype, device, seed)
        self.kept.append([parameter.clone() for parameter in model.module.parameters()])
        return model


class Plugin:
    @hookimpl
    def register_pools(self, register):
        register("leaky", LeakyPool, options=GeometricOptions)
        register("greedy", GreedyPool, options=GeometricOptions)

    @hookimpl
    def register_models(self, register):
        register("twice", TwiceSource, options=RandomOptions)
