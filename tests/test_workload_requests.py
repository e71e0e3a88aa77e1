"""From a workload to requests: prompts, ends, sampling, arrivals, traces and generators."""

from __future__ import annotations

import json

import numpy as np
import pytest

from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.core.request import Request, Sampling
from musebench.workload import Context, load_workload


class Letters:
    """A tokenizer with an id a letter; the chat template puts the role's first letter before."""

    eos_ids = (2,)

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(letter) for turn in messages for letter in turn["role"][0] + turn["content"]]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


MODEL = Context(tokenizer=Letters(), vocab=300, stop_tokens=(2, 5))
BARE = Context(vocab=300, stop_tokens=(2, 5))


@pytest.fixture
def requests(tmp_path):
    def made(text: str, context: Context = MODEL) -> list[Request]:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_workload(path).requests(context)

    return made


# -- prompts -----------------------------------------------------------------------------------------------


def test_each_kind_of_prompt_becomes_ids(requests):
    made = requests(
        "prompts: [{text: ab}, {chat: ab}, {chat: [{role: system, content: x}, {role: user, content: y}]},"
        " {tokens: [7, 8]}, {length: 4}]"
    )
    assert [list(request.prompt) for request in made[:4]] == [
        [97, 98],
        [117, 97, 98],
        [115, 120, 117, 121],
        [7, 8],
    ]
    assert len(made[4].prompt) == 4
    assert all(0 <= token < 300 for token in made[4].prompt)
    assert [request.id for request in made] == ["0", "1", "2", "3", "4"]


def test_text_without_a_tokenizer_names_mixed_as_what_to_use(requests):
    with pytest.raises(
        UsageError, match=r"mine.yaml: its prompts are text, .* no tokenizer; use the workload 'mixed'"
    ):
        requests("prompts: [{chat: hello}]", BARE)
    assert len(requests("prompts: [{tokens: [1]}, {length: 2}]", BARE)) == 2


def test_a_text_that_becomes_no_token_is_refused(requests):
    class Nothing(Letters):
        def encode(self, text):
            return []

    with pytest.raises(InputError, match=r"mine.yaml: request '0' has an empty prompt"):
        requests("prompts: [{text: x}]", Context(tokenizer=Nothing(), vocab=9))


def test_ids_that_the_model_does_not_have_are_refused(requests):
    with pytest.raises(
        InputError, match=r"prompts\[0\].tokens has the id 300; the model's vocabulary has 300"
    ):
        requests("prompts: [{tokens: [299, 300]}]")
    with pytest.raises(InputError, match="stop_tokens has the id 301"):
        requests("prompts: [{tokens: [1]}]\nstop_tokens: [301]")


def test_drawn_ids_need_the_size_of_the_vocabulary(requests):
    with pytest.raises(UsageError, match="size of the model's vocabulary, which is not known"):
        requests("prompts: [{length: 3}]", Context())


def test_more_requests_than_prompts_go_through_them_again(requests):
    made = requests("requests: 5\nprompts: [{id: a, tokens: [1], expect: x}, {tokens: [2]}]")
    assert [request.id for request in made] == ["a", "1", "a.1", "1.1", "a.2"]
    assert [list(request.prompt) for request in made] == [[1], [2], [1], [2], [1]]
    assert [request.expect for request in made] == ["x", None, "x", None, "x"]
    assert len(requests("requests: 1\nprompts: [{tokens: [1]}, {tokens: [2]}]")) == 1
    with pytest.raises(InputError, match="meet other ids"):
        requests("requests: 4\nprompts: [{id: a, tokens: [1]}, {id: a.1, tokens: [1]}]")


# -- ends and sampling -------------------------------------------------------------------------------------


def test_stop_tokens_are_the_models_and_the_workloads(requests):
    own, other, none = requests(
        "stop_tokens: [9]\nprompts: [{tokens: [1]}, {tokens: [1], stop_tokens: [8, 2]},"
        " {tokens: [1], ignore_eos: true}]"
    )
    assert (own.stop_tokens, other.stop_tokens, none.stop_tokens) == ((9, 2, 5), (8, 2, 5), (9,))


