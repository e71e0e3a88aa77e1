"""Traces as files: byte order marks, broken rows, rows out of order, recognition and memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from trace_files import AZURE, MOONCAKE, PLAIN, figures

from musebench.core.errors import InputError, UsageError
from musebench.workload.traces import builtin_formats, read_trace, recognise
from musebench.workload.traces.burstgpt import BurstGptReader
from musebench.workload.traces.lines import MOST_LINE
from musebench.workload.traces.plain import PlainCsvReader


@pytest.fixture
def write(tmp_path):
    def written(content: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_byte_order_mark_blank_lines_and_quotes_do_not_matter(write):
    path = write(b'\xef\xbb\xbf"arrival",prompt_tokens,output_tokens\r\n\r\n0,"3",4\r\n\r\n1, 5 ,6\r\n\r\n')
    trace = read_trace(path)
    assert figures(trace) == [(0.0, 3, 4), (1.0, 5, 6)]
    assert [row.row for row in trace.rows] == [3, 5]
    jsonl = write(b"\xef\xbb\xbf\r\n" + MOONCAKE.replace("\n", "\r\n\r\n").encode() * 2, "t.jsonl")
    assert [row.row for row in read_trace(jsonl).rows] == [2, 4]


A = AZURE + "2023-11-16 18:15:46.6805900,374,44\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (AZURE, "has no request: there are no rows after the header"),
        (AZURE.strip(), "has no request: there are no rows after the header"),
        (
            "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,1\n",
            "is in no format known here; tried: azure, burstgpt, llm",
        ),
        ("a,b\n1,2\n", "in no format known here; tried: azure.*vidur; a plain CSV has the columns arrival"),
        (b"\x00\x01\x02" * 50, "in no format known here"),
        (b"\x1f\x8b\x08\x00", "is gzip; uncompressed UTF-8 text is wanted"),
        (A + "soon,1,2\n", "row 3, column TIMESTAMP: 'soon'; a time like 2023"),
        (
            A + "2023-02-30 18:15:46,1,2\n",
            "row 3, column TIMESTAMP: '2023-02-30 18:15:46'; there is no such day",
        ),
        (A + "2023-11-16 24:15:46,1,2\n", "row 3, column TIMESTAMP"),
        (A + "2023-11-16 18:15:47,many,2\n", "row 3, column ContextTokens: 'many'; a whole number of tokens"),
        (A + "2023-11-16 18:15:47,,2\n", "row 3, column ContextTokens: empty; a whole number"),
        (A + "2023-11-16 18:15:47,1.5,2\n", "row 3, column ContextTokens: '1.5'; a whole number"),
        (A + "2023-11-16 18:15:47,1_0,2\n", "row 3, column ContextTokens: '1_0'"),
        (A + "2023-11-16 18:15:47,\u0661,2\n", "row 3, column ContextTokens"),
        (A + "2023-11-16 18:15:47,-3,2\n", "row 3, column ContextTokens: -3 tokens; at least 1 is wanted"),
        (A + "2023-11-16 18:15:47,0,2\n", "row 3, column ContextTokens: 0 tokens; at least 1 is wanted"),
        (A + "2023-11-16 18:15:47,3,-2\n", "row 3, column GeneratedTokens: -2 tokens; at least 0 is wanted"),
        (A + "2023-11-16 18:15:47,nan,2\n", "row 3, column ContextTokens: 'nan'"),
        (A + "2023-11-16 18:15:47,inf,2\n", "row 3, column ContextTokens: 'inf'"),
        (A + "2023-11-16 18:15:47,999999999999,2\n", "row 3, column ContextTokens: .*; at most 16,777,216"),
        (A + "2023-11-16 18:15:47,1\n", "row 3: 2 columns; the header has 3"),
        (A + "2023-11-16 18:15:47,1,2,3\n", "row 3: 4 columns; the header has 3"),
        (A + "2023-11-16 18:15:45,1,2\n", "row 3: its time is 1.680590 s before an earlier row's"),
        (A + "\n\n2023-11-16 18:15:45,1,2\n", "row 5: its time is 1.680590 s before"),
        (A + 'x"\n' + '"' + "y" * 140_000, "row 3: 1 columns"),
        (A + '"' + "y" * 140_000, "row 3 is not CSV: field larger"),
        (
            (A + "2023-11-16 18:15:47,1,\udcff\n").encode("utf-8", "surrogateescape"),
            "row 3 is not UTF-8 text .byte 23",
        ),
        (A.encode("utf-16"), "is UTF-16; uncompressed UTF-8 text is wanted"),
        (A.replace("\n", "\r"), "is in no format|is not CSV"),
        (
            "TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n1,1,1,1\n",
            "row 1 has the column 'TIMESTAMP' twice",
        ),
        (PLAIN + "nan,1,2\n", "row 2, column arrival: 'nan'; a finite time"),
        (PLAIN + "-inf,1,2\n", "row 2, column arrival: '-inf'; a finite time"),
        (PLAIN + "1e999,1,2\n", "row 2, column arrival: '1e999'; a finite time"),
        (PLAIN + "1:30,1,2\n", "row 2, column arrival: '1:30'; a finite time"),
        (PLAIN + "\u0661,1,2\n", "row 2, column arrival"),
        (MOONCAKE + "{", "row 2: not JSON at character 2"),
        (MOONCAKE + "[1]", "row 2: not a JSON object"),
        (MOONCAKE + '{"timestamp": 1}', "row 2, column input_length: missing; the row has timestamp"),
        (MOONCAKE + "{}", "row 2, column timestamp: missing; the row has no keys"),
        (MOONCAKE.replace("513", "NaN"), "row 1: NaN is not JSON"),
        (MOONCAKE.replace("513", "true"), "row 1, column input_length: True; a whole number"),
        (MOONCAKE.replace("513", "null"), "row 1, column input_length: nothing; a whole number"),
        (MOONCAKE.replace("513", '"many"'), "row 1, column input_length: 'many'; a whole number"),
        (MOONCAKE.replace("513", "1e999"), "row 1, column input_length: inf; a whole number"),
        (MOONCAKE.replace("513", "9" * 5000), "row 1: "),
        (
            MOONCAKE.replace("513", "9" * 400),
            "row 1, column input_length: a number of 1329 bits tokens; at most",
        ),
        (MOONCAKE.replace(": 0,", ": 1e999,"), "row 1, column timestamp: inf; a finite time"),
        (MOONCAKE.replace(": 0,", f": {'9' * 400},"), "row 1, column timestamp: a number of 1329 bits"),
        (MOONCAKE.replace("[0, 1]", "[0, -1]"), "row 1, column hash_ids: a list with -1"),
        (MOONCAKE.replace("[0, 1]", "7"), "row 1, column hash_ids: 7; a list of whole numbers"),
        (MOONCAKE + "[" * 100_000, "row 2: JSON that is nested too deep|row 2: not JSON"),
    ],
)
def test_a_broken_trace_is_one_line_with_file_row_column_and_what_was_wanted(write, text, said):
    path = write(text)
    with pytest.raises(InputError, match=said) as caught:
        read_trace(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(InputError, match="cannot read the trace"):
        read_trace(tmp_path / name)
    with pytest.raises(InputError, match="cannot read the trace"):
        read_trace(tmp_path / name, format="azure")


def test_a_format_can_be_named_and_an_unknown_one_is_refused(write):
    path = write("x,y\n")
    with pytest.raises(InputError, match="row 1: there is no column 'TIMESTAMP'; found: x, y"):
        read_trace(path, format="azure")
    with pytest.raises(InputError, match="row 1: not JSON"):
        read_trace(path, format="mooncake")
    with pytest.raises(UsageError, match="no trace format 'azur'; did you mean 'azure'"):
        read_trace(path, format="azur")
    with pytest.raises(UsageError, match="'azure' has no option 'skip_bad'; did you mean 'skip_bad_rows'"):
        read_trace(write(A), options={"skip_bad": True})
    for name, wanted in (("azure", "a header with TIMESTAMP"), ("mooncake", "with timestamp, input_length")):
        with pytest.raises(InputError, match=f"is empty; .*{wanted}"):
            read_trace(write(""), format=name)
    with pytest.raises(InputError, match="is gzip; uncompressed UTF-8 text is wanted"):
        read_trace(write(b"\x1f\x8b\x08\x00"), format="azure")


def test_a_file_that_two_formats_claim_asks_which(write):
    formats = builtin_formats()
    formats["second"] = formats["azure"]
    with pytest.raises(InputError, match="could be azure or second; name its format"):
        read_trace(write(A), formats=formats)


def test_a_format_that_fails_takes_no_file_from_the_others(write):
    def broken(values):
        raise RuntimeError("no luck")

    formats = {**builtin_formats(), "broken": broken}
    assert recognise(write(A), formats) == "azure"
    with pytest.raises(InputError, match=r"tried: azure, broken \(failed: RuntimeError: no luck\), burstgpt"):
        recognise(write("x"), formats)


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("wb") as file:  # sparse: takes no room on the disk
        file.write(A.encode())
        file.seek(1 << 30, 1)
        file.write(b"\n")
    with pytest.raises(InputError, match=f"row 3 is longer than {MOST_LINE:,} bytes"):
        read_trace(path)


def test_bad_rows_are_left_out_and_counted_when_asked(write):
    path = write(PLAIN + "0,1,2\n1,x,2\n2,3\n3,0,1\n4,5,6\n")
    trace = read_trace(path, options={"skip_bad_rows": True})
    assert figures(trace) == [(0.0, 1, 2), (4.0, 5, 6)]
    assert trace.left_out == {"bad rows": 3}
    assert "row 3, column prompt_tokens: 'x'" in trace.first_bad
    with pytest.raises(InputError, match="has no request: all rows were left out: 1 bad rows"):
        read_trace(write(PLAIN + "0,x,2\n"), options={"skip_bad_rows": True})


def test_rows_out_of_order_are_sorted_when_asked_and_count_from_the_earliest(write):
    path = write(PLAIN + "5,1,1\n3,2,1\n5,3,1\n9,4,1\n")
    with pytest.raises(InputError, match=r"row 3: its time is 2.000000 s before .* option sort"):
        read_trace(path)
    trace = read_trace(path, sort=True)
    assert figures(trace) == [(0.0, 2, 1), (2.0, 1, 1), (2.0, 3, 1), (6.0, 4, 1)]
    assert [row.row for row in trace.rows] == [3, 2, 4, 5]
    assert [row.row for row in read_trace(path, sort=True, duration_seconds=2.1).rows] == [3, 2, 4]


def test_rows_behind_the_last_one_taken_are_not_read(write):
    path = write(PLAIN + "0,1,1\n1,2,1\n2,3,1\n9,broken\n")
    assert len(read_trace(path, most_rows=2).rows) == 2
    assert len(read_trace(path, duration_seconds=2).rows) == 2
    with pytest.raises(InputError, match="row 5"):
        read_trace(path)


def test_memory_does_not_grow_with_the_rows_that_were_read(tmp_path):
    def peak(rows: int) -> int:
        path = tmp_path / "t.csv"
        path.write_text(PLAIN + "".join(f"{n},1,1\n" for n in range(rows)))
        tracemalloc.start()
        try:
            assert sum(1 for _ in PlainCsvReader().read(path)) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(20_000) < peak(2_000) + 100_000


def test_reading_again_counts_again(write):
    path = write("Timestamp,Model,Request tokens,Response tokens\n1,a,2,0\n2,a,3,1\n")
    reader = BurstGptReader()
    for _ in range(2):
        assert len(list(reader.read(path))) == 1
        assert reader.left_out == {"failures (0 response tokens)": 1}


def test_each_format_recognises_its_own_files_only(write):
    samples = {
        "azure": A,
        "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n1,a,2,3,5,x\n",
        "llmservingsim": '{"input_toks": 1, "output_toks": 2, "arrival_time_ns": 3}\n',
        "mooncake": MOONCAKE,
        "plain-csv": PLAIN + "0,1,2\n",
        "plain-jsonl": '{"arrival": 0, "prompt_tokens": 1, "output_tokens": 2}\n',
        "splitwise": "request_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,1,1,2,3\n",
        "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,1,2\n",
    }
    assert set(samples) == set(builtin_formats())
    for name, text in samples.items():
        assert read_trace(write(text, "sample")).format == name


def test_a_first_line_longer_than_the_head_is_still_recognised(write):
    row = {"input_toks": 30_000, "output_toks": 1, "arrival_time_ns": 0, "input_tok_ids": [12345] * 30_000}
    assert read_trace(write(json.dumps(row))).format == "llmservingsim"
