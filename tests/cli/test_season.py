"""A season: jobs one after another, with the same owners, wallets and ledger."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import settings, write_images

from noisemarket.cli import main
from noisemarket.cli import run as run_command
from noisemarket.cli.season import after, as_played
from noisemarket.errors import BadInput
from noisemarket.ledger.queries import jobs
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.job import run_market
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import prepare
from noisemarket.market.training import SerialEngine
from noisemarket.pricing import find_mechanism
from noisemarket.scenario import Scenario, dump_scenario, load_scenario
from noisemarket.scenario.load import jobs_of
from noisemarket.show import market_report, season_report
from noisemarket.show.season_report import draw_season, season_table

SEASON = """
mechanism = "equilibrium"
[[jobs]]
name = "spring"
[[jobs]]
name = "summer"
quality_value = 0.0
[[jobs]]
name = "autumn"
market.budget = 1.0
"""


def written(tmp_path: Path, text: str = SEASON) -> Path:
    file = tmp_path / "season.toml"
    file.write_text(text)
    return file


def test_each_job_has_what_it_changes_and_the_rest(tmp_path: Path) -> None:
    made = load_scenario(written(tmp_path), settings=["owners=7"])
    spring, summer, autumn = jobs_of(made)
    assert [name for name, _ in (spring, summer, autumn)] == ["spring", "summer", "autumn"]
    assert [one.game.quality_value for _, one in (spring, summer, autumn)] == [0.2, 0.0, 0.2]
    assert [one.market.budget for _, one in (spring, summer, autumn)] == ["none", "none", 1.0]
    assert all(one.population.owners == 7 and not one.jobs for _, one in (spring, summer, autumn))
    (tmp_path / "again.toml").write_text(dump_scenario(made))
    assert load_scenario(tmp_path / "again.toml") == made
    assert jobs_of(Scenario()) == []


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("quality_valu = 1", "did you mean quality_value"),
        ("rounds = 0", "training.rounds of job 4"),
        ('preset = "paper"', "job 4 cannot change it"),
        ("jobs = []", "job 4 cannot change it"),
    ],
)
def test_a_wrong_job_is_named(tmp_path: Path, job: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_scenario(written(tmp_path, f"{SEASON}[[jobs]]\n{job}\n"))


@pytest.mark.training
def test_a_season_runs_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    images = write_images(tmp_path / "images")
    small = settings(images, owners=3, rounds=2, model="features")
    pairs = [f"{name}={json.dumps(small[name])}" for name in small if name != "mechanism"]
    sets = [word for pair in pairs for word in ("--set", pair)]
    monkeypatch.setattr(market_report, "draw_market", lambda *_: [])
    out, real, calls = tmp_path / "season", run_command._market, list[int]()

    def stopped(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(run_command, "_market", stopped)
    with pytest.raises(SystemExit) as end:
        main(["run", str(written(tmp_path)), *sets, "--workers", "1", "--out", str(out)])
    assert end.value.code == 130
    assert [row["job"] for row in json.loads((out / "season.json").read_text())] == ["spring"]
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", str(out), "--workers", "1"])
    assert end.value.code == 0
    (told,) = re.findall(r"noisemarket (ledger ls \S+)", capsys.readouterr().out)
    with pytest.raises(SystemExit) as end:
        main(told.split())
    assert end.value.code == 0
    assert capsys.readouterr().out.count(": settled, 3 contracts") == 3
    rows = json.loads((out / "season.json").read_text())
    assert len(calls) == 4, "the first job is not run again"
    assert [row["job"] for row in rows] == ["spring", "summer", "autumn"]
    assert [row["sellers"] for row in rows] == [3, 0, 0]
    assert rows[0]["paid"] > 0.0 == rows[1]["paid"]
    spent = [row["rho"] for row in rows]
    assert spent == sorted(spent)
    assert (out / "figures" / "season.png").exists()
    table = season_table(rows, "EUR")
    assert "paid, EUR" in [column.header for column in table.columns]
    with open_ledger(out / "consortium", create=False) as ledger:
        verify(ledger)
        assert [one.settled for one in jobs(ledger)] == [True] * 3


def test_a_season_in_which_nothing_is_sold_is_drawn_from_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(season_report, "save", lambda canvas, *_: drawn.append(canvas) or [])
    names = ("accuracy", "paid", "left_median", "left_least", "sellers", "dry")
    draw_season(tmp_path, [{"job": f"{i}", **dict.fromkeys(names, 0)} for i in range(3)])
    assert [axis.get_ylim() for axis in drawn[0].axes[1::2]] == [(0.0, 1.0)] * 2


@pytest.mark.training
def test_a_season_says_once_whose_records_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, images in (("before", 120), ("after", 60)):
        (tmp_path / name).mkdir()
        write_images(tmp_path / name, train=images)
    later = f"[[jobs]]\ntraining.data = {json.dumps(str(tmp_path / 'after'))}\n"
    file = written(tmp_path, f'mechanism = "equilibrium"\n[[jobs]]\n{later}{later}')
    small = settings(tmp_path / "before", owners=3, rounds=1, model="features")
    pairs = [f"{name}={json.dumps(small[name])}" for name in small if name != "mechanism"]
    sets = [word for pair in pairs for word in ("--set", pair)]
    monkeypatch.setattr(market_report, "draw_market", lambda *_: [])
    with pytest.raises(SystemExit) as end:
        main(["run", str(file), *sets, "--workers", "1", "--out", str(tmp_path / "season")])
    assert end.value.code == 0
    (said,) = re.findall(r"Job (\S+): 3 of 3 owners have other", capsys.readouterr().out)
    assert said == "2"


@pytest.mark.training
def test_a_stop_late_in_a_job_comes_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = settings(write_images(tmp_path), owners=3, rounds=1, model="features")
    pairs = [f"{name}={json.dumps(small[name])}" for name in small if name != "mechanism"]
    sets = [word for pair in pairs for word in ("--set", pair)]

    def signalled(*_: Any) -> list[Path]:
        signal.raise_signal(signal.SIGTERM)
        return []

    monkeypatch.setattr(market_report, "draw_market", signalled)
    out = tmp_path / "season"
    with pytest.raises(SystemExit) as end:
        main(["run", str(written(tmp_path)), *sets, "--workers", "1", "--out", str(out)])
    assert end.value.code == 130
    assert f"continue with --resume {out}" in capsys.readouterr().err
    assert [one.name for one in (out / "jobs").iterdir()] == ["01"]
    assert json.loads((out / "jobs" / "01" / "status.json").read_text())["state"] == "complete"


@pytest.mark.compiled
def test_learners_go_on_from_the_jobs_before() -> None:
    """The second job is the end of one long game, with the preferences of each job in its part."""
    given = {"owners": 4, "iterations": 400, "reopen": False, "quality_value": 1.0}
    market = prepare(Scenario.from_preset("market", **given))
    cheap = market.environment
    dear = replace(cheap.phases[0], privacy_cost=cheap.phases[0].privacy_cost * 3)
    poorer = replace(cheap.population, floor=np.full(4, 0.4))  # they have sold some of their budget
    second = replace(market, environment=replace(cheap, phases=(dear,), population=poorer))
    carried = after(second, [market])
    assert [phase.start for phase in carried.environment.phases] == [0, 400]
    assert carried.scenario.learning.iterations == 800
    dypp = find_mechanism("dypp")
    alone = dypp.run(second.environment, run_options(second.scenario))
    on = dypp.run(carried.environment, run_options(carried.scenario))
    assert on.trace is not None
    assert alone.trace is not None
    first = dypp.run(cheap, run_options(market.scenario))
    assert first.trace is not None
    count = len(first.trace.saving)
    assert np.array_equal(on.trace.saving[:count], first.trace.saving)
    floored = dypp.run(replace(cheap, population=poorer), run_options(market.scenario)).trace
    assert floored is not None
    assert not np.array_equal(floored.saving, first.trace.saving), "floors count"
    assert on.trace.saving[count:] != pytest.approx(alone.trace.saving)


@pytest.mark.training
def test_a_job_is_played_again_with_the_floors_that_it_had(tmp_path: Path) -> None:
    given = {"owners": 3, "rounds": 2, "epsilon_budget": 2.0, "mechanism": "equilibrium"}
    (tmp_path / "images").mkdir()
    images = write_images(tmp_path / "images")
    market = prepare(load_scenario(settings=settings(images, model="features", **given)))
    run_market(market, tmp_path / "job", engine=SerialEngine, owners=tmp_path / "all").finish()
    least = as_played(market, tmp_path / "job").environment.population.floor
    assert (least > market.environment.population.floor).all()


def test_learners_need_the_same_levels() -> None:
    market = prepare(Scenario.from_preset("market", owners=2))
    for more in ({"saving_levels": 6}, {"seed": 2}, {"discount": 0.5}):
        other = prepare(Scenario.from_preset("market", owners=2, **more))
        with pytest.raises(BadInput, match="the same owners, levels, seed and learning"):
            after(market, [other])
