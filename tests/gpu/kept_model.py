"""`kept:FILE.gguf.`: a GGUF file that is read once in a process; each run gets a copy of its weights.

What is kept is on the host: beside a run's own weights on the device it would look like a second load.

Reading SmolLM2's takes 26 seconds, most of them on the host, and a run of `capitals` less than one. (The
dot at the end keeps the text from the source that reads the file anew.)
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.models.gguf_source import GGUFSource
from musebench.models.source import Model
from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register

PREFIX, SUFFIX = "kept:", "."


def kept(path: Path) -> str:
    """What `--model` is told."""
    return f"{PREFIX}{path}{SUFFIX}"


def kept_path(text: str) -> Path:
    return Path(text.removeprefix(PREFIX).removesuffix(SUFFIX))


class KeptSource:
    """As the file's own source; a model's load seconds are those of the first time."""

    Options = NoOptions
    opened: ClassVar[dict[tuple[str, str], Model]] = {}

    def __init__(self, options: NoOptions) -> None:
        self.file_source = GGUFSource(options)

    def claims(self, text: str) -> bool:
        return text.startswith(PREFIX)

    def facts(self, text: str, dtype: str) -> ModelFacts:
        return self.file_source.facts(str(kept_path(text)), dtype)

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        key = (text, dtype)
        if key not in self.opened:
            self.opened[key] = self.file_source.open(str(kept_path(text)), dtype, "cpu", seed)
        first = self.opened[key]
        return replace(first, module=copy.deepcopy(first.module).to(device))


@hookimpl
def register_models(register: Register) -> None:
    register("kept", KeptSource, summary="a .gguf file, read once in a process")
