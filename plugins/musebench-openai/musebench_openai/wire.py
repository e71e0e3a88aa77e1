"""From a request to the route and body that a server takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musebench.core.request import Request
from musebench.models.source import Tokenizer
from musebench_openai.options import OpenAIOptions
from musebench_openai.stream import Failure


class Wire:
    """`model` is the server's name of it, `tokenizer` reads drawn ids where they have to go as text, `extra`
    is added to every body."""

    def __init__(
        self, options: OpenAIOptions, model: str, tokenizer: Tokenizer | None, extra: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._model = model
        self._tokenizer = tokenizer
        self._extra = dict(extra)

    def pack(self, request: Request) -> tuple[str, dict[str, Any]]:
        """The route below the base URL, and the body.

        Raises:
            Failure: it cannot be said in this protocol.
        """
        if request.stop_tokens:
            raise Failure(f"stop tokens {list(request.stop_tokens)} cannot be sent: servers end by their own")
        body: dict[str, Any] = {"model": self._model, "max_tokens": request.max_new_tokens, "stream": True}
        if self._options.ask_usage:
            body["stream_options"] = {"include_usage": True}
        sampling = request.sampling
        body["temperature"] = sampling.temperature
        if not sampling.greedy:
            if sampling.top_k:
                raise Failure("top_k is no part of the protocol; use engine.extra where a server has it")
            body |= {"top_p": sampling.top_p, "seed": sampling.seed}
        route, prompt = self._prompt(request)
        return route, {**body, **prompt, **self._extra}

    def _prompt(self, request: Request) -> tuple[str, dict[str, Any]]:
        said, endpoint = request.said, self._options.endpoint
        if endpoint == "chat" or (endpoint == "auto" and isinstance(said, tuple)):
            if not isinstance(said, tuple):
                raise Failure("its prompt is no turns of a chat; use engine.endpoint=completions")
            return "chat/completions", {"messages": [{"role": r, "content": text} for r, text in said]}
        if self._options.prompts == "ids" or (self._options.prompts == "auto" and said is None):
            if self._tokenizer is None and said is not None:
                raise Failure("its prompt is text; name a tokenizer (engine.tokenizer) that makes ids of it")
            return "completions", {"prompt": list(request.prompt)}
        if isinstance(said, str):
            return "completions", {"prompt": said}
        if self._tokenizer is None:
            raise Failure("its prompt is token ids; name a tokenizer (engine.tokenizer) that reads them")
        return "completions", {"prompt": self._tokenizer.decode(list(request.prompt))}
