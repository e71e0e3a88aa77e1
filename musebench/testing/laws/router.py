"""The laws of routers, held over requests and replicas that are as busy as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from musebench.core.protocols import Router
from musebench.core.request import Request
from musebench.testing.laws.law import Finding, History, Law
from musebench.testing.laws.search import search, strategies

PLACE = Law("place", "the answer is a place among the replicas")
SAME = Law("same", "the same requests and replicas give the same answers")
READS = Law("reads", "routing changes neither the request nor a replica")

ROUTER_LAWS = (PLACE, SAME, READS)


@dataclass
class FakeReplica:
    """See `musebench.core.protocols.Replica`."""

    queued_tokens: int
    running_tokens: int
    waiting: int
    running: int


@dataclass(frozen=True)
class RouterHistory:
    """Each of `asked`: tokens of a prompt, which prompt, and how busy each replica is then."""

    replicas: int
    asked: tuple[tuple[int, int, tuple[int, ...]], ...]


def hold_router(make: Callable[[], Router], *, examples: int = 150, seed: int = 0) -> list[Finding]:
    """A finding a law for the routers that `make()` makes."""
    st = strategies()
    busy = st.lists(st.integers(0, 5), min_size=6, max_size=6).map(tuple)
    asked = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), busy)).map(tuple)
    histories = st.builds(RouterHistory, st.integers(1, 6), asked)

    def play(drawn: RouterHistory, history: History) -> None:
        first = _answers(make(), drawn, history)
        again = _answers(make(), drawn, History())
        history.hold(SAME, first == again, f"the answers are {first}, and {again} the second time")

    return search(ROUTER_LAWS, histories, play, examples, seed)


def _answers(router: Router, drawn: RouterHistory, history: History) -> list[Any]:
    made = []
    for place, (tokens, prompt, busy) in enumerate(drawn.asked):
        request = Request(f"r{place}", tuple(100 * prompt + token for token in range(tokens)), 4)
        replicas = [FakeReplica(9 * one, 7 * one, one, min(one, 2)) for one in busy[: drawn.replicas]]
        before = [asdict(replica) for replica in replicas], request.prompt, dict(request.tags)
        history.doing(
            f"routing {request.id} ({tokens} tokens of prompt {prompt}) to {drawn.replicas} replicas"
        )
        answer: Any = router.route(request, replicas)
        history.gave(repr(answer))
        right = isinstance(answer, int) and 0 <= answer < drawn.replicas
        history.hold(PLACE, right, f"it answered {answer!r} for {drawn.replicas} replicas")
        after = [asdict(replica) for replica in replicas], request.prompt, dict(request.tags)
        history.hold(READS, before == after, "a replica or the request was changed")
        made.append(answer)
    return made