def test_drawn_lengths_ignore_the_models_stop_tokens_unless_told_otherwise(requests):
    drawn = "requests: 1\nprompt_tokens: 3\noutput_tokens: 2\n"
    assert requests(drawn)[0].stop_tokens == ()
    assert requests(drawn + "stop_tokens: [4]")[0].stop_tokens == (4,)
    assert requests(drawn + "ignore_eos: false")[0].stop_tokens == (2, 5)


def test_most_new_tokens_come_from_prompt_workload_or_default(requests):
    text = "prompts: [{tokens: [1]}, {tokens: [1], max_new_tokens: 3}]"
    assert [request.max_new_tokens for request in requests(text)] == [16, 3]
    assert [request.max_new_tokens for request in requests(text + "\nmax_new_tokens: 7")] == [7, 3]


def test_requests_are_greedy_unless_asked(requests):
    assert requests("prompts: [{tokens: [1]}]")[0].sampling == Sampling()


def test_each_request_samples_with_a_seed_of_its_own(requests):
    text = (
        "requests: 3\nprompts: [{tokens: [1]}]\nsampling: {temperature: 0.5, top_k: 4, top_p: 0.9, seed: 10}"
    )
    made = requests(text)
    assert [request.sampling for request in made] == [Sampling(0.5, 4, 0.9, seed) for seed in (10, 11, 12)]
    drawn = requests(text.replace(", seed: 10", ""))
    assert len({request.sampling.seed for request in drawn}) == 3
    again = requests(text.replace(", seed: 10", ""))
    assert [request.sampling for request in drawn] == [request.sampling for request in again]
    other = requests(text.replace(", seed: 10", ""), Context(vocab=9, seed=1))
    assert {request.sampling.seed for request in drawn}.isdisjoint(request.sampling.seed for request in other)


def test_a_prompts_own_sampling_replaces_the_workloads(requests):
    made = requests(
        "sampling: {temperature: 1}\nprompts: [{tokens: [1], sampling: {top_k: 3, temperature: 2, seed: 1}}]"
    )
    assert made[0].sampling == Sampling(2.0, 3, 1.0, 1)


# -- arrivals and seeds ------------------------------------------------------------------------------------


def test_requests_come_in_order_of_arrival(requests):
    made = requests(
        "prompts: [{id: c, tokens: [1], arrival_seconds: 2}, {id: a, tokens: [1]}, {id: b, tokens: [1]}]"
    )
    assert [(request.id, request.arrival_seconds) for request in made] == [("a", 0), ("b", 0), ("c", 2)]


def test_arrivals_do_not_depend_on_lengths_nor_lengths_on_arrivals(requests):
    drawn = "requests: 9\nprompt_tokens: {{uniform: [1, {}]}}\noutput_tokens: 2\narrivals: {{poisson: 3}}"
    few, many = requests(drawn.format(5)), requests(drawn.format(50))
    assert [request.arrival_seconds for request in few] == [request.arrival_seconds for request in many]
    at_once = requests(drawn.format(5).replace("arrivals: {poisson: 3}", ""))
    assert [request.prompt for request in few] == [request.prompt for request in at_once]


def test_the_same_seed_makes_the_same_requests_and_another_does_not(requests):
    drawn = "requests: 5\nprompt_tokens: {uniform: [1, 50]}\noutput_tokens: 2\narrivals: {poisson: 3}"
    assert requests(drawn) == requests(drawn)
    assert requests(drawn) != requests(drawn, Context(vocab=300, seed=1))
    with pytest.raises(UsageError, match="seed -1 is negative"):
        Context(seed=-1)


@pytest.mark.parametrize("draws", ["numpy", "python"])
def test_a_simulated_run_has_the_same_lengths_without_ids(requests, draws):
    drawn = f"requests: 5\ndraws: {draws}\n"
    drawn += "prompt_tokens: {uniform: [1, 50]}\noutput_tokens: {uniform: [1, 50]}"
    real, simulated = requests(drawn), requests(drawn, Context(vocab=300, contents=False))
    assert all(isinstance(request.prompt, range) for request in simulated)
    assert [len(request.prompt) for request in real] == [len(request.prompt) for request in simulated]
    assert [request.max_new_tokens for request in real] == [request.max_new_tokens for request in simulated]


