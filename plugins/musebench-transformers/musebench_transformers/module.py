"""What both engines share: the opened module, its attention, its device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transformers

from musebench.backends.torch_device import open_device
from musebench.core.errors import UnsupportedError
from musebench.core.peer import PeerSetting
from musebench.core.protocols import MemorySnapshot
from musebench.core.request import Request


class Module:
    """A transformers model with another attention implementation for as long as an engine has it."""

    def __init__(self, setting: PeerSetting, attention: str) -> None:
        self.model: Any = setting.model.module
        self.device = open_device(setting.device)
        self.attention = attention
        self._before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(attention)
        except Exception as error:  # each kind of attention has its own
            raise UnsupportedError(
                f"attention {attention!r} cannot be had: {' '.join(str(error).split())}"
            ) from error

    def memory(self) -> MemorySnapshot:
        return self.device.memory()

    def reset_peak(self) -> None:
        self.device.settle()
        self.device.reset_peak()

    def conditions(self) -> Mapping[str, Any]:
        return {
            **self.device.conditions(),
            "transformers": transformers.__version__,
            "attention": self.attention,
        }

    def close(self) -> None:
        """Give the model back its own attention, and the device what nobody uses."""
        if self.model is None:
            return
        self.model.set_attn_implementation(self._before)
        self.model = None
        self.device.trim()


def unserved(request: Request, most_context: int | None) -> str | None:
    """Why these engines cannot serve a request; None if they can."""
    if not request.sampling.greedy:
        return (
            f"request {request.id!r} draws its tokens (temperature {request.sampling.temperature}) and "
            "transformers draws them with other random numbers; only greedy ones are compared"
        )
    tokens = len(request.prompt) + request.max_new_tokens
    if most_context is not None and tokens > most_context:
        return f"request {request.id!r} may reach {tokens:,} tokens, and --max-context is {most_context:,}"
    return None
