"""How weights and cells are held: bytes each, and the rate that products with them run at."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.errors import UsageError
from musebench.core.facts import DTYPE_BYTES
from musebench.core.options import nearest


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """`bytes_per_weight` with its share of the scales. `rate` is the dtype whose rate its products reach;
    None: that of the model, because weights are turned into it first."""

    name: str
    bytes_per_weight: float
    rate: str | None = None


FORMATS = {
    made.name: made
    for made in (
        *(WeightFormat(name, float(size), name) for name, size in DTYPE_BYTES.items()),
        WeightFormat("int4", 0.5625),  # groups of 32 with a scale of 16 bits
        WeightFormat("float4", 0.5625, "float4"),  # NVFP4: groups of 16 with a scale of 8 bits
        WeightFormat("mxfp4", 0.53125),  # groups of 32 with a scale of 8 bits
        WeightFormat("q8-0", 1.0625),  # GGUF: 32 weights in 34 bytes
        WeightFormat("q4-0", 0.5625),  # GGUF: 32 weights in 18 bytes
    )
}


def weight_format(name: str) -> WeightFormat:
    """The format of a name.

    Raises:
        UsageError: there is none; names the nearest.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no weight format {name!r}; {nearest(name, FORMATS)}")
    return FORMATS[name]
