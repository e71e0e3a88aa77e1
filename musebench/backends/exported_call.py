"""The model call of an exported program: its methods, loaded over one set of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from musebench.backends.attention import StepContext
from musebench.core.batch import BatchLayout, decode_layout
from musebench.core.errors import InputError, UsageError
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import METHODS_FOLDER, check_records, method_folder

PREFIX = "module."
"""What a model's own names of weights have in front of them inside a program."""


class ExportedCall:
    """See `musebench.backends.torch_program.ModelCall`; a forward that no method takes is refused.

    Its methods hold no weights until `bind` gives each what `names` says.
    """

    def __init__(self, path: Path, facts: ProgramFacts, device: torch.device) -> None:
        self.facts = facts
        self._path = path
        check_records(path, METHODS_FOLDER)
        index = -1 if device.index is None else device.index
        self._methods = {method.name: self._load(method.name, index) for method in facts.methods}
        self.bound: dict[str, Mapping[str, Tensor]] = {}

    def names(self, method: str) -> list[str]:
        """Names of the weights and constants that a method wants."""
        return list(self._methods[method].get_constant_fqns())

    def bind(self, method: str, constants: Mapping[str, Tensor]) -> None:
        """Let a method read these tensors from now on; they are kept alive in `bound`."""
        # Positions of load_constants: use_inactive, check_full_update, user_managed.
        self._methods[method].load_constants(dict(constants), False, True, True)
        self.bound[method] = constants

    def layouts(self) -> Iterator[BatchLayout]:
        """The bounds of every method, and powers of two between those of a decode: kernels change there."""
        for method in self.facts.methods:
            low, high = method.fewest_tokens, method.most_tokens
            if method.decode:
                sizes = {1 << power for power in range(high.bit_length())} | {low, high}
                for size in sorted(size for size in sizes if low <= size <= high):
                    yield decode_layout(size)
            else:
                yield BatchLayout(low, method.fewest_sequences, method.fewest_rows)
                yield BatchLayout(high, method.fewest_sequences, method.fewest_rows)
                yield BatchLayout(high, method.most_sequences, method.most_rows)

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor | None, step: StepContext
    ) -> Tensor:
        tokens = token_ids.shape[0]
        wanted = tokens if rows is None else rows.shape[0]
        layout = BatchLayout(tokens, step.sequence_slots.shape[0], wanted, decode=step.decode)
        method = self.facts.method_for(layout)
        if rows is None and not method.decode:  # decodes that are too many for it, in a prefill
            rows = torch.arange(tokens, dtype=torch.int32, device=token_ids.device)
        inputs = [
            token_ids, positions, *(() if rows is None else (rows,)), step.cells, step.slots, step.starts,
            step.sequence_slots, step.table, *step.key_rows, *step.value_rows,
        ]  # fmt: skip
        (logits,) = self._methods[method.name].boxed_run(inputs)
        return logits

    def _load(self, method: str, index: int) -> Any:
        try:
            # Single-threaded: its own bookkeeping of streams cannot be captured.
            return torch._C._aoti.AOTIModelPackageLoader(
                str(self._path), method_folder(method), True, 1, index
            )
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self._path}: method {method!r} cannot be loaded ({reason}); copy the package again, or "
                "export it again"
            ) from error


class NoModule:
    """Stands for the model of a backend whose model came as a program, until that is loaded."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor | None, step: StepContext
    ) -> Tensor:
        raise self.refusal()

    def refusal(self) -> UsageError:
        return UsageError(
            f"--model {self._path} is a program without a module; use --executor exported, or --model with "
            "what it was exported from"
        )
