"""Packages that tests share: exported once a session, and copies of them with something changed."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch._inductor.config

from musebench.export.bounds import Bounds, Widths
from musebench.export.exporter import ExportOptions, export
from musebench.plugin.registry import Registry
from musebench.programs.facts import MethodFacts
from musebench.programs.package import FACTS_RECORD, METHODS_FOLDER, method_folder

BOUNDED = Bounds(fewest=5, most=48, most_sequences=5, most_decodes=3)
LADDER = Widths((2, 12), most_sequences=3)
"""Both take fewer sequences than tests run; the ladder has no width of 1."""

_FOLDER = Path(tempfile.mkdtemp(prefix="musebench-packages-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

registry = cache(Registry.installed)


@cache
def package(bounds: Bounds | Widths, model: str = "bundled", max_context: int = 512) -> Path:
    """Exported in float32 for the CPU, its weights inside."""
    path = _FOLDER / f"{len(list(_FOLDER.iterdir()))}.pt2"
    options = ExportOptions(path, model, dtype="float32", bounds=bounds, max_context=max_context)
    # The calls around the kernels: their code is the same, and most of what is compiled.
    with torch._inductor.config.patch({"aot_inductor.compile_wrapper_opt_level": "O0"}):
        export(options, registry())
    return path


def changed(source: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a package with its facts changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(FACTS_RECORD):
                facts = json.loads(content)
                change(facts)
                content = json.dumps(facts).encode()
            new.writestr(entry.filename, content)
    return out


def damaged(source: Path, out: Path, part: str) -> Path:
    """A copy of a package with a byte changed in the middle of the first record with `part` in its name."""
    shutil.copyfile(source, out)
    with zipfile.ZipFile(out) as archive:
        entry = next(entry for entry in archive.infolist() if part in entry.filename and entry.file_size)
        content = archive.read(entry)
    data = bytearray(out.read_bytes())
    at = data.find(content, entry.header_offset) + len(content) // 2
    data[at] ^= 0xFF
    out.write_bytes(data)
    return out


@cache
def package_with_weights_beside(bounds: Bounds | Widths) -> Path:
    """The bundled model exported with `--weights external`; its methods are those of `package(bounds)`."""
    path = _FOLDER / "beside.pt2"
    with zipfile.ZipFile(package(bounds)) as archive, tempfile.TemporaryDirectory() as unpacked:
        archive.extractall(unpacked)

        def compiled(program: Any, method: MethodFacts) -> list[str]:
            return [
                str(file) for file in Path(unpacked).glob(f"*/{METHODS_FOLDER}{method_folder(method.name)}/*")
            ]

        options = ExportOptions(path, dtype="float32", bounds=bounds, weights="external", max_context=512)
        with patch("musebench.export.compiling.compile_method", compiled):
            export(options, registry())
    return path
