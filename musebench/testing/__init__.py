"""Whether a plugin is right: the conformance kit, and planted faults.

A plugin's author subclasses one class with one factory, in the tests of the package:

    from musebench.testing import PoolConformance
    from my_package.pool import MyPool

    class TestMyPool(PoolConformance):
        def make(self, bounds, storage):
            return MyPool(MyPool.Options(), bounds, storage)

pytest then shows a test a law, named after it: the pool has lived through random histories, and a law that
does not hold is told in words with the shortest history that breaks it:

    release: after opening A with 1 token and releasing A, 1 cell is owned by nobody but counted in use

| class | the factory | what is drawn |
| --- | --- | --- |
| `ExecutorConformance` | `make(backend, limits)` | mixtures of batches, growth, failures, cancels, closing |
| `PoolConformance` | `make(bounds, storage)` | steps, ends, rewinds, forks; rows that move or fail |
| `SchedulerConformance` | `make()` | requests over time, limits, tight pools, cancels |
| `RouterConformance` | `make()` | requests, and replicas as busy as they come |
| `TraceReaderConformance` | `make()`, `example` | a right file, spoilt piece by piece |
| `CheckConformance` | `make()`, `broken(report)` | sound reports, ones that lack parts, one that must fail |

`examples` and `seed` are attributes of each class. `musebench conformance NAME` holds a registered component
to the same laws without a test. The laws themselves are in `musebench.testing.laws`, and know no pytest. All
of it needs the extra `testing`: pip install 'musebench[testing]'.

A scheduler that by its policy lets any number of later requests overtake one who waits, such as shortest job
first without aging, says so with the attribute `patience = None`; a number there is a bound of its own.

`MUSEBENCH_TESTING=1` in the environment registers an executor and a pool that fail on purpose
(`musebench.testing.faults`); they are no components of a normal run.
"""

from __future__ import annotations

from typing import Any

_CLASSES = (
    "CheckConformance",
    "ExecutorConformance",
    "PoolConformance",
    "RouterConformance",
    "SchedulerConformance",
    "TraceReaderConformance",
)

__all__ = list(_CLASSES)


def __getattr__(name: str) -> Any:
    """The classes, imported when they are used: they bring pytest along."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from musebench.testing import conformance

    return getattr(conformance, name)
