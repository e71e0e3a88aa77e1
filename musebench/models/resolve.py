"""Which source opens a `--model` text."""

from __future__ import annotations

from collections.abc import Mapping

from musebench.core.blame import told
from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.models.source import ModelSource


def resolve(text: str, sources: Mapping[str, ModelSource]) -> ModelSource:
    """The first source, in order of name, that claims the text.

    Raises:
        UsageError: none does.
    """
    if not text.strip():
        raise UsageError("--model is empty; name one, such as bundled")
    failed = []
    for name in sorted(sources):
        try:
            if sources[name].claims(text):
                return sources[name]
        except (
            Exception,
            SystemExit,
        ) as error:  # a plugin's: it takes no model from the others
            failed.append(f"; {name} failed: {told(error)}")
    from musebench.models.shapes import shapes

    forms = ["bundled", *(f"random:{name}" for name in shapes())]
    raise UsageError(
        f"--model {text!r} is neither bundled, a folder, a hub id (org/name), a .gguf file, a .pt2 program "
        f"nor random:SHAPE; {nearest(text, forms)}{''.join(failed)}"
    )
