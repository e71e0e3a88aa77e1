"""Products that read the same input, made one: query, key and value projections; gate and up projections.

transformers keeps a weight a projection. A step of few tokens reads weights and little else, and three small
products read them at a lower rate than one large one. The weights of such a group are put into one tensor,
[sum of outputs, inputs]; each projection is replaced by a view of the one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from torch.nn.functional import linear

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names under which transformers' models keep projections of one input."""


class _Product:
    """The product of a group, kept between the call of its first part and that of its last."""

    def __init__(self) -> None:
        self.input: Tensor | None = None
        self.output: Tensor | None = None


class PackedPart(Module):
    """One projection of a group, output [..., stop - start].

    The parts are called one after the other with one input; a part that meets another input makes its own
    product. The group's first part holds the weights.
    """

    def __init__(
        self, packed: Linear, product: _Product, start: int, stop: int, first: bool, last: bool
    ) -> None:
        super().__init__()
        if first:
            self.packed = packed
        self._linear = (packed,)  # in a tuple, so that torch does not count the weights again
        self._product = product
        self._start, self._stop, self._last = start, stop, last
        self.in_features, self.out_features = packed.in_features, stop - start

    @property
    def weight(self) -> Tensor:
        """[outputs, inputs], a view."""
        return self._linear[0].weight[self._start : self._stop]

    @property
    def bias(self) -> Tensor | None:
        bias = self._linear[0].bias
        return None if bias is None else bias[self._start : self._stop]

    def forward(self, input: Tensor) -> Tensor:
        product = self._product
        if product.input is not input:
            packed = self._linear[0]
            product.input, product.output = input, linear(input, packed.weight, packed.bias)
        assert product.output is not None
        part = product.output[..., self._start : self._stop]
        if self._last:
            product.input = product.output = None
        return part


def pack_projections(module: Module) -> int:
    """Replace every group of `GROUPS` in `module`; returns how many there were.

    A group is left alone where a name is missing, a part is no plain `Linear`, or inputs, dtypes or biases
    differ. Weights are copied a group at a time: the passing peak is one group's bytes.
    """
    packed = 0
    for owner in list(module.modules()):
        for names in GROUPS:
            parts = [getattr(owner, name, None) for name in names]
            if all(type(part) is Linear for part in parts) and _alike(parts):
                _pack(owner, names, parts)
                packed += 1
    return packed


def _alike(parts: list[Any]) -> bool:
    kinds = {(part.in_features, part.weight.dtype, part.weight.device, part.bias is None) for part in parts}
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    return len(kinds) == 1 and not hooked


def _pack(owner: Module, names: tuple[str, ...], parts: list[Linear]) -> None:
    sizes = [part.out_features for part in parts]
    with torch.no_grad():
        whole = Linear(parts[0].in_features, sum(sizes), bias=False, device="meta")
        whole.weight = Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
        if parts[0].bias is not None:
            whole.bias = Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    whole.train(owner.training)
    product, start = _Product(), 0
    for name, size in zip(names, sizes, strict=True):
        part = PackedPart(whole, product, start, start + size, name == names[0], name == names[-1])
        setattr(owner, name, part.train(owner.training))
        start += size
