"""What fuzzing found, each as the smallest input that showed it (README.md beside it has the list)."""

from __future__ import annotations

import gzip
import json
from importlib import metadata
from pathlib import Path

import pytest
from samples import CONFIG, REPORT

from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.models.config import facts_from_config
from musebench.models.directory import DirectoryOptions, DirectorySource
from musebench.plugin import discovery
from musebench.plugin.registry import parse_settings
from musebench.report import files, tables
from musebench.report.compare import compare
from musebench.workload.traces import lines, read_trace

HEAD = b"arrival,prompt_tokens,output_tokens\n"


# -- model directories ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"hidden_size": "llama"}, "hidden_size is 'llama'"),
        ({"hidden_size": [1]}, "hidden_size is [1]"),
        ({"hidden_size": -8}, "hidden_size is -8"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": 16}, "16 heads of a hidden size of 8"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers is 1000"),
        ({"num_key_value_heads": {}}, "num_key_value_heads is {}"),
        ({"sliding_window": 0.5}, "sliding_window is 0.5"),
        ({"rope_theta": "llama"}, "rope_theta is 'llama'"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"rope_theta": [1.0]}, "rope_theta is [1.0]"),
        ({"layer_types": 7}, "layer_types is 7"),
        ({"layer_types": ["full_attention"]}, "a list of 2 texts is wanted"),
        ({"text_config": 3}, "text_config is 3"),
        ({"vocab_size": None}, "has no 'vocab_size'"),
    ],
)
def test_a_config_with_something_else_in_place_of_a_number_is_refused_by_its_key(changed, named):
    with pytest.raises(InputError) as refused:
        facts_from_config(CONFIG | changed, "float32", "broken")
    assert named in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def folder_of(tmp_path: Path, **config: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | config))
    return tmp_path


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_pickled_weights_are_refused_and_the_way_out_is_named(tmp_path, name):
    folder = folder_of(tmp_path)
    (folder / name).write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UnsupportedError, match=r"run code when opened; save them .*safe_serialization"):
        DirectorySource(DirectoryOptions()).open(str(folder), "float32", "cpu", 0)


@pytest.mark.parametrize("trusted", [False, True])
def test_a_folder_runs_its_code_only_where_it_is_trusted(tmp_path, trusted):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    mark = tmp_path / "ran"
    folder = folder_of(
        tmp_path,
        model_type="unheard-of",
        auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    )
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    safetensors.save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(UnsupportedError):
        DirectorySource(DirectoryOptions(trust_remote_code=trusted)).open(str(folder), "float32", "cpu", 0)
    assert mark.exists() is trusted


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("tokenizer.json", "garbage", "the tokenizer cannot be loaded"),
        ("tokenizer_config.json", "[1]", "the tokenizer cannot be loaded"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is 'x'"),
        (None, "", ""),
    ],
)
def test_a_broken_file_beside_good_weights_is_named(tmp_path, name, text, named):
    transformers = pytest.importorskip("transformers")
    known = {key: value for key, value in CONFIG.items() if key not in ("layer_types", "sliding_window")}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**known)).save_pretrained(tmp_path)
    source = DirectorySource(DirectoryOptions())
    if name is None:
        assert source.open(str(tmp_path), "float32", "cpu", 0).tokenizer is None
        return
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=named) as refused:
        source.open(str(tmp_path), "float32", "cpu", 0)
    assert len(str(refused.value).splitlines()) == 1


# -- reports --------------------------------------------------------------------------------------------


def test_a_key_that_is_not_known_is_named_on_one_line_and_cut():
    values = json.loads(REPORT)
    values["choices"]["executor"]["ver\nsion" + "x" * 100_000] = None
    with pytest.raises(InputError) as refused:
        files.loads(json.dumps(values).encode(), "f.json")
    text = str(refused.value)
    assert "choices.executor.'ver\\nsionxxx" in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["runs"][0]["requests"].update(session=[10**400, 2, 3, 4, None]),
        lambda values: values["runs"][0]["pool"].update(bytes=-(10**400)),
        lambda values: values["runs"][0]["counters"].update(captures=10**400),
    ],
)
def test_a_number_that_nothing_can_count_with_is_refused(change):
    values = json.loads(REPORT)
    change(values)
    with pytest.raises(InputError, match=r"a number of 1,329 bits; at most 63 are taken"):
        files.loads(json.dumps(values).encode(), "f.json")


