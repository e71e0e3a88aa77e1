"""`faulty`: an executor around another that fails at a chosen step."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from musebench.core.batch import StepBatch
from musebench.core.errors import OutOfMemory
from musebench.core.options import option
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Executor, Forward, StepOutput
from musebench.plugin.registry import Registry
from musebench.testing.when import When, settings

KINDS = ("raise", "raise-late", "nan", "oom", "hang", "hang-locked", "kill")


class PlantedFault(Exception):
    """What `raise` and `raise-late` raise."""


@dataclass(frozen=True)
class FaultyOptions:
    kind: str = option(
        "raise",
        "raise at the launch, raise-late when the tokens are waited for, nan in the model's logits, oom (out "
        "of memory), hang in a wait, hang-locked in one that holds the interpreter's lock, kill (-9) the "
        "process",
        choices=KINDS,
    )
    step: int = option(0, "first step that fails; warm-ups and repeats count on", minimum=0)
    times: int = option(1, "steps in a row that fail; 0: all from there on", minimum=0)
    row: int = option(0, "nan: the logit row that is spoilt, of the first forward that has any", minimum=0)
    fits: int = option(0, "oom: forwards of at most so many tokens fit", unit="tokens", minimum=0)
    inner: str = option("eager", "the executor that does the work")
    inner_options: str = option("", "its options: NAME=VALUE;NAME=VALUE")


class FaultyExecutor:
    """Counts steps by `cut`, which the engine calls once a launch, those that fail included."""

    name: ClassVar[str] = "faulty"
    Options = FaultyOptions

    def __init__(self, options: FaultyOptions, backend: Backend, limits: Limits) -> None:
        self.options = options
        component = Registry.installed().get("executor", options.inner)
        self.inner: Executor = component.make(settings(options.inner_options), backend, limits)
        self._when = When(options.step, options.times)
        self._strikes = False
        self._spoil: Any = None
        if options.kind == "nan":
            from musebench.testing.spoilt_logits import SpoiltLogits

            self._spoil = SpoiltLogits(backend)

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def prepare(self) -> Mapping[str, float]:
        return self.inner.prepare()

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        owed = self._strikes and self.options.kind == "nan"  # no forward of the step had a logit row
        self._strikes = self._when.next() or owed
        return self.inner.cut(plan)

    def execute(self, batch: StepBatch) -> StepOutput:
        """Launch a forward, or fail in the chosen way."""
        kind = self.options.kind
        if not self._strikes:
            return self.inner.execute(batch)
        if kind == "raise":
            raise PlantedFault(f"planted in a forward of {batch.tokens} tokens")
        if kind == "oom" and batch.tokens > self.options.fits:
            raise OutOfMemory(1 << 60, 0, f"a planted forward of {batch.tokens} tokens")
        if kind == "hang":
            threading.Event().wait()
        if kind == "hang-locked":  # a PyDLL call keeps the interpreter's lock
            ctypes.PyDLL(None).pause()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "nan" and batch.rows:
            self._strikes = False  # one forward of the step
            with self._spoil.row(min(self.options.row, batch.rows - 1)):
                return self.inner.execute(batch)
        output = self.inner.execute(batch)
        return _Late(output) if kind == "raise-late" else output

    def counters(self) -> Mapping[str, int | float]:
        return self.inner.counters()

    def close(self) -> None:
        self.inner.close()


class _Late:
    """An output that fails when it is waited for."""

    device_seconds: float | None = None
    margins: np.ndarray | None = None

    def __init__(self, output: StepOutput) -> None:
        self._output = output

    def wait(self) -> np.ndarray:
        self._output.wait()
        raise PlantedFault("planted in the tokens of a forward")
