"""What a model source makes: weights ready to run, or only the facts about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from musebench.core.facts import ModelFacts


class Tokenizer(Protocol):
    """Text to ids and back; chat templates belong to the tokenizer's own files."""

    eos_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Ids of a raw text, with the special tokens that the tokenizer adds by itself."""

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a conversation through the chat template, ready for the answer."""

    def decode(self, ids: list[int]) -> str: ...


@dataclass
class Model:
    """An opened model. `module` is a transformers causal language model in evaluation mode on its device,
    None when only the facts are wanted (simulation). `stop_tokens` are the ids that end an answer.
    `weights_sha256` names the weights; `load_seconds` and `load_peak_bytes` are what loading took. `program`
    is the package of a model that has no module but was compiled ahead of time.
    """

    facts: ModelFacts
    module: Any = None
    tokenizer: Tokenizer | None = None
    stop_tokens: tuple[int, ...] = ()
    source: str = ""
    weights_sha256: str | None = None
    load_seconds: dict[str, float] = field(default_factory=dict)
    load_peak_bytes: int | None = None
    program: Path | None = None


@dataclass(frozen=True)
class RemoteModel:
    """A model that somebody else runs: what is known of it here. `vocab` 0 and `tokenizer` None: not known;
    workloads that need them say so."""

    name: str
    source: str
    dtype: str = "unknown"
    tokenizer: Tokenizer | None = None
    vocab: int = 0
    stop_tokens: tuple[int, ...] = ()


class ModelSource(Protocol):
    """Opens one kind of `--model` text."""

    def claims(self, text: str) -> bool:
        """Whether this text is of its kind; cheap, and without torch."""

    def facts(self, text: str, dtype: str) -> ModelFacts:
        """Only the facts, without torch and without weights."""

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        """Load or make the weights directly on `device` ("cpu", "cuda", "cuda:1") in `dtype`."""
