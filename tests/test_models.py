"""Model sources: facts by formula, weights once, mistakes in one line."""

from __future__ import annotations

import json
import math

import pytest
import torch
import transformers
from tiny_models import tiny_module

from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.core.options import NoOptions
from musebench.models.bundled_source import BundledSource
from musebench.models.config import facts_from_config
from musebench.models.directory import DirectoryOptions, DirectorySource
from musebench.models.gguf_source import GGUFSource
from musebench.models.random_source import RandomOptions, RandomSource, config_of
from musebench.models.resolve import resolve
from musebench.models.shapes import parameter_counts, shape, shapes

SOURCES = {
    "bundled": BundledSource(NoOptions()),
    "directory": DirectorySource(DirectoryOptions()),
    "gguf": GGUFSource(NoOptions()),
    "random": RandomSource(RandomOptions()),
}


@pytest.mark.parametrize("name", shapes())
def test_parameters_by_formula_are_those_of_the_table(name):
    total, active = parameter_counts(shape(name))
    assert round(total / 1e9, 6) == shape(name).parameters_billions
    assert round(active / 1e9, 6) == shape(name).active_parameters_billions


@pytest.mark.parametrize("name", shapes())
def test_the_built_model_has_the_parameters_of_its_shape(name):
    """On the meta device: no storage."""
    config = config_of(shape(name), transformers)
    family = type(config).__name__.removesuffix("Config").removesuffix("Text")
    with torch.device("meta"):
        module = getattr(transformers, f"{family}ForCausalLM")(config)
    counted = sum(parameter.numel() for parameter in module.parameters())
    assert counted == parameter_counts(shape(name))[0]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-1b", "gpt-oss-20b", "qwen3-0.6b"])
def test_windows_and_bytes_of_a_cell_follow_from_the_shape(name):
    facts = SOURCES["random"].facts(f"random:{name}", "bfloat16")
    config = config_of(shape(name), transformers)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * facts.layers
    assert [window is not None for window in facts.windows] == [k == "sliding_attention" for k in kinds]
    assert facts.cell_bytes == 2 * facts.layers * facts.kv_heads * facts.head_dim * 2
    assert {"llama-3.1-8b": 131_072, "gemma-3-1b": 26_624, "gpt-oss-20b": 49_152, "qwen3-0.6b": 114_688}[
        name
    ] == facts.cell_bytes


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-270m"])
def test_random_weights_are_seeded_and_buffers_are_right(name):
    text = f"random:{name}@layers=1,vocab=64"
    first = SOURCES["random"].open(text, "bfloat16", "cpu", 3)
    again = SOURCES["random"].open(text, "bfloat16", "cpu", 3)
    other = SOURCES["random"].open(text, "bfloat16", "cpu", 4)
    ones = dict(first.module.named_parameters())
    assert all(torch.equal(ones[key], value) for key, value in again.module.named_parameters())
    assert not all(torch.equal(ones[key], value) for key, value in other.module.named_parameters())
    plain = type(first.module)._from_config(first.module.config, dtype=torch.bfloat16)
    made = dict(first.module.named_buffers())
    for key, buffer in plain.named_buffers():
        assert made[key].dtype == buffer.dtype
        assert torch.equal(made[key], buffer), key
    assert all(torch.isfinite(value).all() for value in ones.values())
    assert first.facts.parameters == sum(value.numel() for value in ones.values())
    assert first.weights_sha256 == again.weights_sha256 != other.weights_sha256


def test_llama_3_has_its_rope_scaling():
    config = config_of(shape("llama-3.2-1b"), transformers)
    assert config.rope_parameters["rope_type"] == "llama3"
    assert config.rope_parameters["factor"] == 32.0


@pytest.fixture
def folder(tmp_path):
    module = tiny_module("llama")
    module.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny", module


def test_a_folder_is_loaded_as_it_was_saved(folder):
    path, module = folder
    model = SOURCES["directory"].open(str(path), "float32", "cpu", 0)
    assert model.tokenizer is None
    assert model.stop_tokens == (2,)
    saved = dict(module.named_parameters())
    assert all(torch.equal(saved[name], value) for name, value in model.module.named_parameters())
    facts = SOURCES["directory"].facts(str(path), "float32")
    assert facts.parameters == sum(value.numel() for value in saved.values()) == model.facts.parameters
    assert set(model.load_seconds) == {"import", "load", "tokenizer"}
    assert model.load_peak_bytes >= 0


def test_pickled_weights_are_refused_with_the_way_out(folder):
    path, module = folder
    (path / "model.safetensors").unlink()
    torch.save(module.state_dict(), path / "pytorch_model.bin")
    with pytest.raises(UnsupportedError, match=r"pytorch_model\.bin.*safe"):
        SOURCES["directory"].open(str(path), "float32", "cpu", 0)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / "config.json").unlink(), "config.json"),
        (lambda path: (path / "config.json").write_text("{"), "config.json"),
        (lambda path: (path / "config.json").write_text(json.dumps({"model_type": "llama"})), "hidden_size"),
        (lambda path: (path / "model.safetensors").unlink(), "safetensors"),
        (lambda path: (path / "model.safetensors").write_bytes(b"cut"), "tiny"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, damage, words):
    path, _ = folder
    damage(path)
    with pytest.raises((InputError, UnsupportedError)) as raised:
        SOURCES["directory"].open(str(path), "float32", "cpu", 0)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_no_gguf_are_one_line(tmp_path):
    for name, content in (("a.gguf", b"PK\x03\x04"), ("b.gguf", b""), ("c.gguf", b"GGUF\x03\x00\x00\x00cut")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises((InputError, UnsupportedError), match=name) as raised:
            SOURCES["gguf"].open(str(tmp_path / name), "float32", "cpu", 0)
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="missing"):
        SOURCES["gguf"].open(str(tmp_path / "missing.gguf"), "float32", "cpu", 0)


def test_a_model_text_finds_its_source(tmp_path):
    assert resolve("bundled", SOURCES) is SOURCES["bundled"]
    assert resolve("random:llama-3.2-1b", SOURCES) is SOURCES["random"]
    assert resolve("x/y.GGUF", SOURCES) is SOURCES["gguf"]
    assert resolve(str(tmp_path), SOURCES) is SOURCES["directory"]
    with pytest.raises(UsageError, match="bundled"):
        resolve("bundeld", SOURCES)
    with pytest.raises(UsageError, match="--model is empty"):
        resolve(" ", SOURCES)


def test_unknown_shapes_and_changes_name_the_nearest():
    with pytest.raises(UsageError, match=r"llama-3\.2-1b"):
        SOURCES["random"].facts("random:llama-3.2-1", "float32")
    with pytest.raises(UsageError, match="layers"):
        SOURCES["random"].facts("random:llama-3.2-1b@layer=2", "float32")


def test_the_bundled_model_says_its_facts_without_weights():
    facts = SOURCES["bundled"].facts("bundled", "float32")
    opened = SOURCES["bundled"].open("bundled", "float32", "cpu", 0)
    assert facts.parameters == opened.facts.parameters
    assert opened.tokenizer.encode_chat([{"role": "user", "content": "Hello"}])
    assert opened.tokenizer.decode(opened.tokenizer.encode("Paris")).endswith("Paris")


def test_mixture_facts_from_a_config():
    config = tiny_module("mixtral").config.to_dict()
    facts = facts_from_config(config, "float32", "tiny")
    assert facts.parameters > facts.active_parameters
    assert math.isclose(facts.parameters, sum(p.numel() for p in tiny_module("mixtral").parameters()))
