"""The connection to a cluster: quiet, no dashboard, no usage reports, and one line when there is none."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from musebench.core.errors import UsageError

CONNECT_SECONDS = 5.0

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its future default; otherwise Ray warns of it
    "RAY_task_oom_retries": "0",  # else a run that fills a node's memory is tried again for ever
}


@contextmanager
def connected(address: str, folder: str | None) -> Iterator[ModuleType]:
    """Yields the module `ray`, connected to the cluster at `address`; `folder` goes to every node.

    Raises:
        UsageError: no cluster can be reached there, or it cannot be used; what, where and the way out.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    if address not in ("auto", "local"):
        _require_listener(address)
    if folder is not None and not os.path.isdir(folder):
        raise UsageError(f"launcher.folder: {folder} is no folder")
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            runtime_env=None if folder is None else {"working_dir": folder},
        )
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"launcher.address {address!r}: no Ray cluster can be used there ({said}); start one with "
            "`ray start --head`, name another as HOST:PORT, or take `local`"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"launcher.address is {address!r}; HOST:PORT, auto or local is wanted")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"launcher.address {address!r}: nothing answers there ({error.strerror or error}); start a "
            "cluster with `ray start --head`, name another as HOST:PORT, or take `local`"
        ) from error
