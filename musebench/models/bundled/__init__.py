"""The bundled model: a tiny Llama that answers "What is the capital of X?", so that nothing is downloaded.

`bundled_dir()` is the folder that `transformers` loads; `train.py` makes its files.
"""

from __future__ import annotations

from pathlib import Path


def bundled_dir() -> Path:
    """The folder with config.json, model.safetensors and the tokenizer's files."""
    return Path(__file__).resolve().parent
