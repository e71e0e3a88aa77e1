"""transformers' continuous batching: its manager schedules, owns a paged cache and has its own thread."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import ContinuousBatchingConfig, GenerationConfig

from musebench.core.peer import PeerSetting
from musebench.core.protocols import MemorySnapshot
from musebench.core.request import FinishReason, Request
from musebench.core.service import Service
from musebench_transformers.module import Module, unserved
from musebench_transformers.options import BatchOptions

LOOK_SECONDS = 0.1
"""Longest wait for an answer before arrivals and the manager's thread are looked at again."""

NO_STOP = -1


class BatchEngine:
    """Requests go to the manager when they arrive; each answer comes back whole, with the time at which the
    manager knew each of its tokens."""

    HAS_WEIGHTS: ClassVar[bool] = False
    TAKES: ClassVar[tuple[str, ...]] = ("max_sessions", "max_context", "token_budget")
    Options = BatchOptions

    def __init__(self, options: BatchOptions, setting: PeerSetting) -> None:
        self.options = options
        self._module = Module(setting, options.attention)
        self._most_context = setting.max_context
        sessions = setting.max_sessions or 1
        most = setting.max_context or 1
        blocks = options.blocks or sessions * math.ceil(most / options.block_size)
        graphs = {"auto": None, "on": True, "off": False}[options.graphs]
        self._config = ContinuousBatchingConfig(
            block_size=options.block_size,
            num_blocks=blocks,
            max_batch_tokens=max(setting.token_budget or 1, sessions),
            max_requests_per_batch=sessions,
            use_cuda_graph=graphs if setting.device.startswith("cuda") else False,
        )
        self._counts = {"requests given": 0, "answers without all times": 0}
        self._manager: Any = None
        self._used = 0

    def prepare(self) -> Mapping[str, float]:
        """Make its cache, and capture its graphs where it has some."""
        began = time.perf_counter()
        generation = GenerationConfig(do_sample=False, eos_token_id=NO_STOP, max_new_tokens=1)
        self._manager = self._module.model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=self._config
        )
        self._manager.warmup()
        self._manager.start()
        return {"manager": time.perf_counter() - began}

    def serve(self, service: Service) -> None:
        self._used += 1
        pending: dict[str, Request] = {}
        heard = service.now()
        while not service.over:
            for request in service.due():
                self._give(request, service, pending)
                heard = service.now()
            if service.over:
                return
            if not pending:
                service.sleep()
                heard = service.now()
                continue
            wait = service.wait_seconds()
            result = self._manager.get_result(
                timeout=LOOK_SECONDS if wait is None else min(wait, LOOK_SECONDS)
            )
            if result is not None and result.is_finished():
                heard = service.now()
                self._take(result, service, pending)
            elif result is None and not self._manager.is_running():
                fatal = self._manager.background_thread_status.fatal_error
                raise RuntimeError(
                    f"transformers' generation thread has ended: {fatal or 'it does not say why'}"
                )
            elif service.now() - heard > self.options.silence:
                raise TimeoutError(
                    f"{len(pending):,} requests are with the manager, and no answer came for "
                    f"{self.options.silence:g} s"
                )

    def counters(self) -> Mapping[str, int | float]:
        return dict(self._counts)

    def memory(self) -> MemorySnapshot:
        return self._module.memory()

    def reset_peak(self) -> None:
        self._module.reset_peak()

    def conditions(self) -> Mapping[str, Any]:
        config = self._config if self._manager is None else self._manager.continuous_batching_config
        names = ("block_size", "num_blocks", "max_batch_tokens", "use_cuda_graph", "use_async_batching")
        told = {name: getattr(config, name) for name in names}
        return {**self._module.conditions(), "continuous batching": {k: _plain(v) for k, v in told.items()}}

    def close(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop(block=True, timeout=10.0, hard_stop=True)
            manager.destroy()
        self._module.close()

    def _give(self, request: Request, service: Service, pending: dict[str, Request]) -> None:
        if (why := unserved(request, self._most_context)) is not None:
            service.ended(request.id, FinishReason.REFUSED, why)
            return
        # The manager outlives a run, and an id is answered once.
        given = self._manager.add_request(
            list(request.prompt),
            request_id=f"{self._used}/{request.id}",
            max_new_tokens=request.max_new_tokens,
            eos_token_id=list(request.stop_tokens) or NO_STOP,
            record_timestamps=True,
        )
        if given is None:
            service.ended(request.id, FinishReason.FAILED, "the manager takes no request any more")
            return
        self._counts["requests given"] += 1
        pending[given] = request

    def _take(self, result: Any, service: Service, pending: dict[str, Request]) -> None:
        request = pending.pop(result.request_id, None)
        if request is None:  # an answer to a run that was interrupted
            return
        offset = time.perf_counter() - service.now()  # its stamps and ours are of one clock
        if result.lifespan[0] > 0:
            service.started(request.id, max(result.lifespan[0] - offset, request.arrival_seconds))
        ids, stamps = list(result.generated_tokens), list(result.timestamps or ())
        if result.error is not None:
            service.ended(
                request.id, FinishReason.FAILED, f"transformers: {' '.join(str(result.error).split())}"
            )
            return
        # A request that was put back loses the stamps of what it had made before.
        missing = len(ids) - len(stamps)
        if missing > 0:
            self._counts["answers without all times"] += 1
            service.untimed_tokens(request.id, ids[:missing])
            ids = ids[missing:]
        for token, stamp in zip(ids, stamps, strict=False):
            service.tokens(request.id, [token], stamp - offset)
        stopped = bool(result.generated_tokens) and result.generated_tokens[-1] in request.stop_tokens
        service.ended(request.id, FinishReason.STOP if stopped else FinishReason.LENGTH)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