# -- traces ------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path):
    def written(name: str, *lines: object) -> None:
        (tmp_path / name).write_text(
            "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        )

    return written


PLAIN = ("arrival,prompt_tokens,output_tokens,tenant", "10,3,5,a", "11,4,0,b", "13,5,7,a", "16,6,8,b")


def test_a_trace_becomes_requests_with_its_times_and_tags(requests, trace):
    trace("a.csv", *PLAIN)
    made = requests("trace: a.csv", Context(contents=False))
    assert [request.arrival_seconds for request in made] == [0, 1, 3, 6]
    assert [request.prompt for request in made] == [range(3), range(4), range(5), range(6)]
    assert [request.max_new_tokens for request in made] == [5, 0, 7, 8]
    assert [request.tags for request in made[:2]] == [{"row": 2, "tenant": "a"}, {"row": 3, "tenant": "b"}]
    assert [request.id for request in made] == ["row-2", "row-3", "row-4", "row-5"]


def test_ids_of_a_trace_are_drawn_a_row_so_that_a_cut_changes_none(requests, trace):
    trace("a.csv", *PLAIN)
    whole, first = requests("trace: a.csv"), requests("trace: a.csv\nrequests: 2")
    assert first == whole[:2]
    assert all(0 <= token < 300 for request in whole for token in request.prompt)
    assert requests("trace: {file: a.csv, duration: 3}") == whole[:2]


def test_times_of_a_trace_are_scaled_or_replaced(requests, trace):
    trace("a.csv", *PLAIN)
    assert [r.arrival_seconds for r in requests("trace: a.csv\narrivals: {recorded: {speedup: 2}}")] == [
        0,
        0.5,
        1.5,
        3,
    ]
    assert [r.arrival_seconds for r in requests("trace: a.csv\narrivals: {recorded: {rate: 1}}")] == [
        0,
        0.5,
        1.5,
        3,
    ]
    assert [r.arrival_seconds for r in requests("trace: a.csv\narrivals: {constant: 2}")] == [0, 0.5, 1, 1.5]
    assert {r.arrival_seconds for r in requests("trace: a.csv\narrivals: at_once")} == {0}


def test_a_trace_without_times_arrives_at_once_and_has_none_to_scale(requests, trace):
    trace("a.csv", "num_prefill_tokens,num_decode_tokens", "3,4", "5,6")
    assert {request.arrival_seconds for request in requests("trace: a.csv")} == {0}
    with pytest.raises(InputError, match=r"arrivals are 'recorded', but no times were"):
        requests("trace: a.csv\narrivals: {recorded: {speedup: 2}}")
    with pytest.raises(InputError, match="row 2 has no time, which a duration needs"):
        requests("trace: {file: a.csv, duration: 2}")


def test_a_traces_own_ids_are_taken_refused_or_left(requests, trace):
    row = {"input_toks": 3, "output_toks": 1, "arrival_time_ns": 5, "input_tok_ids": [1, 299, 2]}
    trace("a.jsonl", row)
    assert list(requests("trace: a.jsonl")[0].prompt) == [1, 299, 2]
    with pytest.raises(
        InputError, match=r"a.jsonl row 1 has the token id 299, .*\(0 to 298\); set trace.use_ids to false"
    ):
        requests("trace: a.jsonl", Context(vocab=299))
    drawn = requests("trace: {file: a.jsonl, use_ids: false}", Context(vocab=5))[0].prompt
    assert len(drawn) == 3
    assert max(drawn) < 5
    assert requests("trace: a.jsonl", Context(contents=False))[0].prompt == range(3)


def test_rows_that_share_blocks_share_their_tokens(requests, trace):
    def row(length, ids):
        return {"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": ids}

    trace("a.jsonl", row(10, [7, 8, 9]), row(9, [7, 8, 9]), row(8, [7, 5]), row(11, [7]))
    text = "trace: {file: a.jsonl, options: {block_tokens: 4}}"
    first, second, third, short = (list(request.prompt) for request in requests(text))
    assert [len(first), len(second), len(third), len(short)] == [10, 9, 8, 11]
    assert first[:9] == second
    assert first[:4] == third[:4] == short[:4]
    assert first[4:8] != third[4:8]
    unshared = [list(r.prompt) for r in requests("trace: {file: a.jsonl, use_ids: false}")]
    assert unshared[0][:4] != unshared[1][:4]


def test_rows_left_out_are_noted(tmp_path, trace):
    trace("a.csv", *PLAIN, "17,x,1,c")
    (tmp_path / "mine.yaml").write_text("trace: {file: a.csv, options: {skip_bad_rows: true}}")
    built = load_workload(tmp_path / "mine.yaml").build(BARE)
    assert len(built.requests) == 4
    assert "a.csv: 1 left out: bad rows" in built.notes[0]
    assert "row 6, column prompt_tokens: 'x'" in built.notes[1]


def test_a_bare_trace_is_a_workload_whose_errors_name_it_once(tmp_path, trace):
    trace("a.csv", *PLAIN)
    workload = load_workload(tmp_path / "a.csv")
    assert workload.name == "a"
    assert len(workload.with_overrides({"requests": "2"}).requests(BARE)) == 2
    trace("a.csv", *PLAIN, "0,1,1,a")
    for made in (workload, workload.with_overrides({"trace.duration": "1e9"})):
        with pytest.raises(InputError, match=r"a.csv row 6: its time is 16.0") as caught:
            made.requests(BARE)
        assert str(caught.value).count("a.csv") == 1
    assert len(workload.with_overrides({"trace.sort": "true"}).requests(BARE)) == 5


def test_a_trace_format_of_a_plugin_is_asked_too(requests, trace, tmp_path):
    from musebench.workload.traces import TraceRow

    class Mine:
        def recognises(self, head, filename):
            return head.startswith(b"mine")

        def read(self, path):
            yield TraceRow(0.0, 2, 3)

    trace("a.txt", "mine")
    context = Context(contents=False, trace_formats={"mine": lambda values: Mine()})
    assert requests("trace: a.txt", context)[0].max_new_tokens == 3


# -- generators --------------------------------------------------------------------------------------------


class Generated:
    def __init__(self, values):
        self.count = values.get("count", 1)

    def requests(self, context):
        if self.count == "broken":
            raise ValueError("no luck")
        if self.count == "unsupported":
            raise UnsupportedError("needs a moon; wait for night")
        return [
            Request(str(n), range(1 + n), context.seed, arrival_seconds=9.0 - n) for n in range(self.count)
        ]


def test_a_generator_gets_its_options_and_the_context(requests):
    context = Context(seed=4, generators={"mine": Generated})
    made = requests("generator: {name: mine, options: {count: 2}}", context)
    assert [(request.id, request.max_new_tokens) for request in made] == [("1", 4), ("0", 4)]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("generator: mein", UsageError, "there is no generator 'mein'; did you mean 'mine'"),
        (
            "generator: {name: mine, options: {count: broken}}",
            InputError,
            "'mine' failed: ValueError: no luck",
        ),
        (
            "generator: {name: mine, options: {count: unsupported}}",
            UnsupportedError,
            "mine.yaml: needs a moon",
        ),
        ("generator: {name: mine, options: {count: 0}}", InputError, "generator 'mine' made no request"),
    ],
)
def test_a_generator_that_is_missing_or_fails_is_named(requests, text, kind, said):
    with pytest.raises(kind, match=said):
        requests(text, Context(generators={"mine": Generated}))


def test_prompts_are_plain_ints_that_numpy_takes_whole(requests):
    ids = requests("requests: 1\nprompt_tokens: 40\noutput_tokens: 1")[0].prompt
    assert type(ids[0]) is int
    assert np.asarray(ids).dtype == np.int32
