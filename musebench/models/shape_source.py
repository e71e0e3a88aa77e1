"""The bare name of a shape (`llama-3.1-8b`): facts without weights, for devices that compute nothing."""

from __future__ import annotations

from typing import NoReturn

from musebench.core.errors import UsageError
from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.models.config import require_dtype
from musebench.models.shapes import shape, shapes


class ShapeSource:
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def claims(self, text: str) -> bool:
        return text.lower() in shapes()

    def facts(self, text: str, dtype: str) -> ModelFacts:
        return shape(text).facts(require_dtype(dtype))

    def open(self, text: str, dtype: str, device: str, seed: int) -> NoReturn:
        """Refused.

        Raises:
            UsageError: always; there are no weights.
        """
        raise UsageError(
            f"model {text!r} is a shape without weights, which --device {device} needs; use "
            f"--model random:{text}, or a simulated device"
        )
