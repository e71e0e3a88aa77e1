"""Runs of a matrix as tasks of a Ray cluster, their reports brought back to the folder of whoever asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.whole import write_whole
from musebench.matrix.drive import ERROR, EXIT_REFUSED
from musebench.matrix.launch import Ended, Launch
from musebench_ray.cluster import connected
from musebench_ray.options import Options
from musebench_ray.task import Done, Work, carry_out


@dataclass(frozen=True)
class Need:
    """What Ray sets aside for a run."""

    cpus: int
    gpus: int


class RayLauncher:
    """As many runs at a time as the cluster has room for; each is a process of its own on some node.

    A run whose worker or node dies is started again. `held` is of no use here: only this process writes into
    the folder, and Ray ends the tasks of one that is gone.
    """

    Options = Options

    def __init__(self, options: Options) -> None:
        self.options = options

    def launch(self, launches: Iterable[Launch], timeout_seconds: float | None, held: int) -> Iterator[Ended]:
        """As `musebench.matrix.launch.Launcher`.

        Raises:
            UsageError: no cluster can be reached.
        """
        with connected(self.options.address, self.options.folder) as ray:
            task = ray.remote(carry_out)
            flying: dict[Any, tuple[Launch, Need]] = {}
            try:
                for launch in launches:
                    try:
                        need = self._need(launch, ray)
                    except UsageError as error:
                        yield Ended(launch, EXIT_REFUSED, f"{ERROR}{error}", 0.0)
                        continue
                    # Only then is the next one drawn: what ended before decides what comes.
                    reference = task.options(
                        num_cpus=need.cpus, num_gpus=need.gpus, max_retries=self.options.retries
                    ).remote(self._work(launch, timeout_seconds))
                    flying[reference] = (launch, need)
                    while flying and not self._room(ray, flying):
                        yield self._next(ray, flying)
                while flying:
                    yield self._next(ray, flying)
            finally:
                for reference in flying:
                    ray.cancel(reference, force=True)

    def _need(self, launch: Launch, ray: ModuleType) -> Need:
        """Raises UsageError where no node could ever take it: Ray would wait for one."""
        device = _value(launch.arguments, "--device") or "cpu"
        if device.startswith("cuda:"):
            raise UsageError(
                f"--device {device}: a run on Ray has a GPU of its own, which is its first; --device cuda"
            )
        need = Need(self.options.cpus, int(device == "cuda"))
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(_fits(need, node) for node in nodes):
            most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
            gpus = int(sum(node.get("GPU", 0) for node in nodes))
            raise UsageError(
                f"no node of the cluster takes a run of {need.cpus} cores and {need.gpus} GPUs: the largest "
                f"of {len(nodes)} has {most} cores, all have {gpus} GPUs; lower launcher.cpus, or add a node"
            )
        return need

    def _room(self, ray: ModuleType, flying: dict[Any, tuple[Launch, Need]]) -> bool:
        """Whether one more run like the last could start at once beside those that are on their way."""
        if self.options.parallel is not None and len(flying) >= self.options.parallel:
            return False
        needs = [need for _, need in flying.values()]
        free = [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
        for need in [*needs, needs[-1]]:
            node = next((one for one in free if _fits(need, one)), None)
            if node is None:
                return False
            node["CPU"] = node.get("CPU", 0) - need.cpus
            node["GPU"] = node.get("GPU", 0) - need.gpus
        return True

    def _work(self, launch: Launch, timeout_seconds: float | None) -> Work:
        at = launch.arguments.index("--out")
        arguments = (*launch.arguments[:at], *launch.arguments[at + 2 :])
        folder = None if self.options.folder is not None else os.getcwd()
        return Work(arguments, launch.report.name, timeout_seconds, folder, self.options.python)

    def _next(self, ray: ModuleType, flying: dict[Any, tuple[Launch, Need]]) -> Ended:
        """Wait for any; its report is in its place before this returns."""
        (reference,), _ = ray.wait(list(flying), num_returns=1)
        launch, _ = flying.pop(reference)
        try:
            done: Done = ray.get(reference)
        except ray.exceptions.RayError as error:
            return Ended(launch, -signal.SIGKILL, self._lost(error, ray), 0.0)
        if done.report is not None:
            write_whole(launch.report, done.report, "the report")
        return Ended(launch, done.code, done.errors, done.seconds)

    def _lost(self, error: Exception, ray: ModuleType) -> str:
        if isinstance(error, ray.exceptions.RayTaskError | ray.exceptions.RuntimeEnvSetupError):
            return f"its node cannot run it: {str(error).strip().splitlines()[-1]}"
        tries = self.options.retries + 1
        return f"its worker died in each of {tries} tries ({type(error).__name__}); raise launcher.retries"


def _value(arguments: tuple[str, ...], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def _fits(need: Need, resources: dict[str, float]) -> bool:
    return resources.get("CPU", 0) >= need.cpus and resources.get("GPU", 0) >= need.gpus
