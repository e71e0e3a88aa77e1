"""Tables and pictures in the documents are what their commands make of the committed reports."""

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
