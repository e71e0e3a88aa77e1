"""The seam between the executor `exported` and a backend that loads programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from musebench.core.protocols import Backend
from musebench.programs.facts import ProgramFacts


class ProgramBackend(Backend, Protocol):
    """A backend that runs a program in place of its model. `model_program` is the package that its model came
    as, if it did."""

    @property
    def model_program(self) -> Path | None: ...

    def require_program(self, path: Path, facts: ProgramFacts) -> None:
        """Hold a program against the device, the model and the pool, before its methods are loaded.

        Raises:
            UsageError, UnsupportedError: it does not fit; names both sides.
        """

    def load_program(self, path: Path, facts: ProgramFacts) -> Mapping[str, float]:
        """From here on steps run the program. Returns what that took, the weights that a model as a program
        was opened with included: "seconds", and "bytes" that were read from files."""


def program_backend(backend: Backend) -> ProgramBackend | None:
    """The backend as one that loads programs; None when it does not.

    Asked by its verb and not by isinstance, which since Python 3.12 does not see what a wrapper, as the
    audit's, hands on.
    """
    return cast(ProgramBackend, backend) if hasattr(backend, "load_program") else None
