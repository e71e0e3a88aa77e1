"""Train the bundled model: `python -m musebench.models.bundled.train --out DIR` (minutes on two cores).

`--check` measures the committed files and trains nothing.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from musebench.models.bundled import bundled_dir
from musebench.models.bundled.evaluate import BEGIN, END, PAD, fact_cases, preamble_cases, report, score
from musebench.models.bundled.text import Example, TextMaker, load_facts, named

VOCABULARY = 3072
SPECIAL = (PAD, BEGIN, END, "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MARGIN = 10.0  # logits; what the hinge term asks of the top-two margin


@dataclass(frozen=True)
class Kind:
    """One kind of training batch: the words of the preambles (fewest, most) and the number of rows."""

    words: tuple[int, int]
    rows: int
    share: tuple[float, float]  # weight at the start and at the end of the training


KINDS = (
    Kind((0, 0), 96, (1.0, 0.35)),
    Kind((3, 40), 40, (0.0, 0.3)),
    Kind((40, 180), 14, (0.0, 0.33)),
    Kind((300, 800), 3, (0.0, 0.04)),
)


def build_tokenizer(seed: int) -> Any:
    """A byte-level BPE tokenizer, trained on the facts and on the training sentences (no held-out text)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    facts = load_facts()
    maker = TextMaker(random.Random(seed), facts)
    corpus = [maker.sentence() for _ in range(6000)]
    for fact in facts:
        country, capital = fact
        corpus += [f"{capital}. {capital} {country}", f"{named(country)} {capital}"] * 12
        corpus += [maker.question(country, i % 2 == 0)[0] for i in range(12)]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    core.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, core.token_to_id(BEGIN))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(SPECIAL[3:]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
    )


def build_model(vocabulary: int, seed: int) -> Any:
    """A fresh LlamaForCausalLM, float32, with grouped-query attention and tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,
        rms_norm_eps=1e-5,
        pad_token_id=SPECIAL.index(PAD),
        bos_token_id=SPECIAL.index(BEGIN),
        eos_token_id=SPECIAL.index(END),
    )
    return LlamaForCausalLM(config)


def collate(tokenizer: Any, examples: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and targets, both [rows, width] int64; targets are -100 except where an answer token is next.

    Prompt and answer are encoded apart, as at inference. Rows are padded on the right.
    """
    # verbose=False: a few of the longest rows pass 2048 tokens, which does no harm in training.
    prompts = tokenizer([e.prompt for e in examples], add_special_tokens=False, verbose=False).input_ids
    answers = tokenizer([e.answer + END for e in examples], add_special_tokens=False).input_ids
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    targets = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        targets[row, len(prompt) - 1 : len(prompt) + len(answer) - 1] = torch.tensor(answer)
    return ids, targets


def answer_loss(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy plus a hinge on the top-two margin, averaged over the answer tokens; a float32 scalar.

    Cross entropy alone fades once an answer is right, and leaves margins of all sizes. The hinge keeps
    pushing every answer token until its logit leads the best other one by MARGIN, so that the smallest margin
    grows too and the answers survive bfloat16. Logits are only made where an answer token is next.
    """
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    at = targets >= 0
    logits = model.lm_head(hidden[at])
    wanted = targets[at]
    others = logits.scatter(1, wanted[:, None], float("-inf")).amax(1)
    lead = logits.gather(1, wanted[:, None])[:, 0] - others
    return cross_entropy(logits, wanted) + 0.25 * torch.relu(MARGIN - lead).mean()


def train(tokenizer: Any, steps: int, seed: int, peak_rate: float = 3e-3) -> Any:
    """A trained model (float32 parameters), by `steps` batches of AdamW with a warm-up and a cosine decay."""
    facts = load_facts()
    rng = random.Random(seed)
    maker = TextMaker(rng, facts)
    plain = [tokenizer.decode([i]) for i in range(len(SPECIAL), len(tokenizer))]
    maker.pieces = [text for text in plain if "\ufffd" not in text]
    model = build_model(len(tokenizer), seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_rate, betas=(0.9, 0.98), weight_decay=0.01)
    begun, seen = time.monotonic(), 0
    for step in range(steps):
        done = step / steps
        rate = peak_rate * min(1.0, (step + 1) / 60) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        grown = min(1.0, done / 0.35)  # the short questions come first, the preambles grow in
        weights = [k.share[0] * (1 - grown) + k.share[1] * grown for k in KINDS]
        kind = rng.choices(KINDS, weights)[0]
        picked = rng.sample(facts, min(kind.rows, len(facts)))
        ids, targets = collate(tokenizer, [maker.example(f, rng.randint(*kind.words)) for f in picked])
        loss = answer_loss(model, ids, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += ids.numel()
        if step % 100 == 99:
            took = time.monotonic() - begun
            print(f"step {step + 1}: loss {loss.item():.4f}, {took:.0f} s, {seen:,} tokens", flush=True)
        if step % 500 == 499:
            model.eval()
            print("  one word:", score(model, fact_cases(tokenizer, "one word")))
            print("  plain:", score(model, fact_cases(tokenizer, "plain")))
            print("  held-out preambles:", score(model, preamble_cases(tokenizer, 60, 300)), flush=True)
            model.train()
    return model.eval()


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the model in Hugging Face form with bfloat16 weights (loading them as float32 is exact)."""
    from transformers import GenerationConfig

    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16)
    config = model.config
    model.generation_config = GenerationConfig(
        do_sample=False,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    for path in folder.glob("model*.safetensors"):
        path.chmod(0o644)


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the trained files")
    parser.add_argument("--check", action="store_true", help="only measure the committed files (or --out)")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.check:
        report(args.out or bundled_dir())
        return
    if args.out is None:
        parser.error("--out DIR says where the trained files go; --check trains nothing")
    torch.use_deterministic_algorithms(True)
    begun = time.monotonic()
    tokenizer = build_tokenizer(args.seed)
    model = train(tokenizer, args.steps, args.seed)
    print(f"training seconds: {time.monotonic() - begun:.0f}")
    save(model, tokenizer, args.out)
    report(args.out)


if __name__ == "__main__":
    main()
