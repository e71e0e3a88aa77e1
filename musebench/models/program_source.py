"""A program compiled ahead of time as a model: its facts, its tokenizer, and no module."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.models.config import require_dtype
from musebench.models.loading import LoadMeter
from musebench.models.source import Model, Tokenizer
from musebench.models.tokenizer import TransformersTokenizer
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import SUFFIX, TOKENIZER_FOLDER, open_archive, read_facts, read_record


class ProgramSource:
    """Only `--executor exported` runs such a model; its backend loads the weights with the program."""

    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def claims(self, text: str) -> bool:
        return text.lower().endswith(SUFFIX)

    def facts(self, text: str, dtype: str) -> ModelFacts:
        return _checked(text, dtype).model

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        """See `musebench.models.source.ModelSource`; `seed` changes nothing: the weights are there.

        Raises:
            InputError: the package cannot be read.
            UsageError: it was exported in another dtype.
        """
        facts = _checked(text, dtype)
        meter = LoadMeter(device)
        with meter.part("tokenizer"), open_archive(text) as archive:
            tokenizer = _tokenizer(archive, facts)
        return Model(
            facts=facts.model,
            tokenizer=tokenizer,
            stop_tokens=facts.stop_tokens,
            source=text,
            weights_sha256=facts.weights.source_sha256,
            load_seconds=meter.seconds,
            load_peak_bytes=meter.peak_bytes(),
            program=Path(text),
        )


def _checked(text: str, dtype: str) -> ProgramFacts:
    require_dtype(dtype)
    facts = read_facts(text)
    if facts.model.dtype != dtype:
        raise UsageError(
            f"{text} was exported in {facts.model.dtype}, and --dtype is {dtype}; use --dtype "
            f"{facts.model.dtype}, or export it in {dtype}"
        )
    return facts


def _tokenizer(archive: zipfile.ZipFile, facts: ProgramFacts) -> Tokenizer | None:
    if not facts.tokenizer:
        return None
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        for name in facts.tokenizer:
            content = read_record(archive, TOKENIZER_FOLDER + name)
            if content is None or Path(name).name != name:
                raise InputError(f"{archive.filename} lacks its tokenizer's {name}; export it again")
            (Path(folder) / name).write_bytes(content)
        try:
            inner: Any = transformers.AutoTokenizer.from_pretrained(folder)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{archive.filename}: its tokenizer cannot be opened: {reason}") from error
    return TransformersTokenizer(inner, facts.model.name, facts.stop_tokens)
