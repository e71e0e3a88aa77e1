"""The page of reports as it is used in a browser, where there is one."""

from __future__ import annotations

import dataclasses
import re
import shutil

import pytest
from html_pages import HOSTILE, faster, invalid, long_run, page_of
from report_examples import FAILED, mixed_run, pool, report, request, requests, steps

from musebench.measure.roofline import Ceilings
from musebench.report.columns import RunData

WIDTHS = {"phone": 360, "desktop": 1280}
NO_LIMIT = 0
"""Playwright's 30 seconds are few where others use the machine."""
CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=NO_LIMIT)
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
        context.set_default_timeout(NO_LIMIT)
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
