"""The page of reports: self-contained, valid, safe with hostile names."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from html_pages import HOSTILE, faster, invalid, long_run, page_of
from report_examples import FAILED, mixed_run, pool, report, request, requests, steps

from musebench.cli import root
from musebench.report import files
from musebench.report.columns import RunData
from musebench.report.entries import entries
from musebench.report.html import data


class Reader(HTMLParser):
    """Collects elements with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id") if tag == "script" else self._script

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


@pytest.fixture(scope="module")
def three() -> str:
    return page_of(report(), faster(), invalid())


def test_nothing_is_loaded_from_elsewhere(three):
    assert not re.search(r"https?:|//[a-z0-9-]+\.[a-z]", three)
    assert "@import" not in three
    for tag, attributes in Reader(three).elements:
        assert tag not in ("link", "iframe", "img", "object", "base", "form")
        assert not {"src", "action", "srcset"} & set(attributes)
        assert attributes.get("href", "#")[0] == "#"


def test_the_page_itself_forbids_loading(three):
    (policy,) = [made["content"] for tag, made in Reader(three).elements if "http-equiv" in made]
    assert policy.startswith("default-src 'none'")


def test_it_is_valid_html_without_one_parse_error(three):
    html5lib = pytest.importorskip("html5lib", reason="the check of valid HTML needs html5lib")
    html5lib.HTMLParser(strict=True).parse(three)


def test_ids_are_unique_and_references_lead_to_them(three):
    elements = Reader(three).elements
    ids = [made["id"] for _, made in elements if "id" in made]
    assert len(ids) == len(set(ids))
    for _, made in elements:
        for name in ("aria-labelledby", "for", "href"):
            if name in made:
                assert made[name].removeprefix("#") in ids
    script = Reader(three).scripts[None]
    assert set(re.findall(r'byId\("([a-z-]+)"\)', script)) <= set(ids)


def test_every_control_has_a_name(three):
    labelled = re.sub(r"<label[^>]*>.*?</label>", "", three, flags=re.DOTALL)
    assert not re.search(r"<(input|select)", labelled)
    assert not re.search(r"<button[^>]*>\s*</button>", three)


def test_verdicts_come_first_with_every_reason(three):
    assert "2 of 3 VALID" in three
    assert three.index("the run is incomplete (interrupted)") < three.index('id="table"')


def test_what_differs_is_said_before_any_number():
    other = report()
    conditions = dataclasses.replace(other.conditions, driver="9.9")
    text = page_of(report(), dataclasses.replace(other, conditions=conditions))
    assert text.index("driver differs: 1.2 (report-0); 9.9 (report-1)") < text.index('id="table"')


def test_a_condition_of_many_values_is_folded():
    conditions = report().conditions
    text = page_of(
        *[
            dataclasses.replace(report(), conditions=dataclasses.replace(conditions, driver=f"9.{minor}"))
            for minor in range(60)
        ]
    )
    (folded,) = re.findall(r"<details><summary>(driver differs: .*?)…</summary>(driver.*?)</details>", text)
    assert folded[1].startswith(folded[0])
    assert "9.59 (report-59)" in folded[1]


def test_hostile_names_stay_text():
    run = mixed_run()
    named = dataclasses.replace(
        run.requests, id=[HOSTILE, *run.requests.id[1:]], message=[HOSTILE, *run.requests.message[1:]]
    )
    made = report(dataclasses.replace(run, requests=named), status="incomplete", message=HOSTILE)
    conditions = dataclasses.replace(made.conditions, device=HOSTILE, command=[HOSTILE])
    text = page_of(dataclasses.replace(made, conditions=conditions), report(), labels=[HOSTILE, "other"])
    reader = Reader(text)
    assert "<img" not in text
    plain = {tag for tag, _ in Reader(page_of(report(), invalid())).elements}
    assert {tag for tag, _ in reader.elements} == plain | {"details", "summary"}
    details = json.loads(reader.scripts["details-0"])
    assert details["label"] == HOSTILE
    assert HOSTILE in details["requests"]["ids"]


