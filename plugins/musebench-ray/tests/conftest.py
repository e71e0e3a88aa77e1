"""A cluster of two nodes on this machine: each a process of its own, with its own workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("ray", reason="the launcher needs ray[default]")


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Of a cluster whose two nodes have a core each."""
    from musebench_ray.cluster import QUIET
    from ray.cluster_utils import Cluster

    os.environ.update(QUIET)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture
def matrix(tmp_path):
    """Starts `musebench matrix` with its folder in `tmp_path / "reports"`."""

    def started(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable, "-m", "musebench", "matrix", *arguments,
                "--no-progress", "--warmup", "0", "--out", str(tmp_path / "reports"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    return started
