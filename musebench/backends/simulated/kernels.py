"""What one kernel costs on one device: pure functions of sizes, in seconds.

Every kernel is held by the larger of what its bytes take and what its operations take; a product also by how
well the two hide each other, which `ProductCurve.sharpness` says.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from math import inf, log

COMPUTE, BANDWIDTH, LAUNCH, HOST, NETWORK = "compute", "bandwidth", "launch", "host", "network"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: the bytes that it must move, its operations, its seconds, and what holds them: one of
    "compute", "bandwidth", "launch" (its fixed time), "network" and "host"."""

    bytes: float
    flops: float
    seconds: float
    bound: str


@dataclass(frozen=True, slots=True)
class ProductPoint:
    """A measured product: [tokens, inputs] x [inputs, outputs] in `dtype` took `seconds`."""

    tokens: int
    inputs: int
    outputs: int
    dtype: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenRatios:
    """Ratios at logarithms of tokens, in order: linear between them, level beyond the ends."""

    logs: tuple[float, ...]
    ratios: tuple[float, ...]

    def at(self, tokens: int) -> float:
        place = log(tokens)
        after = bisect_right(self.logs, place)
        if after == 0:
            return self.ratios[0]
        if after == len(self.logs):
            return self.ratios[-1]
        low, high = self.logs[after - 1], self.logs[after]
        share = (place - low) / (high - low)
        return self.ratios[after - 1] + (self.ratios[after] - self.ratios[after - 1]) * share


@dataclass(frozen=True)
class ProductCurve:
    """How near a product comes to a device's peaks.

        seconds = fixed + ((bytes / (bandwidth x bandwidth_share)) ^ sharpness
                           + (operations / (rate x rate_share)) ^ sharpness) ^ (1 / sharpness)

    An infinite `sharpness` is the roofline's corner; a product whose loads and operations hide each other
    badly where both count has a low one. `points` are products measured on the device: where there are some
    of its dtype, the curve is multiplied by measured over curve, interpolated over the logarithms of tokens
    and of weights.
    """

    bandwidth_share: float
    rate_share: float
    sharpness: float
    fixed_seconds: float
    points: tuple[ProductPoint, ...] = ()

    def seconds(
        self, bandwidth: float, rate: float, moved: float, flops: float, place: tuple[str, int, int, int]
    ) -> tuple[float, str]:
        """Seconds and their bound; `place` is (dtype, tokens, inputs, outputs)."""
        memory = moved / (bandwidth * self.bandwidth_share)
        compute = flops / (rate * self.rate_share)
        seconds = self.fixed_seconds + _norm(memory, compute, self.sharpness)
        if self.points:
            seconds *= self._correction(bandwidth, rate, place)
        largest = max(memory, compute, self.fixed_seconds)
        return seconds, LAUNCH if largest == self.fixed_seconds else (
            COMPUTE if largest == compute else BANDWIDTH
        )

    def _correction(self, bandwidth: float, rate: float, place: tuple[str, int, int, int]) -> float:
        dtype, tokens, inputs, outputs = place
        key = (bandwidth, rate, dtype, inputs, outputs)
        near = self._known.get(key)
        if near is None:
            near = self._known[key] = self._nearest(bandwidth, rate, dtype, inputs, outputs)
        if len(near) == 1:
            return near[0][1].at(tokens)
        return sum(weight * ratios.at(tokens) for weight, ratios in near) if near else 1.0

    @cached_property
    def _known(self) -> dict[tuple[float, float, str, int, int], tuple[tuple[float, TokenRatios], ...]]:
        """What `_nearest` has found: a simulation asks for the same few shapes at every number of tokens."""
        return {}

    def _nearest(
        self, bandwidth: float, rate: float, dtype: str, inputs: int, outputs: int
    ) -> tuple[tuple[float, TokenRatios], ...]:
        """The measured shape itself with weight 1, else the two whose weights' number is nearest, by inverse
        distance of its logarithm."""
        grouped: dict[tuple[int, int], list[ProductPoint]] = {}
        for point in sorted(self.points, key=lambda point: point.tokens):
            if point.dtype == dtype:
                grouped.setdefault((point.inputs, point.outputs), []).append(point)
        if (inputs, outputs) in grouped:
            grouped = {(inputs, outputs): grouped[inputs, outputs]}
        weights = {
            known: 1.0 / (abs(log(known[0] * known[1] / (inputs * outputs))) + 1e-3) for known in grouped
        }
        near = sorted(grouped, key=lambda known: (-weights[known], known))[:2]
        total = sum(weights[known] for known in near)
        return tuple(
            (weights[known] / total, self._ratios(grouped[known], bandwidth, rate)) for known in near
        )

    def _ratios(self, points: list[ProductPoint], bandwidth: float, rate: float) -> TokenRatios:
        """Measured over curve of one shape, by tokens."""
        ratios = []
        for point in points:
            element = 4 if point.dtype == "float32" else 2
            moved = element * (point.inputs * point.outputs + point.tokens * (point.inputs + point.outputs))
            flops = 2.0 * point.tokens * point.inputs * point.outputs
            memory = moved / (bandwidth * self.bandwidth_share)
            compute = flops / (rate * self.rate_share)
            ratios.append(point.seconds / (self.fixed_seconds + _norm(memory, compute, self.sharpness)))
        return TokenRatios(tuple(log(point.tokens) for point in points), tuple(ratios))


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """Attention of one head size. A launch that decodes takes `decode_seconds` + bytes / `decode_bandwidth`,
    one that prefills `prefill_seconds` + the larger of operations / `prefill_rate` and bytes /
    `decode_bandwidth`."""

    head_dim: int
    decode_seconds: float
    decode_bandwidth: float
    prefill_seconds: float
    prefill_rate: float


