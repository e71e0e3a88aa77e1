"""Block sizes, warps and pipeline depths of the attention kernels, by dtype and head dim.

Chosen from measurements and fixed: nothing is tuned while a run is measured. How many programs there are
follows from shapes alone, so that a captured graph and an eager launch of one shape round alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from musebench.kernels.triton_layout import ceil_div, power_of_two

MOST_SPLITS = 64
FEW_PROGRAMS = 264
"""Two for each multiprocessor of the device that was measured (132): with fewer, contexts are split."""


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """`block_n` cells at a time, in `stages` of loads under way, for a group of at least `block_m` heads.

    A context is split until there are `programs` programs, into parts of no fewer than `split_cells` cells.
    `early_merge` launches the merge while the splits run, where the device can.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    programs: int = FEW_PROGRAMS
    split_cells: int = 64
    early_merge: bool = True


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """`block_m` pairs of query token and head of a group at a time, over `block_n` cells at a time."""

    block_m: int
    block_n: int
    warps: int
    stages: int


def splits_of(config: DecodeConfig, programs: int, table_width: int) -> int:
    """Splits a context is cut into at most: a power of two, given the programs there are without.

    Contexts shorter than the table is wide use fewer.
    """
    wanted = power_of_two(ceil_div(config.programs, max(1, programs)))
    useful = power_of_two(ceil_div(table_width, config.split_cells))
    return min(wanted, useful, MOST_SPLITS)


def merge_warps(splits: int, value_dim: int) -> int:
    """Warps that merge so many splits: a power of two, each with 2,048 numbers or less where 8 are enough."""
    return max(1, min(8, power_of_two(splits) * power_of_two(value_dim) // 2048))


def decode_config(dtype: torch.dtype, head_dim: int, programs: int) -> DecodeConfig:
    """For rows of `dtype` with heads of at most `head_dim`, and so many pairs of sequence and KV head."""
    if dtype == torch.float32:
        return DecodeConfig(1, 32, 2, 3)
    if head_dim > 128:
        return DecodeConfig(16, 32, 4, 3)
    if programs < FEW_PROGRAMS:
        # Twice as many programs of this size would not fit the device at a time with longer heads.
        return DecodeConfig(16, 64, 2, 5, FEW_PROGRAMS if head_dim <= 64 else FEW_PROGRAMS // 2)
    return DecodeConfig(16, 64, 2, 3) if head_dim > 64 else DecodeConfig(16, 32, 1, 7)


def prefill_config(dtype: torch.dtype, head_dim: int, queries: int) -> PrefillConfig:
    """For rows of `dtype` with heads of at most `head_dim`, and so many pairs of token and query head."""
    if dtype == torch.float32:
        if head_dim > 128:
            return PrefillConfig(16, 32, 4, 1)
        return PrefillConfig(32, 32, 4, 1) if head_dim > 64 else PrefillConfig(32, 64, 8, 1)
    if head_dim > 128:
        return PrefillConfig(64, 32, 4, 2)
    if head_dim > 64:
        return PrefillConfig(64, 64, 4, 2)
    return PrefillConfig(128, 64, 4, 2) if queries >= 1 << 16 else PrefillConfig(64, 128, 4, 2)
