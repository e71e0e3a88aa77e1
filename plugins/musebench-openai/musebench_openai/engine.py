"""Sends requests when they arrive, reads their streams, and tells what came and when."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import httpx

from musebench.core.peer import PeerSetting
from musebench.core.protocols import MemorySnapshot
from musebench.core.request import FinishReason, Request
from musebench.core.service import Service
from musebench_openai import remote
from musebench_openai.options import OpenAIOptions
from musebench_openai.stream import SHOWN, Failure, error_text, parse
from musebench_openai.wire import Wire

LATE_SECONDS = 0.01
"""A request that is sent so long after its arrival is counted: the client was late, not the server."""

ENDS = {"stop": FinishReason.STOP, "eos": FinishReason.STOP, "length": FinishReason.LENGTH}


class OpenAIEngine:
    """TTFT and TPOT are those of the chunks that the client saw; tokens are counted by the server's usage.

    `max_sessions` bounds the requests in flight (none: all that have arrived).
    """

    HAS_WEIGHTS: ClassVar[bool] = True
    TAKES: ClassVar[tuple[str, ...]] = ("max_sessions",)
    Options = OpenAIOptions
    remote_model = staticmethod(remote.remote_model)

    def __init__(self, options: OpenAIOptions, setting: PeerSetting) -> None:
        self.options = options
        self._url = remote.checked_url(options)
        self._headers = remote.headers(options)
        model = setting.model
        tokenizer = None if options.tokenizer is None else model.tokenizer
        self._wire = Wire(options, model.name, tokenizer, remote.extra_of(options))
        self._most = setting.max_sessions
        self._certificates: Any = True
        self._counts = {"requests sent": 0, "sent late by the client": 0, "sent again after 429": 0}

    def prepare(self) -> Mapping[str, float]:
        """Read the certificates, which takes longer than many a first token."""
        began = time.perf_counter()
        self._certificates = httpx.create_ssl_context()
        return {"certificates": time.perf_counter() - began}

    def serve(self, service: Service) -> None:
        asyncio.run(self._serve(service))

    def counters(self) -> Mapping[str, int | float]:
        return dict(self._counts)

    def memory(self) -> MemorySnapshot:
        """Nothing: the memory that counts is the server's."""
        return MemorySnapshot()

    def reset_peak(self) -> None:
        """Nobody measures one."""

    def conditions(self) -> Mapping[str, Any]:
        return {"device": "remote", "httpx": httpx.__version__, "times": "of chunks, by the client's clock"}

    def close(self) -> None:
        """A run closes its connections itself."""

    async def _serve(self, service: Service) -> None:
        times = httpx.Timeout(self.options.silence, connect=self.options.connect, pool=None)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        places = asyncio.Semaphore(self._most or len(service.records))
        tasks: set[asyncio.Task[None]] = set()
        async with httpx.AsyncClient(
            headers=self._headers, timeout=times, limits=limits, verify=self._certificates
        ) as client:
            try:
                while not service.over:
                    tasks |= {
                        asyncio.create_task(self._one(client, request, service, places))
                        for request in service.due()
                    }
                    if service.over:
                        break
                    done, tasks = await _next(tasks, service.wait_seconds())
                    for task in done:
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(
        self, client: httpx.AsyncClient, request: Request, service: Service, places: asyncio.Semaphore
    ) -> None:
        """One request from its arrival to its end, which always comes."""
        try:
            async with places, asyncio.timeout(self.options.total):
                await self._ask(client, request, service)
        except Failure as failure:
            why = str(failure)
        except TimeoutError:
            why = f"it had not ended after {self.options.total:g} s (engine.total)"
        except httpx.ConnectTimeout:
            why = f"no connection within {self.options.connect:g} s (engine.connect)"
        except httpx.TimeoutException:
            why = f"not a byte for {self.options.silence:g} s (engine.silence)"
        except httpx.HTTPError as error:
            why = f"the connection broke: {type(error).__name__}: {error}"
        else:
            return
        service.ended(request.id, FinishReason.FAILED, self._without_key(why))

    async def _ask(self, client: httpx.AsyncClient, request: Request, service: Service) -> None:
        route, body = self._wire.pack(request)
        arrival = service.records[request.id].arrival_seconds
        if service.now() - arrival > LATE_SECONDS:
            self._counts["sent late by the client"] += 1
        for attempt in range(self.options.retries + 1):
            service.started(request.id)
            self._counts["requests sent"] += 1
            async with client.stream("POST", f"{self._url}/{route}", json=body) as answer:
                if answer.status_code == 200:
                    await self._read(answer, request, service)
                    return
                said = await _said(answer)
                if answer.status_code != 429:
                    raise Failure(f"the server answers {answer.status_code}: {said}")
                wait = _retry_after(answer.headers.get("Retry-After"), attempt)
            if wait > self.options.longest_wait:
                raise Failure(
                    f"the server answers 429 and wants {wait:g} s, longer than engine.longest_wait "
                    f"({self.options.longest_wait:g} s): {said}"
                )
            if attempt < self.options.retries:
                self._counts["sent again after 429"] += 1
                await asyncio.sleep(wait)
        raise Failure(f"the server answers 429 to {self.options.retries + 1} tries: {said}")

    async def _read(self, answer: httpx.Response, request: Request, service: Service) -> None:
        reason = prompt = made = None
        chunks, done = 0, False
        async for line in answer.aiter_lines():
            event = parse(line)
            if event is None:
                continue
            if event.text is not None:
                service.chunk(request.id, event.text)
                chunks += 1
            if event.finish_reason is not None and reason is None:
                reason = event.finish_reason
                ended = service.now()
            prompt = prompt if event.prompt_tokens is None else event.prompt_tokens
            made = made if event.completion_tokens is None else event.completion_tokens
            if done := event.done:
                break
        if reason is None:
            how = "ended without a finish reason" if done else "was cut off"
            raise Failure(f"the stream {how} after {chunks:,} chunks")
        if reason not in ENDS:
            raise Failure(f"the server ended it for another reason: {reason[:SHOWN]}")
        if made is None:
            raise Failure(
                "the server gave no usage, and tokens are counted by nothing else"
                + ("" if self.options.ask_usage else "; engine.ask_usage=true asks for it")
            )
        if made and not chunks:  # tokens without text, such as a stop token alone
            service.chunk(request.id, "", ended)
        service.ended(request.id, ENDS[reason], at=ended, generated=made, prompt_tokens=prompt)

    def _without_key(self, text: str) -> str:
        """In one line; a server may quote what it was sent."""
        key = self._headers.get("Authorization", "").removeprefix("Bearer ")
        line = " ".join(text.split())
        return line.replace(key, "***") if key else line


async def _next(
    tasks: set[asyncio.Task[None]], seconds: float | None
) -> tuple[set[asyncio.Task[None]], set[asyncio.Task[None]]]:
    """Return when a request has ended or the next one arrives."""
    if tasks:
        return await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(seconds or 0.0)
    return set(), tasks


async def _said(answer: httpx.Response) -> str:
    """The beginning of an error's body, which may be long or endless."""
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > 65_536:
            break
    try:
        return error_text(json.loads(body))
    except ValueError:
        return error_text(body.decode(errors="replace")) or "nothing more"


def _retry_after(value: str | None, attempt: int) -> float:
    """Seconds: as the server says, in seconds or as a date; else 1, 2, 4, ..."""
    if value is not None:
        try:
            seconds = float(value)
            if seconds >= 0:
                return seconds
        except ValueError:
            pass
        try:
            until = email.utils.parsedate_to_datetime(value)
            return max((until - datetime.now(UTC)).total_seconds(), 0.0)
        except (TypeError, ValueError):
            pass
    return float(2**attempt)
