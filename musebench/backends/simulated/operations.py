"""What one forward of a model does on one of n devices: its kernels by name, each with bytes and operations.

Attention apart (see `musebench.backends.simulated.attended`), all of it follows from the number of tokens and
of logit rows. Counts of small kernels are those of transformers' own model code, counted operation by
operation (a Llama layer with its projections packed, see `musebench.backends.packed`: 4 products, the
attention op and 30 small ones), and of the fusions that a compiler makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from musebench.backends.simulated.kernels import Kernel, expected_experts
from musebench.backends.simulated.profile import Profile
from musebench.backends.simulated.weights import WeightFormat
from musebench.core.facts import ModelFacts

QK_NORM_FAMILIES = frozenset({"qwen3", "qwen3_moe", "gemma3"})
FOUR_NORM_FAMILIES = frozenset({"gemma2", "gemma3"})


@dataclass(frozen=True, slots=True)
class Program:
    """How the operations of a forward become kernels. `fused`: small operations run together as a compiler
    makes them; `replayed`: one replay launches them all."""

    name: str
    fused: bool = False
    replayed: bool = False


PROGRAMS = {
    program.name: program
    for program in (
        Program("eager"),
        Program("graph", replayed=True),
        Program("compiled", fused=True),
        Program("compiled graph", fused=True, replayed=True),
    )
}
"""By the name that a step is asked with. "compiled graph" is what serving engines do, too."""

FIRST_AND_LAST = {False: 21, True: 7}
"""Small kernels before the first layer and after the last (input buffer, rotary tables, last norm, choice of
a token), unfused and fused."""

MOE_KERNELS = {False: 12, True: 4}
"""Small kernels that route tokens to experts and add up what comes back."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`count` kernels of one kind in a forward; bytes, operations and seconds of `each`."""

    name: str
    count: int
    each: Kernel

    @property
    def seconds(self) -> float:
        return self.count * self.each.seconds


