"""What a streamed answer says: server-sent events into pieces of text, a finish reason and counts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
SHOWN = 120
"""Characters of something unreadable that an error quotes."""


class Failure(Exception):
    """Why a request failed, in one line."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: `text` that came (None: none did), the finish reason and usage where it holds them."""

    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    done: bool = False


def parse(line: str) -> Event | None:
    """The event of one line; None for lines that carry none (blank ones, comments, other fields).

    Raises:
        Failure: an error of the server's, or something that is no event of a completion.
    """
    field, colon, value = line.partition(":")
    if field != "data" or not colon:
        if (colon and field in ("", "event", "id", "retry")) or not line.strip():
            return None
        raise Failure(f"the stream holds {_quoted(line)}, which is no server-sent event")
    value = value.strip()
    if value == DONE:
        return Event(done=True)
    try:
        made = json.loads(value)
    except (ValueError, RecursionError):
        raise Failure(f"the stream holds {_quoted(value)}, which is no JSON") from None
    if not isinstance(made, dict):
        raise Failure(f"the stream holds {_quoted(value)}; an object is wanted")
    if made.get("error"):
        raise Failure(f"the server says in the stream: {error_text(made)}")
    return _event(made)


def error_text(body: Any) -> str:
    """The message of an error's body, in one line."""
    error = body.get("error", body) if isinstance(body, dict) else body
    text = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(text).split())[:SHOWN]


def _event(made: dict[str, Any]) -> Event:
    choices, usage = made.get("choices"), made.get("usage")
    text = reason = None
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        delta = choice.get("delta")
        text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        if isinstance(delta, dict) and not text and delta.get("reasoning_content"):
            text = ""  # output that is no part of the answer
        elif not text:
            text = None
        reason = choice.get("finish_reason")
    counts = usage if isinstance(usage, dict) else {}
    return Event(
        text if text is None else str(text),
        None if reason is None else str(reason),
        _count(counts, "prompt_tokens"),
        _count(counts, "completion_tokens"),
    )


def _count(usage: dict[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
