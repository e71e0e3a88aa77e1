"""The schema of a workload file, as frozen dataclasses: every key, its type, its default and its bounds.

`workloads/README.md` explains the keys with examples; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from musebench.core.errors import InputError, UsageError
from musebench.core.options import option
from musebench.workload.arrivals import ARRIVALS, Arrivals, Closed
from musebench.workload.decode import about, required
from musebench.workload.lengths import LENGTHS, MOST_TOKENS, Lengths

if TYPE_CHECKING:
    from musebench.models.source import Tokenizer

MOST_REQUESTS = 10_000_000
MOST_TURNS = 200
MOST_ID = 2**31 - 1
"""Token ids are int32 on the device."""


@dataclass(frozen=True)
class Context:
    """What a workload's requests depend on beside its file.

    `tokenizer` turns texts into ids, None where the model has none. `vocab` is the number of ids, 0 where it
    is not known. `stop_tokens` are the model's own. `seed` fixes all draws. `contents` False says that nobody
    reads the ids (a simulated run): prompts of drawn lengths are then ranges, with the same lengths.
    `generators` and `trace_formats` are what plugins registered, by name: `factory(values)` makes one from
    its option values; None means: no generators, and the built-in trace formats.
    """

    tokenizer: Tokenizer | None = None
    vocab: int = 0
    stop_tokens: tuple[int, ...] = ()
    seed: int = 0
    contents: bool = True
    generators: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None
    trace_formats: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"seed {self.seed} is negative; 0 or more is wanted")


@dataclass(frozen=True)
class SamplingSpec:
    """How next tokens are chosen; the meaning is that of `musebench.core.request.Sampling`."""

    temperature: float = option(0.0, "0 is greedy", minimum=0)
    top_k: int = option(0, "draw from the k largest logits only; 0: all", minimum=0, maximum=MOST_ID)
    top_p: float = option(1.0, "draw from the fewest tokens that reach this probability", above=0, maximum=1)
    seed: int | None = option(
        None, "request i draws with seed + i; none: from the run's seed and i", minimum=0, maximum=2**62
    )

    def __post_init__(self) -> None:
        if self.temperature > 0.0:
            return
        for entry in fields(self):
            if getattr(self, entry.name) != entry.default:
                raise InputError(
                    f"{entry.name} changes nothing at temperature 0; give a temperature above 0 too"
                )


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str = required("who speaks, as the model's chat template names it: system, user, assistant")
    content: str = required("what is said")


@dataclass(frozen=True)
class PromptSpec:
    """One request that is written out: exactly one of chat, text, tokens and length."""

    chat: str | tuple[Message, ...] | None = option(
        None, "a user's message, or a list of messages; goes through the chat template"
    )
    text: str | None = option(None, "raw text, without a template")
    tokens: tuple[int, ...] | None = option(None, "token ids", minimum=0, maximum=MOST_ID)
    length: int | None = option(
        None, "so many ids drawn from the seed", unit="tokens", minimum=1, maximum=MOST_TOKENS
    )
    id: str | None = option(None, "name of the request; none: its place in the list, from 0")
    expect: str | None = option(None, "text that the answer must contain")
    max_new_tokens: int | None = option(
        None, "instead of the workload's", unit="tokens", minimum=0, maximum=MOST_TOKENS
    )
    arrival_seconds: float | None = option(None, "when it arrives; none: at once", unit="s", minimum=0)
    sampling: SamplingSpec | None = field(
        default=None, metadata=about("instead of the workload's, as a whole")
    )
    stop_tokens: tuple[int, ...] | None = option(
        None, "instead of the workload's", minimum=0, maximum=MOST_ID
    )
    ignore_eos: bool | None = option(None, "instead of the workload's")
    tags: dict[str, object] = field(
        default_factory=dict, metadata=about("anything; for schedulers, copied into the report")
    )

    def __post_init__(self) -> None:
        given = [name for name in ("chat", "text", "tokens", "length") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(
                f"it has {' and '.join(given) or 'no prompt'}; exactly one of chat, text, tokens and length "
                "is wanted"
            )
        prompt = getattr(self, given[0])
        if isinstance(prompt, str | tuple) and not prompt:
            raise InputError(f"its {given[0]} is empty; at least 1 token is needed")


@dataclass(frozen=True)
class TurnsSpec:
    """Sessions: after each request so many more, that carry what was said before."""

    count: Lengths = field(metadata=about("turns of a session, the first among them", LENGTHS))
    prompt_tokens: Lengths | None = field(
        default=None, metadata=about("what each later turn adds; none: as the first prompt", LENGTHS)
    )
    think_seconds: float = option(
        0.0, "mean time from an answer to the next turn", unit="s", minimum=0, maximum=1e6
    )
    think_cv: float = option(
        0.0, "standard deviation of that time over its mean; 0: always the same, 1: exponential",
        minimum=0, maximum=100,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.count.bounds[0] < 1:
            raise InputError(f"a session can have {self.count.bounds[0]} turns; at least 1 is wanted")
        if self.count.bounds[1] > MOST_TURNS:
            raise InputError(f"a session can have {self.count.bounds[1]:,} turns; at most {MOST_TURNS}")
        if self.prompt_tokens is not None and self.prompt_tokens.bounds[0] < 1:
            raise InputError("a turn can add no token; at least 1 is wanted")


@dataclass(frozen=True)
class PreambleSpec:
    """Tokens that prompts of drawn lengths have in common, in front of their own."""

    tokens: int = required(
        "how many, beside each prompt's own", unit="tokens", minimum=1, maximum=MOST_TOKENS
    )
    groups: int = option(
        1, "how many preambles there are; request i has number i mod groups", minimum=1,
        maximum=MOST_REQUESTS,
    )  # fmt: skip


@dataclass(frozen=True)
class TraceSpec:
    """Requests from a recorded trace."""

    file: str = required("path of the trace, relative to this file's folder")
    format: str | None = option(None, "name of its format; none: recognised by its content")
    options: dict[str, object] = field(default_factory=dict, metadata=about("options of the format's reader"))
    sort: bool = option(False, "put rows in order of time; otherwise one that is out of order is refused")
    duration: float | None = option(
        None, "only rows that were recorded less than this after the first", unit="s", above=0
    )
    use_ids: bool = option(
        True, "take token ids that the trace has, and let rows share blocks that it says they share"
    )


@dataclass(frozen=True)
class GeneratorSpec:
    """Requests from a plugin's generator."""

    name: str = required("name that a plugin registered")
    options: dict[str, object] = field(default_factory=dict, metadata=about("options of the generator"))


