"""Weights of an exported program: the module's own where one is loaded, else those of the package."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from torch import Tensor
from torch.nn import Module

from musebench.backends.exported_call import PREFIX, ExportedCall
from musebench.core.errors import InputError, UsageError
from musebench.programs.facts import ProgramFacts, TensorFacts
from musebench.programs.package import WEIGHTS_FOLDER

Tensors = dict[str, Tensor]


def sha256_of_tensor(tensor: Tensor) -> str:
    """Over the bytes of its elements in order, on the host."""
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()


def constant_key(method: str, name: str) -> str:
    """Where a constant stands in `WeightsFacts.constants`: those of the model are shared, a method's own
    (numbers that tracing found) are not."""
    return name if name.startswith(PREFIX) else f"{method}:{name}"


def missing_names(call: ExportedCall) -> list[str]:
    """What the methods ask for and the package does not know."""
    known = call.facts.weights
    return [
        name
        for method in call.facts.methods
        for name in call.names(method.name)
        if name.removeprefix(PREFIX) not in known.tensors
        and constant_key(method.name, name) not in known.constants
    ]


def bind_all(call: ExportedCall, weights: Tensors, constants: Tensors) -> None:
    """Give every method what it wants; all of them read the same tensors."""
    for method in call.facts.methods:
        wanted: Tensors = {}
        for name in call.names(method.name):
            own = name.removeprefix(PREFIX)
            key = constant_key(method.name, name)
            wanted[name] = weights[own] if own in weights else constants[key]
        call.bind(method.name, wanted)


class PackageTensors:
    """The tensors that a package holds, each read once and checked, on its way to `device`.

    Raises:
        InputError: from every reading, a tensor that is missing or damaged; names it and the file.
    """

    def __init__(self, path: Path, facts: ProgramFacts, device: torch.device) -> None:
        self._path = path
        self._facts = facts
        self._device = device
        self._reader = torch._C.PyTorchFileReader(str(path))

    def constants(self) -> Tensors:
        return dict(self._each(self._facts.weights.constants, self._from_package, self._path))

    def weights(self) -> Tensors:
        """From the package, or from the safetensors beside it."""
        facts = self._facts.weights
        if facts.file is None:
            return dict(self._each(facts.tensors, self._from_package, self._path))
        file = self._path.parent / facts.file
        try:
            with safetensors.safe_open(file, framework="pt") as opened:
                return dict(self._each(facts.tensors, lambda name, _: opened.get_tensor(name), file))
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(
                f"{self._path} has its weights in {file}, which cannot be read "
                f"({' '.join(str(error).split())}); put the file beside the package, or export it again"
            ) from error

    def _each(
        self, wanted: Mapping[str, TensorFacts], read: Callable[[str, TensorFacts], Tensor], file: Path
    ) -> Iterator[tuple[str, Tensor]]:
        for name, facts in wanted.items():
            tensor = read(name, facts)
            found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            if found != (facts.dtype, facts.shape) or sha256_of_tensor(tensor) != facts.sha256:
                raise InputError(
                    f"{file}: {name} is not what {self._path.name} was exported with; copy it again, or "
                    "export it again"
                )
            # A copy in any case: a mapped file may change, and its tensors are not aligned.
            yield name, tensor.to(self._device, copy=True)

    def _from_package(self, name: str, facts: TensorFacts) -> Tensor:
        dtype = getattr(torch, facts.dtype)
        count = 1
        for size in facts.shape:
            count *= size
        try:
            flat = self._reader.get_storage_from_record(WEIGHTS_FOLDER + name, count, dtype)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{self._path}: {name} cannot be read ({reason}); copy it again") from error
        return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, facts.shape)


@dataclass(frozen=True)
class PackageWeights:
    """The weights of a model that came as a program, on its device, and the seconds that they took."""

    tensors: Tensors
    seconds: float

    @classmethod
    def read(cls, path: Path, facts: ProgramFacts, device: torch.device) -> PackageWeights:
        """Raises InputError as `PackageTensors`."""
        started = time.perf_counter()
        tensors = PackageTensors(path, facts, device).weights()
        return cls(tensors, time.perf_counter() - started)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def module_weights(
    module: Module, path: Path, facts: ProgramFacts, weights_sha256: str | None, name: str
) -> Tensors:
    """A loaded model's own parameters, once they are known to be those that the program was exported with: by
    the name that their source gives them, or else by their content.

    Raises:
        UsageError: they are others; names both sides.
    """
    own = dict(module.named_parameters(remove_duplicate=False))
    wanted = facts.weights
    known = weights_sha256 is not None and weights_sha256 == wanted.source_sha256
    for entry, expected in wanted.tensors.items():
        tensor = own.get(entry)
        found = None if tensor is None else (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        if (
            tensor is None
            or found != (expected.dtype, expected.shape)
            or not (known or sha256_of_tensor(tensor) == expected.sha256)
        ):
            raise UsageError(
                f"{path} was exported from {facts.source or facts.model.name!r} "
                f"(weights {_short(wanted.source_sha256)}), and --model is {name!r} (weights "
                f"{_short(weights_sha256)}): {entry} differs; use --model {path}, or export this model"
            )
    return {entry: own[entry].detach().contiguous() for entry in wanted.tensors}


def load_weights(call: ExportedCall, path: Path, weights: Tensors, device: torch.device) -> int:
    """Bind a program's weights, which are on `device`, and its constants, which are read here; returns the
    constants' bytes.

    Raises:
        InputError: as `PackageTensors`.
    """
    constants = PackageTensors(path, call.facts, device).constants()
    bind_all(call, weights, constants)
    return sum(tensor.nbytes for tensor in constants.values())


def _short(sha256: str | None) -> str:
    return "unknown" if sha256 is None else sha256[:12]
