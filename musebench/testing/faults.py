"""Planted faults as a plugin: an executor and a pool that fail at a chosen step, around any other.

    export MUSEBENCH_TESTING=1
    musebench run capitals --executor faulty --set executor.kind=raise --set executor.step=7
    musebench run capitals --pool refusing --set pool.step=3

What has to come of each: an error that names the step and what was running, all cells back, finished requests
and their tokens in an incomplete report, and exit code 1.
"""

from __future__ import annotations

from musebench.plugin.hookspecs import Register, hookimpl


@hookimpl
def register_executors(register: Register) -> None:
    register(
        "faulty",
        "musebench.testing.faulty_executor:FaultyExecutor",
        options="musebench.testing.faulty_executor:FaultyOptions",
        summary="another executor that fails at a chosen step, for tests",
    )


@hookimpl
def register_pools(register: Register) -> None:
    register(
        "refusing",
        "musebench.testing.refusing_pool:RefusingPool",
        options="musebench.testing.refusing_pool:RefusingOptions",
        summary="another pool that refuses at a chosen step, for tests",
    )