def test_speed_of_an_invalid_report_is_struck_sorted_last_and_no_point(three):
    row = three[three.index('<tr data-report="2"') :]
    row = row[: row.index("</tr>")]
    assert re.search(r'<td class="number"><s>8\.000</s></td>', row)
    points = json.loads(Reader(three).scripts["points"])
    assert points["axes"]["output tokens/s"]["values"] == [8.0, 16.0, None]


def test_changes_are_against_the_baseline(three):
    assert "+100.0 %" in three
    other = page_of(report(), faster(), baseline=1)
    assert "-50.0 %" in other
    assert "Small figures are changes against report-1" in other


def test_another_device_is_compared_in_counts_only():
    other = faster()
    conditions = dataclasses.replace(other.conditions, device="Other GPU")
    text = page_of(report(), dataclasses.replace(other, conditions=conditions))
    assert '<td class="number" data-sort="16.0">16.00</td>' in text
    assert '<td class="number" data-sort="3">3 <small>same</small></td>' in text


def test_the_data_of_a_report_is_its_steps_requests_and_growths():
    (entry,) = entries([report()], ["one"])
    made = data.details(entry, data.Budget.of(1))
    assert made["steps"]["columns"]["in_use"] == [7, 11, 12]
    assert made["steps"]["programs"] == {"decode": [0, 1, 1], "prefill": [1, 1, 0]}
    assert made["growths"] == [[0.1, 16, 16384, 7168, 0.002]]
    assert made["requests"]["ids"] == ["three", "broken", "huge", "one", "none"]
    assert [0, 2, 0.1, 0.4] in made["requests"]["spans"]  # "three" decodes


def test_200_reports_are_thinned_to_a_page_that_opens_and_says_so():
    made = report(long_run(1500))
    budget = data.Budget.of(200)
    (entry,) = entries([made], ["one"])
    details = data.details(entry, budget)
    assert len(details["steps"]["row"]) <= budget.steps + 10
    assert 777 in details["steps"]["row"], "the slowest step is kept"
    assert len(details["requests"]["ids"]) == budget.requests
    text = page_of(*[report(long_run(300))] * 200)
    assert "Pictures of a report show about 200 of up to 300 steps" in text
    assert len(text) < 8_000_000


def test_a_report_without_a_step_or_a_run_has_a_page():
    nothing = RunData(requests(request("one", finish_reason=FAILED, generated_tokens=0)), steps([]), pool())
    without = dataclasses.replace(report(), runs=[], status="incomplete", message="no memory")
    text = page_of(report(nothing), without)
    assert "0 of 2 VALID" in text


def test_the_same_reports_give_the_same_page(three):
    assert three == page_of(report(), faster(), invalid())


def test_the_command_writes_the_page_and_without_it_prints_the_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write(report(), "one.json")
    files.write(faster(), "two.json")
    invoke = lambda *arguments: CliRunner().invoke(root, ["report", *arguments])  # noqa: E731
    result = invoke("one.json", "two.json", "--html", "pages/out.html", "--baseline", "two.json")
    assert (result.exit_code, result.output) == (0, "pages/out.html\n")
    assert "changes against two" in Path("pages/out.html").read_text()
    printed = invoke("one.json", "two.json").output
    assert printed.count("VALID") == 2
    assert "20250102-030405-fedcba" in printed
    for arguments, message in (
        (["one.json", "--html", "one.json/x.html"], "cannot write the page"),
        (["one.json", "--html", "x.html", "--baseline", "two.json"], "none of the REPORTs"),
        (["one.json", "--baseline", "one.json"], "--html"),
        (["one.json", "two.json", "--format", "json"], "one report, not 2"),
    ):
        result = invoke(*arguments)
        assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
        assert message in result.output
