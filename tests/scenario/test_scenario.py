"""Scenarios: presets, settings by every name, TOML in and out, and bad input of every kind."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import noisemarket
from noisemarket.errors import BadInput
from noisemarket.game.population import FIELDS, DataOwner
from noisemarket.scenario import PRESETS, SYMBOLS, Scenario, dump_scenario, load_scenario
from noisemarket.scenario.population_file import read_population
from noisemarket.scenario.presets import ALIASES

HEADER = "privacy_cost,data_size,beta,markup"


def setting(*settings: str, preset: str | None = None) -> Scenario:
    return load_scenario(preset=preset, settings=settings)


def complaint(do: Callable[[], object]) -> str:
    """What the user is told: one sentence on one line, ``field = value: remedy.``"""
    with pytest.raises(BadInput) as problem:
        do()
    bad = problem.value
    message = str(bad)
    assert "\n" not in message
    assert message.startswith(f"{bad.field} = ")
    assert message.endswith((".", "?"))
    assert f": {bad.remedy}" in message
    assert bad.field
    assert bad.remedy
    return message


class TestPresets:
    def test_market_is_the_default(self) -> None:
        market = Scenario.from_preset("market")
        assert market == Scenario() == load_scenario() == Scenario.from_preset()
        assert (market.game.payoff, market.game.protocol) == ("privacy_loss", "signed")
        assert market.preset == "market"

    def test_paper_is_as_printed(self) -> None:
        paper = Scenario.from_preset("paper")
        assert paper == load_scenario(preset="paper")
        assert (paper.game.payoff, paper.game.protocol) == ("printed", "simultaneous")
        assert (paper.learning.owner_optimism, paper.learning.curator_optimism) == (0.0, 0.0)
        assert paper.preset == "paper"

    @pytest.mark.parametrize("preset", PRESETS)
    def test_constants_are_the_papers(self, preset: str) -> None:
        scenario = Scenario.from_preset(preset)
        game, learning = scenario.game, scenario.learning
        assert (game.sigma_max, game.saving_levels) == (0.6, 12)
        assert (game.payment_max, game.payment_levels) == (16.0, 32)
        assert (game.quality_weight, game.quality_value, game.payment_cost) == (0.6, 0.2, 0.13)
        assert (game.payment_value, game.privacy_weight) == (0.08, 2.5)
        assert game.surface == {"market": "sharded-mnist", "paper": "printed"}[preset]
        assert scenario.population.owners == 100
        assert scenario.population.privacy_cost == {
            "distribution": "uniform", "low": 0.5, "high": 4.0,
        }  # fmt: skip
        assert learning.discount == 0.8
        assert (learning.step_start, learning.step_slowing, learning.lose_ratio) == (50, 50, 2)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_every_preset_is_playable(self, preset: str) -> None:
        environment = Scenario.from_preset(preset, owners=3).environment()
        assert len(environment) == 3
        assert environment.games().owner_rewards.shape == (3, 13, 33)

    def test_a_third_combination_stays_available(self) -> None:
        mended = Scenario.from_preset("paper", payoff="privacy_loss")
        assert (mended.game.payoff, mended.game.protocol) == ("privacy_loss", "simultaneous")

    def test_an_unknown_one_is_refused(self) -> None:
        message = complaint(lambda: Scenario.from_preset("shop"))
        assert message == "preset = shop: choose one of: market, paper."
        assert complaint(lambda: load_scenario(preset="shop")) == message

    def test_a_preset_given_as_a_setting_is_not_ignored(self) -> None:
        # Either it takes effect or it is refused; silently playing the other game is neither.
        try:
            scenario = setting("preset=paper")
        except BadInput:
            return
        assert scenario.preset == "paper"
        assert scenario.game.protocol == "simultaneous"


class TestSettings:
    @pytest.mark.parametrize(
        "key", ["discount", "learning.discount", "phi", " discount ", "learning.discount "]
    )
    def test_a_field_by_any_of_its_names(self, key: str) -> None:
        assert setting(f"{key}=0.5").learning.discount == 0.5

    @pytest.mark.parametrize("symbol", SYMBOLS)
    def test_every_symbol_of_the_paper(self, symbol: str) -> None:
        field = SYMBOLS[symbol]
        value = 3 if field in ("owners", "saving_levels", "payment_levels") else 0.25
        assert setting(f"{symbol}={value}") == setting(f"{field}={value}")
        assert setting(f"{symbol}={value}") != Scenario()

    @pytest.mark.parametrize("alias", ALIASES)
    def test_every_earlier_name_is_read_and_never_written(self, alias: str) -> None:
        field = ALIASES[alias]
        value = "greedy" if field == "mechanism" else "7"
        scenario = setting(f"{alias}={value}")
        assert scenario == setting(f"{field}={value}") != Scenario()
        assert f"\n{field} = " in dump_scenario(scenario)
        assert f"\n{alias} = " not in dump_scenario(scenario)

    def test_every_field_by_its_bare_name_and_by_its_path(self) -> None:
        for section in ("game", "population", "learning", "menu"):
            part = getattr(Scenario(), section)
            for field in type(part).model_fields:
                value = getattr(part, field)
                assert load_scenario(settings={field: value}) == Scenario()
                assert load_scenario(settings={f"{section}.{field}": value}) == Scenario()

    def test_inside_a_distribution(self) -> None:
        spread = {"distribution": "uniform", "low": 0.5, "high": 3}
        for key in ("privacy_cost.high", "population.privacy_cost.high", "c.high"):
            assert setting(f"{key}=3").population.privacy_cost == spread

    def test_a_whole_distribution(self) -> None:
        scenario = setting('beta={ distribution = "log_uniform", low = 0.05, high = 20 }')
        beta = scenario.environment().population.beta
        assert beta.min() >= 0.05
        assert beta.max() <= 20
        assert len(np.unique(beta)) == 100

    def test_a_number_is_a_distribution_too(self) -> None:
        assert (setting("c=2").environment().population.privacy_cost == 2.0).all()

    def test_text_needs_no_quotes(self) -> None:
        assert setting("mechanism=greedy").mechanism == "greedy"
        assert setting('mechanism="greedy"').mechanism == "greedy"
        assert setting("protocol=simultaneous").game.protocol == "simultaneous"

    def test_the_later_wins(self) -> None:
        assert setting("seed=1", "seed=7").seed == 7

    def test_settings_lie_over_the_preset(self) -> None:
        scenario = setting("payoff=privacy_loss", "owner_optimism=2", preset="paper")
        assert scenario.game.payoff == "privacy_loss"
        assert scenario.learning.owner_optimism == 2.0
        assert scenario.game.protocol == "simultaneous"

    def test_settings_lie_over_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text("seed = 3\n[population]\nowners = 7\nprivacy_cost = 1.0\n")
        scenario = load_scenario(file, settings=["N=9", "privacy_cost.value=2", "seed=4"])
        assert (scenario.population.owners, scenario.seed) == (9, 4)
        assert load_scenario(file).population.owners == 7

    def test_changes(self) -> None:
        scenario = setting('changes=[{ at = 10, who = "curator", scale = { quality_value = 2 } }]')
        first, second = scenario.environment().phases
        assert (first.quality_value, second.quality_value) == (0.2, 0.4)

    def test_a_scenario_is_frozen(self) -> None:
        scenario = Scenario()
        with pytest.raises(ValueError, match="frozen"):
            scenario.seed = 5  # type: ignore[misc]
        with pytest.raises(ValueError, match="frozen"):
            scenario.learning.discount = 0.1  # type: ignore[misc]

    def test_defaults_are_not_touched_by_settings_inside_them(self) -> None:
        setting("privacy_cost.high=3")
        assert Scenario().population.privacy_cost == {
            "distribution": "uniform", "low": 0.5, "high": 4.0,
        }  # fmt: skip


class TestSeeds:
    def test_seeds_for_owners_changes_and_play_are_independent(self) -> None:
        states = {tuple(seed.generate_state(2)) for seed in Scenario().seeds()}
        assert len(states) == 3
        assert 0 <= Scenario().play_seed() < 2**64
        assert Scenario().play_seed() != setting("seed=2").play_seed()

    def test_the_same_scenario_is_the_same_environment(self) -> None:
        changes = "changes=[{ at = 10, share = 0.5, scale = { privacy_cost = 2 } }]"
        one, two = (setting(changes).environment() for _ in range(2))
        np.testing.assert_array_equal(one.population.privacy_cost, two.population.privacy_cost)
        np.testing.assert_array_equal(one.phases[1].privacy_cost, two.phases[1].privacy_cost)

    def test_more_owners_are_the_same_owners_and_more(self) -> None:
        few, many = (setting(f"N={n}").environment().population.privacy_cost for n in (5, 50))
        np.testing.assert_array_equal(many[:5], few)


CHANGES = [
    {"at": 5, "who": "owners", "share": 0.25, "scale": {"privacy_cost": 2.0, "beta": 0.5}},
    {"at": 9, "names": ["0", "3"], "set": {"markup": 0.1}},
    {"at": 9, "who": "curator", "set": {"quality_value": 1e-7, "payment_cost": 1e22}},
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
    "everything": {"changes": CHANGES, "beta": CHOICE, "types": 3, "mechanism": "pain_fl"},
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
        for section in ("game", "population", "learning", "menu"):
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

    def test_an_earlier_name_in_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "old.toml"
        file.write_text('learner = "greedy"\nseed = 3\n')
        assert load_scenario(file) == load_scenario(settings=["mechanism=greedy", "seed=3"])

    def test_the_papers_symbols_in_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text("N = 3\n[game]\nK = 8\nmu = 0.2\n[learning]\nphi = 0.5\n")
        expected = load_scenario(settings=["N=3", "K=8", "mu=0.2", "phi=0.5"])
        assert load_scenario(file) == expected


BAD_SETTINGS: list[tuple[str, str, str, str]] = [
    # Setting, the field and the value that the message must name, a word of the remedy.
    ("colour=red", "colour", "red", "unknown key"),
    ("discont=0.5", "discont", "0.5", "did you mean discount?"),
    ("learning.discont=0.5", "learning.discont", "0.5", "unknown key"),
    ("learning.types=5", "learning.types", "5", "unknown key"),
    ("J=0", "game.saving_levels", "0", "greater than or equal to 1"),
    ("K=0", "game.payment_levels", "0", "greater than or equal to 1"),
    ("K=-3", "game.payment_levels", "-3", "greater than or equal to 1"),
    ("J=2.5", "game.saving_levels", "2.5", "integer"),
    ("sigma_max=0", "game.sigma_max", "0", "greater than 0"),
    ("sigma_max=-1", "game.sigma_max", "-1", "greater than 0"),
    ("payment_max=nan", "game.payment_max", "nan", "finite"),
    ("payment_max=inf", "game.payment_max", "inf", "finite"),
    ("mu=-0.1", "game.payment_cost", "-0.1", "greater than or equal to 0"),
    ("lambda_s=nan", "game.quality_value", "nan", "finite"),
    ("lambda_r=-inf", "game.payment_value", "-inf", "finite"),
    ("nu=-2.5", "game.privacy_weight", "-2.5", "greater than or equal to 0"),
    ("varpi=1.5", "game.quality_weight", "1.5", "less than or equal to 1"),
    ("varpi=-0.5", "game.quality_weight", "-0.5", "greater than or equal to 0"),
    ("discount=1", "learning.discount", "1", "less than 1"),
    ("phi=1.5", "learning.discount", "1.5", "less than 1"),
    ("discount=-0.1", "learning.discount", "-0.1", "greater than or equal to 0"),
    ("discount=nan", "learning.discount", "nan", "finite"),
    ("discount=high", "learning.discount", "high", "number"),
    ("eta=0", "learning.learning_rate", "0", "greater than 0"),
    ("eta=2", "learning.learning_rate", "2", "less than or equal to 1"),
    ("step_start=0", "learning.step_start", "0", "greater than 0"),
    ("step_slowing=-1", "learning.step_slowing", "-1", "greater than 0"),
    ("lose_ratio=0.5", "learning.lose_ratio", "0.5", "greater than or equal to 1"),
    ("exploration=2", "learning.exploration", "2", "less than or equal to 1"),
    ("owner_optimism=-1", "learning.owner_optimism", "-1", "greater than or equal to 0"),
    ("iterations=0", "learning.iterations", "0", "greater than or equal to 1"),
    ("trace_every=0", "learning.trace_every", "0", "greater than or equal to 1"),
    ("window=0", "learning.window", "0", "greater than or equal to 1"),
    ("types=0", "menu.types", "0", "greater than or equal to 1"),
    ("N=0", "population.owners", "0", "greater than or equal to 1"),
    ("N=1.5", "population.owners", "1.5", "integer"),
    ("N=many", "population.owners", "many", "integer"),
    ("seed=-1", "seed", "-1", "greater than or equal to 0"),
    ("seed=9223372036854775808", "seed", "9223372036854775808", "less than"),
    ("payoff=net", "game.payoff", "net", "'printed' or 'privacy_loss'"),
    ("protocol=auction", "game.protocol", "auction", "'signed' or 'simultaneous'"),
    ("surface=fitted", "surface", "fitted", "choose one of: printed"),
    ("learning=5", "learning", "5", "dictionary"),
    ("discount.low=1", "learning.discount", "{'low': 1}", "number"),
    ("c=-1", "privacy_cost of owner 0", "-1.0", "at least 0"),
    ("c=nan", "population.privacy_cost", "nan", "finite"),
    ("c=[1, 2]", "population.privacy_cost", "[1, 2]", "number"),
    ("privacy_cost.low=9", "population.privacy_cost.low", "9", "lower end"),
    ("privacy_cost.high=nan", "population.privacy_cost.high", "nan", "finite"),
    ("privacy_cost.high=inf", "population.privacy_cost.high", "inf", "finite"),
    ("privacy_cost.high=x", "population.privacy_cost.high", "x", "finite number"),
    ("privacy_cost.mean=1", "population.privacy_cost", "'mean': 1", "takes: low, high"),
    ("privacy_cost.distribution=gamma", "population.privacy_cost.distribution", "gamma", "choose"),
    ("beta=0", "beta of owner 0", "0.0", "above 0"),
    ("markup=-1", "markup of owner 0", "-1.0", "at least 0"),
    ("data_size=0", "population.data_size", "0.0", "at least 1"),
    ("changes=5", "changes", "5", "tuple"),
    ("changes=[{}]", "changes.0.at", "{}", "required"),
    ("changes=[{ at = 0 }]", "changes.0.at", "0", "greater than or equal to 1"),
    ("changes=[{ at = 1, when = 2 }]", "changes.0.when", "2", "unknown key"),
    ("changes=[{ at = 1, who = 'all' }]", "changes.0.who", "all", "'owners' or 'curator'"),
    ("changes=[{ at = 1, share = 0 }]", "changes.0.share", "0", "greater than 0"),
    ("changes=[{ at = 1, share = 2 }]", "changes.0.share", "2", "less than or equal to 1"),
    ("changes=[{ at = 1, set = { beta = -1 } }]", "changes.0.set.beta", "-1", "equal to 0"),
    ("changes=[{ at = 1, set = { beta = nan } }]", "changes.0.set.beta", "nan", "finite"),
    (
        "changes=[{ at = 1, set = { nu = 1 } }]",
        "changes",
        "nu",
        "owners can only change",
    ),
    (
        "changes=[{ at = 1, names = ['x'], set = { beta = 1 } }]",
        "changes: names",
        "x",
        "is not an owner",
    ),
]


class TestBadSettings:
    @pytest.mark.parametrize(("text", "field", "value", "remedy"), BAD_SETTINGS)
    def test_are_refused_by_field_value_and_remedy(
        self, text: str, field: str, value: str, remedy: str
    ) -> None:
        message = complaint(lambda: setting(text).environment())
        assert message.startswith(f"{field} = ")
        named, _, advice = message.removeprefix(f"{field} = ").partition(": ")
        if ": " in value or "{" in message.removeprefix(f"{field} = ")[:1]:
            named, advice = message, message  # a table shown whole holds colons itself
        assert value in named
        assert remedy in advice

    @pytest.mark.parametrize("text", ["discount", "=0.5", " =1"])
    def test_must_be_written_as_key_and_value(self, text: str) -> None:
        assert complaint(lambda: setting(text)) == f"--set = {text.strip()}: write it as key=value."

    def test_a_long_value_is_cut_short(self) -> None:
        message = complaint(lambda: setting("discount=" + "x" * 500 + " y"))
        assert len(message) < 220
        assert "..." in message

    def test_a_value_with_line_breaks_stays_on_one_line(self) -> None:
        complaint(lambda: load_scenario(settings={"payoff": "a\nb\r\nc"}))

    def test_the_public_api_raises_the_same(self) -> None:
        assert complaint(
            lambda: noisemarket.Scenario.from_preset("market", discount=1)
        ) == complaint(lambda: setting("discount=1"))


class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "field", "remedy"),
        [
            ("seed = ", "scenario", "not valid TOML"),
            ("[game]\ncolour = 4\n", "game.colour", "unknown key"),
            ("[shop]\nopen = true\n", "shop", "unknown key"),
            ('preset = "shop"\n', "preset", "choose one of: market, paper"),
            ("[learning]\ndiscount = 1.0\n", "learning.discount", "less than 1"),
            ("[game]\nsaving_levels = 0\n", "game.saving_levels", "equal to 1"),
            ("[game]\npayment_cost = nan\n", "game.payment_cost", "finite"),
            ("game = 3\n", "game", "dictionary"),
        ],
    )
    def test_say_what_is_wrong(self, content: str, field: str, remedy: str, tmp_path: Path) -> None:
        file = tmp_path / "bad.toml"
        file.write_text(content)
        message = complaint(lambda: load_scenario(file))
        assert message.startswith(f"{field} = ")
        assert remedy in message

    def test_a_missing_file(self, tmp_path: Path) -> None:
        file = tmp_path / "none.toml"
        message = complaint(lambda: load_scenario(file))
        assert message.startswith(f"scenario = {file}"[:60])
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


GOOD = [(0.5, 600.0, 1.0, 0.2), (4.0, 1.0, 20.0, 0.0)]


class TestPopulationFiles:
    @staticmethod
    def write(folder: Path, name: str, content: str | bytes) -> str:
        file = folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    @pytest.mark.parametrize(
        ("name", "content", "names"),
        [
            ("a.csv", f"{HEADER}\n0.5,600,1,0.2\n4,1,20,0\n", ["0", "1"]),
            ("b.csv", f"owner,{HEADER}\nanna,0.5,600,1,0.2\nbert,4,1,20,0\n", ["anna", "bert"]),
            ("c.csv", "beta,markup,owner,data_size,privacy_cost\n1,0.2,x y,600,0.5\n20,0,é,1,4\n",
             ["x y", "é"]),
            ("d.csv", f"\ufeff{HEADER}\r\n0.5,600,1,0.2\r\n\r\n4e0, 1 ,20,0", ["0", "1"]),
            ("e.csv", f'owner,{HEADER}\n"a, b",0.5,600,1,0.2\n"c",4,1,20,0\n', ["a, b", "c"]),
            ("f.toml", "[[owner]]\nprivacy_cost = 0.5\ndata_size = 600\nbeta = 1\nmarkup = 0.2\n"
             "[[owner]]\nprivacy_cost = 4\ndata_size = 1\nbeta = 20.0\nmarkup = 0\n", ["0", "1"]),
            ("g.toml", 'owner = [{owner = "anna", privacy_cost = 0.5, data_size = 600, beta = 1, '
             'markup = 0.2}, {owner = "bert", privacy_cost = 4, data_size = 1, beta = 20, '
             "markup = 0}]", ["anna", "bert"]),
        ],
    )  # fmt: skip
    def test_are_read(self, name: str, content: str, names: list[str], tmp_path: Path) -> None:
        population = read_population(self.write(tmp_path, name, content), owners=2)
        assert [owner.name for owner in population] == names
        rows = zip(*(getattr(population, field) for field in FIELDS), strict=True)
        assert list(rows) == GOOD

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", f"owner,{HEADER}\nanna,x,600,1,-1\n"),
            ("b.csv", "owner,data_size,beta\nanna,600,1\n"),
            ("c.toml", "[[owner]]\nowner = 'anna'\ndata_size = 600\nbeta = 1\n"),
        ],
    )
    def test_are_read_without_secrets(self, name: str, content: str, tmp_path: Path) -> None:
        (anna,) = read_population(self.write(tmp_path, name, content), secrets=False)
        assert anna == DataOwner("anna", privacy_cost=0.0, data_size=600.0, beta=1.0, markup=0.0)
        file = self.write(tmp_path, "d.csv", "privacy_cost,data_size,markup\n1,1,1\n")
        assert "lacks beta" in complaint(lambda: read_population(file, secrets=False))

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("privacy_cost,data_size,beta\n1,1,1\n", "lacks markup: add it"),
            (f"{HEADER}\nnan,1,1,0\n", "privacy_cost in row 1 of"),
            (f"{HEADER}\n1,1,1,0\n1,1,inf,0\n", "beta in row 2 of"),
            (f"{HEADER}\n1,many,1,0\n", "data_size in row 1 of"),
            (f"{HEADER}\n1,,1,0\n", "data_size in row 1 of"),
            (f"owner,{HEADER}\na,1,1,1,0\nb,1,1,1,0\na,1,1,1,0\n", "owner = a: name every owner"),
            ("", "lacks privacy_cost"),
            (f"{HEADER}\n", "give at least one owner"),
            (f"{HEADER}\n\n\n", "give at least one owner"),
            (f"{HEADER},colour\n1,1,1,0,red\n", 'has unknown "colour"'),
            (f"{HEADER},\n1,1,1,0,\n", 'has unknown ""'),
            (f"{HEADER}\n1,1,1\n", "row 1 must have one value per column"),
            (f"{HEADER}\n1,1,1,0\n1,1,1,0,5\n", "row 2 must have one value per column"),
            (f"{HEADER.replace(',', ';')}\n1;1;1;0\n", "with commas"),
            (f"{HEADER}\n-1,1,1,0\n", "privacy_cost of owner 0 = -1.0"),
            (f"{HEADER}\n1,0,1,0\n", "data_size of owner 0 = 0.0"),
            (f"{HEADER}\n1,1,0,0\n", "beta of owner 0 = 0.0"),
            (f"{HEADER}\n1,1,1,-1\n", "markup of owner 0 = -1.0"),
            (b"\xff\xfe\x00privacy", "not a UTF-8 text file"),
            (f"{HEADER},beta\n1,1,1,0,7\n", "beta"),
        ],
    )  # fmt: skip
    def test_csv_that_cannot_be_used(self, content: str | bytes, told: str, tmp_path: Path) -> None:
        file = self.write(tmp_path, "owners.csv", content)
        assert told in complaint(lambda: read_population(file))

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ("owner = ", "not valid TOML"),
            ("", "write one [[owner]] table per owner"),
            ("[owner]\nbeta = 1\n", "write one [[owner]] table per owner"),
            ("owner = []\n", "give at least one owner"),
            ("owner = [1, 2]\n", "[[owner]]"),
            ("[[owner]]\nprivacy_cost = 1\n", "owner 1 lacks data_size"),
            ("[[owner]]\nprivacy_cost = 1\ndata_size = 1\nbeta = nan\nmarkup = 0\n",
             "beta in row 1 of"),
            ("[[owner]]\nprivacy_cost = 1\ndata_size = 1\nbeta = 'x'\nmarkup = 0\n", "= x: give"),
            ("[[owner]]\nprivacy_cost = 1\ndata_size = 1\nbeta = true\nmarkup = 0\n", "= True:"),
            ("[[owner]]\nprivacy_cost = 1\ndata_size = 1\nbeta = [1]\nmarkup = 0\n", "= [1]:"),
            ("[[owner]]\nprivacy_cost = 1\ndata_size = 1\nbeta = 1\nmarkup = 0\nage = 3\n",
             'unknown "age"'),
            ("title = 'x'\n[[owner]]\nbeta = 1\n", "write one [[owner]] table per owner"),
        ],
    )  # fmt: skip
    def test_toml_that_cannot_be_used(self, content: str, told: str, tmp_path: Path) -> None:
        file = self.write(tmp_path, "owners.toml", content)
        assert told in complaint(lambda: read_population(file))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        message = complaint(lambda: read_population(str(tmp_path / "none.csv")))
        assert message.startswith("population.file = ")
        assert "No such file" in message

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "cannot be read" in complaint(lambda: read_population(str(tmp_path)))

    @pytest.mark.parametrize("read", [read_population, load_scenario])
    def test_a_name_no_file_can_have(self, read: Callable[[str], object]) -> None:
        complaint(lambda: read("a\0b.toml"))

    def test_a_repeated_name_is_told_in_a_large_file_too(self, tmp_path: Path) -> None:
        rows = [f"o{i % 11_000},1,1,1,0" for i in range(11_001)]
        file = self.write(tmp_path, "owners.csv", "\n".join([f"owner,{HEADER}", *rows]))
        assert complaint(lambda: read_population(file)).startswith("owner = o0: ")


class TestPopulationFilesInScenarios:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "people").mkdir()
        rows = "anna,0.5,600,1,0.2\nbert,4,1,20,0\n"
        (tmp_path / "people" / "owners.csv").write_text(f"owner,{HEADER}\n{rows}")
        (tmp_path / "job.toml").write_text('[population]\nfile = "people/owners.csv"\n')
        return tmp_path

    def test_a_path_is_relative_to_the_scenario(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for elsewhere in (folder.parent, folder, folder / "people"):
            monkeypatch.chdir(elsewhere)
            environment = load_scenario(folder / "job.toml").environment()
            assert [owner.name for owner in environment.population] == ["anna", "bert"]

    def test_a_relative_scenario_path_works_too(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder)
        assert len(load_scenario("job.toml").environment()) == 2

    def test_an_absolute_path_stays(self, folder: Path) -> None:
        file = str(folder / "people" / "owners.csv")
        (folder / "other.toml").write_text(f"[population]\nfile = '{file}'\n")
        assert load_scenario(folder / "other.toml").population.file == file

    def test_without_a_scenario_file_it_is_relative_to_here(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder / "people")
        assert len(setting("file=owners.csv").environment()) == 2

    def test_the_file_says_how_many_owners_there_are(self, folder: Path) -> None:
        assert load_scenario(folder / "job.toml").population.owners == 2
        assert load_scenario(folder / "job.toml", settings=["N=2"]).population.owners == 2

    def test_another_number_of_owners_is_refused(self, folder: Path) -> None:
        message = complaint(
            lambda: load_scenario(folder / "job.toml", settings=["N=5"]).environment()
        )
        assert message.startswith("population.owners = 5: ")
        assert "has 2 owners" in message

    def test_a_bad_file_is_told_when_the_scenario_is_loaded(self, folder: Path) -> None:
        (folder / "people" / "owners.csv").write_text("privacy_cost\n1\n")
        assert "lacks data_size" in complaint(lambda: load_scenario(folder / "job.toml"))

    def test_changes_call_its_owners_by_name(self, folder: Path) -> None:
        with (folder / "job.toml").open("a") as file:
            file.write('[[changes]]\nat = 5\nnames = ["bert"]\nset = { privacy_cost = 1.0 }\n')
        _, second = load_scenario(folder / "job.toml").environment().phases
        assert second.privacy_cost.tolist() == [0.5, 1.0]


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
