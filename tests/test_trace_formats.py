"""Each trace format with its columns, times and ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_files import AZURE, MOONCAKE, figures

from musebench.core.errors import InputError
from musebench.workload.traces import builtin_formats, read_trace, recognise


@pytest.fixture
def write(tmp_path):
    def written(content: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_azure_with_crlf_no_last_line_end_and_seven_digits(write):
    path = write(
        AZURE.replace("\n", "\r\n").encode()
        + b"2023-11-16 23:59:59.9999999,374,44\r\n2023-11-17 00:00:00.0000001,396,109\r\n"
        + b"2023-11-17 00:00:04,1,0"
    )
    trace = read_trace(path)
    assert trace.format == "azure"
    assert figures(trace) == [(0.0, 374, 44), (2e-7, 396, 109), (pytest.approx(4.0000001, abs=1e-12), 1, 0)]
    assert [row.row for row in trace.rows] == [2, 3, 4]


def test_azure_of_2024_has_an_offset(write):
    path = write(
        AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:00.509930+02:00,7,8\n"
        "2024-05-10T00:00:01.009930Z,1,1\n"
    )
    assert figures(read_trace(path)) == [(0.0, 2162, 5), (0.5, 7, 8), (1.0, 1, 1)]


@pytest.mark.parametrize(
    "header",
    [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
    ],
)
def test_burstgpt_in_both_orders_leaves_failures_out_and_counts_them(write, header):
    rows = [
        ("5", "ChatGPT", "472", "18", "490", "Conversation log", "s1"),
        ("45", "ChatGPT", "1087", "0", "1087", "API log", ""),
        ("60", "ChatGPT", "0", "0", "0", "API log", ""),
        ("118", "GPT-4", "417", "276", "693", "Conversation log", "s1"),
    ]
    names = [
        "Timestamp",
        "Model",
        "Request tokens",
        "Response tokens",
        "Total tokens",
        "Log Type",
        "Session ID",
    ]
    text = [header]
    for row in rows:
        cells = {**dict(zip(names, row, strict=True)), "Elapsed time": "1.5"}
        text.append(",".join(cells[name] for name in header.split(",")))
    path = write("\n".join(text) + "\n")
    trace = read_trace(path)
    assert trace.format == "burstgpt"
    assert figures(trace) == [(0.0, 472, 18), (113.0, 417, 276)]
    assert trace.left_out == {"failures (0 response tokens)": 2}
    assert trace.rows[1].tags["model"] == "GPT-4"
    assert trace.rows[1].tags["log_type"] == "Conversation log"
    assert trace.rows[1].tags.get("session") == ("s1" if "Session ID" in header else None)
    assert "2 left out: failures (0 response tokens)" in trace.notes()[0]

    kept = read_trace(path, options={"failures": "keep", "skip_bad_rows": True})
    assert figures(kept) == [(0.0, 472, 18), (40.0, 1087, 0), (113.0, 417, 276)]
    assert kept.left_out == {"bad rows": 1}
    with pytest.raises(InputError, match="row 4, column Request tokens: 0 tokens; at least 1"):
        read_trace(path, options={"failures": "keep"})


def test_vidur_with_and_without_times(write):
    assert figures(
        read_trace(write("arrived_at,num_prefill_tokens,num_decode_tokens\n1.0,374,44\n5.5,3,1\n"))
    ) == [
        (0.0, 374, 44),
        (4.5, 3, 1),
    ]
    path = write(
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n1,5,6,0.2\n4054,2.0,4056,9\n"
    )
    assert recognise(path, builtin_formats()) == "vidur"
    assert figures(read_trace(path)) == [(None, 1, 5), (None, 4054, 2)]


def test_mooncake_keeps_hash_ids_and_takes_many_rows_of_one_time(write):
    long = {"timestamp": 27, "input_length": 191378, "output_length": 1, "hash_ids": list(range(374))}
    path = write(MOONCAKE * 2 + json.dumps(long), "t.jsonl")
    trace = read_trace(path)
    assert trace.format == "mooncake"
    assert figures(trace) == [(0.0, 513, 3), (0.0, 513, 3), (0.027, 191378, 1)]
    assert trace.rows[0].tags == {"hash_ids": (0, 1), "block_tokens": 512}


def test_llmservingsim_with_and_without_ids(write):
    one = {
        "input_toks": 3,
        "output_toks": 2,
        "arrival_time_ns": 10**18,
        "input_tok_ids": [5, 6, 7],
        "output_tok_ids": [1, 2],
    }
    two = {"input_toks": 4, "output_toks": 1, "arrival_time_ns": 10**18 + 1}
    trace = read_trace(write(f"{json.dumps(one)}\n{json.dumps(two)}\n", "t.jsonl"))
    assert trace.format == "llmservingsim"
    assert figures(trace) == [(0.0, 3, 2), (1e-9, 4, 1)]
    assert trace.rows[0].prompt_ids == [5, 6, 7]
    assert trace.rows[1].prompt_ids is None
    one["input_tok_ids"] = [5, 6]
    with pytest.raises(InputError, match="row 1, column input_tok_ids: 2 ids; input_toks says 3"):
        read_trace(write(json.dumps(one), "t.jsonl"))


def test_splitwise_sim_keeps_its_ids_and_refuses_batches(write):
    header = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    trace = read_trace(write(header + "0,2,0,0.5,1,3000,11\n1,2,0,0.75,1,2,7\n"))
    assert trace.format == "splitwise"
    assert figures(trace) == [(0.0, 3000, 11), (0.25, 2, 7)]
    assert trace.rows[1].tags == {"request_id": "1", "request_type": "2", "application_id": "0"}
    with pytest.raises(InputError, match="row 2, column batch_size: '4'; 1 is wanted"):
        read_trace(write(header + "0,2,0,0.5,4,3000,11\n"))


@pytest.mark.parametrize(
    ("header", "row", "scale"),
    [
        ("arrival,prompt_tokens,output_tokens", "{},3,4", 1),
        ("Output Tokens,PROMPT-TOKENS,Arrival_Time", "4,3,{}", 1),
        ("arrival_ms,input_tokens,completion_tokens", "{},3,4", 1000),
        ("arrival_ns,prompt_len,max_tokens", "{},3,4", 10**9),
        ("timestamp, input_length ,output_length", "{},3,4", 1),
    ],
)
def test_plain_csv_finds_columns_by_alias_in_any_order(write, header, row, scale):
    path = write(f"{header}\n{row.format(1 * scale)}\n{row.format(3 * scale)}\n")
    trace = read_trace(path)
    assert trace.format == "plain-csv"
    assert figures(trace) == [(0.0, 3, 4), (2.0, 3, 4)]


def test_plain_columns_may_be_named_and_others_become_tags(write):
    path = write("when,in,out,tenant\n5,3,4,a\n5.5,3,4,\n")
    options = {"arrival": "when", "prompt_tokens": "in", "output_tokens": "out", "unit": "ms"}
    trace = read_trace(path, format="plain-csv", options=options)
    assert figures(trace) == [(0.0, 3, 4), (0.0005, 3, 4)]
    assert [dict(row.tags) for row in trace.rows] == [{"tenant": "a"}, {}]
    assert figures(read_trace(path, options=options)) == figures(trace)


def test_plain_jsonl_takes_ids_in_place_of_a_count(write):
    trace = read_trace(write('{"prompt_ids": [4, 5], "output_tokens": 3, "priority": 1}\n', "t.jsonl"))
    assert trace.format == "plain-jsonl"
    assert figures(trace) == [(None, 2, 3)]
    assert trace.rows[0].prompt_ids == [4, 5]
    assert trace.rows[0].tags == {"priority": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "prompt_tokens,x\n1,2\n",
            "row 1: there is no column 'output_tokens', nor an alias of it; found: prompt_tokens, x",
        ),
        ("output_tokens,x\n1,2\n", "row 1: there is no column 'prompt_tokens'"),
        (
            "prompt_tokens,input_tokens,output_tokens\n1,2,3\n",
            "'prompt_tokens' and 'input_tokens' both say prompt_tokens",
        ),
        ("prompt_tokens,output_tokens,output_tokens\n1,2,3\n", "both say output_tokens"),
        ('{"prompt_tokens": 3}\n', "row 1: there is no column 'output_tokens'"),
        (
            '{"prompt_tokens": 3, "output_tokens": 1}\n{"prompt_tokens": 3}\n',
            "row 2: there is no column 'output_tokens'",
        ),
        (
            '{"prompt_tokens": 3, "output_tokens": 1}\n{"prompt_tokens": 3, "output_tokens": 1, "time": 3}\n',
            "row 2: its times are in 'time', those before in None",
        ),
        ('{"prompt_ids": [], "output_tokens": 1}\n', "row 1, column prompt_ids: no ids"),
        (
            '{"prompt_ids": [1], "prompt_tokens": 2, "output_tokens": 1}\n',
            "row 1, column prompt_ids: 1 ids for 2",
        ),
        ('{"prompt_ids": null, "output_tokens": 1}\n', "row 1, column prompt_ids: nothing; a list"),
    ],
)
def test_plain_files_whose_columns_do_not_fit_are_refused(write, text, said):
    with pytest.raises(InputError, match=said):
        read_trace(write(text))
