"""Every architecture can be traced within its bounds, and then reads all of its weights."""

from __future__ import annotations

import pytest
from tiny_models import ARCHITECTURES, tiny_module

from musebench.backends.exported_call import PREFIX
from musebench.backends.exported_check import OPERATOR
from musebench.backends.packed import pack_projections
from musebench.backends.probe import probe
from musebench.export.bounds import Bounds
from musebench.export.compiling import wanted_names
from musebench.export.traced import trace
from musebench.kernels.op import OPERATORS


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_prefill_is_traced_with_its_bounds_and_all_weights(name):
    module = tiny_module(name).requires_grad_(False)
    layers = probe(module)
    pack_projections(module)
    prefill = Bounds(fewest=5, most=64, most_sequences=8).methods()[-1]
    program = trace(module, layers, prefill, OPERATOR)
    sizes = [one for one in program.range_constraints.values() if one.upper < 1000]
    ranges = {(int(one.lower), int(one.upper)) for one in sizes}
    assert {(5, 64), (2, 8)} <= ranges
    known = {PREFIX + own for own, _ in module.named_parameters(remove_duplicate=False)}
    read = set(wanted_names(program))
    tied = {PREFIX + "model.embed_tokens.weight", PREFIX + "lm_head.weight"}
    assert known - tied <= read
    assert read & tied
    attending = [node for node in program.graph.nodes if node.target is OPERATORS[OPERATOR]]
    assert len(attending) == len(layers), "the op stays whole: its rows are written in place"
