"""The folder of a matrix: one report a run, or one failure; a run is done when its file is there.

LABEL-REPEAT-KEY.json     the report, written whole or not at all by the run itself
LABEL-REPEAT-KEY.failed   why there is none
journal.jsonl             one line for each run that was started
.lock                     held while a matrix or one of its runs is alive
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from musebench.core.errors import InputError
from musebench.core.whole import write_whole
from musebench.matrix.plan import Task


@dataclass(frozen=True)
class Failure:
    """Why a run has no report. `impossible`: it refused before its first step, as it always will."""

    reason: str
    impossible: bool = False


class Folder:
    """The state of a matrix on disk. All that it knows is read from there, so it outlives any process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out {path}: cannot make the folder: {error.strerror or error}") from error

    def report(self, task: Task) -> Path:
        return self.path / f"{task.name}.json"

    def done(self, task: Task) -> bool:
        return self.report(task).exists()

    def failure(self, task: Task) -> Failure | None:
        """The failure that was kept for it; None when there is none, or only a part of one."""
        try:
            values = json.loads(self._failed(task).read_bytes())
            return Failure(str(values["reason"]), bool(values["impossible"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_failure(self, task: Task, failure: Failure) -> None:
        write_whole(self._failed(task), (json.dumps(asdict(failure)) + "\n").encode(), "why the run failed")

    def forget_failure(self, task: Task) -> None:
        self._failed(task).unlink(missing_ok=True)

    def note_start(self, task: Task) -> None:
        """One line in the journal: which run, and when."""
        line = {"run": task.name, "key": task.key, "started": datetime.now(UTC).isoformat()}
        with (self.path / "journal.jsonl").open("a") as journal:
            journal.write(json.dumps(line) + "\n")

    @contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[int]:
        """Hold the folder; yields a descriptor that runs inherit.

        A matrix that was killed may have left a run behind. It holds the lock for as long as it lives, and
        this waits for it (`on_wait` is called first): its report then counts, and nothing is run twice.
        """
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()

    def _failed(self, task: Task) -> Path:
        return self.path / f"{task.name}.failed"
