"""Schedulers that choose who is admitted next, over the built-in ones that say how a step runs."""

from __future__ import annotations

from musebench.plugin import hookimpl


@hookimpl
def register_schedulers(register):
    for name, target, summary in (
        ("sjf", "sjf:SjfScheduler", "admits the shortest job first, and lets nobody wait for ever"),
        ("priority", "priority:PriorityScheduler", "admits by the request's tag 'priority', with aging"),
        ("fair-share", "fair_share:FairShareScheduler", "admits the tenant that was served fewest tokens"),
    ):
        register(
            name, f"musebench_sched.{target}", options=f"musebench_sched.{target}.Options", summary=summary
        )
