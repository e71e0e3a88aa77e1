"""What the client is told. No option holds a key: `key_env` names the variable that does."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class OpenAIOptions:
    base_url: str = option("http://127.0.0.1:8000/v1", "where the server's routes begin")
    endpoint: str = option(
        "auto",
        "chat, completions, or by each prompt: chat for turns",
        choices=("auto", "chat", "completions"),
    )
    prompts: str = option(
        "auto",
        "of completions: text, token ids, or text where there is some",
        choices=("auto", "text", "ids"),
    )
    tokenizer: str | None = option(None, "folder or hub id of the tokenizer that makes and reads token ids")
    key_env: str | None = option(None, "name of the environment variable that holds the API key")
    connect: float = option(10.0, "longest wait for a connection", unit="s", above=0.0)
    silence: float = option(120.0, "longest wait for the next byte", unit="s", above=0.0)
    total: float = option(600.0, "longest time of one request", unit="s", above=0.0)
    retries: int = option(3, "how often a request is sent again after 429", minimum=0)
    longest_wait: float = option(30.0, "longest Retry-After that is waited for", unit="s", above=0.0)
    ask_usage: bool = option(True, "ask for token counts (stream_options); off where a server refuses that")
    extra: str | None = option(None, 'a JSON object added to every request, such as {"ignore_eos": true}')