@dataclass(frozen=True)
class ModelWork:
    """The operations of one model on `devices` devices that share each product, under one profile."""

    facts: ModelFacts
    profile: Profile
    weights: WeightFormat
    devices: int = 1

    # -- by tokens ------------------------------------------------------------------------------------

    def body(self, tokens: int, program: Program) -> list[Operation]:
        """Everything but attention, vocabulary and choice of tokens, for `tokens` tokens."""
        facts, element = self.facts, self.facts.element_bytes
        made = [
            self._small(
                "embedding", 1, tokens, 2 * tokens * facts.hidden * element, FIRST_AND_LAST[program.fused]
            )
        ]
        made.extend(self._products(tokens, program))
        if facts.experts:
            made.extend(self._experts(tokens, program))
        made.extend(self._between(tokens, program))
        if self.devices > 1:
            made.append(self._reduced("all-reduce", 2 * facts.layers, tokens * facts.hidden * element))
        return made

    def head(self, rows: int, program: Program) -> list[Operation]:
        """The vocabulary product and the choice of a token, for `rows` logit rows."""
        if rows == 0:
            return []
        facts, element = self.facts, self.facts.element_bytes
        vocab = -(-facts.vocab // self.devices)
        made = [
            Operation(
                "vocabulary", 1, self._product(rows, facts.hidden, vocab, element, facts.dtype, program)
            ),
            self._small("choice of tokens", 1, rows, rows * facts.vocab * element, 1),
        ]
        if self.devices > 1:
            # Each device sends its part of the logits once: half of an all-reduce.
            made.append(self._reduced("gather of logits", 1, rows * facts.vocab * element / 2))
        return made

    # -- kernels and bytes ----------------------------------------------------------------------------

    def launches(self, program: Program) -> int:
        """Operations that a forward launches one by one (an eager all-reduce counts as one)."""
        facts = self.facts
        products = 1 + facts.layers * (len(self._product_shapes()) + 2 * (facts.experts > 0))
        small = facts.layers * self.small_kernels(program) + FIRST_AND_LAST[program.fused] + 1
        return products + small + facts.layers + (2 * facts.layers + 1) * (self.devices > 1)

    @property
    def weight_bytes(self) -> int:
        """On one device: the layers' weights in their format, embeddings and vocabulary in the dtype."""
        facts, element = self.facts, self.facts.element_bytes
        ends = facts.vocab * facts.hidden * (1 if facts.tied_embeddings else 2)
        held = (facts.parameters - ends) * self.weights.bytes_per_weight + ends * element
        return int(held / self.devices)

    def activation_bytes(self, tokens: int, rows: int) -> int:
        """The most that lives at a time: the residual stream and, beside it, the largest of what an MLP, a
        norm in float32 and the logits hold; and the libraries' workspace."""
        facts, element = self.facts, self.facts.element_bytes
        inner = facts.experts_per_token * facts.moe_intermediate if facts.experts else facts.intermediate
        mlp = 3 * (inner // self.devices) + facts.hidden
        norm = facts.hidden * 8 / element
        stream = tokens * facts.hidden * element
        logits = rows * facts.vocab * element
        return int(stream + max(tokens * max(mlp, norm) * element, logits) + self.profile.workspace_bytes)

    def captured_bytes(self, tokens: int) -> int:
        """What a captured decode of that many tokens holds: its logits, and twice what an MLP needs, because
        what is free inside of a graph's pool is in pieces. Within 12 % of the pools of 64 and 256 sequences
        of the 1B and 8B shapes in results/baselines/h200; torch's segments make tiny models' larger."""
        facts, element = self.facts, self.facts.element_bytes
        inner = facts.experts_per_token * facts.moe_intermediate if facts.experts else facts.intermediate
        mlp = 3 * (inner // self.devices) + facts.hidden
        return int(tokens * element * (facts.vocab + 2 * mlp))

    # -- inside ---------------------------------------------------------------------------------------

    def _product_shapes(self) -> list[tuple[str, int, int]]:
        """A layer's products that run on all tokens: (name, inputs, outputs); query, key and value are one,
        and so are gate and up."""
        facts, shards = self.facts, self.devices
        queries = facts.heads * facts.head_dim // shards
        keys = max(facts.kv_heads // shards, 1) * facts.head_dim
        shapes = [
            ("query, key, value", facts.hidden, queries + 2 * keys),
            ("attention output", queries, facts.hidden),
        ]
        if facts.experts:
            return [*shapes, ("router", facts.hidden, facts.experts)]
        inner = facts.intermediate // shards
        gates = 2 if facts.gated_mlp else 1
        return [*shapes, ("gate, up", facts.hidden, gates * inner), ("down", inner, facts.hidden)]

    def small_kernels(self, program: Program) -> int:
        """Of one layer: products, attention and all-reduce left out."""
        return sum(kernels for _, _, kernels in self._small_shapes(program)) + (
            MOE_KERNELS[program.fused] if self.facts.experts else 0
        )

    def _small_shapes(self, program: Program) -> list[tuple[str, float, int]]:
        """A layer's small kernels: (name, bytes a token, kernels). Unfused in transformers, for elements of e
        bytes and sums in float32: a norm is 8 kernels that move 28 + 4 e bytes an element, rotary embedding
        10 that move 10 e, a residual one that moves 3 e, an activation 2 that move 5 e. Fused, each reads its
        inputs and writes its outputs once, and the residual is part of the norm after it."""
        facts, element = self.facts, self.facts.element_bytes
        norms = 4 if facts.family in FOUR_NORM_FAMILIES else 2
        heads = (facts.heads + facts.kv_heads) * facts.head_dim / self.devices
        inner = (
            facts.experts_per_token * facts.moe_intermediate if facts.experts else facts.intermediate
        ) / self.devices
        shapes: list[tuple[str, float, int]]
        if program.fused:
            shapes = [
                ("norms and residuals", norms * facts.hidden * 4.0 * element, norms),
                ("rotary embedding", heads * 2.0 * element, 2),
                ("activation", inner * (3.0 if facts.gated_mlp else 2.0) * element, 1),
            ]
            if facts.family in QK_NORM_FAMILIES:
                shapes.append(("query and key norms", heads * 2.0 * element, 2))
            return shapes
        norm = 28.0 + 4.0 * element
        shapes = [
            ("norms", norms * facts.hidden * norm, 8 * norms),
            ("rotary embedding", heads * 10.0 * element, 10),
            ("residuals", 2 * facts.hidden * 3.0 * element, 2),
            ("activation", inner * (5.0 if facts.gated_mlp else 2.0) * element, 2 if facts.gated_mlp else 1),
        ]
        if facts.family in QK_NORM_FAMILIES:
            shapes.append(("query and key norms", heads * norm, 16))
        return shapes

    def _between(self, tokens: int, program: Program) -> Iterator[Operation]:
        layers = self.facts.layers
        for name, moved, kernels in self._small_shapes(program):
            yield self._small(name, layers, tokens, tokens * moved, kernels)

    def _products(self, tokens: int, program: Program) -> Iterator[Operation]:
        for name, inputs, outputs in self._product_shapes():
            kernel = self._product(
                tokens, inputs, outputs, self.weights.bytes_per_weight, self.weights.rate or self.facts.dtype,
                program,
            )  # fmt: skip
            yield Operation(name, self.facts.layers, kernel)

    def _experts(self, tokens: int, program: Program) -> Iterator[Operation]:
        """Both products of all experts that a token chose, one grouped kernel each."""
        facts = self.facts
        distinct = expected_experts(facts.experts, facts.experts_per_token, tokens)
        inner = facts.moe_intermediate // self.devices
        pairs = tokens * facts.experts_per_token
        gates = 2 if facts.gated_mlp else 1
        for name, inputs, outputs in (("experts' gate, up", facts.hidden, gates * inner),
                                      ("experts' down", inner, facts.hidden)):  # fmt: skip
            weights = distinct * inputs * outputs * self.weights.bytes_per_weight
            moved = weights + pairs * (inputs + outputs) * facts.element_bytes
            kernel = self._timed(moved, 2.0 * pairs * inputs * outputs, self.weights.rate or facts.dtype,
                                 max(1, round(pairs / distinct)), inputs, outputs)  # fmt: skip
            yield Operation(name, facts.layers, kernel)
        moved = 4 * pairs * facts.hidden * facts.element_bytes
        yield self._small("routing", facts.layers, tokens, moved, MOE_KERNELS[program.fused])

    def _product(
        self, tokens: int, inputs: int, outputs: int, weight_bytes: float, dtype: str, program: Program
    ) -> Kernel:
        """[tokens, inputs] x [inputs, outputs]: weights once, activations in and out."""
        moved = inputs * outputs * weight_bytes + tokens * (inputs + outputs) * self.facts.element_bytes
        reductions = self.profile.reductions
        if reductions is not None and program.fused and tokens == 1:
            return reductions.cost(moved, 2.0 * inputs * outputs, self.profile.bandwidth)
        return self._timed(moved, 2.0 * tokens * inputs * outputs, dtype, tokens, inputs, outputs)

    def _timed(
        self, moved: float, flops: float, dtype: str, tokens: int, inputs: int, outputs: int
    ) -> Kernel:
        profile = self.profile
        seconds, bound = profile.products.seconds(
            profile.bandwidth, profile.rates[dtype], moved, flops, (dtype, tokens, inputs, outputs)
        )
        return Kernel(moved, flops, seconds, bound)

    def _small(self, name: str, count: int, tokens: int, moved: float, kernels: int) -> Operation:
        """`count` groups of `kernels` small kernels that move `moved` bytes together, as one row of `count` x
        `kernels` kernels."""
        whole = self.profile.small.cost(moved, tokens, kernels)
        return Operation(name, count * kernels,
                         Kernel(moved / kernels, 0.0, whole.seconds / kernels, whole.bound))  # fmt: skip

    def _reduced(self, name: str, count: int, size: float) -> Operation:
        links = self.profile.all_reduce
        assert links is not None  # costs_for refuses devices without links
        return Operation(name, count, links.cost(size, self.devices))
