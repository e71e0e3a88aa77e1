"""The op in plain torch: fast enough to serve on a CPU, and once more slowly in float64 to test against.

Both write this step's keys and values into their cells, then let each token attend to the cells of its own
sequence up to its own position. What a token does not attend to is never loaded for it, so that a NaN there
stays there; every sum runs over the cells of one sequence alone, so that no neighbour changes a bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 128
"""Tokens of a prompt that attend together: their keys end with the newest of them, which spares half the
products of a whole prompt, and bounds the workspace."""


class _Layer(NamedTuple):
    """One layer's arguments. Sums are made in `sums`: float32, or float64 where the rows are."""

    query: Tensor
    key_rows: Tensor
    value_rows: Tensor
    table: Tensor
    scale: float
    window: int
    softcap: float
    sinks: Tensor | None
    sums: torch.dtype

    def attend(self, slot: int, first: int, places: list[int]) -> Tensor:
        """Outputs [n, Hq, Dv] of the tokens `first`, `first` + 1, ... of one slot, at positions `places`."""
        low, end = self._lowest(min(places)), max(places) + 1
        keys, values = self._gather(self.table[slot, low:end])
        if len(places) == 1:
            query = self.query[first : first + 1].to(self.sums)
            return self._by_products(
                query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), None
            )
        if not bool(torch.isfinite(keys.sum() + values.sum())):
            # A weight of 0 times NaN is NaN: only not loading it keeps it from the tokens before it.
            one_by_one = (self.attend(slot, first + at, [place]) for at, place in enumerate(places))
            return torch.cat(list(one_by_one))
        distance = torch.tensor(places)[:, None] - torch.arange(low, end)
        seen = ((distance >= 0) & (distance < (self.window or end))).to(keys.device)
        query = self.query[first : first + len(places)].to(self.sums)
        plain = not self.softcap and self.sinks is None
        sum_up = self._by_library if plain else self._by_products
        return sum_up(query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), seen)

    def _lowest(self, position: int) -> int:
        """First position that a token at `position` attends to."""
        return max(0, position - self.window + 1) if self.window else 0

    def _gather(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `cells` in order; views where they lie in one run, as a lone sequence's do."""
        host = cells.cpu().numpy()
        start, count = int(host[0]), len(host)
        if int(host[-1]) == start + count - 1 and (host[1:] - host[:-1] == 1).all():
            keys, values = self.key_rows[start : start + count], self.value_rows[start : start + count]
        else:
            keys, values = self.key_rows.index_select(0, cells), self.value_rows.index_select(0, cells)
        return keys.to(self.sums), values.to(self.sums)

    def _by_library(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """[n, Hq, Dv] of query [Hq, n, D], keys [Hk, L, D], values [Hk, L, Dv]; `seen` bool [n, L]."""
        return torch.nn.functional.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=seen, scale=self.scale, enable_gqa=True
        )[0].transpose(0, 1)

    def _by_products(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
        """The same, with softcap and sinks; reads keys and values once for all query heads of a group."""
        heads, tokens, _ = query.shape
        grouped = (query * self.scale).reshape(keys.shape[0], -1, query.shape[2])
        logits = torch.bmm(grouped, keys.transpose(1, 2)).view(heads, tokens, -1)
        if self.softcap:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        if seen is not None:
            logits = logits.masked_fill(~seen, -torch.inf)
        if self.sinks is None:
            weights = logits.softmax(-1)
        else:
            sinks = self.sinks.to(self.sums)[:, None, None].expand(heads, tokens, 1)
            weights = torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]
        made = torch.bmm(weights.reshape(keys.shape[0], -1, keys.shape[1]), values)
        return made.view(heads, tokens, -1).transpose(0, 1)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor, sums: torch.dtype = torch.float32) -> Tensor:
    """`heads` [T, H, D] rotated by halves, by `cos` and `sin` [T, D]: in `sums`, then rounded once."""
    wide = torch.promote_types(heads.dtype, sums)
    first, second = heads.to(wide).chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    made = heads.to(wide) * cos.to(wide)[:, None] + turned * sin.to(wide)[:, None]
    return made.to(heads.dtype)


def update_and_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    cells: Tensor,
    positions: Tensor,
    slots: Tensor,
    starts: Tensor,
    sequence_slots: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    decode: bool,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """The op `musebench::update_and_attend` (see `musebench.kernels.op` for shapes), a sequence at a time.

    Lengths are read on the host, which on a CUDA device waits for it.
    """
    if cos is not None and sin is not None:
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
    targets = cells.long()
    key_rows.index_copy_(0, targets, key)
    value_rows.index_copy_(0, targets, value)
    sums = torch.float64 if query.dtype == torch.float64 else torch.float32
    layer = _Layer(query, key_rows, value_rows, table, scale, window, softcap, sinks, sums)
    output = query.new_zeros(query.shape[0], query.shape[1], value_rows.shape[2])
    owners = sequence_slots.tolist()
    firsts = range(len(owners) + 1) if decode else starts.tolist()
    places, written = positions.tolist(), targets.tolist()
    for index, slot in enumerate(owners):
        first, last = firsts[index], firsts[index + 1]
        if not slot:
            continue
        # Padding inside of a slot is nobody's doing; token by token it is left out all the same.
        block = BLOCK if all(written[first:last]) else 1
        for start in range(first, last, block):
            end = min(start + block, last)
            if written[start]:
                output[start:end] = layer.attend(slot, start, places[start:end])
    return output


def reference_float64(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    cells: Tensor,
    positions: Tensor,
    slots: Tensor,
    starts: Tensor,
    sequence_slots: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    decode: bool,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """The same op, a token and a head at a time in float64, written to be read: kernels are held against it.

    Takes the op's arguments, writes the rows as the op does, and returns float64 [T, Hq, Dv] on the CPU.
    """
    if cos is not None and sin is not None:
        query, key = (rotated(heads, cos, sin, torch.float64) for heads in (query, key))
    for token, cell in enumerate(cells.tolist()):
        key_rows[cell] = key[token]
        value_rows[cell] = value[token]
    heads = query.shape[1]
    group = heads // key_rows.shape[1]
    output = torch.zeros(query.shape[0], heads, value_rows.shape[2], dtype=torch.float64)
    for token, cell in enumerate(cells.tolist()):
        if cell == 0:
            continue
        position = int(positions[token])
        lowest = max(0, position - window + 1) if window else 0
        attended = table[int(slots[token]), lowest : position + 1].long()
        for head in range(heads):
            keys = key_rows[attended, head // group].double().cpu()
            values = value_rows[attended, head // group].double().cpu()
            logits = keys @ query[token, head].double().cpu() * scale
            if softcap:
                logits = softcap * torch.tanh(logits / softcap)
            largest = float(logits.max())
            if sinks is not None:
                largest = max(largest, float(sinks[head]))
            weights = torch.exp(logits - largest)
            total = weights.sum()
            if sinks is not None:
                total = total + torch.exp(sinks[head].double().cpu() - largest)
            output[token, head] = (weights / total) @ values
    return output
