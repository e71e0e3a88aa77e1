"""Tables and pictures in the documents are what their commands make of reports and simulated runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]

spec = importlib.util.spec_from_file_location("refresh", TOP / "results" / "refresh.py")
assert spec is not None
assert spec.loader is not None
refresh = importlib.util.module_from_spec(spec)
spec.loader.exec_module(refresh)

AGAIN = "make results makes it again"


def pinned(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(\S+)$", (TOP / "constraints.txt").read_text(), re.MULTILINE)
    return version


def test_every_output_shown_is_what_its_command_prints_now():
    assert refresh.stale_documents() == [], AGAIN


def test_every_picture_shown_is_what_its_command_draws_now():
    matplotlib = pytest.importorskip("matplotlib", reason="pictures need the extra 'plot'")
    if matplotlib.__version__ != pinned("matplotlib"):
        pytest.skip(f"pictures were drawn by matplotlib {pinned('matplotlib')}, not {matplotlib.__version__}")
    assert refresh.stale_pictures() == [], AGAIN


def test_the_readme_shows_two_pictures_and_every_picture_has_its_command():
    text = (TOP / "README.md").read_text()
    shown = re.findall(r"!\[[^]]+\]\((results/pictures/[^)]+)\)", text)
    assert len(shown) >= 2
    assert all((TOP / name).exists() for name in shown)
    drawn = {place.relative_to(TOP).as_posix() for place in (TOP / "results" / "pictures").iterdir()}
    assert drawn == set(shown)


def test_an_output_that_is_not_its_command_s_is_found_and_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(refresh, "TOP", tmp_path)
    monkeypatch.setattr(refresh, "DOCUMENTS", ("one.md",))
    before = "text\n<!-- output: musebench list pool -->\n    old\n<!-- end -->\nmore\n"
    (tmp_path / "one.md").write_text(before)
    assert refresh.main(["--check"]) == 1
    refresh.refresh()
    after = (tmp_path / "one.md").read_text()
    assert after.startswith("text\n<!-- output: musebench list pool -->\n    | kind")
    assert after.endswith("|\n<!-- end -->\nmore\n")
    assert refresh.main(["--check"]) == 0


def test_a_picture_that_is_missing_or_changed_is_found(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pictures need the extra 'plot'")
    (report,) = (TOP / "results" / "baselines" / "h200").glob("*fixed.json.gz")
    monkeypatch.setattr(refresh, "TOP", tmp_path)
    monkeypatch.setattr(refresh, "DOCUMENTS", ("one.md",))
    command = f"musebench plot {report} --kind latency --format svg --out drawn"
    (tmp_path / "one.md").write_text(f"<!-- picture: {command} -->\n")
    assert refresh.stale_pictures() == ["drawn/latency.svg"]
    refresh.refresh()
    assert refresh.stale_pictures() == []
    (tmp_path / "drawn" / "latency.svg").write_text("changed")
    assert refresh.stale_pictures() == ["drawn/latency.svg"]


def test_a_command_that_fails_is_no_output():
    with pytest.raises(RuntimeError, match="ended with 2"):
        refresh.output("musebench list nothing")


TIED = re.compile(
    r"<!-- (?:(?:output|example|made by make\.py): [^\n]+|printed|findings|headline) -->\n"
    r".*?<!-- end[^\n]*-->",
    re.DOTALL,
)
"""What tests/plugins/test_tutorial.py prints, and what the rest of this file holds."""
EXAMPLE = re.compile(r"<!-- example: [^\n]+ -->\n(.*?)<!-- end -->", re.DOTALL)
MEASURED = re.compile(
    r"\b\d[\d,.]* (?:ms|s|µs|us|MiB|GiB|KiB|%|mJ)(?! \()|(?:^|\| )\d{1,3}(?:,\d{3})+ \||\|\s+\d+\.\d+ \|"
)


def untied_rows(text):
    """Rows of tables with measured values in them that neither a command nor a script makes."""
    left = TIED.sub("", text)
    return [line for line in left.splitlines() if line.lstrip().startswith("|") and MEASURED.search(line)]


LOGS = {"results/baselines/h200/README.md": "| change | expected | measured |"}
"""Documents with one table by hand, which says of itself that it is a log, and its heading."""


@pytest.mark.parametrize("name", refresh.DOCUMENTS)
def test_every_table_of_measured_values_is_made_by_a_command(name):
    text = (TOP / name).read_text()
    if name in LOGS:
        assert "This is a log" in text
        start = text.index(LOGS[name])
        text = text[:start] + text[text.index("\n\n", start) :]
    if name == "plugins/README.md":  # its one table is what the tutorial prints, which tests/plugins compares
        before, printed = text.split("<!-- printed -->\n")
        text = before + printed.partition("<!-- end -->")[2]
    if name == "workloads/README.md":  # of keys with their units: no value in it was measured
        assert "musebench run --workload" in text
        return
    assert untied_rows(text) == []


def test_a_table_by_hand_is_found_and_one_that_a_command_makes_is_not():
    table = "| executor | TTFT |\n| --- | --- |\n| eager | 2.119 s |\n"
    assert untied_rows(table) == ["| eager | 2.119 s |"]
    assert untied_rows(f"<!-- output: musebench list -->\n{table}<!-- end -->\n") == []
    assert untied_rows("| key | meaning |\n| --- | --- |\n| rate | requests a second |\n") == []


def test_only_three_outputs_are_examples_that_cannot_be_made_again():
    found = [shown for name in refresh.DOCUMENTS for shown in EXAMPLE.findall((TOP / name).read_text())]
    assert len(found) == 3
    assert all(shown.startswith("    ") for shown in found)


def test_some_tables_of_an_output_are_those_with_the_named_headings(tmp_path, monkeypatch):
    report = TOP / "results" / "baselines" / "cpu" / "capitals.json.gz"
    monkeypatch.setattr(refresh, "TOP", tmp_path)
    monkeypatch.setattr(refresh, "DOCUMENTS", ("one.md",))
    document = tmp_path / "one.md"
    document.write_text(f"<!-- output: musebench report {report}; only pool, throughput -->\n<!-- end -->\n")
    refresh.refresh()
    made = document.read_text()
    assert made.index("VALID") < made.index("| pool ") < made.index("| throughput ")
    assert "| latency" not in made
    document.write_text(f"<!-- output: musebench report {report}; only poool -->\n<!-- end -->\n")
    with pytest.raises(RuntimeError, match="no table of poool; there are throughput, latency"):
        refresh.refresh()
