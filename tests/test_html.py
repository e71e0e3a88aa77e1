"""The page of reports: self-contained, valid, safe with hostile names; in a browser where there is one."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_examples import FAILED, mixed_run, pool, report, request, requests, steps

from musebench.cli import root
from musebench.measure.roofline import Ceilings
from musebench.report import files, html
from musebench.report.columns import RunData
from musebench.report.entries import entries
from musebench.report.html import data

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028{{ 7 * 7 }}"
WIDTHS = {"phone": 360, "desktop": 1280}


def page_of(*reports, labels=None, baseline=0) -> str:
    labels = labels or [f"report-{index}" for index in range(len(reports))]
    return html.page(entries(reports, labels), baseline)


def invalid():
    return report(status="incomplete", message="interrupted")


def faster():
    """The same requests, answered by a fixed pool in half the time."""
    run = mixed_run()
    halved = {
        name: [None if value is None else value / 2 for value in getattr(run.requests, name)]
        for name in (
            "arrival_seconds", "scheduled_seconds", "first_token_seconds", "last_token_seconds",
            "finish_seconds",
        )
    }  # fmt: skip
    quick = dataclasses.replace(run.requests, **halved)
    half = dataclasses.replace(run.steps, start=[0.0, 0.05, 0.1], end=[0.05, 0.1, 0.2])
    made = report(RunData(quick, half, run.pool))
    choices = dataclasses.replace(made.choices, pool=dataclasses.replace(made.choices.pool, name="fixed"))
    return dataclasses.replace(made, id="20250102-030405-fedcba", choices=choices)


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


# -- without a browser -----------------------------------------------------------------------------------


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


def long_run(count: int) -> RunData:
    ends = [0.01 * (index + 1) for index in range(count)]
    slow = [0.02 if index == 777 else 0.01 for index in range(count)]
    rows = [
        request(
            f"r{index}", scheduled_seconds=0.0, first_token_seconds=ends[index],
            last_token_seconds=ends[index], finish_seconds=ends[index],
        )
        for index in range(count)
    ]  # fmt: skip
    return RunData(requests(*rows), steps(ends, device_seconds=slow), pool())


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


# -- in a browser ------------------------------------------------------------------------------------------

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens reports at a width and in a scheme; what a page says on its console fails the test."""
    said: list[str] = []
    contexts = []

    def open_page(*reports, width: int = 1280, scheme: str = "light", labels=None):
        path = tmp_path / "page.html"
        path.write_text(page_of(*reports, labels=labels), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on(
            "request", lambda asked: said.append(asked.url) if not asked.url.startswith("file:") else None
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def labels_shown(page) -> list[str]:
    return page.locator("#table tbody tr:visible .choose").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_no_width_scrolls_sideways_and_the_scheme_is_the_system_s(opened, width, scheme):
    page = opened(report(), faster(), invalid(), width=width, scheme=scheme, labels=["a" * 90, "b", "c"])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_the_theme_can_be_chosen(opened):
    page = opened(report(), scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: light"
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: dark"
    assert page.evaluate(ground) == "rgb(22, 24, 27)"


def test_the_table_sorts_by_a_heading_with_missing_values_last(opened):
    page = opened(invalid(), faster(), report())
    heading = page.get_by_role("button", name="output tokens/s", exact=True)
    heading.click()
    assert labels_shown(page) == ["report-2", "report-1", "report-0"]
    heading.click()
    assert labels_shown(page) == ["report-1", "report-2", "report-0"]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("output tokens/s")


def test_the_table_filters_by_words_and_verdict(opened):
    page = opened(report(), faster(), invalid())
    page.fill("#filter", "fixed valid")
    assert labels_shown(page) == ["report-1"]
    assert page.inner_text("#shown") == "1 of 3 shown"
    page.fill("#filter", "")
    page.check("#only-valid")
    assert labels_shown(page) == ["report-0", "report-1"]


def test_a_report_is_chosen_from_the_table(opened):
    page = opened(report(), invalid())
    page.get_by_role("button", name="report-1").click()
    assert "INVALID: the run is incomplete" in page.inner_text("#reasons")
    assert page.locator("#tables s").count() > 0
    assert page.input_value("#choice") == "1"


def test_what_no_other_report_beats_is_joined(opened):
    page = opened(report(), faster(), invalid())
    drawn = "frontier([[1, 5], [2, 3], [3, 4], [2, 9], [4, 6]], {})"
    assert page.evaluate(drawn.format("[1, -1]")) == [[2, 3], [3, 4], [4, 6]]
    assert page.evaluate(drawn.format("[1, 1]")) == [[2, 9], [4, 6]]
    assert page.evaluate(drawn.format("[-1, -1]")) == [[1, 5], [2, 3]]
    key = page.locator("#chart-overview .key", has_text="what no other beats")
    assert key.count() == 1
    page.select_option("#axis-y", "steps")
    assert key.count() == 0


def test_a_chart_is_used_by_keyboard(opened):
    page = opened(report())
    chart = page.locator("#chart-steps figure > svg")
    chart.focus()
    chart.press("ArrowRight")
    tip = page.locator("#chart-steps .tip")
    assert "sequences" in tip.inner_text()
    first = tip.inner_text()
    chart.press("ArrowRight")
    assert tip.inner_text() != first
    step = re.match(r"step (\d+)", tip.inner_text())[1]
    chart.press("Enter")
    assert page.inner_text("#step-name").startswith(f"Step {step} of 3")
    chart.press("Escape")
    assert tip.is_hidden()


def test_a_chart_zooms_by_keys_buttons_and_dragging(opened):
    page = opened(report(long_run(40)))
    chart = page.locator("#chart-pool figure > svg")
    ticks = lambda: chart.locator("text").all_inner_texts()  # noqa: E731
    whole = ticks()
    chart.focus()
    chart.press("+")
    assert ticks() != whole
    chart.press("0")
    assert ticks() == whole
    page.locator("#chart-pool .zoom button").first.click()
    assert ticks() != whole
    chart.dblclick()
    assert ticks() == whole
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 150, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 100)
    page.mouse.up()
    assert ticks() != whole


def test_a_hover_shows_the_request_beside_the_pointer(opened):
    page = opened(report())
    chart = page.locator("#chart-requests figure > svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 25)
    tip = page.locator("#chart-requests .tip")
    assert tip.inner_text().startswith("three: decode for 300 ms")
    assert abs(tip.bounding_box()["y"] - box["y"]) < 120


def test_a_step_shows_its_floor_where_the_report_has_one(opened):
    run = mixed_run()
    shapes = {"logit_rows": [2, 3, 1], "attended_cells": [7, 11, 12], "attended_pairs": [16, 30, 12]}
    made = report(dataclasses.replace(run, steps=dataclasses.replace(run.steps, **shapes)))
    conditions = dataclasses.replace(made.conditions, ceilings=Ceilings(1e9, 1e12, "float32"))
    page = opened(dataclasses.replace(made, conditions=conditions), report())
    shown = page.locator("#step-values div", has_text="floor").inner_text().split("\n")[1]
    assert re.fullmatch(r"[\d.]+ µs", shown)
    assert page.locator("#chart-steps .key", has_text="floors").count() == 1
    page.click("#next")
    assert page.locator("#step-values div", has_text="floor").inner_text().split("\n")[1] == "-"
    assert page.locator("#chart-steps .key", has_text="floors").count() == 0


def test_steps_are_gone_through_one_by_one(opened):
    page = opened(report())
    page.click("#step-on")
    assert page.inner_text("#step-name") == "Step 1 of 3 (from 0): mixed"
    programs = page.locator("#step-values div").last.inner_text()
    assert sorted(re.findall(r"(\w+) . (\d+)", programs)) == [("decode", "1"), ("prefill", "1")]
    page.locator("#step").press("End")
    assert page.inner_text("#step-name") == "Step 2 of 3 (from 0): decode"
    assert page.is_disabled("#step-on")


def test_hostile_names_run_nothing(opened):
    run = mixed_run()
    named = dataclasses.replace(run.requests, id=[HOSTILE, *run.requests.id[1:]])
    page = opened(report(dataclasses.replace(run, requests=named)), invalid(), labels=[HOSTILE, "other"])
    assert page.locator("img").count() == 0
    page.click("#step-on")
    assert HOSTILE.replace("\u2028", "") in page.inner_text("#step-requests").replace("\u2028", "")


def test_a_page_of_200_reports_answers_at_once(opened):
    page = opened(*[report(long_run(250))] * 200, width=360)
    assert page.locator("#table tbody tr").count() == 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.fill("#filter", "report-19")
    assert len(labels_shown(page)) == 11
    page.select_option("#choice", "199")
    assert page.input_value("#choice") == "199"
    assert page.locator("#chart-requests path").count() > 0


def test_reports_without_steps_are_shown_without_an_error(opened):
    nothing = RunData(requests(request("one", finish_reason=FAILED, generated_tokens=0)), steps([]), pool())
    without = dataclasses.replace(report(), runs=[], status="incomplete", message="no memory")
    page = opened(report(nothing), without)
    assert page.inner_text("#step-name") == "No step was made."
    page.click("#next")
    assert page.inner_text("#step-name") == "No step was made."
