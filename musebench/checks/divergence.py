"""Where two runs of the same requests part, and whether rounding explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from musebench.core.facts import ModelFacts
from musebench.report.schema import Report, RequestColumns, RunData

EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10, "float64": 2.0**-52}
"""Spacing of a dtype's numbers at 1; rounding to the nearest errs by half of it at most."""

SUMS_IN_ITSELF = ("float32", "float64")
"""Dtypes whose products are summed up in themselves; the smaller ones are summed in float32."""

LAUNCH_ONLY = ("eager", "graph")
"""Executors that launch the model's own kernels, one way or another."""


@dataclass(frozen=True)
class Bound:
    """The largest top-two margin that rounding may turn over, in the logits' unit, and its sum."""

    margin: float
    sums: str


def rounding_bound(dtype: str, facts: ModelFacts | None, scale: float) -> Bound:
    """2 x half the dtype's spacing x `scale` x sqrt(roundings).

    Each of the two runs errs on its own, hence 2. A layer rounds the residual twice, and where the dtype also
    sums products in itself, so does each of their `hidden` terms; independent roundings add up as a random
    walk, and reach a logit in proportion to the logits' spread, `scale`.
    """
    layers, hidden = (facts.layers, facts.hidden) if facts is not None else (1, 1)
    terms = hidden if dtype in SUMS_IN_ITSELF else 1
    half = EPSILON.get(dtype, 2.0**-3) / 2
    margin = 2 * half * scale * math.sqrt(2 * layers * terms)
    words = f" x {terms:,} terms of a product" if terms > 1 else ""
    return Bound(
        margin,
        f"2 runs x 2^{math.log2(half):.0f} (half {dtype}'s spacing) x {scale:g} (logit scale) x "
        f"sqrt(2 x {layers} layers{words})",
    )


@dataclass(frozen=True)
class Divergence:
    """Request `id` parts at its token `at` (from 0) after `common` equal ones; `margin` is the larger of the
    two runs' top-two margins there, None where neither recorded it."""

    id: str
    at: int
    margin: float | None

    def verdict(self, bound: Bound | None) -> str:
        """ "rounding" or "different"; `bound` None: nothing but equal will do."""
        small = bound is not None and self.margin is not None and self.margin <= bound.margin
        return "rounding" if small else "different"

    def words(self) -> str:
        margin = "no margin recorded (--margins)" if self.margin is None else f"margin {self.margin:.3g}"
        return f"request {self.id!r} parts at token {self.at} ({margin})"


@dataclass(frozen=True)
class Pairing:
    """Requests that both runs answered, how many of them made the same tokens, and where the others part."""

    compared: int
    same: int
    tokens: int
    divergences: tuple[Divergence, ...]

    @property
    def at_first(self) -> bool:
        """Whether most requests part at their first token: a fault, whatever the margins."""
        first = sum(one.at == 0 for one in self.divergences)
        return self.compared > 1 and first * 2 > self.compared

    def unknown(self, bound: Bound | None) -> bool:
        """Whether it takes margins that nobody recorded to tell rounding from a fault."""
        if bound is None or self.at_first:
            return False
        over = [one for one in self.divergences if one.verdict(bound) == "different"]
        return bool(over) and all(one.margin is None for one in over)

    def outcome(self, bound: Bound | None) -> str:
        """ "same", "rounding" or "different"."""
        if not self.divergences:
            return "same"
        if self.at_first:
            return "different"
        kinds = {one.verdict(bound) for one in self.divergences}
        return "different" if "different" in kinds else "rounding"


def token_rows(requests: RequestColumns) -> dict[str, tuple[list[int], list[float | None]]]:
    """Token ids and margins of each request that succeeded, by id; nothing where ids were not kept."""
    made: dict[str, tuple[list[int], list[float | None]]] = {}
    if requests.token_ids is None:
        return made
    at = 0
    for name, count, reason in zip(
        requests.id, requests.generated_tokens, requests.finish_reason, strict=True
    ):
        kept = requests.margins
        margins: list[float | None] = [None] * count if kept is None else list(kept[at : at + count])
        if reason is not None and reason.succeeded:
            made[name] = (list(requests.token_ids[at : at + count]), margins)
        at += count
    return made


def pair(one: RunData, other: RunData) -> Pairing:
    """Requests of the same id, prompt and most tokens, in `other` against `one`."""
    first, second = token_rows(one.requests), token_rows(other.requests)
    keys, others = _keys(one.requests), _keys(other.requests)
    same = tokens = compared = 0
    parted = []
    for name, (mine, margins) in first.items():
        if name not in second or keys[name] != others[name]:
            continue
        theirs, their_margins = second[name]
        compared += 1
        tokens += len(mine)
        at = parting(mine, theirs)
        if at is None:
            same += 1
        else:
            parted.append(Divergence(name, at, _larger(margins, their_margins, at)))
    return Pairing(compared, same, tokens, tuple(parted))


def parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The place of the first token that differs, or that only one has; None when they are equal."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def same_shapes(one: RunData, other: RunData) -> bool:
    """Whether both ran the same steps: as many tokens, padding, sequences and forwards in each. Steps that an
    engine did not tell are the same as nobody's."""
    if not (one.told_steps and other.told_steps):
        return False
    names = ("decode_tokens", "prefill_tokens", "padded_tokens", "sequences", "forwards")
    return all(list(getattr(one.steps, name)) == list(getattr(other.steps, name)) for name in names)


def same_arithmetic(one: Report, other: Report) -> bool:
    """Whether both ran the same kernels: device, library versions and backend, and the model's own code or
    the same executor's; a compiled or exported model has kernels that are made for it."""

    def facts(report: Report) -> tuple[object, ...]:
        conditions = report.conditions
        versions = {name: conditions.versions.get(name) for name in ("torch", "transformers", "triton")}
        executor = report.choices.launched_by
        code = "the model's own" if executor in LAUNCH_ONLY else executor
        return conditions.device, sorted(versions.items()), conditions.backend.get("kernels"), code

    return facts(one) == facts(other)


def _keys(requests: RequestColumns) -> dict[str, tuple[str | None, int]]:
    return dict(
        zip(
            requests.id,
            zip(requests.prompt_sha256, requests.max_new_tokens, strict=True),
            strict=True,
        )
    )


def _larger(one: list[float | None], other: list[float | None], at: int) -> float | None:
    known = [margins[at] for margins in (one, other) if at < len(margins)]
    return max((margin for margin in known if margin is not None), default=None)
