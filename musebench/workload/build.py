"""From a workload's spec to requests: one builder for each kind of workload."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from musebench.core.answers import answered
from musebench.core.blame import told
from musebench.core.errors import InputError, MusebenchError, UsageError
from musebench.core.options import nearest
from musebench.core.request import Prefix, Request, Sampling
from musebench.workload.arrivals import Arrivals, AtOnce, Recorded
from musebench.workload.draws import DRAWS, check_drawn, contents, generator
from musebench.workload.spec import Context, PreambleSpec, PromptSpec, SamplingSpec, WorkloadSpec
from musebench.workload.traced import prefix_of, prompt_of
from musebench.workload.traces import read_trace
from musebench.workload.turns import sessions

DEFAULT_MAX_NEW_TOKENS = 16


@dataclass(frozen=True)
class Built:
    """Requests in order of arrival, and what a reader should know about them (rows left out, say)."""

    requests: list[Request]
    notes: tuple[str, ...] = ()


def build(spec: WorkloadSpec, context: Context, folder: Path, label: str) -> Built:
    """Make the requests of a workload; `folder` is where relative paths start, `label` starts errors
    ("": they name the file themselves).

    Raises:
        InputError: the workload or its trace cannot be used with this model.
        UsageError: a tokenizer, vocabulary or plugin is missing.
    """
    try:
        made = _BUILDERS[spec.kind](spec, context, folder)
    except MusebenchError as error:
        raise type(error)(f"{label}: {error}" if label else str(error)) from error
    _require_own_ids(made.requests, label)
    # stable: requests of one time keep the file's order
    return Built(sorted(made.requests, key=lambda request: request.arrival_seconds), made.notes)


def _require_own_ids(requests: list[Request], label: str) -> None:
    """No two may have one id; what a plugin made them of may not know that."""
    if len({request.id for request in requests}) < len(requests):
        twice = next(name for name, count in Counter(one.id for one in requests).items() if count > 1)
        raise InputError(f"{label}{': ' if label else ''}two requests have the id {twice!r}")


def _from_prompts(spec: WorkloadSpec, context: Context, folder: Path) -> Built:
    assert spec.prompts is not None
    count = len(spec.prompts) if spec.requests is None else spec.requests
    times = _times(spec.arrivals, AtOnce(), count, context.seed, None)
    encoded = [_encode(prompt, index, context) for index, prompt in enumerate(spec.prompts)]
    made = []
    for index in range(count):
        round_, place = divmod(index, len(spec.prompts))
        prompt = spec.prompts[place]
        name = str(place) if prompt.id is None else prompt.id
        most = prompt.max_new_tokens if prompt.max_new_tokens is not None else spec.max_new_tokens
        arrival = prompt.arrival_seconds
        made.append(
            Request(
                id=name if round_ == 0 else f"{name}.{round_}",
                prompt=encoded[place],
                max_new_tokens=DEFAULT_MAX_NEW_TOKENS if most is None else most,
                stop_tokens=_stops(spec, context, prompt),
                sampling=_sampling(prompt.sampling or spec.sampling, index, context.seed),
                arrival_seconds=float(times[index]) if arrival is None else arrival,
                expect=prompt.expect,
                tags=dict(prompt.tags),
                prefix=None if prompt.length is None else Prefix((place,), prompt.length),
                said=_said(prompt),
            )
        )
    names = {request.id for request in made}
    if len(names) < len(made):
        raise InputError("ids of repeated prompts (name.1, name.2, ...) meet other ids; rename those")
    return Built(made)


def _said(prompt: PromptSpec) -> str | tuple[tuple[str, str], ...] | None:
    if isinstance(prompt.chat, str):
        return (("user", prompt.chat),)
    if prompt.chat is not None:
        return tuple((turn.role, turn.content) for turn in prompt.chat)
    return prompt.text


def _encode(prompt: PromptSpec, index: int, context: Context) -> Ordered[int]:
    if prompt.tokens is not None:
        for token in prompt.tokens:
            check_id(token, context, f"prompts[{index}].tokens")
        return prompt.tokens
    if prompt.length is not None:
        if not context.contents:
            return range(prompt.length)
        check_drawn(prompt.length)
        drawn = generator(context.seed, "contents", index).integers(
            0, vocab(context), prompt.length, np.int32
        )
        return contents(drawn)
    if context.tokenizer is None:
        raise UsageError(
            "its prompts are text, and this model has no tokenizer; use the workload 'mixed', whose prompts "
            "are drawn token ids, or a model with a tokenizer"
        )
    if isinstance(prompt.chat, str):
        return tuple(context.tokenizer.encode_chat([{"role": "user", "content": prompt.chat}]))
    if prompt.chat is not None:
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.chat]
        return tuple(context.tokenizer.encode_chat(turns))
    assert prompt.text is not None
    return tuple(context.tokenizer.encode(prompt.text))


def _from_lengths(spec: WorkloadSpec, context: Context, folder: Path) -> Built:
    assert spec.prompt_tokens is not None
    assert spec.output_tokens is not None
    assert spec.requests is not None
    draws = DRAWS[spec.draws](context.seed)
    # Python's draws take the vocabulary's size even when nobody reads the ids: the lengths come after them
    size = vocab(context) if context.contents or spec.draws == "python" else 0
    prompts, outputs = draws.requests(
        spec.requests, spec.prompt_tokens, spec.output_tokens, size, context.contents
    )
    times = _times(spec.arrivals, AtOnce(), spec.requests, context.seed, None).tolist()
    stops = _stops(spec, context)
    made = [
        Request(str(index), prompt, most, stops, _sampling(spec.sampling, index, context.seed), arrival)
        for index, (prompt, most, arrival) in enumerate(zip(prompts, outputs, times, strict=True))
    ]
    if spec.preamble is not None:
        made = _behind(spec.preamble, made, context)
    if spec.turns is not None:
        read = vocab(context) if context.contents else 0
        made = sessions(spec.turns, made, spec.prompt_tokens, spec.output_tokens, context.seed, read)
    return Built(made)


def _behind(preamble: PreambleSpec, requests: list[Request], context: Context) -> list[Request]:
    """The requests, each with the preamble of its group in front of its prompt."""
    tokens = preamble.tokens
    if not context.contents:
        return [
            replace(
                request,
                prompt=range(tokens + len(request.prompt)),
                prefix=Prefix((index % preamble.groups,), tokens),
            )
            for index, request in enumerate(requests)
        ]
    groups = min(preamble.groups, len(requests))
    check_drawn(groups * tokens + sum(tokens + len(request.prompt) for request in requests))
    drawn = [
        contents(generator(context.seed, "preambles", group).integers(0, vocab(context), tokens, np.int32))
        for group in range(groups)
    ]
    return [
        replace(request, prompt=drawn[index % groups] + array("i", request.prompt))
        for index, request in enumerate(requests)
    ]


def _from_trace(spec: WorkloadSpec, context: Context, folder: Path) -> Built:
    assert spec.trace is not None
    trace = read_trace(
        folder / spec.trace.file,
        format=spec.trace.format,
        options=spec.trace.options,
        sort=spec.trace.sort,
        most_rows=spec.requests,
        duration_seconds=spec.trace.duration,
        formats=context.trace_formats,
    )
    if not trace.rows:
        raise InputError(f"{trace.path} has no row to make a request of")
    recorded = None
    if all(row.arrival_seconds is not None for row in trace.rows):
        recorded = np.array([row.arrival_seconds for row in trace.rows], np.float64)
    usual: Arrivals = AtOnce() if recorded is None else Recorded()
    times = _times(spec.arrivals, usual, len(trace.rows), context.seed, recorded).tolist()
    stops = _stops(spec, context)
    if context.contents:
        check_drawn(sum(row.prompt_tokens for row in trace.rows))
    prompts = prompt_of(trace, context, spec.trace.use_ids, vocab(context) if context.contents else 0)
    made = [
        Request(
            f"row-{row.row}",
            prompts(row),
            row.output_tokens,
            stops,
            _sampling(spec.sampling, index, context.seed),
            times[index],
            tags={"row": row.row, **row.tags},
            prefix=prefix_of(row) if spec.trace.use_ids else None,
        )
        for index, row in enumerate(trace.rows)
    ]
    return Built(made, trace.notes())


def _from_generator(spec: WorkloadSpec, context: Context, folder: Path) -> Built:
    assert spec.generator is not None
    known = context.generators or {}
    name = spec.generator.name
    if name not in known:
        raise UsageError(f"there is no generator {name!r}; {nearest(name, known)}")
    generator = None
    try:
        generator = known[name](spec.generator.options)
        made = [answered(one, Request, generator, "requests") for one in generator.requests(context)]
    except MusebenchError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's fault is named, not shown as ours
        raise InputError(f"generator {name!r} failed: {told(error, generator)}") from error
    if not made:
        raise InputError(f"generator {name!r} made no request")
    return Built(made)


_BUILDERS: dict[str, Callable[[WorkloadSpec, Context, Path], Built]] = {
    "prompts": _from_prompts,
    "prompt_tokens": _from_lengths,
    "trace": _from_trace,
    "generator": _from_generator,
}


def vocab(context: Context) -> int:
    """The number of token ids, which drawing them needs."""
    if context.vocab < 1:
        raise UsageError("token ids are drawn below the size of the model's vocabulary, which is not known")
    return context.vocab


def check_id(token: int, context: Context, where: str) -> None:
    """Raise InputError when the model has no such token; an unknown vocabulary has all."""
    if context.vocab and token >= context.vocab:
        raise InputError(
            f"{where} has the id {token:,}; the model's vocabulary has {context.vocab:,} (0 to "
            f"{context.vocab - 1:,})"
        )


def _stops(spec: WorkloadSpec, context: Context, prompt: PromptSpec | None = None) -> tuple[int, ...]:
    own = spec.stop_tokens if prompt is None or prompt.stop_tokens is None else prompt.stop_tokens
    ignore = spec.ignore_eos if prompt is None or prompt.ignore_eos is None else prompt.ignore_eos
    if ignore is None:
        ignore = spec.kind != "prompts"
    for token in own:
        check_id(token, context, "stop_tokens")
    return tuple(dict.fromkeys(own if ignore else (*own, *context.stop_tokens)))


def _sampling(spec: SamplingSpec, index: int, seed: int) -> Sampling:
    if spec.temperature == 0.0:
        return _GREEDY
    if spec.seed is not None:
        own = spec.seed + index
    else:
        own = int(generator(seed, "sampling", index).integers(0, 2**63, dtype=np.uint64))
    return Sampling(spec.temperature, spec.top_k, spec.top_p, own)


_GREEDY = Sampling()


def _times(
    arrivals: Arrivals | None, usual: Arrivals, count: int, seed: int, recorded: np.ndarray | None
) -> np.ndarray:
    return (arrivals or usual).times(count, generator(seed, "arrivals"), recorded)
