"""Workloads: what makes requests. The schema, prompts, lengths, arrivals and traces."""

from musebench.workload.build import Built
from musebench.workload.load import load_workload, shipped_workloads
from musebench.workload.spec import Context, Defaults, WorkloadSpec
from musebench.workload.workload import Workload

__all__ = ["Built", "Context", "Defaults", "Workload", "WorkloadSpec", "load_workload", "shipped_workloads"]
