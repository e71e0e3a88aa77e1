"""What tests read off the report of a run."""

from __future__ import annotations


def tokens_of(report) -> dict[str, list[int]]:
    """The tokens of its first repeat, by request."""
    requests, start, made = report.runs[0].requests, 0, {}
    for name, count in zip(requests.id, requests.generated_tokens, strict=True):
        made[name] = (requests.token_ids or [])[start : start + count]
        start += count
    return made
