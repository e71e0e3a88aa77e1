"""Against a server that misbehaves on purpose: every request ends, with its reason, and no key is written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from musebench_openai.stream import Failure, parse

from musebench.core.errors import UsageError
from musebench.peers import run_peer
from musebench.plugin.registry import Registry
from musebench.report import files, latencies, metrics
from musebench.report.tables import show
from musebench.report.verdict import judge, verdicts_of
from musebench.run import RunOptions

KEY = "sk-very-secret-0123456789"


def event(text=None, reason=None, usage=None):
    body = {
        "choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": reason}]
    }
    if usage is not None:
        body["usage"] = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))
    return f"data: {json.dumps(body)}\n\n"


def good(made=3):
    return [
        *(event(f" word{n}") for n in range(made)),
        event(reason="length", usage=(7, made)),
        "data: [DONE]\n\n",
    ]


class Scripted(BaseHTTPRequestHandler):
    """Answers the n-th POST with the n-th entry of the script, the last one again and again."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = json.dumps({"data": [{"id": "some-model"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            place = len(self.server.bodies)
            self.server.bodies.append((self.path, body, self.headers.get("Authorization")))
        script = self.server.script
        script[min(place, len(script) - 1)](self)


def streams(*parts, whole=True) -> Callable:
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        if not whole:  # promises more than it sends
            handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(part.encode())
            handler.wfile.flush()
        handler.close_connection = True

    return answer


def refuses(code, said="no", **extra) -> Callable:
    def answer(handler):
        body = json.dumps({"error": {"message": said}}).encode()
        handler.send_response(code)
        for name, value in extra.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def stalls(handler):
    streams(event(" one"))(handler)
    handler.server.released.wait()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    made.daemon_threads = True
    made.lock, made.bodies, made.released = threading.Lock(), [], threading.Event()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def registry():
    return Registry.installed()


@pytest.fixture
def ask(server, registry):
    def run(*script, requests=1, options=(), **changed):
        server.script = script
        url = f"http://127.0.0.1:{server.server_port}/v1"
        engine = {"base_url": url, "longest_wait": "2", **dict(options)}
        workload = {"prompts": "[{text: say hi}]", "max_new_tokens": "3", "requests": str(requests)}
        settings = {"engine": engine, "workload": workload}
        return run_peer(
            "openai", RunOptions("capitals", "some-model", settings=settings, **changed), registry
        )

    return run


def only(report):
    requests = report.runs[0].requests
    return str(requests.finish_reason[0]), requests.message[0]


def test_a_good_stream_is_counted_by_usage_and_timed_by_chunks(ask, server, registry):
    report = ask(streams(*good()))
    requests = report.runs[0].requests
    assert only(report) == ("length", None)
    assert (requests.generated_tokens, requests.prompt_tokens, requests.text) == (
        [3],
        [7],
        [" word0 word1 word2"],
    )
    assert requests.token_ids is None
    assert requests.prompt_sha256 == [None]
    assert latencies.summaries(report)["ITL"].count == 2
    path, body, _ = server.bodies[0]
    assert path == "/v1/completions"
    assert body["prompt"] == "say hi"
    assert body["stream_options"] == {"include_usage": True}
    checks = [component.make({}) for component in registry.components("check")]
    assert not [v.reason for v in verdicts_of([report], checks) if not v.valid]
    assert judge([report], checks)[0].valid


