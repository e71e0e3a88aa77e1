"""Workload files: what loads, what is refused and how, and what may be changed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from musebench.core.errors import InputError, UsageError
from musebench.workload import Context, load_workload
from musebench.workload.arrivals import AtOnce, Gamma, Poisson, Recorded
from musebench.workload.lengths import Fixed, Uniform
from musebench.workload.load import workload_folders
from musebench.workload.spec import (
    GeneratorSpec,
    SamplingSpec,
    TraceSpec,
)

REPOSITORY = Path(__file__).resolve().parents[1]
README = REPOSITORY / "workloads" / "README.md"
DRAWN = "requests: 3\nprompt_tokens: 4\noutput_tokens: 2\n"


@pytest.fixture
def load(tmp_path):
    def made(text: str | bytes, name: str = "mine.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_workload(path)

    return made


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("promts: []", "unknown key 'promts'; did you mean 'prompts'?"),
        (DRAWN + "sampling: {temprature: 1}", "unknown key 'temprature' in sampling; did you mean 'temp"),
        ("prompts: [{text: a, max_new_token: 1}]", r"'max_new_token' in prompts\[0\]; did you mean"),
        (DRAWN + "defaults: {max_session: 1}", "unknown key 'max_session' in defaults; did you mean 'max"),
        (DRAWN + "arrivals: {poison: 3}", "arrivals is of kind 'poison', .* did you mean 'poisson'"),
        (DRAWN + "arrivals: {gamma: {rate: 1, cs: 1}}", "unknown key 'cs' in arrivals.gamma"),
        ("requests: many\nprompt_tokens: 4\noutput_tokens: 2", "requests is 'many'; a whole number"),
        ("requests: 1.5\nprompt_tokens: 4\noutput_tokens: 2", "requests is 1.5; a whole number is wanted"),
        ("requests: true\nprompt_tokens: 4\noutput_tokens: 2", "requests is True; a whole number is wanted"),
        (DRAWN + "ignore_eos: yes", "ignore_eos is 'yes'; true or false is wanted"),
        (DRAWN + "sampling: {temperature: .nan}", "sampling.temperature is nan; a finite number is wanted"),
        (DRAWN + "sampling: {temperature: .inf}", "sampling.temperature is inf; a finite number is wanted"),
        (DRAWN + "sampling: {top_k: 3}", "sampling cannot be used: top_k changes nothing at temperature 0"),
        (DRAWN + "sampling: {seed: 3}", "sampling cannot be used: seed changes nothing at temperature 0"),
        (DRAWN + "sampling: {top_p: 0}", "sampling.top_p is 0.0; more than 0 is wanted"),
        (DRAWN + "sampling: {top_p: 1.1}", "sampling.top_p is 1.1; at most 1 is wanted"),
        (DRAWN + "sampling: greedy", "sampling is 'greedy'; a mapping"),
        (DRAWN + "stop_tokens: 2", "stop_tokens is 2; a list is wanted"),
        (DRAWN + "stop_tokens: [-1]", "stop_tokens is -1; at least 0 is wanted"),
        (DRAWN + "draws: numpi", "draws is 'numpi'; did you mean 'numpy'?"),
        (DRAWN + "arrivals: poisson", "arrivals.poisson needs the key 'rate'"),
        (DRAWN + "arrivals: {poisson: 1, gamma: 2}", "an arrival process is wanted: one of at_once"),
        (DRAWN + "arrivals: {poisson: 0}", "arrivals.poisson.rate is 0.0; at least"),
        (DRAWN + "arrivals: {at_once: 3}", "it takes no values"),
        (DRAWN + "arrivals: {poisson: [1, 2]}", "has 2 values; at most 1 are wanted: rate"),
        ("requests: 0\nprompt_tokens: 4\noutput_tokens: 2", "requests is 0; at least 1 is wanted"),
        ("prompts: []", "'prompts' is empty"),
        ("prompts: {text: a}", "prompts is {'text': 'a'}; a list is wanted"),
        ("prompts: [hello]", r"prompts\[0\] is 'hello'; a mapping"),
        ("prompts: [{expect: a}]", r"prompts\[0\] cannot be used: it has no prompt"),
        ("prompts: [{text: a, length: 3}]", r"prompts\[0\] cannot be used: it has text and length"),
        ("prompts: [{tokens: []}]", "its tokens is empty"),
        ("prompts: [{tokens: [1, x]}]", r"prompts\[0\].tokens\[1\] is 'x'; a whole number is wanted"),
        ("prompts: [{chat: [{role: user}]}]", r"prompts\[0\].chat\[0\] needs the key 'content'"),
        ("prompts: [{text: a, id: x}, {text: b, id: x}]", r"prompts\[1\] has the id 'x' of an earlier one"),
        ("prompts: [{text: a}, {text: b, id: '0'}]", r"prompts\[1\] has the id '0' of an earlier one"),
        ("prompts: [{text: a, arrival_seconds: 1}]\narrivals: at_once", "exclude each other"),
        ("prompts: [{text: a}]\nprompt_tokens: 3", "exactly one of .*; there is prompts and prompt_tokens"),
        ("description: nothing", "exactly one of .*; there is none of them"),
        ("prompts: [{text: a}]\ndraws: python", "'draws' does not go with 'prompts'; it is for"),
        ("trace: a.csv\nmax_new_tokens: 3", "'max_new_tokens' does not go with 'trace'; output"),
        ("generator: a\nrequests: 3", "'requests' does not go with 'generator'"),
        ("requests: 3\nprompt_tokens: 4", "'prompt_tokens' needs 'output_tokens' too"),
        ("output_tokens: 3\nprompt_tokens: 4", "'prompt_tokens' needs 'requests' too"),
        (DRAWN.replace("4", "{uniform: [9, 2]}"), "prompt_tokens.uniform cannot be used: low 9 is more"),
        (DRAWN.replace("4", "{zipf: {exponent: 1, max: 5}}") + "draws: python", "not zipf; use draws"),
        ("trace: {sort: true}", "trace needs the key 'file'"),
        ("- a\n- b", "is a list; a mapping of keys"),
        ("", "is empty; a mapping of keys"),
        ("# only a comment\n", "is empty; a mapping of keys"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_key_and_what_was_wanted(load, text, said):
    with pytest.raises(InputError, match=said) as caught:
        load(text)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "prompts: [{text: a, max_new_tokens: -1}]",
        "prompts: [{text: a}]\nmax_new_tokens: -1",
        DRAWN.replace("output_tokens: 2", "output_tokens: -1"),
        DRAWN.replace("output_tokens: 2", "output_tokens: {uniform: [-3, 3]}"),
        DRAWN.replace("output_tokens: 2", "output_tokens: {empirical: [4, -1]}"),
    ],
)
def test_a_negative_number_of_tokens_is_refused_at_load(load, text):
    with pytest.raises(InputError, match=r"is -\d; at least 0 is wanted"):
        load(text)


def test_asking_for_no_token_is_allowed(load):
    context = Context(vocab=10)
    assert load("prompts: [{length: 3, max_new_tokens: 0}]").requests(context)[0].max_new_tokens == 0
    assert load("prompts: [{length: 3}]\nmax_new_tokens: 0").requests(context)[0].max_new_tokens == 0
    made = load(DRAWN.replace("output_tokens: 2", "output_tokens: 0")).requests(context)
    assert [request.max_new_tokens for request in made] == [0, 0, 0]


@pytest.mark.parametrize(
    "text", ["prompt_tokens: 0", "prompt_tokens: {uniform: [0, 3]}", "prompt_tokens: {empirical: [0]}"]
)
def test_an_empty_prompt_is_refused_at_load(load, text):
    with pytest.raises(InputError, match="a prompt has at least 1 token"):
        load(f"requests: 3\noutput_tokens: 2\n{text}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", r"mine.yaml line 3: the key 'a' is there twice"),
        ("a: &x [1]\nb: *x", r"mine.yaml line 2, column 4: an alias \(\*x\) is not taken"),
        ("a: [" * 3000, "nested deeper than 24"),
        ("[" * 900_000, "nested deeper than 24"),
        ("a: !!python/object:os.system x", "line 1: the tag .*os.system is not taken"),
        ("a: !!binary aGk=", "the tag"),
        ("a: !mine x", "the tag !mine"),
        ("a: !!int x", "'x' is not a number"),
        ("1: a", "line 1: a key that is not text"),
        ("? [a]\n: b", "a key that is not text"),
        ("a: 1\n---\nb: 2", "line 2, column 1: but found another document"),
        ("a: 'open", "line 1, column"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed"),
        ("\tx", "line 1, column 1"),
        ("a: \x01", "is not YAML"),
        (b"a: 1\nb: \xff", "line 2 is not UTF-8"),
        ("a: " + "9" * 5000, "is not a number that can be used"),
        ("#" * (1 << 20) + "#", r"larger than 1,048,576 bytes"),
    ],
)
def test_yaml_that_is_broken_or_dangerous_is_refused_in_one_line(load, text, said):
    with pytest.raises(InputError, match=said) as caught:
        load(text)
    assert "\n" not in str(caught.value)


def test_scalars_mean_what_they_look_like(load):
    made = load(
        "requests: 010\nprompt_tokens: 1_000\noutput_tokens: 2\n"
        "description: no\nname: '7'\nsampling: {temperature: 1e-1}"
    ).spec
    assert (made.requests, made.prompt_tokens, made.description, made.name) == (10, Fixed(1000), "no", "7")
    assert made.sampling.temperature == 0.1


def test_byte_order_mark_and_crlf_do_not_matter(load):
    assert load(b"\xef\xbb\xbf" + DRAWN.replace("\n", "\r\n").encode()).spec == load(DRAWN).spec


def test_kinds_may_be_written_by_name_by_order_or_by_keys(load):
    by_name = load(DRAWN.replace("4", "{uniform: {low: 2, high: 5}}") + "arrivals: at_once").spec
    by_order = load(DRAWN.replace("4", "{uniform: [2, 5]}") + "arrivals: {gamma: [2, 0.5]}").spec
    assert by_name.prompt_tokens == by_order.prompt_tokens == Uniform(2, 5)
    assert by_name.arrivals == AtOnce()
    assert by_order.arrivals == Gamma(2, 0.5)
    assert load(DRAWN + "arrivals: {poisson: 2}").spec.arrivals == Poisson(2)
    assert load("trace: a.csv\narrivals: recorded").spec.arrivals == Recorded()
    assert load("trace: a.csv").spec.trace == TraceSpec("a.csv")
    assert load("generator: g").spec.generator == GeneratorSpec("g")


# -- finding -----------------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="no workload 'capitols'; did you mean 'capitals'"):
        load_workload("capitols")


@pytest.mark.parametrize("path", ["missing.yaml", "no/such/folder/x", "a\0b.yaml", "."])
def test_a_path_that_is_not_there_is_named(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, UsageError)) as caught:
        load_workload(path).requests(Context(vocab=5))
    assert path in str(caught.value)


def test_a_workload_of_the_working_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "single.yaml").write_text(DRAWN)
    monkeypatch.chdir(tmp_path)
    assert load_workload("single").spec.requests == 3
    assert load_workload("mixed").spec.requests == 256


def test_the_installed_folder_is_found_by_the_packages_own_list_of_files(tmp_path, monkeypatch):
    from importlib import metadata

    folder = tmp_path / "share" / "musebench" / "workloads"
    folder.mkdir(parents=True)
    (folder / "installed.yaml").write_text(DRAWN)

    class Listed(metadata.PackagePath):
        def locate(self):
            return tmp_path / self

    listed = [Listed("musebench/__init__.py"), Listed("share/musebench/workloads/installed.yaml")]
    monkeypatch.setattr(metadata, "files", lambda name: listed)
    assert workload_folders()[-1] == folder.resolve()
    assert load_workload("installed").name == "installed"


def test_loading_a_workload_imports_no_torch():
    code = (
        "import sys; from musebench.workload import load_workload, Context\n"
        "load_workload('mixed-small').requests(Context(vocab=9))\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


# -- overrides and hash ------------------------------------------------------------------------------------


def test_overrides_change_counts_ranges_and_kinds_by_path(load):
    made = load(DRAWN + "arrivals: {poisson: {rate: 2}}").with_overrides(
        {
            "requests": "5",
            "prompt_tokens": "{uniform: [1, 2]}",
            "output-tokens.uniform": [3, 4],
            "arrivals.poisson.rate": "9",
            "sampling.temperature": 0.5,
            "defaults.max_sessions": 2,
        }
    )
    assert made.spec.requests == 5
    assert made.spec.prompt_tokens == Uniform(1, 2)
    assert made.spec.output_tokens == Uniform(3, 4)
    assert made.spec.arrivals == Poisson(9)
    assert made.spec.sampling == SamplingSpec(temperature=0.5)
    assert made.defaults.given() == {"max_sessions": 2}
    assert made.with_overrides({"arrivals.gamma": "[1, 2]"}).spec.arrivals == Gamma(1, 2)
    assert made.with_overrides({"requests": 7}).spec.requests == 7
    assert made.spec.requests == 5


def test_overrides_reach_into_lists_and_shorthands(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = load("prompts: [{length: 3}, {length: 4}]").with_overrides({"prompts.1.length": "9"})
    assert [prompt.length for prompt in made.spec.prompts] == [3, 9]
    trace = load("trace: a.csv").with_overrides({"trace.sort": "true", "arrivals.recorded.speedup": "2"})
    assert trace.spec.trace == TraceSpec("a.csv", sort=True)
    assert trace.spec.arrivals == Recorded(speedup=2)
    assert trace.with_overrides({"trace.file": "b.csv"}).spec.trace.file == str(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("request", "3", "unknown key 'request'; did you mean 'requests'"),
        ("requests", "x", "requests is 'x'; a whole number is wanted .with requests changed"),
        ("requests", "[", "the value of requests line 1"),
        ("requests", "-1", "requests is -1; at least 1"),
        ("requests.x", "1", "'requests' holds no keys to change"),
        ("prompts", "[{length: 2}]", "there is prompts and prompt_tokens"),
        ("prompt_tokens.uniform.low", "2", "needs the key 'high'"),
        ("", "2", "unknown key ''"),
    ],
)
def test_an_override_that_cannot_be_is_refused_by_name(load, key, value, said):
    with pytest.raises(UsageError, match=said):
        load(DRAWN).with_overrides({key: value})


def test_a_place_that_a_list_does_not_have_is_refused(load):
    with pytest.raises(UsageError, match="'2' is no place in a list of 1"):
        load("prompts: [{length: 2}]").with_overrides({"prompts.2.length": 1})


def test_the_hash_names_what_decides_the_requests(load, tmp_path):
    base = load(DRAWN).sha256
    assert re.fullmatch("[0-9a-f]{64}", base)
    same = DRAWN.replace("4", "{fixed: 4}") + "name: x\ndescription: y\ndefaults: {max_sessions: 1}"
    assert load(same, "other.yaml").sha256 == base
    assert load(DRAWN.replace("4", "{uniform: [4, 4]}")).sha256 != base
    assert load(DRAWN + "arrivals: {poisson: 1}").sha256 != base
    assert load(DRAWN).with_overrides({"requests": 4}).sha256 != base

    (tmp_path / "a.csv").write_text("arrival,prompt_tokens,output_tokens\n0,1,1\n")
    (tmp_path / "b.csv").write_text("arrival,prompt_tokens,output_tokens\n0,1,1\n")
    first, second = load("trace: a.csv").sha256, load("trace: b.csv").sha256
    assert first == second
    (tmp_path / "b.csv").write_text("arrival,prompt_tokens,output_tokens\n0,1,2\n")
    assert load("trace: b.csv").sha256 != first


# -- shared beginnings ------------------------------------------------------------------------------------


def test_requests_of_a_group_begin_with_its_preamble_and_simulated_ones_say_so(load):
    workload = load("requests: 5\npreamble: {tokens: 30, groups: 2}\nprompt_tokens: 9\noutput_tokens: 2")
    real = workload.requests(Context(vocab=1000))
    heads = [list(request.prompt[:30]) for request in real]
    assert heads[0] == heads[2] == heads[4] != heads[1] == heads[3]
    assert len({tuple(request.prompt) for request in real}) == 5
    named = workload.requests(Context(contents=False))
    assert [request.prefix.names for request in named] == [(0,), (1,), (0,), (1,), (0,)]
    assert [len(request.prompt) for request in real] == [len(request.prompt) for request in named] == [39] * 5
    with pytest.raises(InputError, match="'preamble' does not go with 'prompts'; it is for prompt_tokens"):
        load("prompts: [{text: a}]\npreamble: {tokens: 3}").spec  # noqa: B018
