"""How the kernels see a tensor's layout: block sizes, and strides that keep their divisibility."""

from __future__ import annotations

from torch import Tensor

NO_WINDOW = 1 << 30
"""A window wider than any context."""

LONGEST_UNIT = 8
"""Elements, a power of two: 16 bytes, the widest load, of a 2-byte dtype."""


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count` (at least 1)."""
    return 1 << max(0, count - 1).bit_length()


def ceil_div(count: int, size: int) -> int:
    return -(-count // size)


def stride_unit(*tensors: Tensor) -> int:
    """The longest unit, in elements, that the first two strides of all tensors are multiples of.

    Kernels take strides in units and multiply them by this constant: what they know of a stride's
    divisibility lets them load 16 bytes at a time, for any number of heads and any head dim.
    """
    bits = LONGEST_UNIT
    for tensor in tensors:
        first, second, _ = tensor.stride()
        bits |= first | second
    return bits & -bits
