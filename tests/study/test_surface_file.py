"""Surfaces by name and by file, as a scenario uses them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.game.levels import SURFACES, LossSurface
from noisemarket.scenario import Scenario, dump_scenario, load_scenario
from noisemarket.scenario import surface_file as module
from noisemarket.scenario.surface_file import (
    find_surface,
    read_surface,
    surface_names,
    surface_text,
)
from noisemarket.study.calibrate import Point
from noisemarket.study.fit import Calibration

SURFACE = LossSurface(gamma=(0.4, 0.03, 0.2, 12.0, 1 / 3), zeta=(25.0, 99.0))
GOOD = "gamma = [0.4, 0.03, 0.2, 12, 0.3]\nzeta = [25, 99]\n"


def test_a_surface_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(surface_text(SURFACE, {"fit": {"rms_loss": float("nan")}}))
    assert read_surface(file) == find_surface(str(file)) == SURFACE
    even = replace(SURFACE, labels=10)
    file.write_text(surface_text(even, {}))
    assert read_surface(file) == even


def test_a_scenario_plays_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(surface_text(SURFACE, {}))
    (tmp_path / "scenario.toml").write_text('[game]\nsurface = "own.toml"\n')
    scenario = load_scenario(tmp_path / "scenario.toml", settings=["owners=3"])
    assert scenario.environment().surface == SURFACE
    quality = scenario.environment().curator_side().surface.quality(0.3, 1.0)
    assert float(quality) == float(SURFACE.quality(0.3, 1.0))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scenario.toml").write_text(dump_scenario(scenario))
    again = load_scenario(tmp_path / "run" / "scenario.toml")
    assert again.environment().surface == SURFACE, "from whatever folder it is read"


def test_a_path_by_setting_counts_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(surface_text(SURFACE, {}))
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario(settings=["surface=own.toml"])
    assert scenario.environment().surface == SURFACE
    assert Path(scenario.game.surface).is_absolute()
    assert load_scenario(settings=["surface=printed"]).game.surface == "printed"


def test_dropping_a_file_into_the_package_is_all_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "surfaces").mkdir()
    (tmp_path / "surfaces" / "moon-mnist.toml").write_text(surface_text(SURFACE, {}))
    (tmp_path / "surfaces" / "notes.txt").write_text("not a surface")
    monkeypatch.setattr(module, "files", lambda _package: tmp_path)
    assert surface_names() == ["printed", "moon-mnist"]
    scenario = Scenario.from_preset("market", surface="moon-mnist")
    assert scenario.game.surface == "moon-mnist"
    assert scenario.environment().surface == SURFACE
    with pytest.raises(BadInput, match="choose one of: printed, moon-mnist; or give the path"):
        find_surface("sun-mnist")


@pytest.mark.parametrize("name", surface_names())
def test_every_surface_that_the_package_carries_can_be_used(name: str) -> None:
    surface = find_surface(name)
    quality = surface.quality(np.linspace(0, 0.6, 13), 1.0)
    assert np.isfinite(quality).all()
    assert (np.diff(quality) <= 1e-9).all(), "noise never helps"
    assert 0 < quality[-1] < quality[0] <= 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "gamma"),
        ("gamma = 1", "gamma"),
        (GOOD.replace("0.4, ", ""), "gamma = [...] with 5 finite numbers"),
        (GOOD.replace("[25, 99]", "[25, 99, 1]"), "zeta = [...] with 2 finite numbers"),
        (GOOD.replace("0.4", "nan"), "finite"),
        (GOOD.replace("0.4", "inf"), "finite"),
        (GOOD.replace("0.4", "true"), "finite"),
        (GOOD.replace("0.4", '"0.4"'), "finite"),
        (GOOD.replace("0.2", "0"), "third gamma"),
        ("labels = 1\n" + GOOD, "labels must be a whole number above 1"),
        ("labels = -2\n" + GOOD, "labels must be a whole number above 1"),
        ("labels = true\n" + GOOD, "labels must be a whole number above 1"),
        ("labels = 2.5\n" + GOOD, "labels must be a whole number above 1"),
        ("gamma = [", "not valid TOML"),
    ],
)
def test_files_that_are_none(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as problem:
        find_surface(str(file))
    assert said in str(problem.value)
    assert problem.value.field == "surface"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for file in (tmp_path / "bytes.toml", tmp_path / "missing.toml", tmp_path / "no" / "x"):
        with pytest.raises(BadInput, match="cannot be read"):
            find_surface(str(file))


def test_the_file_of_a_calibration_says_where_it_comes_from(tmp_path: Path) -> None:
    printed = SURFACES["printed"]
    points = [
        Point(
            s,
            b,
            1,
            accuracy=float(printed.quality(s, b)),
            effective_noise=s,
            effective_share=1.0,
            seconds=2.0,
        )
        for s in (0.0, 0.2, 0.4, 0.6)
        for b in (0.1, 1.0)
    ]
    result = Calibration("own", "noisemarket calibrate --name own", 9, points, 10)
    scenario = Scenario.from_preset("paper", data="/somewhere/private/images")
    text = result.surface_file(scenario, "")
    assert text is not None
    assert "private" not in text.replace("[provenance.privacy]", "")
    (tmp_path / "own.toml").write_text(text)
    found = read_surface(tmp_path / "own.toml")
    np.testing.assert_allclose(found.gamma[1:4], printed.gamma[1:4], rtol=1e-3)
    document = tomllib.loads(text)
    made = document["provenance"]
    assert made["command"] == "noisemarket calibrate --name own"
    assert made["privacy"]["protection"] == "paper"
    assert made["training"]["rounds"] == 30
    assert made["owners"] == 100
    assert made["seconds"] == 16.0
    assert len(document["measured"]["points"]) == 8
    assert document["fit"]["rms_accuracy"] < 0.01
    assert document["fit"]["rms_to_printed"] == pytest.approx(0.0)
    assert document["fit"]["remarks"] == ["1 of 9 points have not been measured yet."]


def test_without_a_fit_there_is_no_file() -> None:
    result = Calibration("own", "", 3, [], 10)
    assert result.surface_file(Scenario(), "") is None
    assert result.remarks[0].startswith("No fit: ")
    assert result.rms_to_printed is None


def test_a_spread_is_written_and_read(tmp_path: Path) -> None:
    made = LossSurface((0.4, 0.03, 0.2, 12.0, 0.3), (25.0, 99.0), labels=10, spread=(0.02, 0.4))
    file = tmp_path / "own.toml"
    file.write_text(surface_text(made, {}))
    assert read_surface(file) == made
    assert made.quality(0.3, 0.1, 0.1) < made.quality(0.3, 1.0, 0.1) < made.quality(0.3, 1.0)
    assert made.quality(0.3, 0.1, 1.0) == made.quality(0.3, 0.1)
    for wrong in ("0.1", "[0.1]", "[-0.1, 0.1]", '["a", 1]'):
        file.write_text(surface_text(SURFACE, {}) + f"spread = {wrong}\n")
        with pytest.raises(BadInput, match="spread"):
            read_surface(file)