def test_tokens_that_share_a_chunk_are_said_and_give_no_gaps(ask):
    report = ask(streams(event(" all three"), event(reason="length", usage=(7, 3))))
    assert latencies.summaries(report)["TPOT"].count == 0
    assert latencies.summaries(report)["ITL"].count == 0
    assert latencies.summaries(report)["TTFT"].count == 1
    assert "3 tokens came in 1 pieces: TTFT and TPOT are of pieces" in show(report)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ([refuses(500, "out of\nluck")], "the server answers 500: out of luck"),
        (
            [refuses(429, "slow down", Retry_After="3600")],
            "wants 3600 s, longer than engine.longest_wait",
        ),
        ([refuses(429, "slow down", Retry_After="0")], "the server answers 429 to 4 tries: slow down"),
        ([streams(event(" one"), whole=False)], "the connection broke"),
        ([streams(event(" one"))], "the stream was cut off after 1 chunks"),
        ([streams(event(" one"), "data: [DONE]\n\n")], "ended without a finish reason after 1 chunks"),
        ([streams("data: {nonsense\n\n")], "which is no JSON"),
        ([streams("<html>gateway</html>\n")], "which is no server-sent event"),
        (
            [streams('data: {"error": {"message": "worker died"}}\n\n')],
            "the server says in the stream: worker",
        ),
        ([streams(event(" one"), event(reason="length"))], "the server gave no usage"),
        (
            [streams(event(" one"), event(reason="content_filter", usage=(1, 1)))],
            "reason: content_filter",
        ),
    ],
)
def test_what_goes_wrong_is_a_failure_with_its_reason(ask, script, says):
    report = ask(*script)
    reason, message = only(report)
    assert reason == "failed"
    assert says in message
    assert "\n" not in message
    assert report.status == "incomplete"


def test_a_server_that_falls_silent_is_left(ask):
    report = ask(stalls, options={"silence": "0.3"})
    assert only(report) == ("failed", "not a byte for 0.3 s (engine.silence)")


def test_a_request_that_drips_for_ever_ends_at_its_total(ask):
    def drips(handler):
        streams(event(" one"))(handler)
        while not handler.server.released.wait(0.05):
            try:
                handler.wfile.write(event(" more").encode())
            except OSError:
                return

    assert "had not ended after 0.5 s (engine.total)" in only(ask(drips, options={"total": "0.5"}))[1]


def test_429_is_waited_for_and_counted(ask):
    report = ask(refuses(429, "later", Retry_After="0"), streams(*good()))
    assert only(report) == ("length", None)
    assert report.runs[0].counters["sent again after 429"] == 1
    assert report.runs[0].counters["requests sent"] == 2


def test_one_failure_leaves_the_others(ask):
    report = ask(refuses(500), streams(*good()), requests=4, max_sessions=1)
    ends = sorted(str(reason) for reason in report.runs[0].requests.finish_reason)
    assert ends == ["failed", "length", "length", "length"]
    assert metrics.throughput(report).requests == 3


@pytest.mark.parametrize(("late_seconds", "late"), [(-1.0, 2), (1e9, 0)])
def test_requests_that_the_client_sends_late_are_counted(ask, monkeypatch, late_seconds, late):
    monkeypatch.setattr("musebench_openai.engine.LATE_SECONDS", late_seconds)
    report = ask(streams(*good()), requests=2)
    assert report.runs[0].counters["sent late by the client"] == late


def test_no_key_is_written_anywhere(ask, server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    report = ask(refuses(500, f"bad key {KEY}"), options={"key_env": "SOME_KEY"})
    assert server.bodies[0][2] == f"Bearer {KEY}"
    path = tmp_path / "report.json"
    files.write(report, path)
    assert KEY not in path.read_text()
    assert "bad key ***" in only(report)[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE, which is not set"),
        ({"base_url": "ftp://somewhere"}, "is no http"),
        ({"base_url": f"http://user:{KEY}@127.0.0.1/v1"}, "holds a user part"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "cannot be reached"),
        ({"extra": "[1]"}, "no JSON object"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_sent(ask, server, options, says):
    with pytest.raises(UsageError) as caught:
        ask(streams(*good()), options=options)
    assert says in str(caught.value)
    assert KEY not in str(caught.value)
    assert not server.bodies


def test_a_model_that_nobody_named_is_asked_for_with_what_there_is(server, registry):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    with pytest.raises(UsageError, match="lists: some-model"):
        run_peer("openai", RunOptions(settings={"engine": {"base_url": url}}), registry)


@pytest.mark.parametrize("line", ["", ": ping", "event: message", "id: 4"])
def test_lines_without_data_carry_nothing(line):
    assert parse(line) is None


@pytest.mark.parametrize("line", ["data: 4", "data: null", "data: [", "nonsense"])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(Failure):
        parse(line)
