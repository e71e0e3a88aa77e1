"""Whatever a file holds, reading it ends in requests or in a one-line error for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from musebench.core.errors import InputError, UsageError
from musebench.workload import Context, load_workload
from musebench.workload.traces import builtin_formats, read_trace

TOO_SLOW = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CONTEXT = Context(vocab=50, seed=1)

YAML = [
    b"requests: 3\nprompt_tokens: {uniform: [1, 9]}\noutput_tokens: 2\narrivals: {gamma: {rate: 2, cv: 1}}\n",
    b"prompts: [{tokens: [1, 2], stop_tokens: [3]}, {length: 4, id: a, tags: {b: [1]}}]\nmax_new_tokens: 3\n",
    b"trace: {file: t.csv, sort: true, options: {skip_bad_rows: true}}\narrivals: {recorded: {rate: 3}}\n",
    b"requests: 2\nprompt_tokens: {zipf: {exponent: 1, max: 9}}\noutput_tokens: {empirical: [1, 2]}\n",
]

TRACES = [
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9,396,109",
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n",
    b'{"timestamp": 0, "input_length": 513, "output_length": 3, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 3, "input_length": 5, "output_length": 3, "hash_ids": [0]}\n',
    b'{"input_toks": 3, "output_toks": 2, "arrival_time_ns": 7, "input_tok_ids": [5, 6, 7]}\n',
    b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n",
    b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    b"0,2,0,0.5,1,30,11\n",
    b"arrival,prompt_tokens,output_tokens,tenant\n0,1,2,a\n1,2,3,b\n",
    b'{"arrival": 0, "prompt_ids": [4, 5], "output_tokens": 3}\n',
]

WORDS = rb", { } [ ] &a *a !!x | -1 0 1e999 nan null true 99999999999999999999 ~ .inf ... 1_0 0x1 # %".split()
OTHERS = [b"\n", b"\r", b"\x00", b"\t", b": ", b"- ", b"? ", b"---\n", b'"', b"'", b"\xef\xbb\xbf", b"\xff"]
LINE_SEPARATOR, NO_DAY = b"\xe2\x80\xa8", b"2024-13-45 25:61:61"
PIECES = st.one_of(st.binary(max_size=6), st.sampled_from([*WORDS, *OTHERS, LINE_SEPARATOR, NO_DAY]))


@st.composite
def mutated(draw, samples: list[bytes]) -> bytes:
    """A sample with a few pieces put in, cut out or written twice."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(start + 12, len(data))))
        piece = draw(st.one_of(PIECES, st.just(data[start:end] * 2)))
        data = data[:start] + piece + data[end:]
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    (made / "t.csv").write_bytes(TRACES[-2])
    return made


def made_or_refused(make: Callable[[], list[Any]]) -> list[Any] | None:
    """What was made, None after an error for people in one line. Anything else fails the test."""
    try:
        return make()
    except (InputError, UsageError) as error:
        lines = str(error).splitlines()
    assert len(lines) == 1
    return None


def requests_or_refused(path: Path) -> None:
    made = made_or_refused(lambda: load_workload(path).requests(CONTEXT))
    if made is not None:
        assert made
        arrivals = [request.arrival_seconds for request in made]
        assert arrivals == sorted(arrivals)


@given(st.one_of(mutated(YAML), st.binary(max_size=200)))
@TOO_SLOW
def test_no_yaml_file_ends_in_anything_but_requests_or_an_error_for_people(folder, data):
    path = folder / "f.yaml"
    path.write_bytes(data)
    requests_or_refused(path)


@given(st.one_of(mutated(TRACES), st.binary(max_size=200)))
@TOO_SLOW
def test_no_trace_ends_in_anything_but_requests_or_an_error_for_people(folder, data):
    path = folder / "f.trace"
    path.write_bytes(data)
    requests_or_refused(path)


@given(mutated(TRACES), st.sampled_from(sorted(builtin_formats())), st.booleans(), st.booleans())
@TOO_SLOW
def test_no_format_breaks_on_a_file_of_another(folder, data, format, skip, sort):
    path = folder / "g.trace"
    path.write_bytes(data)
    rows = made_or_refused(
        lambda: read_trace(path, format=format, sort=sort, options={"skip_bad_rows": skip}).rows
    )
    assert rows is None or rows


@given(
    st.dictionaries(
        st.text(alphabet="abcdefghijklmnopqrstuvwxyz_.0-", max_size=12)
        | st.sampled_from(
            ["requests", "prompt_tokens", "prompt_tokens.uniform", "arrivals.poisson", "defaults.x"]
        ),
        st.one_of(
            st.text(max_size=12), st.integers(-3, 5), st.none(), st.sampled_from(["[1, 2]", "{zipf: [1, 4]}"])
        ),
        max_size=3,
    )
)
@TOO_SLOW
def test_no_override_ends_in_anything_but_a_workload_or_an_error_for_people(folder, values):
    path = folder / "o.yaml"
    path.write_bytes(YAML[0])
    made = made_or_refused(lambda: load_workload(path).with_overrides(values).requests(CONTEXT))
    assert made is None or made
