"""The pool paged against the laws that every pool keeps."""

from __future__ import annotations

from typing import Any

from musebench_paged.options import PagedOptions
from musebench_paged.pool import PagedPool

from musebench.core.errors import OutOfMemory, PoolFull, UnsupportedError
from musebench.testing import PoolConformance
from musebench.testing.fake_storage import FakeStorage


class TestBlocksOfFour(PoolConformance):
    def make(self, bounds, storage):
        return PagedPool(PagedOptions(block=4, start=4), bounds, storage)


class TestBlocksOfSixteen(PoolConformance):
    """Longer than most prompts here."""

    def make(self, bounds, storage):
        return PagedPool(PagedOptions(), bounds, storage)


class Twins:
    """The pool, and beside it the form that only counts, over rows of the same kind: told the same, it has
    the same to say, also after a rewind to inside of a block that another reads."""

    def __init__(self, options: PagedOptions, bounds, storage) -> None:
        alike = FakeStorage(storage.most, storage.failing, storage.moves, storage.at_once, storage.tells)
        self._pools: Any = (
            PagedPool(options, bounds, storage), PagedPool.Counted(options, bounds, alike)
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        told, counted = (getattr(pool, name) for pool in self._pools)
        if not callable(told):
            assert told == counted, f"{name} is {told}, and {counted} where cells are only counted"
            return told
        return lambda *arguments: self._both(name, told, counted, arguments)

    def fork(self, source: int, target: int, upto: int) -> None:
        raise UnsupportedError("cells that are only counted cannot be shared in the middle of a block")

    def _both(self, name: str, told, counted, arguments) -> Any:
        given, other = _outcome(told, arguments), _outcome(counted, arguments)
        if isinstance(given, PoolFull | OutOfMemory):
            assert repr(given) == repr(other), (
                f"{name} is refused, and not alike where cells are only counted"
            )
            raise given
        if isinstance(other, PoolFull | OutOfMemory):
            raise AssertionError(f"{name} is refused only where cells are only counted: {other}")
        if name not in ("reserve", "take_edits"):
            assert given == other, f"{name} gave {given}, and {other} where cells are only counted"
        return given


def _outcome(verb, arguments) -> Any:
    """What it gave, or its refusal."""
    try:
        return verb(*arguments)
    except (PoolFull, OutOfMemory) as refused:
        return refused


class TestCounted(PoolConformance):
    """That the counts of both forms agree, after every verb of the same histories."""

    def make(self, bounds, storage):
        return Twins(PagedOptions(block=4, start=4), bounds, storage)
