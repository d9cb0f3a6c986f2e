"""Scenarios as TOML: what is written loads as the same, and files that cannot be used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenario.common import HEADER, complaint, setting

from noisemarket.scenario import PRESETS, Scenario, dump_scenario, load_scenario

CHANGES = [
    {"at": 5, "share": 0.25, "scale": {"privacy_cost": 2.0, "beta": 0.5}},
    {"at": 9, "names": ["0", "3"], "set": {"markup": 0.1}},
    {"at": 9, "set": {"quality_value": 1e-7, "payment_cost": 1e22}},
]
CHOICE = {"distribution": "choice", "values": [0.5, 1, 2.5], "weights": [1, 2.0, 1]}

ROUND_TRIPS: dict[str, dict[str, object]] = {
    "defaults": {},
    "numbers": {"seed": 2**63 - 1, "discount": 0.0, "sigma_max": 1e-5, "payment_max": 1e16},
    "changes": {"changes": CHANGES},
    "one change without anything": {"changes": [{"at": 1}]},
    "choice": {"privacy_cost": CHOICE, "data_size": CHOICE, "markup": 0},
    "normal": {"beta": {"distribution": "normal", "mean": 3, "sd": 1.0, "low": 0.1}},
    "names": {
        "changes": [{"at": 3, "names": ["anna", 'o"hara', "back\\slash", "Zürich ☃", "a b"]}]
    },
    "tab": {"changes": [{"at": 3, "names": ["a\tb"]}]},
    "line break": {"changes": [{"at": 3, "names": ["a\nb"]}]},
    "control characters": {"changes": [{"at": 3, "names": ["\x00\x1f\x7f"]}]},
    "everything": {"changes": CHANGES, "beta": CHOICE, "mechanism": "pain_fl"},
}


class TestRoundTrip:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("name", ROUND_TRIPS)
    def test_what_is_dumped_loads_as_the_same(self, name: str, preset: str, tmp_path: Path) -> None:
        scenario = load_scenario(preset=preset, settings=ROUND_TRIPS[name])
        file = tmp_path / "scenario.toml"
        file.write_text(dump_scenario(scenario), encoding="utf-8", newline="")
        assert load_scenario(file) == scenario

    @given(st.text(max_size=20))
    def test_whatever_an_owner_is_called(self, name: str) -> None:
        scenario = load_scenario(settings={"changes": [{"at": 3, "names": [name]}]})
        again = tomllib.loads(dump_scenario(scenario))
        assert again["changes"][0]["names"] == [name]

    @given(st.floats(1e-300, 1e30), st.floats(0, 1, exclude_max=True), st.integers(0, 2**63 - 1))
    def test_numbers_to_the_last_bit(self, wide: float, unit: float, seed: int) -> None:
        given_ = {"payment_max": wide, "discount": unit, "seed": seed, "privacy_cost": wide}
        scenario = load_scenario(settings=given_)
        again = load_scenario(settings=tomllib.loads(dump_scenario(scenario)))
        assert again == scenario

    def test_every_field_is_spelled_out(self) -> None:
        document = tomllib.loads(dump_scenario(Scenario()))
        assert set(document) == set(Scenario.model_fields)
        for section in ("game", "population", "learning"):
            assert set(document[section]) == set(type(getattr(Scenario(), section)).model_fields)

    def test_a_population_file_is_found_again(self, tmp_path: Path) -> None:
        (tmp_path / "owners.csv").write_text(f"{HEADER}\n1,600,1,0.2\n2,600,1,0.2\n")
        scenario = load_scenario(settings={"file": str(tmp_path / "owners.csv")})
        dumped = tmp_path / "run" / "scenario.toml"
        dumped.parent.mkdir()
        dumped.write_text(dump_scenario(scenario))
        assert load_scenario(dumped) == scenario
        assert load_scenario(dumped).environment().population.privacy_cost.tolist() == [1.0, 2.0]

    def test_reading_by_hand(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text(
            'preset = "paper"\nmechanism = "greedy"\nK = 8\n'
            "[game]\nsigma_max = 0.5\n"
            "[population]\nowners = 3\n[population.privacy_cost]\nhigh = 2.0\n"
            'distribution = "uniform"\nlow = 1.0\n'
            "[[changes]]\nat = 4\nset = { markup = 0 }\n"
        )
        scenario = load_scenario(file)
        assert scenario.preset == "paper"
        assert scenario.game.protocol == "simultaneous"
        assert (scenario.game.payment_levels, scenario.game.sigma_max) == (8, 0.5)
        assert scenario.environment().population.privacy_cost.max() <= 2.0
        assert scenario.changes[0].at == 4

    def test_the_papers_symbols_in_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text("N = 3\n[game]\nK = 8\nmu = 0.2\n[learning]\nphi = 0.5\n")
        expected = load_scenario(settings=["N=3", "K=8", "mu=0.2", "phi=0.5"])
        assert load_scenario(file) == expected


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "field", "remedy"),
        [
            ("seed = ", "scenario", "not valid TOML"),
            ("[game]\ncolour = 4\n", "game.colour", "unknown key"),
            ("[shop]\nopen = true\n", "shop", "unknown key"),
            ('preset = "shop"\n', "preset", "choose one of: market, paper"),
            ("[learning]\ndiscount = 1.0\n", "learning.discount", "to below 1"),
            ("[game]\nsaving_levels = 0\n", "game.saving_levels", "from 1 to 10,000"),
            ("[game]\npayment_cost = nan\n", "game.payment_cost", "finite"),
            ("game = 3\n", "game", "give a table"),
            ("[market]\nbudget = true\n", "market.budget", "give a number, not true or false"),
            ("[training]\nwidths = [true, 2, 2]\n", "training.widths.0", "give a number, not"),
            ("[[changes]]\nat = 5\nscale = {mu = true}\n", "changes.0.scale.mu", "give a number"),
            (f"x = {'[' * 500}{']' * 500}\n", "scenario", "nested more than 20 deep"),
            (f"x = {'{a=' * 500}1{'}' * 500}\n", "scenario", "nested more than 20 deep"),
            (f"[{'.'.join('a' * 500)}]\n", "scenario", "nested more than 20 deep"),
        ],
    )
    def test_say_what_is_wrong(self, content: str, field: str, remedy: str, tmp_path: Path) -> None:
        file = tmp_path / "bad.toml"
        file.write_text(content)
        message = complaint(lambda: load_scenario(file))
        assert message.startswith(f"{field} ")
        assert remedy in message

    def test_a_missing_file(self, tmp_path: Path) -> None:
        file = tmp_path / "none.toml"
        message = complaint(lambda: load_scenario(file))
        assert message.startswith(f"scenario {file}"[:60])
        assert "No such file" in message

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "cannot be read" in complaint(lambda: load_scenario(tmp_path))

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        file = tmp_path / "bad.toml"
        file.write_bytes(b"seed = \xff\xfe")
        assert "not a UTF-8 text file" in complaint(lambda: load_scenario(file))

    def test_a_byte_order_mark_is_no_error(self, tmp_path: Path) -> None:
        file = tmp_path / "windows.toml"
        file.write_bytes(b"\xef\xbb\xbfseed = 5\r\n")
        assert load_scenario(file).seed == 5


class TestDataInScenarios:
    def test_a_folder_of_images_is_relative_to_the_scenario(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs" / "job.toml").write_text('[training]\ndata = "../images"\n')
        monkeypatch.chdir(tmp_path)
        data = load_scenario("jobs/job.toml").training.data
        assert Path(data).is_absolute()
        assert Path(data).resolve() == tmp_path.resolve() / "images"

    def test_a_kept_scenario_takes_the_same_data_from_anywhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "run").mkdir()
        monkeypatch.chdir(tmp_path)
        made = setting("data=images")
        assert made.training.data == str(tmp_path / "images")
        (tmp_path / "run" / "scenario.toml").write_text(dump_scenario(made))
        monkeypatch.chdir(tmp_path / "run")
        assert load_scenario("scenario.toml").training.data == made.training.data

    def test_no_folder_stays_none(self) -> None:
        assert setting("data=''").training.data == ""
