"""Options of the simulated backend, apart from it so that showing them imports little."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class SimulatedOptions:
    """Options of the backend `sim`."""

    memory: float = option(
        0.9, "share of the device's memory that weights, activations, graphs and rows may take together",
        above=0.0, maximum=1.0,
    )  # fmt: skip
    devices: int = option(1, "devices that share every layer (tensor parallel)", minimum=1)
    weights: str | None = option(None, "format of the weights, such as float8 or int4; none: the dtype")
    stop_after: float | None = option(
        None, "mean tokens of an answer that ends at a stop, drawn from the seed and the request's id; none: "
        "at its most tokens", unit="tokens", above=1.0, maximum=1e9,
    )  # fmt: skip
    cells: str | None = option(None, "dtype of the cells; none: the model's")
