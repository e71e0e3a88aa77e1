"""Whether a program can run here, over this model and pool: where it cannot, both sides are named."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from musebench.backends.probe import LayerShape
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.facts import ModelFacts
from musebench.programs.facts import BuildFacts, LayerFacts, ProgramFacts

OPERATOR = "triton"
"""The operator that programs are exported with: Triton kernels on CUDA, the reference on a CPU."""


def build_facts(device: torch.device, musebench: str, transformers: str) -> BuildFacts:
    """What a program that is compiled here and now is built with and for."""
    return BuildFacts(
        musebench=musebench,
        torch=torch.__version__,
        transformers=transformers,
        operator=OPERATOR,
        device=device.type,
        machine=platform.machine(),
        capability=_capability(device),
        instructions=_best_instructions() if device.type == "cpu" else "",
    )


def check_build(path: Path, build: BuildFacts, device: torch.device, kernels: str) -> None:
    """Hold what a program was built for against this device and this torch.

    Raises:
        UnsupportedError: it was built for others.
    """
    here = _release(torch.__version__)
    if _release(build.torch) != here:
        raise _refused(path, f"compiled by torch {_release(build.torch)}", f"this is torch {here}")
    if build.device != device.type:
        raise _refused(path, f"compiled for {build.device}", f"--device is {device.type}")
    if build.machine != platform.machine():
        raise _refused(path, f"compiled for {build.machine}", f"this machine is {platform.machine()}")
    if build.capability != _capability(device):
        raise _refused(
            path, f"compiled for compute capability {build.capability}", f"this GPU has {_capability(device)}"
        )
    if device.type == "cpu" and (missing := set(build.instructions.split()) - _instructions()):
        raise _refused(
            path, f"compiled for {build.instructions}", f"this CPU lacks {' '.join(sorted(missing))}"
        )
    if device.type == "cuda" and kernels != build.operator:
        raise UnsupportedError(
            f"{path} was exported with the kernels {build.operator!r}, and --set backend.kernels={kernels}; "
            "leave that out"
        )


def check_model(path: Path, facts: ProgramFacts, model: ModelFacts, layers: tuple[LayerShape, ...]) -> None:
    """Hold a program against the model's facts and the pool's layers.

    Raises:
        UsageError: another dtype, or another layout of cells.
    """
    if facts.model.dtype != model.dtype:
        raise UsageError(
            f"{path} was exported in {facts.model.dtype}, and --dtype is {model.dtype}; use --dtype "
            f"{facts.model.dtype}, or export it in {model.dtype}"
        )
    if len(layers) != len(facts.layers):
        raise _other_layout(path, f"{len(facts.layers)} layers", f"{len(layers)}")
    for index, (wanted, layer) in enumerate(zip(facts.layers, layers, strict=True)):
        found = layer_facts(layer)
        if wanted != found:
            raise _other_layout(path, f"layer {index}: {wanted.describe()}", found.describe())


def check_context(path: Path, facts: ProgramFacts, max_context: int) -> None:
    """Raises UsageError when a session may grow longer than the program's positions are right for."""
    if max_context > facts.max_context:
        raise UsageError(
            f"{path} takes contexts of at most {facts.max_context:,} tokens, and --max-context is "
            f"{max_context:,}; lower it, or export with --max-context {max_context}"
        )


def layer_facts(layer: LayerShape) -> LayerFacts:
    return LayerFacts(layer.heads, layer.kv_heads, layer.key_dim, layer.value_dim, layer.window)


def layer_shapes(facts: ProgramFacts) -> tuple[LayerShape, ...]:
    """The layers of a program's pool, for a backend that has no module to probe."""
    dtype = getattr(torch, facts.model.dtype)
    return tuple(
        LayerShape(one.heads, one.kv_heads, one.key_dim, one.value_dim, dtype, one.window)
        for one in facts.layers
    )


def _other_layout(path: Path, wanted: str, found: str) -> UsageError:
    return UsageError(
        f"{path} has a pool of {wanted}; this model's pool has {found}; use the model that "
        "it was exported from"
    )


def _refused(path: Path, program: str, here: str) -> UnsupportedError:
    return UnsupportedError(f"{path} was {program}, and {here}; export it again here")


def _release(version: str) -> str:
    """ "2.13.0" of "2.13.0+cpu"."""
    return version.partition("+")[0]


def _capability(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(device)
    return f"{major}.{minor}"


def _best_instructions() -> str:
    """The vector instructions that torch's compiler takes here."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return str(pick_vec_isa())


def _instructions() -> set[str]:
    """All of those that it may take here, by word."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    return {word for isa in valid_vec_isa_list() for word in str(isa).split()}
