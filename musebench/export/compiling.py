"""One traced method through AOTInductor."""

from __future__ import annotations

import torch._inductor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from musebench.backends.torch_compiled import SEVERAL, SINGLE_TOKEN
from musebench.core.errors import UnsupportedError
from musebench.programs.facts import MethodFacts

COMPILER_OPTIONS = {
    "aot_inductor.package": True,
    # Weights stand in the package once, not in every method's library.
    "aot_inductor.package_constants_in_so": False,
}


def compile_method(program: ExportedProgram, method: MethodFacts) -> list[str]:
    """Files that belong into the package's folder of the method: its library and what that needs.

    Raises:
        UnsupportedError: the compiler cannot; says why.
    """
    args, kwargs = program.example_inputs
    options = COMPILER_OPTIONS | (SINGLE_TOKEN if method.most_tokens == 1 else SEVERAL)
    try:
        made = torch._inductor.aot_compile(program.module(check_guards=False), args, kwargs, options=options)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UnsupportedError(
            f"method {method.name!r} of this model cannot be compiled ({type(error).__name__}: {reason}); "
            "musebench doctor shows whether there is a compiler; run it with --executor eager or graph"
        ) from error
    return [file for file in made if isinstance(file, str) and file]


def wanted_names(program: ExportedProgram) -> list[str]:
    """Names of the weights, buffers and constants that the program reads."""
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    return [
        str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds and spec.arg.name in used
    ]
