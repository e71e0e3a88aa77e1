"""Models in Hugging Face form: a folder, or an id on the hub."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UnsupportedError
from musebench.core.facts import ModelFacts
from musebench.core.options import option
from musebench.models.config import facts_from_config, require_dtype
from musebench.models.loading import LoadMeter, ready, sha256_of, stop_tokens, torch_dtype
from musebench.models.source import Model
from musebench.models.tokenizer import TransformersTokenizer

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")
"""Any of these says that a folder means to have a tokenizer."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class DirectoryOptions:
    trust_remote_code: bool = option(
        False, "run the code that a model's folder brings along; only for folders you trust"
    )


class DirectorySource:
    """Weights are read from safetensors only: a pickle runs code when it is opened."""

    Options = DirectoryOptions

    def __init__(self, options: DirectoryOptions) -> None:
        self.options = options

    def claims(self, text: str) -> bool:
        path = Path(text)
        other = path.exists() or path.suffix.lower() in (".gguf", ".pt2")
        hub = bool(_HUB_ID.fullmatch(text)) and not other
        return path.is_dir() or hub

    def facts(self, text: str, dtype: str) -> ModelFacts:
        folder = self._folder(text)
        return facts_from_config(_config(folder), dtype, _name(text))

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        """See `musebench.models.source.ModelSource`; `seed` changes nothing: the weights are there.

        Raises:
            InputError: the folder lacks a file, or the hub cannot be reached.
            UnsupportedError: pickled weights only, or an architecture that transformers does not know.
        """
        meter = LoadMeter(device)
        with meter.part("import"):
            import transformers
        wanted = torch_dtype(require_dtype(dtype))
        folder = self._folder(text)
        facts = facts_from_config(_config(folder), dtype, _name(text))
        files = _weights(folder)
        with meter.part("load"), _quiet(transformers):
            try:
                module = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, dtype=wanted, device_map=_device_map(device), use_safetensors=True,
                    trust_remote_code=self.options.trust_remote_code,
                )  # fmt: skip
            except Exception as error:  # safetensors, transformers and torch each have their own
                raise UnsupportedError(f"model {text!r} cannot be loaded: {_line(error)}") from error
            module = module.to(device)
        with meter.part("tokenizer"):
            try:
                inner = transformers.AutoTokenizer.from_pretrained(
                    folder, trust_remote_code=self.options.trust_remote_code
                )
            except Exception as error:  # each format has its own
                if there := [name for name in TOKENIZER_FILES if (folder / name).exists()]:
                    raise InputError(
                        f"{folder / there[0]}: the tokenizer cannot be loaded: {_line(error)}; mend it, or "
                        "take the tokenizer's files away for workloads of drawn tokens"
                    ) from error
                inner = None
        stops = stop_tokens(module.generation_config, module.config)
        return Model(
            facts=ready(module, facts),
            module=module,
            tokenizer=None if inner is None else TransformersTokenizer(inner, facts.name, stops),
            stop_tokens=stops,
            source=text,
            weights_sha256=sha256_of(files),
            load_seconds=meter.seconds,
            load_peak_bytes=meter.peak_bytes(),
        )

    def _folder(self, text: str) -> Path:
        if Path(text).is_dir():
            return Path(text)
        import huggingface_hub

        try:
            return Path(
                huggingface_hub.snapshot_download(
                    text, allow_patterns=["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
                )
            )
        except Exception as error:
            raise InputError(
                f"model {text!r} is no folder here and cannot be had from the hub ({_line(error)}); give "
                "a folder with config.json and safetensors, a .gguf file, or --model bundled"
            ) from error


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: a model's config is wanted: {_line(error)}") from error
    if not isinstance(made, dict):
        raise InputError(f"{path}: a mapping is wanted")
    return made


def _weights(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise UnsupportedError(
            f"{folder} has pickled weights only ({pickled[0]}), which run code when opened; save them with "
            "save_pretrained(folder, safe_serialization=True) where you trust them"
        )
    raise InputError(f"{folder} has no *.safetensors; a model's weights are wanted")


def _device_map(device: str) -> dict[str, str] | None:
    """Weights straight onto a GPU, where accelerate is there to do it; else loaded here and moved."""
    if not device.startswith("cuda"):
        return None
    # transformers needs accelerate for a device map.
    return {"": device} if importlib.util.find_spec("accelerate") else None


class _quiet:  # noqa: N801 - reads as a word in a with statement
    """No progress bar of transformers' own while weights load."""

    def __init__(self, transformers: Any) -> None:
        self._logging = transformers.utils.logging

    def __enter__(self) -> None:
        self._logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        self._logging.enable_progress_bar()


def _name(text: str) -> str:
    return Path(text).name or text


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
