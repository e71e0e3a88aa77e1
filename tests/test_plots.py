"""Pictures: drawn from any report, the same bytes each time, with their conditions and verdicts on them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_examples import mixed_run, pool, report, request, requests, steps

from musebench.cli import root
from musebench.core.errors import UnsupportedError
from musebench.measure.roofline import Ceilings
from musebench.report import files, plots, series
from musebench.report.columns import RunData
from musebench.report.entries import common_facts, entries, own_facts
from musebench.report.verdict import Judgement

pytest.importorskip("matplotlib", reason="pictures need the extra 'plot'")


def at_rate(rate: float, latency: float, scheduler: str = "continuous"):
    """Three requests, one every 1 / `rate` seconds, each answered with two tokens after `latency` seconds."""
    arrivals = [index / rate for index in range(3)]
    made = requests(
        *(
            request(
                f"r{index}", arrival_seconds=at, scheduled_seconds=at, first_token_seconds=at + latency,
                last_token_seconds=at + 2 * latency, finish_seconds=at + 2 * latency, generated_tokens=2,
            )
            for index, at in enumerate(arrivals)
        )
    )  # fmt: skip
    base = report(RunData(made, steps([arrivals[-1] + 2 * latency], decode_tokens=[3]), pool()))
    choice = dataclasses.replace(base.choices.scheduler, name=scheduler)
    return dataclasses.replace(base, choices=dataclasses.replace(base.choices, scheduler=choice))


def with_floor():
    """A device that copies a GB/s and does a TFLOP/s."""
    run = mixed_run()
    shapes = {"logit_rows": [2, 3, 1], "attended_cells": [7, 11, 12], "attended_pairs": [16, 30, 12]}
    made = report(dataclasses.replace(run, steps=dataclasses.replace(run.steps, **shapes)))
    conditions = dataclasses.replace(made.conditions, ceilings=Ceilings(1e9, 1e12, "float32"))
    return dataclasses.replace(made, conditions=conditions)


def empty():
    nothing = RunData(requests(), steps([]), pool())
    return report(nothing)


def shown(*reports):
    return entries(reports, [f"report-{index}" for index in range(len(reports))])


def figure(kind: str, *reports, **settings):
    with plots_style().styled():
        return plots.KINDS[kind].draw(shown(*reports), plots.Settings(**settings))


def plots_style():
    from musebench.report.plots import style

    return style


def texts(drawn) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in drawn.findobj(Text))


@pytest.mark.parametrize("kind", plots.KINDS)
def test_every_kind_draws_one_report_two_reports_and_an_empty_one(kind, tmp_path):
    for count, reports in enumerate(([report()], [report(), at_rate(4, 0.1)], [empty()])):
        written = plots.write(plots.KINDS[kind], shown(*reports), tmp_path / str(count), ("svg", "png"))
        assert [path.name for path in written] == [f"{kind}.svg", f"{kind}.png"]
        assert written[0].read_text().rstrip().endswith("</svg>")
        assert written[1].read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("kind", plots.KINDS)
def test_the_same_reports_give_the_same_bytes(kind, tmp_path):
    first, second = (
        plots.write(plots.KINDS[kind], shown(report(), at_rate(4, 0.1)), tmp_path / name, ("svg",))[0]
        for name in ("a", "b")
    )
    data = first.read_bytes()
    assert data == second.read_bytes()
    assert b"<dc:date>" not in data


def test_the_same_bytes_come_from_another_process_with_another_configuration(tmp_path):
    path = files.write(report(), tmp_path / "one.json")
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nsvg.hashsalt: other\naxes.facecolor: red\n")
    code = (
        "import sys; from musebench.cli import root\n"
        "try: root.main(prog_name='musebench')\n"
        "finally: assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    made = []
    for name, rc in (("a", "/dev/null"), ("b", str(tmp_path / "matplotlibrc"))):
        out = tmp_path / name
        done = subprocess.run(
            [sys.executable, "-c", code, "plot", path, "--kind", "pool", "--format", "svg", "--out", out],
            capture_output=True, text=True, cwd=Path(plots.__file__).parents[3],
            env={"MATPLOTLIBRC": rc, "PATH": "", "PYTHONPATH": str(Path(plots.__file__).parents[3])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made.append((out / "pool.svg").read_bytes())
    assert made[0] == made[1]


def test_a_picture_is_titled_with_its_conditions():
    text = texts(figure("pool", report())).replace("\N{NO-BREAK SPACE}", " ")
    for wanted in ("Example GPU", "tiny in float32", "workload chat", "torch 2.13.0", "commit 0123456789"):
        assert wanted in text


def test_what_differs_stands_at_its_panel_and_not_in_the_title():
    one, other = report(), at_rate(4, 0.1, "static")
    assert "scheduler static" not in common_facts([one, other])
    assert "scheduler static" in own_facts(other, [one, other])
    assert "report-1 · scheduler static" in texts(figure("pool", one, other)).replace("\n", " ")


def test_an_invalid_report_is_called_so_and_left_out_of_rankings():
    broken = report(status="incomplete", message="interrupted")
    assert not shown(broken)[0].judgement.valid
    assert "report-0 (INVALID)" in texts(figure("latency", broken))
    ranked = texts(figure("pareto", broken, report()))
    assert "1 INVALID reports are left out" in ranked
    assert "report-0" not in ranked


def test_the_pool_shows_rows_cells_and_growths():
    (axes,) = figure("pool", report()).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["rows"].get_ydata().tolist() == [8, 16, 16, 16]
    assert lines["cells in use"].get_ydata().tolist() == [7, 11, 12, 12]
    assert (list(lines["growth"].get_xdata()), list(lines["growth"].get_ydata())) == ([0.1], [16])
    assert "1 growth: 7.00 KiB copied in 2.000 ms" in axes.get_title(loc="left")


def test_steps_are_drawn_by_kind_above_their_floor():
    over_tokens, _ = figure("steps", with_floor()).axes
    points = {drawn.get_label(): drawn.get_offsets().tolist() for drawn in over_tokens.collections}
    assert points == {"decode": [[4, 0.15]], "prefill": [[8, 0.08]], "mixed": [[4, 0.09]]}
    made = with_floor()
    prefill, mixed, decode = series.floor_seconds(made, made.runs[0]).tolist()
    floors = [line.get_ydata().tolist() for line in over_tokens.lines if len(line.get_xdata())]
    assert floors == [[decode], [prefill], [mixed]]
    assert "at 0.001 TB/s and 1 TFLOP/s, as measured" in texts(figure("steps", made))


def test_no_floor_is_drawn_without_ceilings():
    assert not any(len(axes.lines) for axes in figure("steps", report()).axes)


def test_the_gantt_chart_has_a_bar_a_phase_and_a_cross_for_who_did_not_succeed():
    (axes,) = figure("requests", report()).axes
    bars = [(round(bar.get_x(), 3), round(bar.get_width(), 3)) for bars in axes.containers for bar in bars]
    assert (0.05, 0.05) in bars  # "one" waits
    assert (0.1, 0.3) in bars  # "three" decodes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "three",
        "broken",
        "huge",
        "one",
        "none",
    ]
    (crosses,) = [line for line in axes.lines if line.get_label() == "did not succeed"]
    assert sorted(crosses.get_xdata()) == [0.0, 0.5]


def test_preemptions_without_their_times_are_said():
    run = mixed_run()
    counted = dataclasses.replace(run.requests, preemptions=[2, 0, 0, 0, 0])
    assert "2 preemptions, of unknown time" in texts(
        figure("requests", report(dataclasses.replace(run, requests=counted)))
    )


def test_shares_of_latencies_rise_from_0_to_1():
    itl, ttft = figure("latency", report()).axes
    line = next(line for line in ttft.lines if len(line.get_xdata()) > 1)
    assert line.get_xdata().tolist() == pytest.approx([0.1, 0.1, 0.15])
    assert line.get_ydata().tolist() == [0.0, 0.5, 1.0]
    assert len(itl.lines) > 1


def test_rates_join_reports_that_differ_in_arrivals_alone():
    reports = [at_rate(8, 0.4), at_rate(2, 0.1), at_rate(4, 0.2), at_rate(4, 0.3, "static"), empty()]
    ttft, tpot, reached = figure("rates", *reports).axes
    (p50,) = [line for line in ttft.lines if line.get_markerfacecolor() != "white"]
    assert list(p50.get_xdata()) == pytest.approx([2, 4, 8])
    assert list(p50.get_ydata()) == pytest.approx([0.1, 0.2, 0.4])
    assert len(tpot.lines) == len(reached.lines) == 2


def test_rates_of_reports_that_have_none_say_so():
    assert "no two valid reports" in texts(figure("rates", report()))


def test_what_nothing_beats_is_filled_and_joined():
    fast, slow = at_rate(4, 0.1), at_rate(4, 0.4)
    left, _ = figure("pareto", slow, fast).axes
    filled = {line.get_label(): line.get_markerfacecolor() for line in left.lines}
    assert filled["report-0"] == "white"
    assert filled["report-1"] != "white"


def test_a_formula_in_a_name_stays_text(tmp_path):
    made = entries([report()], ["$\\frac{1}{0}$ \x07<b>"])
    (path,) = plots.write(plots.KINDS["latency"], made, tmp_path, ("svg",))
    assert path.exists()


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write(report(), "one.json")
    files.write(at_rate(4, 0.1), "two.json")
    return lambda *arguments: CliRunner().invoke(root, ["plot", *arguments])


def test_the_command_writes_the_kinds_and_formats_asked_for_and_names_them(run):
    result = run("one.json", "two.json", "--kind", "pool, latency", "--format", "svg", "--out", "drawn")
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["drawn/pool.svg", "drawn/latency.svg"]
    assert sorted(path.name for path in Path("drawn").iterdir()) == ["latency.svg", "pool.svg"]


def test_pareto_comes_unasked_with_two_reports_only(run):
    assert "pareto" not in run("one.json", "--format", "svg").output
    assert "pareto" in run("one.json", "two.json", "--format", "svg").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.json", "--kind", "pol"], "no picture 'pol'.*pool"),
        (["one.json", "--format", "pnf"], "no picture format 'pnf'.*png"),
        (["one.json", "--format", ","], "names no format"),
        (["one.json", "--run", "2"], "has 1 runs; there is no run 2"),
        (["one.json"] * 9, "room for 8 reports, not 9.*--html"),
        (["gone.json"], "gone.json"),
        (["one.json", "--out", "one.json"], "cannot write the picture"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1
    assert re.search(message, result.output)


def test_without_matplotlib_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'musebench\[plot\]'"):
        plots.KINDS["pool"].draw(shown(report()), plots.Settings())


def test_an_entry_is_named_with_its_verdict():
    (made,) = shown(report())
    assert made.name == "report-0"
    assert dataclasses.replace(made, judgement=Judgement(("why",))).name == "report-0 (INVALID)"
