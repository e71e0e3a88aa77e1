"""`fair-share`: each tenant's service is counted in tokens, and the one that had least is admitted next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import ClassVar

from musebench.core.options import option
from musebench.core.sequence import Phase, Sequence
from musebench_sched.admission import AdmissionScheduler, steps_option, waits


@dataclass(frozen=True)
class FairShareOptions:
    tag: str = option(
        "tenant", "tag of a request that names its tenant; requests without it are one tenant's"
    )
    prompt_weight: float = option(1.0, "what a token of a prompt counts", above=0)
    output_weight: float = option(2.0, "what a token that is made counts", above=0)
    steps: str = steps_option()


@dataclass
class _Served:
    """An admitted sequence, and how many of its generated tokens are counted."""

    tenant: str
    sequence: Sequence
    counted: int = 0


class FairLine:
    """Tenants in order of the service that they had, each tenant's own in order of arrival.

    The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024,
    arXiv 2401.00588): a prompt counts when it is admitted, a token when it is made; a tenant that had nothing
    waiting is lifted to the least of those who have, so that idling saves up no claim. While two tenants both
    have something waiting, the services that they get differ by at most 2 x max(prompt_weight x longest
    prompt, output_weight x most tokens that run at once).
    """

    def __init__(self, options: FairShareOptions) -> None:
        self.options = options
        self.service: dict[str, float] = {}
        self._lines: dict[str, deque[Sequence]] = {}
        self._members: set[Sequence] = set()
        self._running: list[_Served] = []
        self._left_last: str | None = None

    @property
    def contested(self) -> bool:
        """Whether the tokens that are being made may let another tenant come first."""
        return len(self._lines) > 1

    def tenant(self, sequence: Sequence) -> str:
        return str(sequence.request.tags.get(self.options.tag, ""))

    def refresh(self) -> None:
        newest = -1
        for tenant, line in list(self._lines.items()):
            while line and not waits(line[0]):
                sequence = line.popleft()
                self._members.remove(sequence)
                if sequence.admitted >= 0:
                    self._admitted(tenant, sequence)
            if not line:
                del self._lines[tenant]
                if (rank := sequence.admitted) >= newest:
                    self._left_last, newest = tenant, rank
        for served in self._running:
            made = served.sequence.generated
            self.service[served.tenant] += self.options.output_weight * (made - served.counted)
            served.counted = made
        self._running = [one for one in self._running if one.sequence.phase is not Phase.FINISHED]

    def add(self, sequence: Sequence) -> None:
        tenant = self.tenant(sequence)
        if tenant not in self._lines:
            self._lift(tenant)
            self._lines[tenant] = deque()
        self._lines[tenant].append(sequence)
        self._members.add(sequence)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._members

    def in_order(self) -> Iterator[Sequence]:
        own = {tenant: filter(waits, line) for tenant, line in self._lines.items()}
        ahead = [(self.service[tenant], tenant) for tenant in own]
        heapify(ahead)
        while ahead:
            service, tenant = heappop(ahead)
            sequence = next(own[tenant], None)
            if sequence is not None:
                yield sequence
                heappush(ahead, (service + self.options.prompt_weight * sequence.prompt_tokens, tenant))

    def _admitted(self, tenant: str, sequence: Sequence) -> None:
        self.service[tenant] += self.options.prompt_weight * sequence.prompt_tokens
        self._running.append(_Served(tenant, sequence))

    def _lift(self, tenant: str) -> None:
        """No claim is saved up by a tenant that had nothing waiting."""
        others = [self.service[other] for other in self._lines]
        if not others and self._left_last is not None:
            others = [self.service[self._left_last]]
        self.service[tenant] = max(chain([self.service.get(tenant, 0.0)], [min(others)] if others else []))


class FairShareScheduler(AdmissionScheduler):
    """Admits the tenant that had the least service; `line.service` holds what each had, in weighted tokens.

    While several tenants wait, every token changes who comes first: simulated runs are then stepped.
    """

    name: ClassVar[str] = "fair-share"
    Options = FairShareOptions

    def __init__(self, options: FairShareOptions) -> None:
        self.options = options
        self.line = FairLine(options)
        super().__init__(self.line, options.steps)
