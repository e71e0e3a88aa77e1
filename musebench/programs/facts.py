"""Facts of an exported program: its model, what each method takes in one forward, where it can run.

They travel inside the package as JSON. Free of torch: an executor plans with them, `musebench list` shows
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from musebench.core.batch import BatchLayout
from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits

FORMAT = 1
"""Of the facts: a package with a higher one is refused."""

DECODE, PREFILL = "decode", "prefill"
"""Names of the methods that take a range; a static one has its width behind a hyphen."""


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """One method: what its forward takes, padding included, bounds inclusive.

    `decode` says that each sequence has one token, so that tokens, sequences and rows are one number. A
    method whose fewest equal its most is static.
    """

    name: str
    decode: bool
    fewest_tokens: int
    most_tokens: int
    fewest_sequences: int
    most_sequences: int
    fewest_rows: int
    most_rows: int

    @property
    def static(self) -> bool:
        return self.fewest_tokens == self.most_tokens

    def takes(self, layout: BatchLayout) -> bool:
        return (
            self.fewest_tokens <= layout.tokens <= self.most_tokens
            and self.fewest_sequences <= layout.sequences <= self.most_sequences
            and self.fewest_rows <= layout.rows <= self.most_rows
            and (layout.decode or not self.decode)
        )

    def describe(self) -> str:
        """One line of what it takes."""
        return (
            f"{self.name}: {_range(self.fewest_tokens, self.most_tokens)} tokens of "
            f"{_range(self.fewest_sequences, self.most_sequences)} sequences with "
            f"{_range(self.fewest_rows, self.most_rows)} logit rows"
        )


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One layer's part of a cell, a key [kv_heads, key_dim] and a value [kv_heads, value_dim], and how it
    attends; `window` 0 means all positions."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int

    def describe(self) -> str:
        window = f", window {self.window}" if self.window else ""
        return f"{self.kv_heads} KV heads of {self.key_dim} and {self.value_dim} for {self.heads}{window}"


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A weight or constant by its record or file entry; `sha256` is of its contiguous bytes."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class WeightsFacts:
    """Where the weights are: `file` beside the package, or None for in it.

    `source_sha256` is what the model's source calls them by. `constants` are in the package in any case:
    rotary frequencies and the like, which no file of weights holds.
    """

    tensors: dict[str, TensorFacts]
    constants: dict[str, TensorFacts]
    file: str | None = None
    source_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """What the package was built with and for: it runs nowhere else. `capability` is a GPU's ("9.0"),
    `instructions` a CPU's ("AVX512 AVX512_VNNI"); `operator` is the op that attention ends in."""

    musebench: str
    torch: str
    transformers: str
    operator: str
    device: str
    machine: str
    capability: str = ""
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class ExportCosts:
    """What the export took: host seconds by part ("export", "compile", "write"), and the peak of memory
    above what was in use when it began, in bytes."""

    seconds: dict[str, float]
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """All that is known of a program. `max_context` is the longest context that its positions are right for;
    `vocabulary` counts the rows of its embedding."""

    model: ModelFacts
    methods: tuple[MethodFacts, ...]
    layers: tuple[LayerFacts, ...]
    weights: WeightsFacts
    build: BuildFacts
    costs: ExportCosts
    vocabulary: int
    max_context: int
    source: str = ""
    stop_tokens: tuple[int, ...] = ()
    tokenizer: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    @property
    def decodes(self) -> tuple[MethodFacts, ...]:
        """Narrowest first."""
        return tuple(method for method in self.methods if method.decode)

    @property
    def prefills(self) -> tuple[MethodFacts, ...]:
        """Narrowest first."""
        return tuple(method for method in self.methods if not method.decode)

    @property
    def static(self) -> bool:
        """Whether it is a ladder of static widths, not one ranged prefill."""
        return len(self.prefills) != 1 or self.prefills[0].static

    @property
    def limits(self) -> Limits:
        """What a planner may put into one forward. A ladder pads any count, so it has no fewest."""
        widest = self.prefills[-1]
        fewest = 1 if self.static else widest.fewest_tokens
        return Limits(fewest, widest.most_tokens, widest.most_sequences, widest.most_tokens)

    def method_for(self, layout: BatchLayout) -> MethodFacts:
        """The method that runs a forward of this layout: a decode for a batch of decodes where one takes it.

        Raises:
            ValueError: none does; says what was asked and what each takes. A compiled program would run it
                without a word.
        """
        for method in (*self.decodes, *self.prefills):
            if method.takes(layout):
                return method
        raise ValueError(
            f"a forward of {layout.tokens} tokens, {layout.sequences} sequences and {layout.rows} rows is "
            f"outside of what the program takes ({'; '.join(each.describe() for each in self.methods)})"
        )


def _range(fewest: int, most: int) -> str:
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"
