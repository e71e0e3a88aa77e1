"""The schedulers against the laws that every scheduler keeps."""

from __future__ import annotations

from musebench_sched.fair_share import FairShareOptions, FairShareScheduler
from musebench_sched.priority import PriorityOptions, PriorityScheduler
from musebench_sched.sjf import SjfOptions, SjfScheduler

from musebench.testing import SchedulerConformance


class TestFairShare(SchedulerConformance):
    def make(self):
        return FairShareScheduler(FairShareOptions())


class TestPriority(SchedulerConformance):
    def make(self):
        return PriorityScheduler(PriorityOptions())


class TestSjf(SchedulerConformance):
    def make(self):
        return SjfScheduler(SjfOptions())
