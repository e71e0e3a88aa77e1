"""Models in a GGUF file, dequantized; through transformers and the package gguf (extra `gguf`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from musebench.core.errors import InputError, UnsupportedError
from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.models.config import facts_from_config, require_dtype
from musebench.models.directory import _line, _quiet
from musebench.models.loading import LoadMeter, ready, sha256_of, stop_tokens, torch_dtype
from musebench.models.source import Model
from musebench.models.tokenizer import TransformersTokenizer

MAGIC = b"GGUF"


class GGUFSource:
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def claims(self, text: str) -> bool:
        return text.lower().endswith(".gguf")

    def facts(self, text: str, dtype: str) -> ModelFacts:
        """From the header, by transformers' own reading of it (imports transformers, loads no weights)."""
        require_dtype(dtype)
        path = _checked(text)
        import transformers

        try:
            config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        except Exception as error:
            raise InputError(f"{path} cannot be read as GGUF: {_line(error)}") from error
        return facts_from_config(config.to_dict(), dtype, path.stem)

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        """See `musebench.models.source.ModelSource`; `seed` changes nothing: the weights are there.

        Raises:
            InputError: no such file, or it is cut off or something else.
            UnsupportedError: a package is missing, or transformers does not know the architecture.
        """
        path = _checked(text)
        meter = LoadMeter(device)
        with meter.part("import"):
            import transformers
        wanted = torch_dtype(require_dtype(dtype))
        facts = self.facts(text, dtype)
        with meter.part("load"), _quiet(transformers):
            try:
                module = transformers.AutoModelForCausalLM.from_pretrained(
                    path.parent, gguf_file=path.name, dtype=wanted
                ).to(device)
            except Exception as error:
                raise InputError(f"{path} cannot be loaded: {_line(error)}") from error
        with meter.part("tokenizer"):
            try:
                inner = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            except Exception as error:
                raise InputError(f"{path}: its tokenizer cannot be loaded: {_line(error)}") from error
        stops = stop_tokens(module.generation_config, module.config)
        if not stops and inner.eos_token_id is not None:
            stops = (int(inner.eos_token_id),)
        return Model(
            facts=ready(module, facts),
            module=module,
            tokenizer=TransformersTokenizer(inner, facts.name, stops),
            stop_tokens=stops,
            source=text,
            weights_sha256=sha256_of([path]),
            load_seconds=meter.seconds,
            load_peak_bytes=meter.peak_bytes(),
        )


def _checked(text: str) -> Path:
    """The file, once it is sure that it is one and that what reads it is installed."""
    path = Path(text).absolute()
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"model {text!r} cannot be read: {error.strerror or error}") from error
    if head != MAGIC:
        raise InputError(f"{text} is no GGUF file: it begins with {head!r}, {MAGIC!r} is wanted")
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(
                f"a .gguf model needs the package {package}: pip install 'musebench[gguf]'"
            )
    return path
