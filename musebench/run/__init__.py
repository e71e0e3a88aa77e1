"""One run: a workload on a model, with one executor, pool and scheduler; it ends in a report."""

from musebench.run.conduct import Prepare, run
from musebench.run.options import ON_OOM, RunOptions
from musebench.run.parts import Parts
from musebench.run.profile import Profile
from musebench.run.repeat import Progress

__all__ = ["ON_OOM", "Parts", "Prepare", "Profile", "Progress", "RunOptions", "run"]
