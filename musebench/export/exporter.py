"""`export`: open a model, trace and compile each method, write the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from musebench import __version__
from musebench.core.errors import UnsupportedError, UsageError
from musebench.export.bounds import Bounds, Widths
from musebench.export.trial import unknown_names
from musebench.models.loading import LoadMeter
from musebench.models.resolve import resolve
from musebench.models.source import Model
from musebench.plugin.registry import Registry
from musebench.programs.facts import ExportCosts, ProgramFacts
from musebench.programs.package import SUFFIX

EMBED, EXTERNAL = "embed", "external"


@dataclass(frozen=True)
class ExportOptions:
    """What `musebench export` is told. `weights` is "embed" or "external"; `max_context` None means what the
    model was made for."""

    out: Path
    model: str = "bundled"
    device: str = "cpu"
    dtype: str | None = None
    bounds: Bounds | Widths = field(default_factory=Bounds)
    weights: str = EMBED
    max_context: int | None = None
    seed: int = 0
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def export(
    options: ExportOptions, registry: Registry, progress: Callable[[str], None] = lambda line: None
) -> ProgramFacts:
    """Write the package; `progress` is told what is done next.

    Raises:
        MusebenchError: a model or a choice that cannot be used, or a model that cannot be exported.
    """
    if options.out.suffix != SUFFIX:
        raise UsageError(f"--out {options.out} is wrong; a name that ends in {SUFFIX} is wanted")
    if not options.out.absolute().parent.is_dir():
        raise UsageError(f"--out {options.out}: there is no folder {options.out.absolute().parent}")
    if options.weights not in (EMBED, EXTERNAL):
        raise UsageError(f"--weights is {options.weights!r}; {EMBED} or {EXTERNAL} is wanted")
    progress(f"opening {options.model}")
    model = _open(options, registry)
    if model.module is None:
        raise UsageError(f"--model {options.model} has no module to export; name what it was made from")
    given = options.max_context
    max_context = model.facts.max_context if given is None else given
    if not 1 <= max_context <= model.facts.max_context:
        raise UsageError(
            f"--max-context is {max_context:,}; 1 to {model.facts.max_context:,}, which model "
            f"{model.facts.name!r} was made for, is wanted"
        )
    return _export(options, model, max_context, progress)


def _open(options: ExportOptions, registry: Registry) -> Model:
    sources = registry.made("model")
    source = resolve(options.model, sources)
    name = next(name for name, one in sources.items() if one is source)
    if set(options.settings) - {"model"}:
        other = min(set(options.settings) - {"model"})
        raise UsageError(f"--set {other}.…: an export has options of the model alone: --set model.NAME=VALUE")
    dtype = options.dtype or ("float32" if options.device.partition(":")[0] == "cpu" else "bfloat16")
    from musebench.backends.torch_device import open_device

    open_device(options.device)
    made: Model = (
        registry.get("model", name)
        .make(options.settings.get("model", {}))
        .open(options.model, dtype, options.device, options.seed)
    )
    return made


def _export(
    options: ExportOptions, model: Model, max_context: int, progress: Callable[[str], None]
) -> ProgramFacts:
    import torch
    import transformers

    from musebench.backends.exported_check import OPERATOR, build_facts, layer_facts
    from musebench.backends.packed import pack_projections
    from musebench.backends.probe import probe
    from musebench.backends.rotary import fix_rotary
    from musebench.export.compiling import compile_method, wanted_names
    from musebench.export.package import Contents, tokenizer_files, write_package
    from musebench.export.tensors import PackageContents
    from musebench.export.traced import trace

    methods = options.bounds.methods()
    module: Any = model.module
    device = next(module.parameters()).device
    meter = LoadMeter(options.device)
    if model.facts.dtype == "float32":
        torch.set_float32_matmul_precision("highest")
    fix_rotary(module, max_context)
    layers = probe(module)
    pack_projections(module)  # as a backend does: a program's weights go by the names of what it runs
    for parameter in module.parameters():
        parameter.data = parameter.data.contiguous()
    files: dict[str, list[str]] = {}
    tensors = PackageContents(dict(module.named_parameters(remove_duplicate=False)))
    seconds = {"export": 0.0, "compile": 0.0}
    for method in methods:
        progress(f"exporting {method.describe()}")
        with meter.part("export"):
            program = trace(module, layers, method, OPERATOR)
        progress(f"compiling {method.name}")
        with meter.part("compile"):
            files[method.name] = compile_method(program, method)
        tensors.take(method, wanted_names(program), {**program.state_dict, **program.constants})
        for part in seconds:
            seconds[part] += meter.seconds[part]
    progress(f"writing {options.out}")
    saved = tokenizer_files(model.tokenizer)
    facts = ProgramFacts(
        model=model.facts,
        methods=methods,
        layers=tuple(layer_facts(layer) for layer in layers),
        weights=tensors.facts(
            f"{options.out.stem}.safetensors" if options.weights == EXTERNAL else None, model.weights_sha256
        ),
        build=build_facts(device, __version__, transformers.__version__),
        costs=ExportCosts(seconds, meter.peak_bytes()),
        vocabulary=int(module.get_input_embeddings().weight.shape[0]),
        max_context=max_context,
        source=model.source,
        stop_tokens=model.stop_tokens,
        tokenizer=tuple(saved),
    )
    write_package(options.out, facts, Contents(files, tensors.weights, tensors.constants, saved))
    _check(options.out, device)
    return facts


def _check(path: Path, device: Any) -> None:
    """Load what was written, and see that it holds all that its methods ask for."""
    try:
        missing = unknown_names(path, str(device))
    except UnsupportedError:
        path.unlink()
        raise
    if missing:
        path.unlink()
        raise UnsupportedError(
            f"this model's program needs {missing[0]!r}, which is neither a weight nor a constant of the "
            "model; run it with --executor eager, graph or compiled"
        )
