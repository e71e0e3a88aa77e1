"""The tokens that plain transformers makes, beside a run's own."""

from __future__ import annotations

import time

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.core.request import Request
from musebench.measure import host
from musebench.models.plain_generate import REFERENCES, plain_generate, require_greedy
from musebench.models.source import Model
from musebench.report.schema import Reference


def require_reference(name: str | None) -> None:
    """Refuse a name that is no reference's."""
    if name is not None and name not in REFERENCES:
        raise UsageError(f"--reference {name}: there is no such reference; {nearest(name, REFERENCES)}")


def reference_tokens(model: Model, requests: list[Request]) -> Reference:
    """By the module itself, before a backend takes it over."""
    if model.module is None:
        raise UsageError(f"--reference transformers needs weights, and {model.facts.name!r} has none here")
    require_greedy(requests)
    began = time.perf_counter()
    made = plain_generate(model.module, requests)
    return Reference(
        by=f"transformers {host.version('transformers')}",
        id=list(made),
        generated_tokens=[len(tokens) for tokens in made.values()],
        token_ids=[token for tokens in made.values() for token in tokens],
        seconds=time.perf_counter() - began,
    )