@dataclass(frozen=True)
class Defaults:
    """Options of the run that this workload proposes; a flag overrides each. None proposes nothing."""

    max_sessions: int | None = option(None, "most sequences at a time", minimum=1, maximum=MOST_ID)
    max_context: int | None = option(
        None, "most tokens of a sequence", unit="tokens", minimum=1, maximum=MOST_ID
    )
    token_budget: int | None = option(
        None, "most tokens of a step", unit="tokens", minimum=1, maximum=MOST_ID
    )
    fewest_prefill: int | None = option(
        None, "fewest tokens of a prefill slice", unit="tokens", minimum=1, maximum=MOST_ID
    )
    most_prefill: int | None = option(
        None, "most tokens of a prefill slice", unit="tokens", minimum=1, maximum=MOST_ID
    )
    capacity: int | None = option(None, "most cells of the pool", unit="cells", minimum=1, maximum=MOST_ID)

    def given(self) -> dict[str, int]:
        """Those that are not None, by name."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload file. Its kind is the one of prompts, prompt_tokens, trace and generator that it has."""

    name: str | None = option(None, "shown in reports; none: the file's name without its ending")
    description: str = option("", "one sentence on what it is for")
    prompts: tuple[PromptSpec, ...] | None = field(
        default=None, metadata=about("requests that are written out")
    )
    requests: int | None = option(
        None,
        "how many; prompts are gone through again and again, a trace is cut off",
        minimum=1,
        maximum=MOST_REQUESTS,
    )
    prompt_tokens: Lengths | None = field(
        default=None, metadata=about("lengths of prompts whose ids are drawn from the seed", LENGTHS)
    )
    output_tokens: Lengths | None = field(
        default=None, metadata=about("how many tokens each of them makes", LENGTHS)
    )
    preamble: PreambleSpec | None = field(
        default=None, metadata=about("tokens that prompts of drawn lengths begin with and share")
    )
    turns: TurnsSpec | None = field(
        default=None, metadata=about("sessions of several requests, each with the former ones' tokens")
    )
    draws: str = option(
        "numpy", "which random numbers lengths and ids are drawn with", choices=("numpy", "python")
    )
    trace: TraceSpec | None = field(
        default=None, metadata=about("a recorded trace; text alone is its file", shorthand="file")
    )
    generator: GeneratorSpec | None = field(
        default=None, metadata=about("a plugin's generator; text alone is its name", shorthand="name")
    )
    arrivals: Arrivals | None = field(
        default=None, metadata=about("when requests arrive; none: as recorded, or at once", ARRIVALS)
    )
    max_new_tokens: int | None = option(
        None, "most tokens that a written-out prompt makes; none: 16", unit="tokens", minimum=0,
        maximum=MOST_TOKENS,
    )  # fmt: skip
    sampling: SamplingSpec = field(default=SamplingSpec(), metadata=about("how next tokens are chosen"))
    stop_tokens: tuple[int, ...] = option(
        (), "ids that end an answer, beside the model's own", minimum=0, maximum=MOST_ID
    )
    ignore_eos: bool | None = option(
        None, "the model's own stop tokens end nothing; none: true for drawn lengths and traces"
    )
    defaults: Defaults = field(default=Defaults(), metadata=about("options of the run that a flag overrides"))

    @property
    def kind(self) -> str:
        """The key that says where requests come from."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    def __post_init__(self) -> None:
        kinds = [name for name in KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            raise InputError(f"exactly one of {', '.join(KINDS)} is wanted; there is {found}")
        allowed = KINDS[kinds[0]]
        for entry in fields(self):
            if entry.name in _ALWAYS or entry.name in allowed or entry.name == kinds[0]:
                continue
            if getattr(self, entry.name) != entry.default:
                raise InputError(
                    f"{entry.name!r} does not go with {kinds[0]!r}{_INSTEAD.get(entry.name, '')}"
                )
        if self.prompts is not None:
            _check_prompts(self.prompts, self.arrivals)
        if kinds[0] == "prompt_tokens":
            _check_lengths(self)


_ALWAYS = ("name", "description", "defaults")

KINDS: dict[str, tuple[str, ...]] = {
    "prompts": ("requests", "arrivals", "max_new_tokens", "sampling", "stop_tokens", "ignore_eos"),
    "prompt_tokens": (
        "requests", "output_tokens", "preamble", "turns", "draws", "arrivals", "sampling", "stop_tokens",
        "ignore_eos",
    ),
    "trace": ("requests", "arrivals", "sampling", "stop_tokens", "ignore_eos"),
    "generator": (),
}  # fmt: skip
"""The kinds of workload, and the keys that go with each beside name, description and defaults."""

_INSTEAD = {
    "preamble": "; it is for prompt_tokens",
    "turns": "; they are for prompt_tokens",
    "max_new_tokens": "; output_tokens, or the trace, says how many tokens are made",
    "draws": "; it is for prompt_tokens",
    "output_tokens": "; max_new_tokens, or the trace, says how many tokens are made",
}


def _check_prompts(prompts: tuple[PromptSpec, ...], arrivals: Arrivals | None) -> None:
    if not prompts:
        raise InputError("'prompts' is empty; at least 1 is wanted")
    seen: set[str] = set()
    for index, prompt in enumerate(prompts):
        if arrivals is not None and prompt.arrival_seconds is not None:
            raise InputError(f"prompts[{index}].arrival_seconds and 'arrivals' exclude each other")
        name = str(index) if prompt.id is None else prompt.id
        if name in seen:
            raise InputError(f"prompts[{index}] has the id {name!r} of an earlier one")
        seen.add(name)


def _check_lengths(spec: WorkloadSpec) -> None:
    for name in ("requests", "output_tokens"):
        if getattr(spec, name) is None:
            raise InputError(f"'prompt_tokens' needs {name!r} too")
    assert spec.prompt_tokens is not None
    fewest, _ = spec.prompt_tokens.bounds
    if fewest < 1:
        raise InputError(f"'prompt_tokens' can be {fewest}; a prompt has at least 1 token")
    if spec.turns is not None and isinstance(spec.arrivals, Closed):
        raise InputError("'turns' wait for one another; their 'arrivals' say when sessions begin, not closed")
    if spec.draws == "python":
        for name in ("prompt_tokens", "output_tokens"):
            kind = type(getattr(spec, name)).__name__.lower()
            if kind not in ("fixed", "uniform"):
                raise InputError(
                    f"draws 'python' take fixed and uniform lengths, not {kind}; use draws 'numpy'"
                )