@pytest.mark.parametrize(
    ("table", "column"),
    [("steps", "in_use"), ("steps", "rows"), ("steps", "forwards"), ("requests", "preemptions")],
)
def test_a_column_holds_what_can_be_counted_with(table, column):
    values = json.loads(REPORT)
    values["runs"][0][table][column][0] = 2**63
    with pytest.raises(InputError, match=rf"{table}\.{column}.* a number of 64 bits; at most 63 are taken"):
        files.loads(json.dumps(values).encode(), "f.json")
    values["runs"][0][table][column][0] = 2**63 - 1
    compare([files.loads(json.dumps(values).encode(), "f.json")], ["a"], None).show("json")


def test_times_that_add_up_to_infinity_are_missing_in_tables():
    values = json.loads(REPORT)
    values["costs"]["seconds"] = {"load": 1e308, "compile": 1e308, "capture": 1e308}
    made = files.loads(json.dumps(values).encode(), "f.json")
    shown = json.loads(compare([made, made], ["a", "b"], None).show("json"))
    rows = [row for table in shown["tables"] for row in table["rows"] if row["name"] == "one-off time"]
    assert [row["values"] for row in rows] == [{"a": None, "b": None}]
    assert tables.show(made, "json")


def test_an_option_given_twice_is_named_on_one_line():
    with pytest.raises(UsageError) as refused:
        parse_settings(["pool.a\x0cb=1", "pool.a\x0cb=2"])
    assert len(str(refused.value).splitlines()) == 1


def test_a_report_that_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b'{"schema": 1, "id": "' + b"a" * (4 << 20)))
    with pytest.raises(InputError, match="more than 1,048,576 bytes of JSON"):
        files.read(bomb)


def test_a_report_of_too_many_objects_is_not_made_into_objects(monkeypatch):
    monkeypatch.setattr(files, "MOST_CONTAINERS", 1000)
    with pytest.raises(InputError, match="it has 2,002 objects and lists; at most 1,000 are read"):
        files.loads(b'{"schema": 1, "runs": [' + b"{}," * 2000 + b"]}", "f.json")


def test_a_million_steps_are_read():
    values = json.loads(REPORT)
    run = values["runs"][0]
    run["requests"]["token_steps"] = None
    run["steps"] = {name: [0] * 1_000_000 for name in run["steps"]} | {"programs": {}}
    made = files.loads(json.dumps(values).encode(), "f.json")
    assert len(made.runs[0].steps) == 1_000_000


# -- traces ---------------------------------------------------------------------------------------------


def test_a_csv_record_over_very_many_lines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MOST_LINE", 1 << 12)
    path = tmp_path / "record.csv"
    path.write_bytes(HEAD + b"0,1,1\n" + b'"\n",' * (1 << 12))
    with pytest.raises(InputError, match=r"row 3 has a record of more than 4,096 characters"):
        read_trace(path)


def test_many_records_are_not_taken_for_one(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MOST_LINE", 1 << 12)
    path = tmp_path / "records.csv"
    path.write_bytes(HEAD + b"0,1,1\n" * (1 << 12))
    assert len(read_trace(path).rows) == 1 << 12


# -- plugin metadata ------------------------------------------------------------------------------------


def test_a_list_of_entry_points_that_is_no_text_is_an_error_of_its_package(tmp_path):
    folder = tmp_path / "sample-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_bytes(b"[museb\xff")
    (found,) = discovery.of([metadata.PathDistribution(folder)])
    assert (found.package, found.version, found.entry) == ("sample", "1.0", None)
    assert isinstance(found.error, UnicodeDecodeError)
