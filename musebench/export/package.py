"""Writes a package: a torch .pt2 archive whose methods share one set of weights."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor
from torch.export.pt2_archive import PT2ArchiveWriter

from musebench.models.source import Tokenizer
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import (
    FACTS_RECORD,
    METHODS_FOLDER,
    TOKENIZER_FOLDER,
    WEIGHTS_FOLDER,
    encoded,
    method_folder,
)

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Contents:
    """What goes into a package beside its facts: the compiler's files of each method, the tensors by name,
    and the tokenizer's files."""

    files: Mapping[str, Sequence[str]]
    weights: Tensors
    constants: Tensors
    tokenizer: Mapping[str, bytes]


def write_package(path: Path, facts: ProgramFacts, contents: Contents) -> None:
    """Write the package, and the weights beside it where `facts.weights.file` says so.

    Each appears whole under its name or not at all.
    """
    # In a folder of its own: the archive's records stand under the file's name, which must be the last one.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-") as folder:
        made = Path(folder) / path.name
        with PT2ArchiveWriter(str(made)) as archive:
            for method, files in contents.files.items():
                folder_name = METHODS_FOLDER + method_folder(method)
                for file in files:
                    archive.write_file(f"{folder_name}/{Path(file).name}", file)
            _write_tensors(archive, contents.constants)
            if facts.weights.file is None:
                _write_tensors(archive, contents.weights)
            for name, content in contents.tokenizer.items():
                archive.write_bytes(TOKENIZER_FOLDER + name, content)
            archive.write_bytes(FACTS_RECORD, encoded(facts).encode())
        if facts.weights.file is not None:
            beside = Path(folder) / facts.weights.file
            on_host = {name: _on_host(tensor) for name, tensor in contents.weights.items()}
            safetensors.torch.save_file(on_host, beside)
            os.replace(beside, path.parent / facts.weights.file)
        os.replace(made, path)


def tokenizer_files(tokenizer: Tokenizer | None) -> dict[str, bytes]:
    """Its files by name; none where it cannot be saved."""
    save = getattr(tokenizer, "save", None)
    if save is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir()) if file.is_file()}


def _write_tensors(archive: PT2ArchiveWriter, tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        host = _on_host(tensor)
        archive.archive_file.write_record(WEIGHTS_FOLDER + name, host.untyped_storage(), host.nbytes)


def _on_host(tensor: Tensor) -> Tensor:
    """Contiguous, with a storage of its own bytes alone."""
    host = tensor.detach().contiguous().cpu()
    return host if host.untyped_storage().nbytes() == host.nbytes else host.clone()
