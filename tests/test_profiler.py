"""Measuring a device: a CPU at small sizes gives a profile that prices steps, and fits find what is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.backends import profiler
from musebench.backends.profiler import SMALL, HostLine, Links, measure_device
from musebench.backends.profiler_steps import StepMeter
from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.fitting import curve_errors, fit_line, fit_products
from musebench.backends.simulated.kernels import ProductCurve, ProductPoint
from musebench.backends.simulated.profile import open_profile, profile_of
from musebench.cli import root
from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.models.random_source import RandomOptions, RandomSource
from musebench.models.shapes import shape
from musebench.models.source import Model


def opened(layers: int) -> Model:
    return RandomSource(RandomOptions()).open(
        f"random:smollm2-135m@vocab=512,layers={layers}", "float32", "cpu", 0
    )


class EvenSteps(StepMeter):
    """A layer takes the same on the host: what two real times differ by is none on a machine that is busy."""

    def times(self, compiled):
        made = super().times(compiled)
        return replace(made, eager_host=1e-4 * (1 + made.layers))


@pytest.fixture(scope="module")
def measured() -> dict:
    links = Links({"bandwidth": 1e10, "by_devices": {"2": [1e-5, 1e-5, 0.5]}}, "a made-up link")
    sizes = replace(
        SMALL, copy_bytes=4 << 20, squares=(256,), products=((256, 256), (256, 512)), tokens=(1, 16)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiler, "StepMeter", EvenSteps)
        return measure_device(
            "cpu", "float32", "here", sizes, opened, lambda replay: HostLine(1e-4 + 0 * replay, 1e-6), links
        )


def test_a_measured_profile_reads_back_and_prices_steps(measured, tmp_path):
    file = tmp_path / "here.json"
    file.write_text(json.dumps(measured))
    profile = open_profile(str(file))
    assert (profile.kind, profile.name) == ("measured", "here")
    assert profile == profile_of(measured)
    costs = costs_for(shape("smollm2-135m").facts("float32"), profile, 1)
    seconds = costs.decode_stretch(np.array([64, 64]), 3, "eager")
    assert (seconds > 0).all()
    assert seconds.tolist() == sorted(seconds)


def test_everything_was_measured_and_names_its_source(measured):
    assert measured["bandwidth"] > 0
    assert measured["rates"]["float32"] > 0
    assert [point[:4] for point in measured["products"]["points"]] == [
        [tokens, 256, outputs, "float32"] for outputs in (256, 512) for tokens in (1, 16)
    ]
    assert measured["attention"][0]["head_dim"] == 64
    assert measured["launch"]["eager_seconds"] > 0
    assert measured["launch"]["replay_seconds"] > 0
    assert measured["small"]["bandwidth"] > 0
    assert 0 < measured["copy_share"] <= 1
    assert measured["host"] == {"step_seconds": 1e-4, "sequence_seconds": 1e-6, "token_seconds": 0.0}
    assert measured["sources"]["all_reduce"] == "a made-up link"
    assert all(measured["sources"].values())


def test_a_dtype_that_is_not_measured_is_said():
    with pytest.raises(UnsupportedError, match="--dtype float8 is not measured; use one of"):
        measure_device("cpu", "float8", "x", SMALL, opened, lambda _: HostLine(0, 0), None)


# -- fits -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.floats(0, 1e-4), st.floats(1e-13, 1e-10), st.lists(st.integers(1, 10**9), min_size=2, unique=True))
def test_a_line_is_found_again(fixed, slope, work):
    found = fit_line(work, [fixed + slope * each for each in work])
    again = [found[0] + found[1] * each for each in work]
    assert again == pytest.approx([fixed + slope * each for each in work], rel=1e-6)


def test_a_line_never_falls_and_never_starts_below_zero():
    assert fit_line([1, 2, 3], [3.0, 2.0, 1.0])[1] == 0.0
    fixed, slope = fit_line([1, 2, 3], [0.5, 2.0, 4.0])
    assert fixed == 0.0
    assert slope > 0.0


def test_a_line_of_nothing_or_of_no_time_is_refused():
    for work, seconds in (([], []), ([1.0], [0.0])):
        with pytest.raises(ValueError, match="measurements that took time"):
            fit_line(work, seconds)


def test_the_curve_that_made_the_points_is_found_again():
    made = ProductCurve(0.85, 0.75, 1.5, 5e-6)
    bandwidth, rates = 2e12, {"bfloat16": 3e14}
    points = []
    for inputs, outputs in ((4096, 4096), (4096, 14336), (576, 1536)):
        for tokens in (1, 64, 256, 2048):
            moved = 2.0 * (inputs * outputs + tokens * (inputs + outputs))
            place = ("bfloat16", tokens, inputs, outputs)
            seconds, _ = made.seconds(bandwidth, 3e14, moved, 2.0 * tokens * inputs * outputs, place)
            points.append(ProductPoint(tokens, inputs, outputs, "bfloat16", seconds))
    found = fit_products(points, bandwidth, rates)
    assert replace(found, points=()) == made
    assert max(curve_errors(found, bandwidth, rates)) < 1e-9


# -- the command ----------------------------------------------------------------------------------------


def test_the_list_names_every_profile_and_its_kind():
    result = CliRunner().invoke(root, ["profile", "--format", "json"])
    assert result.exit_code == 0
    kinds = {row["name"]: row["kind"] for row in json.loads(result.output)}
    assert kinds["h200"] == "measured"
    assert kinds["h100"] == "datasheet"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cpu"], "name the file to write"),
        (["--out", "x.json"], "say what to measure"),
        (["--device", "sim:h200", "--out", "x.json"], "is simulated"),
        (["--device", "cpu", "--out", "no/such/folder/x.json"], "a folder that is there"),
        (["--device", "cpu", "--out", "x.json", "--links", "jetson-agx-orin"], "no links"),
        (["--device", "cpu", "--out", "x.json", "--dtype", "float8"], "not measured"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        root.main(["profile", *arguments], prog_name="musebench")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(Path().iterdir())


def test_the_command_measures_this_machine_and_its_file_explains_a_step(tmp_path):
    out = tmp_path / "here.json"
    result = CliRunner().invoke(root, ["profile", "--device", "cpu", "--out", str(out), "--links", "h100"])
    assert result.exit_code == 0, result.output
    assert "launch, eager" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["here.json"]
    shown = CliRunner().invoke(
        root, ["explain", "--device", f"sim:{out}", "--model", "smollm2-135m", "--dtype", "float32"]
    )
    assert shown.exit_code == 0, shown.output
    assert "SmolLM2-135M in float32 on 1 x here (measured), eager" in shown.output


def test_a_measurement_that_does_not_end_keeps_what_it_has_and_is_no_profile(tmp_path, monkeypatch):
    def fail(*_: object) -> HostLine:
        raise UsageError("the run beside it failed")

    monkeypatch.setattr("musebench.cli.profile._host_line", fail)
    monkeypatch.setattr(profiler, "StepMeter", EvenSteps)
    out, part = tmp_path / "here.json", tmp_path / "here.json.part"
    out.write_text("an older profile")
    result = CliRunner().invoke(root, ["profile", "--device", "cpu", "--out", str(out)])
    assert result.exit_code == 2
    assert out.read_text() == "an older profile"
    kept = json.loads(part.read_text())
    assert kept["products"]["points"]
    assert kept["launch"]["eager_seconds"] > 0
    assert kept["host"]["step_seconds"] == 0
    with pytest.raises(InputError, match="its measurement did not end"):
        open_profile(str(part))
