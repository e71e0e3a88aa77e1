"""NaN in the model's own logits, on the device, so that what detects them is what is tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from musebench.backends.attention import StepContext
from musebench.core.errors import UnsupportedError
from musebench.core.protocols import Backend


class SpoiltLogits:
    """Wraps the model of a torch backend; outside of `row` its logits are what they were.

    What is added lies in a tensor whose address stays: a captured graph reads it too.

    Raises:
        UnsupportedError: a backend that makes no logits.
    """

    def __init__(self, backend: Backend) -> None:
        program: Any = getattr(backend, "program", None)
        if program is None:
            raise UnsupportedError(
                f"backend {backend.name!r} makes no logits to spoil; use --device cpu or cuda"
            )
        self._spoilt = torch.full((1,), -1, dtype=torch.int32, device=program.table.device)
        self._inner = program.model
        program.model = self

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, step: StepContext) -> Tensor:
        logits: Tensor = self._inner(token_ids, positions, rows, step)
        numbers = torch.arange(logits.shape[0], dtype=torch.int32, device=logits.device)
        return logits.masked_fill((numbers == self._spoilt)[:, None], torch.nan)

    @contextmanager
    def row(self, row: int) -> Iterator[None]:
        """Spoil this logit row of the forwards launched within."""
        self._spoilt.fill_(row)
        try:
            yield
        finally:
            self._spoilt.fill_(-1)