@dataclass(frozen=True, slots=True)
class Reductions:
    """Products of one token that a compiler makes as reductions, not the library's: `fixed_seconds` each +
    bytes / (bandwidth x `bandwidth_share`)."""

    bandwidth_share: float
    fixed_seconds: float

    def cost(self, moved: float, flops: float, bandwidth: float) -> Kernel:
        moving = moved / (bandwidth * self.bandwidth_share)
        bound = LAUNCH if self.fixed_seconds >= moving else BANDWIDTH
        return Kernel(moved, flops, self.fixed_seconds + moving, bound)


@dataclass(frozen=True, slots=True)
class SmallKernels:
    """Norms, rotary embedding, activations, residuals: `seconds` each + bytes / `bandwidth`.

    Over a single token one takes `single_seconds`, where that was measured. Of what is larger than the
    device's cache of `cache_bytes`, the next kernel finds nothing there: it moves at `memory_bandwidth`.
    """

    seconds: float
    bandwidth: float
    single_seconds: float | None = None
    cache_bytes: float = inf
    memory_bandwidth: float = inf

    def cost(self, moved: float, tokens: int, kernels: int = 1) -> Kernel:
        """`kernels` of them over `tokens` tokens that move `moved` bytes together."""
        each = self.seconds if tokens > 1 or self.single_seconds is None else self.single_seconds
        bandwidth = self.bandwidth if moved / kernels <= self.cache_bytes else self.memory_bandwidth
        fixed, moving = kernels * each, moved / bandwidth
        return Kernel(moved, 0.0, fixed + moving, LAUNCH if fixed >= moving else BANDWIDTH)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """All-reduce over the links of one host.

        seconds = max(floor_seconds, start_seconds + bytes x 2 (n - 1) / n / (bandwidth x link_share))

    `bandwidth` is one way, in bytes per second and device; 2 (n - 1) / n is what a ring sends of each byte.
    By number of devices n: the floor, the start and the share of the links that is reached.
    """

    bandwidth: float
    by_devices: dict[int, tuple[float, float, float]]

    def cost(self, size: float, devices: int) -> Kernel:
        """All-reduce of `size` bytes a device; nothing for one device. A number of devices that was not
        measured takes the values of the next smaller one, or of the smallest."""
        if devices == 1:
            return Kernel(0.0, 0.0, 0.0, NETWORK)
        known = [count for count in sorted(self.by_devices) if count <= devices] or [min(self.by_devices)]
        floor, start, share = self.by_devices[known[-1]]
        sent = size * 2 * (devices - 1) / devices
        return Kernel(sent, 0.0, max(floor, start + sent / (self.bandwidth * share)), NETWORK)


def expected_experts(experts: int, chosen: int, tokens: int) -> float:
    """Expected number of distinct experts when each of `tokens` tokens chooses `chosen` of `experts`, every
    choice equally likely: experts x (1 - (1 - chosen / experts) ^ tokens)."""
    return experts * (1.0 - (1.0 - chosen / experts) ** tokens)


def _norm(first: float, second: float, power: float) -> float:
    """(first ^ power + second ^ power) ^ (1 / power), of which an infinite power makes the larger."""
    largest = max(first, second)
    if largest == 0.0 or power == float("inf"):
        return largest
    return largest * (1.0 + (min(first, second) / largest) ** power) ** (1.0 / power)
