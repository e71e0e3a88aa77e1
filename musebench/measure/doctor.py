"""What this machine has, what works on it, and what does not and why.

Each probe stands alone: one that raises becomes a line that says so. Only here are torch and transformers
imported, inside the probes that ask about them.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from musebench.measure import host, memory
from musebench.measure.nvml import Nvml

OK, MISSING, BROKEN, INFO = "ok", "missing", "broken", "info"

CPP_COMPILERS = ("c++", "g++", "clang++", "cl")
C_COMPILERS = ("cc", "gcc", "clang")

OPTIONAL = {"gguf": "models in GGUF files; pip install 'musebench[gguf]'"}


@dataclass(frozen=True)
class Fact:
    """One line: what was looked at, `state` ("ok", "missing", "broken", or "info" for a plain fact), and the
    value or the reason with the way out."""

    what: str
    state: str
    detail: str

    @property
    def row(self) -> tuple[str, str, str]:
        return self.what, self.state, self.detail


def diagnose() -> list[Fact]:
    """All facts, in the order of the probes. Takes seconds: it imports torch and transformers."""
    return [fact for name, probe in PROBES.items() for fact in _isolated(name, probe)]


def probe_python() -> Iterator[Fact]:
    versions = host.versions()
    yield Fact("platform", INFO, host.platform_name())
    yield Fact("python", OK, versions.pop("python") or "unknown")
    code = host.commit()
    of = f", commit {code.commit[:12]}{' with changes' if code.dirty else ''}" if code.commit else ""
    yield Fact("musebench", OK, f"{versions.pop('musebench')}{of}")
    for package, version in versions.items():
        if version is None:
            yield Fact(package, MISSING, OPTIONAL.get(package, f"not installed; pip install {package}"))
        else:
            yield Fact(package, OK, version)


def probe_host() -> Iterator[Fact]:
    yield Fact("processor", INFO, f"{host.cpu_name() or 'unknown'}, {host.cores() or 'unknown'} cores to use")
    total, left = memory.host_total(), memory.host_available()
    if total is None:
        yield Fact("main memory", INFO, "unknown")
    else:
        free = "" if left is None else f", {left / 2**30:.1f} GiB to take"
        yield Fact("main memory", INFO, f"{total / 2**30:.1f} GiB{free}")


def probe_compilers() -> Iterator[Fact]:
    for what, names, need in (
        ("C compiler", C_COMPILERS, "triton kernels"),
        ("C++ compiler", CPP_COMPILERS, "executor compiled on the CPU"),
    ):
        found = next((path for name in names if (path := shutil.which(name))), None)
        yield Fact(what, OK if found else MISSING, found or f"none of {', '.join(names)}; {need} cannot work")


def probe_cpu() -> Iterator[Fact]:
    torch = importlib.import_module("torch")
    two = (torch.ones(2, 2) @ torch.ones(2, 2)).sum().item()
    state = OK if two == 8.0 else BROKEN
    yield Fact("device cpu", state, f"torch computes with {torch.get_num_threads()} threads")


def probe_cuda() -> Iterator[Fact]:
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        yield Fact("device cuda", MISSING, "this torch is built without CUDA; install a CUDA build")
        return
    if not torch.cuda.is_available():
        yield Fact("device cuda", MISSING, f"torch is built for CUDA {torch.version.cuda}: {_no_cuda(torch)}")
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        detail = f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB, compute capability "
        detail += f"{properties.major}.{properties.minor}, CUDA {torch.version.cuda}"
        yield Fact(f"device cuda:{index}", OK, detail)


def probe_graph() -> Iterator[Fact]:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        yield Fact("graph capture", MISSING, "needs device cuda; use executor eager")
        return
    value = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value += 1
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    right = value.item() == 2.0
    yield Fact(
        "graph capture", OK if right else BROKEN, "captured and replayed" if right else "a replay is wrong"
    )


def probe_triton() -> Iterator[Fact]:
    triton = importlib.import_module("triton")
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception as error:  # triton has no type of its own for "no device"
        yield Fact("triton kernels", MISSING, f"no device for triton: {_line(error)}")
    else:
        yield Fact("triton kernels", OK, f"{target.backend} {target.arch}")


def probe_nvml() -> Iterator[Fact]:
    nvml = Nvml()
    questions: tuple[tuple[str, str, Callable[[], Any], Callable[[Any], str]], ...] = (
        ("driver", "driver", nvml.driver, str),
        ("NVML device memory", "device memory", nvml.used_bytes, _gibibytes),
        ("NVML process memory", "process memory", nvml.process_bytes, _gibibytes),
        ("NVML energy", "energy", nvml.energy_joules, lambda joules: f"{joules:,.0f} J so far"),
        ("NVML power limit", "power limit", nvml.power_limit_watts, lambda watts: f"{watts:.0f} W"),
    )
    try:
        for what, question, ask, shown in questions:
            value = ask()
            if "NVML" in nvml.reasons:
                yield Fact(
                    "NVML", MISSING, f"{nvml.reasons['NVML']}; no device memory, energy or driver version"
                )
                return
            reason = nvml.reasons.get(question, "no reason given")
            yield Fact(what, MISSING if value is None else OK, reason if value is None else shown(value))
    finally:
        nvml.close()


def probe_gguf() -> Iterator[Fact]:
    try:
        importlib.import_module("gguf")
    except ImportError as error:
        yield Fact("GGUF files", MISSING, f"{_line(error)}; pip install 'musebench[gguf]'")
    else:
        yield Fact("GGUF files", OK, "can be read")


def probe_transformers() -> Iterator[Fact]:
    transformers = importlib.import_module("transformers")
    for what, name in (("attention interface", "AttentionInterface"), ("tokenizer", "AutoTokenizer")):
        found = getattr(transformers, name, None)
        detail = f"transformers.{name}" if found else f"transformers {transformers.__version__} has no {name}"
        yield Fact(what, OK if found else BROKEN, detail)


PROBES: dict[str, Callable[[], Iterator[Fact]]] = {
    "python": probe_python,
    "host": probe_host,
    "compilers": probe_compilers,
    "device cpu": probe_cpu,
    "device cuda": probe_cuda,
    "graph capture": probe_graph,
    "triton kernels": probe_triton,
    "NVML": probe_nvml,
    "GGUF files": probe_gguf,
    "transformers": probe_transformers,
}
"""By what a line says when the probe itself raises."""


def _isolated(name: str, probe: Callable[[], Iterator[Fact]]) -> list[Fact]:
    facts: list[Fact] = []
    try:
        for fact in probe():
            facts.append(fact)  # one by one: what came before a failure is kept
    except Exception as error:
        state = MISSING if isinstance(error, ModuleNotFoundError) else BROKEN
        facts.append(Fact(name, state, _line(error)))
    return facts


def _gibibytes(used: int) -> str:
    return f"{used / 2**30:.2f} GiB in use"


def _no_cuda(torch: Any) -> str:
    try:
        torch.cuda.init()
    except Exception as error:
        return _line(error)
    return "no device is visible"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
