"""What plain transformers makes of requests, one prompt at a time, on an untouched module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.request import Request

REFERENCES = ("transformers",)
"""What `--reference` takes."""


def require_greedy(requests: Sequence[Request]) -> None:
    """Refuse what `generate` draws with other random numbers.

    Raises:
        UsageError: a request draws its tokens; names it.
    """
    for request in requests:
        if not request.sampling.greedy:
            raise UsageError(
                f"--reference transformers compares greedy tokens, and request {request.id!r} draws its own "
                f"(temperature {request.sampling.temperature}); leave one of them out"
            )


def plain_generate(module: Any, requests: Sequence[Request]) -> dict[str, list[int]]:
    """Token ids of each request by its id, its stop token included, by the module's own greedy `generate`.

    Equal prompts with equal limits and stop tokens are generated once.
    """
    import torch

    made: dict[str, list[int]] = {}
    known: dict[tuple[Any, ...], list[int]] = {}
    device = next(module.parameters()).device
    for request in requests:
        key = (tuple(request.prompt), request.max_new_tokens, request.stop_tokens)
        if key not in known:
            known[key] = _one(module, device, request, torch) if request.max_new_tokens else []
        made[request.id] = known[key]
    return made


def _one(module: Any, device: Any, request: Request, torch: Any) -> list[int]:
    prompt = torch.tensor([list(request.prompt)], device=device)
    with torch.inference_mode():
        made = module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            # A list may be empty for nobody: None means that nothing ends it.
            eos_token_id=list(request.stop_tokens) or None,
            pad_token_id=0,
            temperature=None,
            top_p=None,
            top_k=None,
        )
    tokens: list[int] = made[0, prompt.shape[1] :].tolist()
    return tokens
