"""The bundled model's files: small, a Llama with grouped queries, right by a margin, and it stops."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from musebench.models.bundled import bundled_dir  # noqa: E402
from musebench.models.bundled.evaluate import (  # noqa: E402
    ASK_ONE_WORD,
    ASK_PLAIN,
    fact_cases,
    file_bytes,
    germany_cases,
    open_files,
    preamble_cases,
    score,
)
from musebench.models.bundled.text import chat_prompt, load_facts, named, reply  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def opened():
    return open_files(bundled_dir(), torch.float32)


@pytest.fixture(scope="module")
def opened_bf16():
    return open_files(bundled_dir(), torch.bfloat16)


def test_size_is_bounded(opened):
    model, _ = opened
    assert sum(p.numel() for p in model.parameters()) <= 2_000_000
    assert file_bytes(bundled_dir()) <= 4_000_000
    assert sum(p.stat().st_size for p in bundled_dir().iterdir() if p.is_file()) <= 4_000_000


def test_is_a_llama_with_grouped_queries(opened):
    config = opened[0].config
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.num_attention_heads % config.num_key_value_heads == 0
    assert config.tie_word_embeddings
    assert config.max_position_embeddings >= 2048


def test_weights_are_stored_in_half_the_bytes_of_float32():
    from safetensors import safe_open

    with safe_open(bundled_dir() / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "  two  blanks, a tab\tand a line\n\nand another ",
        "Ünïcödé, 日本語, Ελληνικά, עברית, 🙂🇫🇷, \x00\x7f\u200b",
        "def f(x):\n    return {'a': x**2}  # 3.14159",
        "isn't it? I 'm sure . And , so on !",
    ],
)
def test_any_text_round_trips(opened, text):
    tokenizer = opened[1]
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id is None or tokenizer.unk_token_id not in ids


def test_special_tokens(opened):
    model, tokenizer = opened
    assert tokenizer.is_fast
    assert len({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}) == 3
    assert model.generation_config.eos_token_id == model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer("France").input_ids[0] == tokenizer.bos_token_id
    assert len(tokenizer) == model.config.vocab_size


def test_chat_template_is_the_trained_form(opened):
    tokenizer = opened[1]
    user = {"role": "user", "content": "What is the capital of France?"}
    system = {"role": "system", "content": "You are helpful."}
    for messages, expected in (
        ([user], chat_prompt(user["content"])),
        ([system, user], chat_prompt(user["content"], system["content"])),
    ):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert text == tokenizer.bos_token + expected


def test_facts_are_many_and_distinct():
    facts = load_facts()
    assert len(facts) >= 100
    assert len({country for country, _ in facts}) == len(facts)


@pytest.mark.parametrize("form", ["one word", "plain", "raw"])
def test_right_in_float32(opened, form):
    model, tokenizer = opened
    got = score(model, fact_cases(tokenizer, form))
    assert got.right >= 0.98 * got.total, got


@pytest.mark.parametrize("form", ["one word", "plain"])
def test_margin_in_bfloat16(opened_bf16, form):
    model, tokenizer = opened_bf16
    got = score(model, fact_cases(tokenizer, form))
    assert got.right == got.total, got
    assert got.margin >= 1.0, got


def test_right_behind_unseen_preambles(opened):
    model, tokenizer = opened
    got = score(model, germany_cases(tokenizer))
    assert got.right == got.total >= 10, got
    got = score(model, preamble_cases(tokenizer, 40, 300))
    assert got.right >= 0.95 * got.total, got


def test_stops_with_the_end_token(opened):
    model, tokenizer = opened
    capitals = dict(load_facts())
    for country in ("France", "Germany", "Netherlands", "Sao Tome and Principe"):
        for ask in (ASK_ONE_WORD, ASK_PLAIN):
            messages = [{"role": "user", "content": ask.format(named(country))}]
            encoded = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            out = model.generate(**encoded, max_new_tokens=24)[0, encoded["input_ids"].shape[1] :]
            assert out[-1] == tokenizer.eos_token_id
            text = tokenizer.decode(out, skip_special_tokens=True)
            assert text == reply(named(country), capitals[country], "one word" in ask)
