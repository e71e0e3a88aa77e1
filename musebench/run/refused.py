"""What memory refuses while a run is opened, as one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from musebench.core.errors import OutOfMemory, UsageError
from musebench.run.options import RunOptions

SHOWN_CHARACTERS = 160


@contextmanager
def opening(options: RunOptions) -> Iterator[None]:
    """Around everything that a run allocates before its first step: weights, tables, rows, first forwards.

    Raises:
        UsageError: memory refused; says what was asked for and which options ask for less.
    """
    try:
        yield
    except (OutOfMemory, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _refused_by_torch(error):
            raise
        reason = " ".join(str(error).split())[:SHOWN_CHARACTERS] or type(error).__name__
        raise UsageError(
            f"--model {options.model} on --device {options.device} does not fit into memory ({reason}); give "
            "fewer --max-sessions, a smaller --max-context or --token-budget, or a smaller model"
        ) from error


def _refused_by_torch(error: RuntimeError) -> bool:
    if "torch" not in sys.modules:
        return False
    from musebench.backends.torch_memory import refused_memory

    return refused_memory(error)
