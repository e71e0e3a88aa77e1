"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from musebench.core.errors import InputError


def write_whole(path: Path, data: bytes, what: str) -> Path:
    """Write the file, and make its folder; `what` it is stands in the error.

    The bytes go to a file beside it, are flushed to the disk, and take the name in one move: a reader sees
    the old file or the whole new one, and where the disk is full the old one stays.

    Raises:
        InputError: the place cannot be written.
    """
    part = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing can take its name
            path.write_bytes(data)
            return path
        try:
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write {what}: {error.strerror or error}") from error
    return path
