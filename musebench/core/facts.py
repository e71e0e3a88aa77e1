"""Facts about a model, free of torch: what bytes and shapes follow from its config."""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The numbers of one model that pools, costs and reports are computed from.

    `windows` has one entry a layer: how many of the newest positions a token of that layer attends to
    (itself included), or None for all. `parameters` counts every weight once (tied ones too);
    `active_parameters` those a token passes through. `dtype` is that of weights and cells.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context: int
    dtype: str
    parameters: int
    active_parameters: int
    tied_embeddings: bool = True
    windows: tuple[int | None, ...] = ()
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    gated_mlp: bool = True

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def cell_bytes(self) -> int:
        """Bytes per cell = 2 x layers x KV heads x head dim x bytes per element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def weight_bytes(self) -> int:
        """All weights, each once. Buffers (rotary tables and the like) are not weights."""
        return self.parameters * self.element_bytes
