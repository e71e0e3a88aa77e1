"""The thresholds of the built-in checks, with their defaults; each is a flag of `musebench check` too."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class TokensOptions:
    logit_scale: float = option(
        8.0, "size of the logits whose rounding may turn a token over; spread over the vocabulary", above=0.0
    )
    across_workloads: bool = option(
        False, "compare requests of one id and prompt in reports of different workloads too"
    )


@dataclass(frozen=True)
class ReferenceOptions:
    reference_logit_scale: float = option(8.0, "as logit scale, against the reference", above=0.0)


@dataclass(frozen=True)
class WeightsOptions:
    weights_factor: float = option(1.25, "loading costs at most this often the weights' bytes", minimum=1.0)
    load_allowance: int = option(
        64 * MIB,
        "for what loading takes beside weights: on a CPU code and tokenizer, on a GPU libraries' workspaces",
        unit="bytes",
        minimum=0,
    )
    load_difference: int = option(
        256 * MIB,
        "most difference between loads of runs that reserve different numbers of sessions",
        unit="bytes",
        minimum=0,
    )


@dataclass(frozen=True)
class PoolOptions:
    activation_allowance: int = option(
        3 * GIB, "generation adds at most the pool and this", unit="bytes", minimum=0
    )
    left_allocated: int = option(
        64 * MIB,
        "most that torch's allocator keeps after the run beside the graphs' pool: workspaces of libraries",
        unit="bytes",
        minimum=0,
    )
    left_device: int = option(
        256 * MIB,
        "most that NVML says is kept after the run beside the graphs' pool: code loaded at first use",
        unit="bytes",
        minimum=0,
    )


@dataclass(frozen=True)
class BoundOptions:
    closed_slack: int = option(
        256 * MIB, "most above the weights after everything was closed", unit="bytes", minimum=0
    )
    load_passing: float = option(
        2.0, "loading may pass through this often the weights' bytes, source and target at once", minimum=1.0
    )


@dataclass(frozen=True)
class HonestOptions:
    floor_share: float = option(
        1.05, "a step on a GPU may reach this share of its floor, which is a measured one", minimum=1.0
    )
    host_floor_share: float = option(
        4.0,
        "the same on a CPU, whose ceilings move with threads, clock rate and other processes",
        minimum=1.0,
    )
    floor_bytes: int = option(
        256 * MIB, "steps that move fewer bytes than this may run out of a cache and have no floor",
        unit="bytes", minimum=0,
    )  # fmt: skip
    clock_share: float = option(
        0.9, "the run by its own clock lasts at least this share of the host's", above=0.0, maximum=1.0
    )
    clock_slack: float = option(0.05, "and may miss this beside", unit="s", minimum=0.0)
