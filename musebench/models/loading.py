"""What all sources of weights share: a stopwatch, the peak of memory, and facts read off a loaded module."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UnsupportedError
from musebench.core.facts import ModelFacts
from musebench.measure.memory import host_peak, host_resident, reset_host_peak


class LoadMeter:
    """Seconds of each part of a load, and the peak of memory above what was in use when it began.

    On the CPU the peak is the process's resident set, on CUDA torch's allocator.
    """

    def __init__(self, device: str) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        # A process that was larger once would hide a smaller peak: it starts again where the kernel lets us.
        resident = host_resident() if reset_host_peak() else None
        self._before = self._now() if resident is None or self._on_cuda else resident

    @property
    def _on_cuda(self) -> bool:
        return self._device.startswith("cuda")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start

    def peak_bytes(self) -> int:
        return max(self._now() - self._before, 0)

    def _now(self) -> int:
        if self._on_cuda:
            import torch

            return int(torch.cuda.max_memory_allocated(self._device)) if torch.cuda.is_initialized() else 0
        return host_peak() or 0


def torch_dtype(dtype: str) -> Any:
    """torch's own.

    Raises:
        UnsupportedError: a model does not run in it here.
    """
    import torch

    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise UnsupportedError(f"--dtype {dtype} is not run by torch here; use one of {', '.join(known)}")
    return known[dtype]


def ready(module: Any, facts: ModelFacts) -> ModelFacts:
    """Put a module into evaluation mode for good, and correct the facts' count by its own parameters."""
    module.eval()
    module.requires_grad_(False)
    counted = sum(parameter.numel() for parameter in module.parameters())
    if counted == facts.parameters:
        return facts
    return replace(
        facts, parameters=counted, active_parameters=facts.active_parameters + counted - facts.parameters
    )


def stop_tokens(*configs: Any) -> tuple[int, ...]:
    """The end-of-text ids of the first config that names any.

    Raises:
        InputError: it names something else.
    """
    for config in configs:
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            listed = ids if isinstance(ids, list | tuple) else [ids]
            if not all(type(one) is int for one in listed):
                raise InputError(
                    f"the model's eos_token_id is {ids!r:.80}; a whole number or a list is wanted"
                )
            return tuple(listed)
    return ()


def sha256_of(paths: Iterable[Path]) -> str:
    """Over the contents of files, in order of name."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
