"""How commands end when the system, a signal or a full disk says so: one line, a code, and no file lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_examples import report

from musebench.cli import root
from musebench.cli.ends import one_line
from musebench.core import whole
from musebench.core.errors import InputError
from musebench.core.interrupt import RunInterrupted, between_steps
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.run import RunOptions, run

REPOSITORY = Path(__file__).resolve().parents[1]

# Whoever runs the tests may ignore signals, as nohup and a shell's & do, and processes inherit that.
FROM_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""

# A command whose body tells that it is at work, and then waits to be ended; `musebench.cli.main` around it.
WAITING = """
import click, time
from types import SimpleNamespace
from musebench.cli import group

@click.command()
def body():
    print("at work", flush=True)
    time.sleep(60)

group.root.get_command = lambda ctx, name: body
import sys; sys.argv = ["musebench", "act"]
group.main()
"""


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "the terminal hung up"),
    ],
)
def test_a_signal_ends_a_command_with_its_code_and_one_line(number, code, said):
    process = subprocess.Popen(
        [sys.executable, "-c", FROM_A_TERMINAL + WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, errors.strip()) == (code, f"musebench: error: {said}")


def test_a_signal_that_is_ignored_stays_ignored():
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + WAITING.replace("60", "0")
    script = script.replace("time.sleep", "import os; os.kill(os.getpid(), 1); time.sleep")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_system_refuses_is_one_line_with_its_place():
    name = "a" * 5000
    result = CliRunner().invoke(root, ["convert", name, "--out", "b.json"], prog_name="musebench")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith(os.strerror(errno.ENAMETOOLONG))
    assert len(line) < 400


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "musebench", "list"], stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"musebench: error: the output: {os.strerror(errno.ENOSPC)}\n"


def test_errors_are_one_printable_line_of_bounded_words():
    assert one_line("a\nb\x1b[31m \udcff") == "a b\\x1b[31m \\udcff"
    assert one_line("x" * 100_000 + " y") == "x" * 240 + "..." + "x" * 57 + " y"


def test_a_name_that_is_no_text_does_not_stop_the_output(tmp_path):
    files.write(report(), tmp_path / "a.json")
    done = subprocess.run(
        [sys.executable, "-m", "musebench", "trace", "a.json", "--out", b"\xff.json"], cwd=tmp_path,
        capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"\\udcff.json\n")


# -- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "a.json", "--out", "out.json"),
        ("report", "a.json", "--html", "out.html"),
        ("check", "a.json", "--junit", "out.xml"),
        ("convert", "a.json", "--out", "out.json"),
        ("plot", "a.json", "--kind", "pool", "--out", "out"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_leaves_the_file_that_was_there(arguments, tmp_path, monkeypatch):
    if arguments[0] == "plot":
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    files.write(report(), tmp_path / "a.json")
    result = CliRunner().invoke(root, list(arguments), prog_name="musebench")
    assert result.exit_code in (0, 1), result.stderr
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(before) > 1

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole.os, "fsync", full)
    result = CliRunner().invoke(root, list(arguments), prog_name="musebench")
    assert result.exit_code == 2
    assert os.strerror(errno.ENOSPC) in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_place_that_is_no_file_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    whole.write_whole(pipe, b"all", "it")
    assert os.read(reader, 9) == b"all"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(InputError, match="cannot write it: Is a directory"):
        whole.write_whole(tmp_path, b"all", "it")


# -- runs -----------------------------------------------------------------------------------------------


@pytest.fixture
def from_a_terminal():
    """An interrupt is an exception, whatever whoever runs the tests does with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Rested:
    interrupted = False
    resting = False


@pytest.mark.usefixtures("from_a_terminal")
def test_the_first_interrupt_waits_for_the_step_and_the_second_does_not():
    engine = Rested()
    with between_steps([engine]):
        signal.raise_signal(signal.SIGINT)
        assert engine.interrupted
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(signal.SIGINT)
    assert caught.type is KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("from_a_terminal")
def test_who_only_waits_for_an_arrival_is_interrupted_at_once():
    engine = Rested()
    engine.resting = True
    with pytest.raises(RunInterrupted), between_steps([engine]):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("from_a_terminal")
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_simulated_run_that_is_interrupted_in_a_step_has_whole_columns(replicas, monkeypatch):
    from musebench.core.steplog import StepLog

    add, added = StepLog.add, []

    def adding(self, *arguments):
        self._segment(1, arguments[4], 0, arguments[5])  # half of it is there
        added.append(None)
        if len(added) == 5:
            signal.raise_signal(signal.SIGINT)
        del self._firsts[-1], self._segments[-15:]
        add(self, *arguments)

    monkeypatch.setattr(StepLog, "add", adding)
    options = RunOptions(
        "mixed", model="llama-3.1-8b", device="sim:h200", stepwise=True, replicas=replicas,
        settings={"workload": {"requests": 8}},
    )  # fmt: skip
    made = run(options, Registry.installed())
    assert (made.status, made.message) == ("incomplete", "interrupted")
    assert len(made.runs[0].steps) == 5


def test_no_request_of_a_load_that_can_run_is_a_mistake():
    arguments = ("mixed", "--model", "llama-3.1-8b", "--slo", "ttft=1s", "--requests", "2")
    result = CliRunner().invoke(root, ["capacity", *arguments, "--max-context", "1"], prog_name="musebench")
    assert result.exit_code == 2
    assert "no request could run: " in result.stderr


@pytest.mark.parametrize("option", ["--decodes", "--context", "--prefill", "--prefilled"])
def test_a_step_of_any_size_is_refused_beyond_its_bounds(option):
    arguments = ["explain", "--model", "llama-3.1-8b", option, str(10**18)]
    result = CliRunner().invoke(root, arguments, prog_name="musebench")
    assert result.exit_code == 2
    assert option in result.stderr
