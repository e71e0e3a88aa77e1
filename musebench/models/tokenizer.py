"""A transformers tokenizer behind `musebench.models.source.Tokenizer`."""

from __future__ import annotations

from typing import Any

from musebench.core.errors import UnsupportedError


class TransformersTokenizer:
    """`inner` is a transformers tokenizer; `name` is the model's, for errors."""

    def __init__(self, inner: Any, name: str, eos_ids: tuple[int, ...]) -> None:
        self._inner = inner
        self._name = name
        self.eos_ids = eos_ids

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._inner(text)["input_ids"]]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a conversation through the chat template, ready for the answer.

        Raises:
            UnsupportedError: the model has no chat template.
        """
        if not self._inner.chat_template:
            raise UnsupportedError(
                f"model {self._name!r} has no chat template; use a workload of raw texts (chat: false)"
            )
        made = self._inner.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
        ids = made["input_ids"] if hasattr(made, "keys") else made
        return [int(token) for token in ids]

    def decode(self, ids: list[int]) -> str:
        return str(self._inner.decode(ids))

    def save(self, folder: str) -> None:
        """Write its files, for `transformers.AutoTokenizer` to open."""
        self._inner.save_pretrained(folder)
