"""Make the tables and pictures again that the documents show, from the committed reports.

A document marks them by comments:

    <!-- output: musebench COMMAND -->      what stands between is the command's output, indented by four
    <!-- end -->
    <!-- output: musebench COMMAND; only throughput, pool -->
                                            its first lines, and of its tables those with these headings
    <!-- example: CONDITIONS -->            what stands between was printed once and cannot be made again here
    <!-- end -->
    <!-- picture: musebench COMMAND -->     the command writes its pictures where `--out` says
    <!-- hooks -->                          what stands between is made of musebench/plugin/hookspecs.py
    <!-- end -->
    <!-- findings -->, <!-- headline -->    what the measured reports say: see findings.py, headline.py
    <!-- end -->

`musebench matrix` and `musebench run` leave their reports in a folder that is thrown away, and a run is shown
without its id: only simulated runs, which are the same everywhere, may stand in one; what was timed is shown
from committed reports.

`python results/refresh.py` makes all of them; with `--check` nothing is written, and it exits with 1 when
something in a document is not what its command makes.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from musebench.cli import root
from musebench.plugin import discovery, hookspecs

TOP = Path(__file__).resolve().parents[1]
sys.path.append(str(TOP / "results"))

from findings import findings  # noqa: E402
from headline import headline  # noqa: E402

DOCUMENTS = (
    "README.md",
    "results/README.md",
    "results/baselines/cpu/README.md",
    "results/baselines/h200/README.md",
    "workloads/README.md",
    "plugins/README.md",
)

OUTPUT = re.compile(
    r"(<!-- output: (musebench [^\n]*?)(?:; only ([^\n]*?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL
)
UNCOMMITTED = re.compile(r"^warning: code with uncommitted changes[^\n]*\n\n?", re.MULTILINE)
"""True of whoever is at work on the documents, and of no number in them."""

RUN_ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{6}: ")
"""When a run was made, and chance."""

MADE = re.compile(r"(<!-- (hooks|findings|headline) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PICTURE = re.compile(r"<!-- picture: (musebench [^\n]*?) -->")


def output(command: str) -> str:
    """What a command prints, run at the top of the repository, where no plugin package is installed.

    Raises:
        RuntimeError: it failed.
    """
    words = [word for text in shlex.split(command)[1:] for word in _expanded(text)]
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(TOP),
        mock.patch.object(discovery, "installed", list),
    ):
        if words[0] == "matrix":
            words += ["--out", folder, "--no-progress"]
        elif words[0] == "run":
            words += ["--out", str(Path(folder) / "report.json"), "--no-progress"]
        result = CliRunner().invoke(root, words, catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(f"{command} ended with {result.exit_code}: {result.output}")
    printed = UNCOMMITTED.sub("", result.stdout)
    return RUN_ID.sub("", printed) if words[0] == "run" else printed


def hooks() -> str:
    """Every hook with its kind and what its specification says, as Markdown."""
    parts = []
    for kind, specification in zip(hookspecs.KINDS, hookspecs.all_hooks(), strict=True):
        text = inspect.cleandoc(specification.__doc__ or "")
        parts.append(f"\n### `{specification.__name__}`: kind `{kind}`\n\n{text}\n")
    return "".join(parts) + "\n"


MAKERS = {"hooks": hooks, "findings": findings, "headline": headline}


def documents() -> Iterator[tuple[Path, str, str]]:
    """Each document: its path, its text, and its text with every output as it is now."""
    for name in DOCUMENTS:
        path = TOP / name
        text = path.read_text(encoding="utf-8")
        renewed = OUTPUT.sub(_renewed, text)
        yield path, text, MADE.sub(lambda match: match[1] + MAKERS[match[2]]() + match[4], renewed)


def pictures(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Draw every picture into `folder`: where it stands, and what was drawn."""
    for name in DOCUMENTS:
        for command in PICTURE.findall((TOP / name).read_text(encoding="utf-8")):
            words = shlex.split(command)
            place = TOP / words[words.index("--out") + 1]
            words[words.index("--out") + 1] = str(folder)
            for line in output(shlex.join(words)).splitlines():
                drawn = Path(line)
                yield place / drawn.name, drawn


def stale_documents() -> list[str]:
    return [str(path.relative_to(TOP)) for path, text, renewed in documents() if text != renewed]


def stale_pictures() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            str(place.relative_to(TOP))
            for place, drawn in pictures(Path(folder))
            if not place.exists() or place.read_bytes() != drawn.read_bytes()
        ]


def refresh() -> None:
    """Write every document and every picture as it is now."""
    for path, text, renewed in documents():
        if text != renewed:
            path.write_text(renewed, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for place, drawn in pictures(Path(folder)):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(drawn.read_bytes())


def _renewed(match: re.Match[str]) -> str:
    start, command, only, _, end = match.groups()
    printed = output(command).rstrip("\n")
    lines = (printed if only is None else _only(printed, only.split(", "))).split("\n")
    return start + "".join(f"    {line}".rstrip() + "\n" for line in lines) + end


def _only(printed: str, headings: list[str]) -> str:
    """Its first paragraph, and the tables whose first column has one of the headings.

    Raises:
        RuntimeError: a heading that no table has.
    """
    first, *paragraphs = printed.split("\n\n")
    found = {paragraph.split("|")[1].strip(): paragraph for paragraph in paragraphs if paragraph[0] == "|"}
    if missing := [heading for heading in headings if heading not in found]:
        raise RuntimeError(f"no table of {', '.join(missing)}; there are {', '.join(found)}")
    return "\n\n".join([first, *(found[heading] for heading in headings)])


def _expanded(word: str) -> list[str]:
    """A pattern of file names as a shell expands it."""
    if "*" not in word:
        return [word]
    return sorted(str(path.relative_to(TOP)) for path in TOP.glob(word)) or [word]


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python results/refresh.py [--check]", file=sys.stderr)
        return 2
    if arguments:
        stale = [*stale_documents(), *stale_pictures()]
        for name in stale:
            print(f"{name} is not what its command makes; make results")
        return 1 if stale else 0
    refresh()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
