"""Seconds of one model on one profile: the `Costs` that the simulated backend asks.

What depends on tokens and rows alone is worked out once for each number and kept; a step then adds attention.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from musebench.backends.simulated.attended import Attended, decode_cells_over, window_groups
from musebench.backends.simulated.kernels import BANDWIDTH, COMPUTE, LAUNCH, Kernel
from musebench.backends.simulated.operations import PROGRAMS, ModelWork, Operation
from musebench.backends.simulated.profile import Profile
from musebench.backends.simulated.shape import MoveSeconds, StepShape
from musebench.backends.simulated.weights import weight_format
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.facts import DTYPE_BYTES, ModelFacts
from musebench.core.options import nearest
from musebench.core.table import Contexts

FIRST_BLOCK = 4
"""Steps of a stretch that are priced at once at first: most are cut short by an arrival."""

SEGMENT_BYTES = 2 << 20
"""Torch's smallest segment: a pool of graphs has at least one."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Attention of `count` layers that have one window."""

    window: int | None
    count: int


class ModelCosts:
    """See `musebench.backends.simulated.shape.Costs`; made by `costs_for`.

    `weight_bytes` and `cell_bytes` are those of one of the devices.
    """

    def __init__(self, work: ModelWork, cell_bytes: int) -> None:
        facts, profile = work.facts, work.profile
        self.work = work
        self.facts = facts
        self.profile = profile
        self.weight_bytes = work.weight_bytes
        self.cell_bytes = cell_bytes
        self._groups = [
            LayerAttention(window, count) for window, count in window_groups(facts.windows, facts.layers)
        ]
        self._rates = profile.attention_for(facts.head_dim)
        self._layer_bytes = cell_bytes / facts.layers
        self._pair_flops = 4.0 * (facts.heads // work.devices) * facts.head_dim
        self._launches = {name: work.launches(program) for name, program in PROGRAMS.items()}
        self._bodies: dict[tuple[int, str], float] = {}
        self._heads: dict[tuple[int, str], float] = {}

    # -- the device -----------------------------------------------------------------------------------

    def step(self, shape: StepShape, program: str) -> float:
        """Device seconds of one forward, nothing else on the device; its launch is `launch_seconds`."""
        seconds = self._body(shape.tokens, program) + self._head(shape.rows, program)
        for group in self._groups:
            seen = shape.attended(group.window)
            if seen.decode_cells:
                seconds = seconds + group.count * self._decode_seconds(seen.decode_cells)
            if seen.prefills:
                seconds = seconds + group.count * self._prefill_seconds(seen)
        return seconds

    def decode_stretch(self, contexts: np.ndarray, steps: int, program: str, padded: int = 0) -> np.ndarray:
        """`step` of each of `steps` forwards that decode one token a sequence, float64 [steps]."""
        tokens = len(contexts) + padded
        seconds = np.full(steps, self._body(tokens, program) + self._head(tokens, program))
        for group in self._groups:
            cells = decode_cells_over(contexts, steps, group.window)
            if len(contexts):
                seconds = seconds + group.count * self._decode_seconds(cells)
        return seconds

    def decodes(self, contexts: Contexts, steps: int, program: str, padded: int = 0) -> Iterable[float]:
        """`decode_stretch`, one after the other. Without a window the sum of the contexts is all it takes;
        with one they are priced in blocks, each twice as long as the one before."""
        if [group.window for group in self._groups] != [None]:
            each, made, block = contexts.each(), 0, FIRST_BLOCK
            while made < steps:
                block = min(block, steps - made)
                yield from self.decode_stretch(each + made, block, program, padded).tolist()
                made, block = made + block, 2 * block
            return
        tokens, layers = contexts.decodes + padded, self._groups[0].count
        seconds = self._body(tokens, program) + self._head(tokens, program)
        cells = contexts.total
        for _ in range(steps):
            yield seconds + layers * self._decode_seconds(cells)
            cells += contexts.decodes

    def operations(self, shape: StepShape, program: str) -> list[Operation]:
        """The operations whose seconds `step` adds up, attention included."""
        known = PROGRAMS[program]
        made = [*self.work.body(shape.tokens, known), *self.work.head(shape.rows, known)]
        for group in self._groups:
            seen = shape.attended(group.window)
            window = "" if group.window is None else f", window {group.window}"
            if seen.decode_cells:
                made.append(
                    Operation(f"decode attention{window}", group.count, self._decode(seen.decode_cells))
                )
            if seen.prefills:
                made.append(Operation(f"prefill attention{window}", group.count, self._prefill(seen)))
        return made

    def _body(self, tokens: int, program: str) -> float:
        known = self._bodies.get((tokens, program))
        if known is None:
            if program not in PROGRAMS:
                raise UsageError(f"there is no program {program!r}; {nearest(program, PROGRAMS)}")
            operations = self.work.body(tokens, PROGRAMS[program])
            known = self._bodies[tokens, program] = sum(operation.seconds for operation in operations)
        return known

    def _head(self, rows: int, program: str) -> float:
        known = self._heads.get((rows, program))
        if known is None:
            operations = self.work.head(rows, PROGRAMS[program])
            known = self._heads[rows, program] = sum(operation.seconds for operation in operations)
        return known

    def _decode_seconds(self, cells: Any) -> Any:
        """Of one layer; `cells` a whole number or an array of them, with the same sums for both."""
        return self._rates.decode_seconds + cells * self._layer_bytes / self._rates.decode_bandwidth

    def _prefill_seconds(self, seen: Attended) -> float:
        rates = self._rates
        return rates.prefill_seconds + max(
            seen.pairs * self._pair_flops / rates.prefill_rate,
            seen.prefill_cells * self._layer_bytes / rates.decode_bandwidth,
        )

    def _decode(self, cells: int) -> Kernel:
        moved, seconds = cells * self._layer_bytes, self._decode_seconds(cells)
        bound = LAUNCH if 2 * self._rates.decode_seconds > seconds else BANDWIDTH
        return Kernel(moved, cells * self._pair_flops, seconds, bound)

    def _prefill(self, seen: Attended) -> Kernel:
        moved, flops = seen.prefill_cells * self._layer_bytes, seen.pairs * self._pair_flops
        seconds, rates = self._prefill_seconds(seen), self._rates
        if 2 * rates.prefill_seconds > seconds:
            bound = LAUNCH
        else:
            bound = COMPUTE if flops / rates.prefill_rate >= moved / rates.decode_bandwidth else BANDWIDTH
        return Kernel(moved, flops, seconds, bound)

    # -- the host, and one-off work -------------------------------------------------------------------

    def host_seconds(self, slices: int, tokens: int) -> float:
        """Host work of one step beside its launch."""
        host = self.profile.host
        return host.step_seconds + slices * host.sequence_seconds + tokens * host.token_seconds

    def launch_seconds(self, program: str) -> float:
        """Host seconds until the device has all of one forward's work."""
        known, launch = PROGRAMS[program], self.profile.launch
        operations = self._launches[program]
        if known.replayed:
            return launch.replay_seconds + operations * launch.replay_operation_seconds
        each = launch.compiled_seconds if known.fused else launch.eager_seconds
        return operations * each

    def capture_seconds(self, sequences: int) -> float:
        """Seconds to capture one graph: forwards launched one by one, the device's time in them where that is
        longer, and a fixed part."""
        launch = self.profile.launch
        alone = self._body(sequences, "eager") + self._head(sequences, "eager")
        return launch.capture_seconds + launch.capture_launches * max(self.launch_seconds("eager"), alone)

    def copy_seconds(self, copied_bytes: int) -> float:
        """Seconds of a growth: its copies read and write `copied_bytes`, and one is launched for each of the
        layers' two buffers."""
        profile = self.profile
        moving = profile.copy_seconds + 2.0 * copied_bytes / (profile.bandwidth * profile.copy_share)
        return max(moving, 2 * self.facts.layers * profile.launch.eager_seconds)

    def move_seconds(self, copied_bytes: int, runs: int) -> MoveSeconds:
        """See `musebench.backends.simulated.shape.Costs`: a launch for each run of each layer's two buffers;
        the device reads and writes what is copied, as in a growth."""
        profile = self.profile
        launching = 2 * self.facts.layers * runs * profile.launch.eager_seconds
        return MoveSeconds(launching, 2.0 * copied_bytes / (profile.bandwidth * profile.copy_share))

    def graph_bytes(self, sequences: int) -> int:
        """Device bytes of the graphs' pool: what the largest graph's forward needs; the others share it."""
        return self.work.captured_bytes(sequences) + SEGMENT_BYTES

    def activation_bytes(self, tokens: int, rows: int) -> int:
        return self.work.activation_bytes(tokens, rows)


def costs_for(
    facts: ModelFacts,
    profile: Profile,
    tensor_parallel: int = 1,
    weights: str | None = None,
    cells: str | None = None,
) -> ModelCosts:
    """The costs of a model on `tensor_parallel` devices of a profile.

    `weights` names a format of `musebench.backends.simulated.weights`, `cells` a dtype; None is the model's.

    Raises:
        UsageError: an unknown format, or a number of devices that does not divide the heads.
        UnsupportedError: the device does not run that dtype, or has no links to a second one.
    """
    made = weight_format(weights or facts.dtype)
    for dtype in (facts.dtype, made.rate or facts.dtype):
        if dtype not in profile.rates:
            raise UnsupportedError(
                f"profile {profile.label} has no rate for {dtype}; it has {', '.join(sorted(profile.rates))}"
            )
    if tensor_parallel < 1 or facts.heads % tensor_parallel:
        raise UsageError(
            f"{tensor_parallel} devices cannot share the {facts.heads} heads of {facts.name!r}; "
            "choose a number that divides them"
        )
    if tensor_parallel > 1 and profile.all_reduce is None:
        raise UnsupportedError(f"profile {profile.label} has no links between devices; use one device")
    if cells is not None and cells not in DTYPE_BYTES:
        raise UsageError(f"there is no dtype {cells!r} for cells; {nearest(cells, DTYPE_BYTES)}")
    # Where devices outnumber KV heads, each holds a copy of one.
    shards = min(tensor_parallel, facts.kv_heads)
    element = DTYPE_BYTES[cells or facts.dtype]
    cell_bytes = 2 * facts.layers * -(-facts.kv_heads // shards) * facts.head_dim * element
    return ModelCosts(ModelWork(facts, profile, made, tensor_parallel), cell_bytes)
