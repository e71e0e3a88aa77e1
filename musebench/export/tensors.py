"""The tensors that the methods of a package read, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from musebench.backends.exported_call import PREFIX
from musebench.backends.exported_weights import constant_key, sha256_of_tensor
from musebench.programs.facts import MethodFacts, TensorFacts, WeightsFacts


class PackageContents:
    """Gathers weights (a model's parameters, by its own names) and constants (everything else)."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = parameters
        self.weights: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}

    def take(self, method: MethodFacts, names: Iterable[str], tensors: Mapping[str, Tensor]) -> None:
        """Note what a method reads; `tensors` are those of its traced program, by the same names."""
        for name in names:
            own = name.removeprefix(PREFIX)
            if own in self._parameters:
                self.weights[own] = self._parameters[own]
            else:
                self.constants[constant_key(method.name, name)] = tensors[name].detach()

    def facts(self, file: str | None, source_sha256: str | None) -> WeightsFacts:
        return WeightsFacts(_described(self.weights), _described(self.constants), file, source_sha256)


def _described(tensors: Mapping[str, Tensor]) -> dict[str, TensorFacts]:
    return {
        name: TensorFacts(
            str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), sha256_of_tensor(tensor)
        )
        for name, tensor in tensors.items()
    }
