"""How a command ends: whatever it was is one line on standard error, and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from musebench.core.errors import MusebenchError
from musebench.core.interrupt import STOPS

EXIT_MISTAKE = 2

ENDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal hung up"}

MOST_WORD = 300
"""Most characters that are shown of a word: what somebody typed may be of any length."""


def prepare() -> None:
    """Make this process end as one: SIGTERM and SIGHUP stop what it does, its runs included, as an interrupt
    does, and a file's name that is no text does not stop the output."""
    for number in STOPS:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one: so it stays
            signal.signal(number, _stop)
    # A process that is forked from this one (a pool's worker) is ended by its parent, without a word.
    os.register_at_fork(after_in_child=_end_at_once)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def end(error: MusebenchError | click.ClickException | click.Abort | OSError) -> NoReturn:
    """Say it in one line, and exit."""
    if isinstance(error, MusebenchError):
        _fail(str(error), EXIT_MISTAKE)
    if isinstance(error, click.ClickException):
        _fail(_with_help(error), error.exit_code)
    if isinstance(error, OSError):
        _fail(_of_system(error), EXIT_MISTAKE)
    cause = error.__cause__
    if not isinstance(cause, KeyboardInterrupt):
        _fail("aborted", 1)
    number = next(iter(cause.args), signal.SIGINT)
    # CPython ends by SIGINT, whatever the exit code, when the interrupt came inside of an import; what is
    # executed anew takes that back.
    exec("")
    _fail(ENDS.get(number, "interrupted"), 128 + number)


def one_line(text: str) -> str:
    """The text in one line that can be printed: control characters are escaped, very long words are cut."""
    words = ("".join(one if one.isprintable() else repr(one)[1:-1] for one in word) for word in text.split())
    return " ".join(
        word if len(word) <= MOST_WORD else f"{word[: MOST_WORD - 60]}...{word[-57:]}" for word in words
    )


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number))


def _end_at_once() -> None:
    for number in STOPS:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_DFL)


def _of_system(error: OSError) -> str:
    """What the system refused, and where it says so; the standard output has no name."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "the output"
    return f"{where}: {error.strerror or type(error).__name__}"


def _with_help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    return f"{text.rstrip('.')}; see '{context.command_path} --help'" if context else text


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"musebench: error: {one_line(text)}", err=True)
    sys.exit(code)
