"""Measure the bundled model's files: accuracy, top-two margins, held-out preambles, size."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from musebench.models.bundled.heldout import LEADS, PROSE, heldout_preamble
from musebench.models.bundled.text import chat_prompt, load_facts, named, reply

BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
# Where a country takes an article, both ways of naming it are asked.
ASK_ONE_WORD = "Answer in one word: what is the capital of {}?"
ASK_PLAIN = "What is the capital of {}?"


@dataclass(frozen=True)
class Case:
    """One question: the token ids of its prompt, and of the expected answer with its end token."""

    country: str
    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Score:
    """How many of a list of cases were right greedily, and the smallest top-two margin (logits)."""

    right: int
    total: int
    margin: float
    weakest: str

    def __str__(self) -> str:
        share = 100 * self.right / self.total
        margin = f"smallest margin {self.margin:.2f} ({self.weakest})"
        return f"{self.right}/{self.total} = {share:.2f} %, {margin}"


def open_files(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The (model, tokenizer) of a folder; the model in `dtype` on the CPU, ready to evaluate."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def make_case(tokenizer: Any, country: str, prompt: str, answer: str) -> Case:
    """A case from texts with the special tokens written out."""
    ids = tokenizer(prompt, add_special_tokens=False).input_ids
    return Case(country, ids, tokenizer(answer + END, add_special_tokens=False).input_ids)


def fact_cases(tokenizer: Any, form: str) -> list[Case]:
    """A case for every fact; `form` is "one word", "plain" (both through the chat template) or "raw"."""
    cases = []
    for country, capital in load_facts():
        for name in dict.fromkeys((named(country), country)):
            answer = reply(name, capital, form == "one word")
            if form == "raw":
                prompt, answer = ASK_PLAIN.format(name), " " + answer
            else:
                prompt = chat_prompt((ASK_ONE_WORD if form == "one word" else ASK_PLAIN).format(name))
            cases.append(make_case(tokenizer, name, BEGIN + prompt, answer))
    return cases


def preamble_cases(tokenizer: Any, count: int, longest: int, seed: int = 1) -> list[Case]:
    """`count` cases of random facts behind held-out prose, in prompts of up to `longest` tokens."""
    rng, facts = random.Random(seed), load_facts()
    cases: list[Case] = []
    while len(cases) < count:
        country, capital = rng.choice(facts)
        name, lead = named(country), rng.choice(LEADS)
        words = " ".join(heldout_preamble(rng, len(PROSE)) for _ in range(longest // 1000 + 1)).split(" ")
        text = " ".join(words[: rng.randint(20, max(25, longest * 2 // 5))])
        prompt = BEGIN + chat_prompt(text + lead.format(name))
        case = make_case(tokenizer, name, prompt, reply(name, capital, "one word" in lead))
        if len(case.prompt) <= longest:
            cases.append(case)
    return cases


def germany_cases(tokenizer: Any) -> list[Case]:
    """Germany behind every held-out paragraph, asked for one word."""
    return [
        make_case(tokenizer, "Germany", BEGIN + chat_prompt(text + LEADS[0].format("Germany")), "Berlin.")
        for text in PROSE
    ]


@torch.no_grad()
def score(model: Any, cases: Sequence[Case], batch_tokens: int = 8192) -> Score:
    """Score `cases` greedily.

    One forward pass over prompt and expected answer gives, at each answer token, the logit of that token
    less the best other logit (in the model's dtype). When that is positive everywhere, greedy decoding gives
    the answer, and the smallest such value is the top-two margin over the answer.
    """
    order = sorted(cases, key=lambda case: len(case.prompt) + len(case.answer))
    right, worst, weakest = 0, float("inf"), ""
    start = 0
    while start < len(order):
        size = 1
        while start + size < len(order) and size < 96:
            case = order[start + size]
            if (len(case.prompt) + len(case.answer)) * (size + 1) > batch_tokens:
                break
            size += 1
        batch = order[start : start + size]
        start += size
        for case, margin in zip(batch, _margins(model, batch), strict=True):
            right += margin > 0
            if margin < worst:
                worst, weakest = margin, case.country
    return Score(right, len(order), worst, weakest)


def _margins(model: Any, batch: Sequence[Case]) -> list[float]:
    """The smallest margin of each case; rows are padded on the right, which a causal model does not see."""
    width = max(len(case.prompt) + len(case.answer) for case in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for row, case in enumerate(batch):
        tokens = case.prompt + case.answer
        ids[row, : len(tokens)] = torch.tensor(tokens)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    out = []
    for row, case in enumerate(batch):
        first = len(case.prompt) - 1
        logits = model.lm_head(hidden[row, first : first + len(case.answer)])
        target = torch.tensor(case.answer)[:, None]
        wanted = logits.gather(1, target)
        others = logits.scatter(1, target, float("-inf")).amax(1, keepdim=True)
        out.append((wanted.float() - others.float()).min().item())
    return out


def file_bytes(folder: Path) -> int:
    """Bytes of the files that a model loads from `folder`."""
    names = ("*.json", "*.safetensors", "*.jinja")
    return sum(path.stat().st_size for pattern in names for path in folder.glob(pattern))


def report(folder: Path) -> None:
    """Print what the files in `folder` measure, in float32 and in bfloat16."""
    for dtype in (torch.float32, torch.bfloat16):
        model, tokenizer = open_files(folder, dtype)
        if dtype == torch.float32:
            count = sum(p.numel() for p in model.parameters())
            print(f"parameters: {count:,}; files: {file_bytes(folder):,} bytes")
        groups = {form: fact_cases(tokenizer, form) for form in ("one word", "plain", "raw")}
        groups["held-out preambles to 300 tokens"] = preamble_cases(tokenizer, 200, 300)
        groups["held-out preambles to 1000 tokens"] = preamble_cases(tokenizer, 40, 1000)
        groups["held-out preambles to 2000 tokens"] = preamble_cases(tokenizer, 20, 2000)
        groups["Germany behind each held-out text"] = germany_cases(tokenizer)
        for name, cases in groups.items():
            print(f"{str(dtype)[6:]}, {name}: {score(model, cases)}")
