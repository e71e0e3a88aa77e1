"""What is known here of the model that the server runs, and whether the server is there at all."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import urlsplit

import httpx

from musebench.core.errors import InputError, UsageError
from musebench.models.source import RemoteModel, Tokenizer
from musebench_openai.options import OpenAIOptions

DEFAULT_MODEL = "bundled"
"""What `--model` is when nobody named one; no server has it."""


class TextOnly:
    """Stands for the server's tokenizer: prompts go as text, and bytes stand for ids that nobody reads."""

    eos_ids: tuple[int, ...] = ()

    def encode(self, text: str) -> list[int]:
        return list(text.encode()) or [0]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode("\n".join(message["content"] for message in messages))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def headers(options: OpenAIOptions) -> dict[str, str]:
    """With the key, which is in the environment and nowhere else.

    Raises:
        UsageError: the variable is not set.
    """
    if options.key_env is None:
        return {}
    key = os.environ.get(options.key_env, "").strip()
    if not key:
        raise UsageError(f"engine.key_env names {options.key_env}, which is not set; export it first")
    return {"Authorization": f"Bearer {key}"}


def checked_url(options: OpenAIOptions) -> str:
    """The base URL without a slash at its end.

    Raises:
        UsageError: it is none, or holds what would end up in a report.
    """
    parts = urlsplit(options.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("engine.base_url is no http:// or https:// URL, such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "engine.base_url holds a user part or a query; name the key's variable: engine.key_env"
        )
    return options.base_url.rstrip("/")


def extra_of(options: OpenAIOptions) -> dict[str, Any]:
    """The object of `extra`.

    Raises:
        UsageError: it is none.
    """
    try:
        made = json.loads(options.extra or "{}")
    except ValueError:
        made = None
    if not isinstance(made, dict):
        raise UsageError('engine.extra is no JSON object, such as {"ignore_eos": true}')
    return made


def remote_model(options: OpenAIOptions, text: str) -> RemoteModel:
    """By its name on the server, which is asked for its models once.

    Raises:
        UsageError: nobody answers there, or no model was named.
    """
    url, known = checked_url(options), None
    extra_of(options)
    try:
        answer = httpx.get(f"{url}/models", headers=headers(options), timeout=options.connect)
        if answer.status_code in (401, 403):
            raise UsageError(f"{url} answers {answer.status_code}: another key is wanted (engine.key_env)")
        body = answer.json()
        known = [str(one["id"]) for one in body["data"]]
    except httpx.HTTPError as error:
        raise UsageError(f"{url} cannot be reached: {type(error).__name__}; see engine.base_url") from None
    except (ValueError, KeyError, TypeError):
        pass  # a server without that route
    if text == DEFAULT_MODEL:
        there = ", ".join((known or [])[:8]) or "it does not say which it has"
        raise UsageError(f"name the server's model with --model; {url} lists: {there}")
    tokenizer, vocab = (TextOnly(), 0) if options.tokenizer is None else _tokenizer(options.tokenizer)
    return RemoteModel(text, text, tokenizer=tokenizer, vocab=vocab)


def _tokenizer(text: str) -> tuple[Tokenizer, int]:
    from transformers import AutoTokenizer

    from musebench.models.tokenizer import TransformersTokenizer

    try:
        inner = AutoTokenizer.from_pretrained(text)
    except Exception as error:  # each format has its own
        raise InputError(
            f"engine.tokenizer {text!r} cannot be opened: {' '.join(str(error).split())[:200]}"
        ) from error
    return TransformersTokenizer(inner, text, ()), len(inner)
