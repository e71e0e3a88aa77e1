"""Trace readers: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner
from conformance_laws import assert_broken, assert_held

from musebench.cli import root
from musebench.plugin.registry import Registry
from musebench.testing.laws.trace import hold_trace
from musebench.workload.traces.plain import PlainCsvReader

REGISTRY = Registry.installed()


TRACES = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    b"2023-11-16 18:15:50.9951690,396,109\n",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n",
    "llmservingsim": b'{"input_toks": 3, "output_toks": 4, "arrival_time_ns": 0, "input_tok_ids": [7, 8, 9]}'
    b"\n"
    b'{"input_toks": 2, "output_toks": 1, "arrival_time_ns": 1500000000, "input_tok_ids": [7, 5]}\n',
    "mooncake": b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 30, "input_length": 700, "output_length": 2, "hash_ids": [0, 2]}\n',
    "plain-csv": b"arrival,prompt_tokens,output_tokens\n0,3,4\n1.5,2,0\n",
    "plain-jsonl": b'{"prompt_tokens": 3, "output_tokens": 4}\n{"prompt_tokens": 2, "output_tokens": 1}\n',
    "splitwise": b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
    b"token_size\n"
    b"0,2,0,0.0,1,374,44\n1,2,0,4.3,1,396,109\n",
    "vidur": b"arrived_at,num_prefill_tokens,num_decode_tokens\n0,374,44\n4.3,396,109\n",
}


def test_every_built_in_trace_format_has_a_file_here():
    built_in = {one.name for one in REGISTRY.components("trace") if one.package == "musebench"}
    assert built_in == set(TRACES)


@pytest.mark.parametrize("name", TRACES)
def test_built_in_trace_readers_keep_every_law(name):
    component = REGISTRY.get("trace", name)
    assert_held(hold_trace(lambda: component.make({}), TRACES[name], "trace.txt", examples=40))


class CountsTimesDown(PlainCsvReader):
    def read(self, path):
        return (replace(row, arrival_seconds=-(row.arrival_seconds or 0.0)) for row in super().read(path))


class CrashesOnAWord(PlainCsvReader):
    def read(self, path):
        for line in path.read_text(errors="replace").splitlines()[1:]:
            int(line.split(",")[1])
        return super().read(path)


class TakesEverything(PlainCsvReader):
    def recognises(self, head, filename):
        return True


BROKEN_READERS = {
    CountsTimesDown: ("rows", "row 2 has the time -1.5 s"),
    CrashesOnAWord: ("errors", "was raised in test_conformance_traces.py"),
    TakesEverything: ("recognises", "it takes garbage for its own"),
}


@pytest.mark.parametrize("kind", BROKEN_READERS, ids=lambda kind: kind.__name__)
def test_a_broken_trace_reader_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_READERS[kind]
    assert_broken(hold_trace(kind, TRACES["plain-csv"], "t.csv", examples=60), {law}, words)


def test_the_command_holds_a_trace_reader_to_a_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(TRACES["plain-csv"])
    asked = ["conformance", "plain-csv", "--examples", "10", "--file", str(path)]
    result = CliRunner().invoke(root, asked)
    assert result.exit_code == 0, result.output
    assert "| trace  | plain-csv | endings" in result.output
