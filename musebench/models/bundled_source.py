"""`bundled`: the model that ships with the package, so that a first run downloads nothing."""

from __future__ import annotations

from dataclasses import replace

from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.models.bundled import bundled_dir
from musebench.models.directory import DirectoryOptions, DirectorySource
from musebench.models.source import Model


class BundledSource:
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options
        self._folder = DirectorySource(DirectoryOptions())

    def claims(self, text: str) -> bool:
        return text == "bundled"

    def facts(self, text: str, dtype: str) -> ModelFacts:
        return self._folder.facts(str(bundled_dir()), dtype)

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        return replace(self._folder.open(str(bundled_dir()), dtype, device, seed), source=text)
