"""Case 17 on an installed package: two sequences share a prefix, one finishes, the other's tokens stay.

The pool forks, as any package's may: whoever begins as one that runs owns that one's cells too.
"""

from __future__ import annotations

import json

import pytest
from environment import write_package

SHARING = """
from musebench.pools.geometric import GeometricPool


class ForkingPool(GeometricPool):
    name = "forking"
    Counted = None

    def __init__(self, options, bounds, storage):
        super().__init__(options, bounds, storage)
        self.running = {}

    def forget(self):
        self.running.clear()

    def held(self, sequence, most):
        return self._best(sequence, most)[0]

    def adopt(self, sequence, most):
        count, source = self._best(sequence, most)
        if count:
            self.fork(source, sequence.slot, count)
        return count

    def reserve(self, plan):
        cells = super().reserve(plan)
        self.running.update((one.slot, one) for one in plan.sequences())
        return cells

    def release(self, slot):
        super().release(slot)
        self.running.pop(slot, None)

    def _best(self, sequence, most):
        found = [(self._common(one, sequence, most), slot) for slot, one in self.running.items()]
        return max(found, default=(0, 0))

    def _common(self, one, other, most):
        pairs = zip(one.request.prompt, other.request.prompt)
        same = next((at for at, (left, right) in enumerate(pairs) if left != right), len(one.request.prompt))
        return min(same, one.computed, len(other.request.prompt), most)


@hookimpl
def register_pools(register):
    register("forking", ForkingPool, options=GeometricPool.Options, summary="forks whoever begins alike")
"""

PREFIX = list(range(3, 43))
WORKLOAD = {
    "prompts": [
        {"id": "short", "tokens": [*PREFIX, 50], "max_new_tokens": 3, "ignore_eos": True},
        {"id": "long", "tokens": [*PREFIX, 60, 61], "max_new_tokens": 24, "ignore_eos": True},
    ],
    "defaults": {"token_budget": 41, "max_sessions": 2},
}
"""The first prompt fills the first step, so that the second is admitted beside it, while it decodes."""

RUN = """
import json, sys
from musebench.plugin.registry import Registry
from musebench.run import RunOptions, run
made = run(RunOptions(sys.argv[1], pool=sys.argv[2]), Registry.installed()).runs[0]
requests = made.requests
print(json.dumps({
    "tokens": list(requests.token_ids),
    "made": list(requests.generated_tokens),
    "finished": list(requests.finish_seconds),
    "reused": list(requests.reused_tokens or ()),
    "in_use": list(made.steps.in_use),
}))
"""


@pytest.fixture(scope="module")
def served(install, tmp_path_factory):
    """By pool: what a run of the workload made."""
    folder = tmp_path_factory.mktemp("sharing")
    environment = install(write_package(folder, "forking-package", SHARING))
    path = folder / "two.yaml"
    path.write_text(json.dumps(WORKLOAD))
    return {
        pool: json.loads(environment.run("-c", RUN, str(path), pool).stdout)
        for pool in ("forking", "geometric")
    }


def test_17_a_shared_prefix_outlives_the_sequence_that_computed_it(served):
    shared, apart = served["forking"], served["geometric"]
    assert shared["reused"] == [0, len(PREFIX)]
    assert not any(apart["reused"])
    short, long = shared["finished"]
    assert short < long
    assert shared["made"] == apart["made"] == [3, 24]
    assert shared["tokens"] == apart["tokens"]


def test_17_the_prefix_takes_its_cells_once_and_keeps_them_for_who_is_left(served):
    shared, apart = served["forking"]["in_use"], served["geometric"]["in_use"]
    # One more of the first, which decodes, and two of the second beside the prefix that the first computed.
    assert shared[:2] == [41, 41 + 1 + 2]
    assert max(apart) == (41 + 2) + 42
    # The last that runs holds all its tokens but the newest, whoever computed them.
    assert shared[-1] == apart[-1] == len(PREFIX) + 2 + 23
