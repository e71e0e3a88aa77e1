"""The one op: write this step's keys and values into their cells, attend over each token's own sequence.

    update_and_attend(query [T, Hq, D], key [T, Hk, D], value [T, Hk, Dv],
                      key_rows [rows, Hk, D] (written), value_rows [rows, Hk, Dv] (written),
                      cells [T] int32, positions [T] int32, slots [T] int32,
                      starts [S + 1] int32, sequence_slots [S] int32, table [slots + 1, width] int32,
                      scale, window, softcap, sinks, decode, cos [T, D], sin [T, D]) -> [T, Hq, Dv]

Row `cells[t]` takes the key and value of token t. Then token t attends to the rows `table[slots[t], p]` for
p in 0..`positions[t]`, within the window. `starts` and `sequence_slots` say the same by sequence: tokens
`starts[s]`..`starts[s + 1]` - 1 belong to slot `sequence_slots[s]`. Query head h reads KV head
h // (Hq // Hk).

`scale` multiplies the products; `window` 0 means none, else a key is attended to when query position - key
position < window; `softcap` 0 means none, else logits = softcap x tanh(logits / softcap); `sinks` [Hq] is one
more logit a head in the denominator of the softmax, without a value; `decode` says that every sequence has
exactly one token. With `cos` and `sin` (None: not) query and key are rotated by halves first: (x1, x2)
becomes (x1, x2) cos + (-x2, x1) sin, in float32 and rounded once; the row takes the rotated key. A token with
cell 0 is padding: it writes the scratch row, attends to nothing and gets zeros. What is not attended to is
not loaded: a NaN in scratch reaches nobody.

Two operators carry it, with one schema. `musebench::update_and_attend` runs the reference on a CPU and the
Triton kernels on CUDA; `musebench::update_and_attend_reference` runs the reference everywhere. Both are
opaque to torch.compile and torch.export. They are defined with `torch.library.Library` rather than
`custom_op`, whose Python wrapper costs five times as much a call, once a layer and step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from musebench.kernels import reference

_SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, Tensor(a!) key_rows, Tensor(b!) value_rows, Tensor cells, "
    "Tensor positions, Tensor slots, Tensor starts, Tensor sequence_slots, Tensor table, float scale, "
    "int window, float softcap, Tensor? sinks, bool decode, Tensor? cos=None, Tensor? sin=None) -> Tensor"
)

_library = torch.library.Library("musebench", "DEF")


@cache
def _triton_kernels() -> Callable[..., Tensor]:
    from musebench.kernels.triton_attend import update_and_attend

    return update_and_attend


def _on_cuda(*arguments: Any) -> Tensor:
    return _triton_kernels()(*arguments)


def _shape_only(
    query: Tensor, key: Tensor, value: Tensor, key_rows: Tensor, value_rows: Tensor, *_: Any
) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[1], value_rows.shape[2])


for _name, _cuda in (
    ("update_and_attend", _on_cuda),
    ("update_and_attend_reference", reference.update_and_attend),
):
    _library.define(_name + _SCHEMA)
    _library.impl(_name, reference.update_and_attend, "CPU")
    _library.impl(_name, _cuda, "CUDA")
    torch.library.register_fake(f"musebench::{_name}", _shape_only, lib=_library)

OPERATORS: dict[str, Any] = {
    "triton": torch.ops.musebench.update_and_attend.default,
    "reference": torch.ops.musebench.update_and_attend_reference.default,
}
"""By the name of the kernels that run on CUDA; on a CPU both run the reference."""
