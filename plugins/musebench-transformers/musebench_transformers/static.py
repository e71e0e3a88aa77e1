"""`generate` over padded batches: a batch runs until its last sequence ends, then the next is made of who has
arrived by then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from musebench.core.peer import PeerSetting
from musebench.core.protocols import MemorySnapshot
from musebench.core.request import FinishReason, Request
from musebench.core.service import Service
from musebench_transformers.module import Module, unserved
from musebench_transformers.options import StaticOptions

PAD = 0
"""Fills the left of shorter prompts; masked, so that any id will do."""


class StaticEngine:
    """Batches of at most `max_sessions`, padded on the left to their longest prompt.

    Each token is handed to the host when it is made, as a streaming server would: one wait a step.
    """

    HAS_WEIGHTS: ClassVar[bool] = False
    TAKES: ClassVar[tuple[str, ...]] = ("max_sessions", "max_context")
    Options = StaticOptions

    def __init__(self, options: StaticOptions, setting: PeerSetting) -> None:
        self.options = options
        self._module = Module(setting, options.attention)
        self._most_sessions = setting.max_sessions or 1
        self._most_context = setting.max_context
        self._counts = {"batches": 0, "padded prompt tokens": 0, "row steps": 0, "row steps after the end": 0}

    def prepare(self) -> Mapping[str, float]:
        return {}

    def serve(self, service: Service) -> None:
        line: deque[Request] = deque()
        while not service.over:
            for request in service.due():
                if (why := unserved(request, self._most_context)) is not None:
                    service.ended(request.id, FinishReason.REFUSED, why)
                else:
                    line.append(request)
            if line:
                batch = [line.popleft() for _ in range(min(len(line), self._most_sessions))]
                self._serve(batch, service)
            elif not service.over:
                service.sleep()

    def counters(self) -> Mapping[str, int | float]:
        return dict(self._counts)

    def memory(self) -> MemorySnapshot:
        return self._module.memory()

    def reset_peak(self) -> None:
        self._module.reset_peak()

    def conditions(self) -> Mapping[str, Any]:
        return self._module.conditions()

    def close(self) -> None:
        self._module.close()

    def _serve(self, batch: list[Request], service: Service) -> None:
        """One `generate`; a failure ends the requests of its batch."""
        for request in batch:
            service.started(request.id)
        told = _Told(batch, service)
        try:
            self._generate(batch, told)
        except Exception as error:
            told.fail(" ".join(f"generate failed: {type(error).__name__}: {error}".split()))
        self._counts["batches"] += 1
        self._counts["row steps"] += told.steps * len(batch)
        self._counts["row steps after the end"] += told.steps * len(batch) - told.tokens

    def _generate(self, batch: list[Request], told: _Told) -> None:
        width = max(len(request.prompt) for request in batch)
        ids = torch.full((len(batch), width), PAD, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(batch):
            ids[row, width - len(request.prompt) :] = torch.tensor(list(request.prompt))
            mask[row, width - len(request.prompt) :] = 1
        self._counts["padded prompt tokens"] += int(mask.numel() - mask.sum())
        model = self._module.model
        with torch.inference_mode():
            model.generate(
                ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=max(request.max_new_tokens for request in batch),
                do_sample=False,
                temperature=None, top_p=None, top_k=None,
                eos_token_id=None,
                pad_token_id=PAD,
                cache_implementation=None if self.options.cache == "dynamic" else self.options.cache,
                streamer=told,
                stopping_criteria=StoppingCriteriaList([_Over(told)]),
            )  # fmt: skip


class _Told(BaseStreamer):
    """Takes each step's tokens as `generate` makes them, and tells the rows that had not ended yet."""

    def __init__(self, batch: list[Request], service: Service) -> None:
        self._batch = batch
        self._service = service
        self._made = [0] * len(batch)
        self._open = set(range(len(batch)))
        self._prompt = True
        self.steps = 0

    @property
    def over(self) -> bool:
        return not self._open

    @property
    def tokens(self) -> int:
        return sum(self._made)

    def put(self, value: torch.Tensor) -> None:
        """The prompt first, then int64 [batch] a step, on the CPU: the device has made them."""
        if self._prompt:
            self._prompt = False
            return
        now = self._service.now()
        self.steps += 1
        for row, token in enumerate(value.tolist()):
            if row in self._open:
                self._tell(row, token, now)

    def end(self) -> None:
        """Nothing is held back."""

    def fail(self, message: str) -> None:
        for row in sorted(self._open):
            self._service.ended(self._batch[row].id, FinishReason.FAILED, message)
        self._open.clear()

    def _tell(self, row: int, token: int, now: float) -> None:
        request = self._batch[row]
        self._service.tokens(request.id, [token], now)
        self._made[row] += 1
        reason = None
        if token in request.stop_tokens:
            reason = FinishReason.STOP
        elif self._made[row] == request.max_new_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._open.discard(row)
            self._service.ended(request.id, reason, at=now)


class _Over(StoppingCriteria):
    """Stops `generate` when every row has ended by its own request's rules."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """bool [batch], one answer for all: transformers stops when all rows are done."""
        return torch.full((input_ids.shape[0],), self._told.over, dtype=torch.bool, device=input_ids.device)
