"""`python -m musebench_ray.guarded ARGUMENTS`: musebench, which is killed when the worker above it ends.

A worker that is killed cannot stop its run, and the run would go on beside its second attempt.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from musebench_ray.task import PARENT

PR_SET_PDEATHSIG = 1
"""Of prctl(2), Linux; it holds across exec."""


def main() -> None:
    parent = int(os.environ.pop(PARENT))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be asked for
        sys.exit(f"the worker {parent} of this run has ended")
    os.execv(sys.executable, [sys.executable, "-m", "musebench", *sys.argv[1:]])


if __name__ == "__main__":
    main()
