"""Coverage-guided fuzzing of one target with atheris: see README.md beside it.

    python tests/fuzz/fuzz.py TARGET [FOLDER] [options of libFuzzer]

FOLDER (default: build/fuzz) keeps the corpus, TARGET.json with what all runs together tried, and findings:
one input for each place that raised. A finding does not end the run; a hang or too much memory does, and
libFuzzer leaves that input in FOLDER as well.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

with atheris.instrument_imports(include=["musebench", "yaml", "csv", "json", "importlib.metadata"]):
    from targets import TARGETS

from seeds import seeds, words  # noqa: E402

SAVE_SECONDS = 2.0
"""Of CPU time between two savings: libFuzzer ends the process without a word."""


class Session:
    """One run of one target: counts its inputs and keeps what they raised, each place once."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._file = folder / f"{name}.json"
        before = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.inputs: int = before.get("inputs", 0)
        self.findings: dict[str, str] = before.get("findings", {})
        self._seconds: float = before.get("cpu_seconds", 0.0)
        self._target = TARGETS[name]
        self._start = self._saved = time.process_time()

    def one(self, data: bytes) -> None:
        self.inputs += 1
        try:
            self._target(data)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = next((frame for frame in reversed(frames) if "musebench" in frame.filename), frames[-1])
            key = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            if key not in self.findings:
                self.findings[key] = f"{str(error)[:200]!r}"
                digest = hashlib.sha256(data).hexdigest()[:12]
                (self.folder / f"finding-{self.name}-{digest}").write_bytes(data)
                print(f"FINDING {self.name}: {key}: {self.findings[key]}", flush=True)
        if time.process_time() > self._saved + SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        self._saved = time.process_time()
        facts = {
            "inputs": self.inputs,
            "cpu_seconds": round(self._seconds + time.process_time() - self._start, 1),
            "findings": self.findings,
        }
        self._file.write_text(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    name, *rest = sys.argv[1:] or ["--help"]
    if name not in TARGETS:
        sys.exit(f"{__doc__}\nTARGET is one of {', '.join(TARGETS)}")
    folder = Path(rest.pop(0)) if rest and not rest[0].startswith("-") else Path("build/fuzz")
    corpus = folder / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    dictionary = folder / f"{name}.dict"
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in words(name)))
    session = Session(name, folder)
    arguments = [
        sys.argv[0], str(corpus), f"-dict={dictionary}", f"-artifact_prefix={folder}/{name}-",
        "-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1", *rest,
    ]  # fmt: skip
    atheris.Setup(arguments, session.one)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(chr(byte) if chr(byte).isalnum() or byte in b"_-" else f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
