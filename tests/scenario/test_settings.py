"""Presets, settings by every name, and settings that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.scenario.common import complaint, setting

import noisemarket
from noisemarket.errors import BadInput
from noisemarket.scenario import PRESETS, SYMBOLS, Scenario, load_scenario


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
        assert paper.learning.optimism == 0.0
        assert paper.preset == "paper"

    @pytest.mark.parametrize("preset", ["market", "paper"])
    def test_constants_are_the_papers(self, preset: str) -> None:
        scenario = Scenario.from_preset(preset)
        game, learning = scenario.game, scenario.learning
        assert (game.sigma_max, game.saving_levels) == (0.6, 12)
        assert (game.payment_max, game.payment_levels) == (16.0, 32)
        assert (game.quality_weight, game.quality_value, game.payment_cost) == (0.6, 0.2, 0.13)
        assert (game.payment_value, game.privacy_weight) == (0.08, 2.5)
        assert scenario.surface_name() == {"market": "features-mnist", "paper": "printed"}[preset]
        assert scenario.population.owners == 100
        assert scenario.population.privacy_cost == {
            "distribution": "uniform", "low": 0.5, "high": 4.0,
        }  # fmt: skip
        assert learning.discount == 0.8
        rule = learning.settings()
        assert (rule.step_start, rule.step_slowing, rule.lose_ratio) == (50, 50, 2)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_every_preset_is_playable(self, preset: str) -> None:
        environment = Scenario.from_preset(preset).environment()
        owners = 51 if preset == "fars" else 100
        assert environment.games().owner_rewards.shape == (owners, *environment.levels.shape)

    def test_each_model_has_its_own_surface(self) -> None:
        assert Scenario.from_preset("market", model="cnn").surface_name() == "sharded-mnist"
        assert Scenario.from_preset("paper").training.model == "cnn"
        assert Scenario.from_preset("paper").training.weighting == "equal"
        given = Scenario.from_preset("market", surface="paper-mnist")
        assert given.surface_name() == "paper-mnist"

    def test_a_third_combination_stays_available(self) -> None:
        mended = Scenario.from_preset("paper", payoff="privacy_loss")
        assert (mended.game.payoff, mended.game.protocol) == ("privacy_loss", "simultaneous")

    def test_an_unknown_one_is_refused(self) -> None:
        message = complaint(lambda: Scenario.from_preset("shop"))
        assert message == "preset is shop: choose one of: market, paper, fars."
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

    def test_every_field_by_its_bare_name_and_by_its_path(self) -> None:
        for section in ("game", "population", "behaviour", "learning"):
            part = getattr(Scenario(), section)
            for field in type(part).model_fields:
                value = getattr(part, field)
                if (section, field) != ("population", "floor"):  # the bare name is the market's
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
        scenario = setting("payoff=privacy_loss", "optimism=2", preset="paper")
        assert scenario.game.payoff == "privacy_loss"
        assert scenario.learning.optimism == 2.0
        assert scenario.game.protocol == "simultaneous"

    def test_settings_lie_over_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.toml"
        file.write_text("seed = 3\n[population]\nowners = 7\nprivacy_cost = 1.0\n")
        scenario = load_scenario(file, settings=["N=9", "privacy_cost.value=2", "seed=4"])
        assert (scenario.population.owners, scenario.seed) == (9, 4)
        assert load_scenario(file).population.owners == 7

    def test_changes(self) -> None:
        scenario = setting("changes=[{ at = 10, scale = { quality_value = 2 } }]")
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


BAD_SETTINGS: list[tuple[str, str, str, str]] = [
    # Setting, the field and the value that the message must name, a word of the remedy.
    ("colour=red", "colour", "red", "unknown key"),
    ("discont=0.5", "discont", "0.5", "did you mean discount?"),
    ("market.bugdet=5", "market.bugdet", "5", "did you mean market.budget?"),
    ("market.pay=1", "market.pay", "1", "unknown key, remove it"),
    ("learning.discont=0.5", "learning.discont", "0.5", "unknown key"),
    ("learning.owners=5", "learning.owners", "5", "unknown key"),
    ("J=0", "game.saving_levels", "0", "give a whole number from 1 to 10,000"),
    ("K=0", "game.payment_levels", "0", "give a whole number from 1 to 10,000"),
    ("K=-3", "game.payment_levels", "-3", "give a whole number from 1 to 10,000"),
    ("J=2.5", "game.saving_levels", "2.5", "give a whole number from 1 to 10,000"),
    ("sigma_max=0", "game.sigma_max", "0", "give a number above 0"),
    ("sigma_max=-1", "game.sigma_max", "-1", "give a number above 0"),
    ("payment_max=nan", "game.payment_max", "nan", "finite"),
    ("payment_max=inf", "game.payment_max", "inf", "finite"),
    ("mu=-0.1", "game.payment_cost", "-0.1", "give a number of at least 0"),
    ("lambda_s=nan", "game.quality_value", "nan", "finite"),
    ("lambda_r=-inf", "game.payment_value", "-inf", "finite"),
    ("nu=-2.5", "game.privacy_weight", "-2.5", "give a number of at least 0"),
    ("varpi=1.5", "game.quality_weight", "1.5", "give a number from 0 to 1"),
    ("varpi=-0.5", "game.quality_weight", "-0.5", "give a number from 0 to 1"),
    ("discount=1", "learning.discount", "1", "give a number from 0 to below 1"),
    ("phi=1.5", "learning.discount", "1.5", "give a number from 0 to below 1"),
    ("discount=-0.1", "learning.discount", "-0.1", "give a number from 0 to below 1"),
    ("discount=nan", "learning.discount", "nan", "finite"),
    ("discount=high", "learning.discount", "high", "number"),
    ("eta=0", "learning.learning_rate", "0", "give a number above 0 and at most 1"),
    ("eta=2", "learning.learning_rate", "2", "give a number above 0 and at most 1"),
    ("exploration=2", "learning.exploration", "2", "give a number from 0 to 1"),
    ("optimism=-1", "learning.optimism", "-1", "give a number of at least 0"),
    ("iterations=0", "learning.iterations", "0", "give a whole number from 1 to 1,000,000,000"),
    ("window=0", "learning.window", "0", "give a whole number from 1 to 1,000,000,000"),
    ("N=0", "population.owners", "0", "give a whole number from 1 to 100,000,000"),
    ("N=1.5", "population.owners", "1.5", "give a whole number from 1 to 100,000,000"),
    ("N=many", "population.owners", "many", "give a whole number from 1 to 100,000,000"),
    ("seed=-1", "seed", "-1", "give a whole number from 0 to below 2^63"),
    ("seed=9223372036854775808", "seed", "9223372036854775808", "0 to below 2^63"),
    ("payoff=net", "game.payoff", "net", "give printed or privacy_loss or epsilon_loss"),
    ("protocol=auction", "game.protocol", "auction", "give signed or simultaneous"),
    ("surface=fitted", "surface", "fitted", "choose one of: printed"),
    ("learning=5", "learning", "5", "give a table"),
    ("budget=-1", "market.budget", "-1", "give a number of at least 0 or none"),
    ("widths=[0, 1, 1]", "training.widths.0", "0", "greater than or equal to 1"),
    ("data_size=1e13", "data_size of owner 0", "10000000000000.0", "at most 1e+12"),
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
    ("changes=5", "changes", "5", "give a list"),
    ("changes=[{}]", "changes.0.at", "{}", "required"),
    ("changes=[{ at = 0 }]", "changes.0.at", "0", "give a whole number of at least 1"),
    ("changes=[{ at = 1, when = 2 }]", "changes.0.when", "2", "unknown key"),
    ("changes=[{ at = 1, share = 0 }]", "changes.0.share", "0", "and at most 1"),
    ("changes=[{ at = 1, share = 2 }]", "changes.0.share", "2", "and at most 1"),
    ("changes=[{ at = 1, set = { beta = -1 } }]", "changes.0.set.beta", "-1", "equal to 0"),
    ("changes=[{ at = 1, set = { beta = nan } }]", "changes.0.set.beta", "nan", "finite"),
    (
        "changes=[{ at = 1, set = { nu = 1 } }]",
        "changes",
        "nu",
        "owners can change privacy_cost",
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
        assert message.startswith(f"{field} ")
        assert value in message.removeprefix(field)
        assert remedy in message.removeprefix(field)

    @pytest.mark.parametrize("text", ["discount", "=0.5", " =1"])
    def test_must_be_written_as_key_and_value(self, text: str) -> None:
        assert (
            complaint(lambda: setting(text)) == f"setting is {text.strip()}: write it as key=value."
        )

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
