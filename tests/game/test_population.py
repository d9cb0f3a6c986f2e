"""Who the owners are: distributions, draws, keys, and preferences that change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.game.environment import Change, Phase, phases
from noisemarket.game.levels import FloatArray
from noisemarket.game.population import (
    DISTRIBUTIONS,
    FIELDS,
    Choice,
    Constant,
    Distribution,
    LogNormal,
    LogUniform,
    Normal,
    Population,
    UniformDistribution,
    make_distribution,
)

pytestmark = pytest.mark.slow

EXAMPLES: dict[str, tuple[Distribution, float, float, float]] = {
    # Distribution, lowest and highest value, mean.
    "constant": (Constant(2.5), 2.5, 2.5, 2.5),
    "uniform": (UniformDistribution(0.5, 4.0), 0.5, 4.0, 2.25),
    "log_uniform": (LogUniform(0.05, 20.0), 0.05, 20.0, 19.95 / math.log(400)),
    "normal": (Normal(2.0, 0.5, 1.0, 3.0), 1.0, 3.0, 2.0),
    "normal cut at 0": (Normal(0.0, 1.0), 0.0, np.inf, math.sqrt(2 / math.pi)),
    "lognormal": (LogNormal(2.0, 0.5), 0.0, np.inf, 2.0 * math.exp(0.125)),
    "choice": (Choice((3.0, 1.0, 2.0)), 1.0, 3.0, 2.0),
    "weighted choice": (Choice((4.0, 1.0), (1.0, 3.0)), 1.0, 4.0, 1.75),
}


@pytest.mark.parametrize("name", EXAMPLES)
class TestEveryDistribution:
    def test_stays_in_its_range(self, name: str) -> None:
        given_, low, high, _ = EXAMPLES[name]
        values = given_.quantile(np.random.default_rng(1).random(5_000))
        assert values.shape == (5_000,)
        assert np.isfinite(values).all()
        assert values.min() >= low
        assert values.max() <= high

    def test_quantiles_never_fall(self, name: str) -> None:
        values = EXAMPLES[name][0].quantile(np.linspace(0.0, 1.0 - 2**-53, 2_001))
        assert (np.diff(values) >= 0).all()

    def test_has_its_mean(self, name: str) -> None:
        given_, _, _, mean = EXAMPLES[name]
        midpoints = (np.arange(200_000) + 0.5) / 200_000
        assert given_.quantile(midpoints).mean() == pytest.approx(mean, rel=2e-4)

    def test_reaches_its_ends(self, name: str) -> None:
        given_, low, high, _ = EXAMPLES[name]
        first, last = given_.quantile([0.0, 1.0 - 2**-53])
        assert first == pytest.approx(low, abs=3e-3 if np.isfinite(high) else 0.1)
        assert last == pytest.approx(high, rel=1e-6) if np.isfinite(high) else last > 5.0

    def test_a_quantile_of_one_number(self, name: str) -> None:
        given_ = EXAMPLES[name][0]
        assert float(given_.quantile(0.5)) == float(given_.quantile([0.5])[0])


def test_medians() -> None:
    assert float(LogNormal(2.0, 0.5).quantile(0.5)) == pytest.approx(2.0)
    assert float(LogUniform(0.1, 10.0).quantile(0.5)) == pytest.approx(1.0)
    assert float(Normal(3.0, 0.1).quantile(0.5)) == pytest.approx(3.0)


def test_choices_come_as_often_as_their_weights_say() -> None:
    drawn = Choice((1.0, 5.0, 2.0), (2.0, 1.0, 1.0)).quantile((np.arange(400) + 0.5) / 400)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [1.0, 2.0, 5.0]
    assert counts.tolist() == [200, 100, 100]
    never = Choice((1.0, 5.0), (1.0, 0.0)).quantile(np.linspace(0, 1 - 2**-53, 100))
    assert (never == 1.0).all()


class TestNamedDistributions:
    @pytest.mark.parametrize(
        ("table", "expected"),
        [
            (3, Constant(3.0)),
            (0.5, Constant(0.5)),
            ({"distribution": "constant", "value": 2.0}, Constant(2.0)),
            ({"distribution": "uniform", "low": 1, "high": 2}, UniformDistribution(1, 2)),
            ({"distribution": "log_uniform", "low": 1, "high": 2}, LogUniform(1, 2)),
            ({"distribution": "normal", "mean": 2.0, "sd": 1.0}, Normal(2.0, 1.0)),
            ({"distribution": "lognormal", "median": 2.0, "sd": 1.0}, LogNormal(2.0, 1.0)),
            ({"distribution": "choice", "values": [1, 2]}, Choice((1, 2))),
            (
                {"distribution": "choice", "values": [1, 2], "weights": [3, 1]},
                Choice((1, 2), (3, 1)),
            ),
        ],
    )
    def test_are_made_from_tables(self, table: object, expected: Distribution) -> None:
        assert make_distribution("population.beta", table) == expected  # type: ignore[arg-type]

    def test_have_an_example_above(self) -> None:
        covered = {type(example[0]) for example in EXAMPLES.values()}
        assert covered == set(DISTRIBUTIONS.values())

    @pytest.mark.parametrize(
        ("table", "field", "value"),
        [
            ({"distribution": "gamma", "shape": 1}, "beta.distribution", "gamma"),
            ({"low": 1, "high": 2}, "beta.distribution", "None"),
            ({"distribution": "uniform", "low": 2, "high": 1}, "beta.low", "2"),
            ({"distribution": "uniform", "low": 2}, "beta", "uniform"),
            ({"distribution": "uniform", "low": 1, "high": 2, "mean": 3}, "beta", "mean"),
            ({"distribution": "uniform", "low": [1, 2], "high": 3}, "beta.low", "[1, 2]"),
            ({"distribution": "uniform", "low": "a", "high": 3}, "beta.low", "a"),
            ({"distribution": "uniform", "low": True, "high": 3}, "beta.low", "True"),
            ({"distribution": "uniform", "low": 0.0, "high": math.inf}, "beta.high", "inf"),
            ({"distribution": "log_uniform", "low": 0, "high": 1}, "beta.low", "0"),
            ({"distribution": "normal", "mean": 1, "sd": 0}, "beta.sd", "0"),
            ({"distribution": "normal", "mean": math.nan, "sd": 1}, "beta.mean", "nan"),
            ({"distribution": "lognormal", "median": 0, "sd": 1}, "beta.median", "0"),
            ({"distribution": "lognormal", "median": 1, "sd": -1}, "beta.sd", "-1"),
            ({"distribution": "choice", "values": []}, "beta.values", "()"),
            ({"distribution": "choice", "values": [1, math.nan]}, "beta.values", "nan"),
            (
                {"distribution": "choice", "values": [1, 2], "weights": [1]},
                "beta.weights",
                "(1,)",
            ),
            (
                {"distribution": "choice", "values": [1, 2], "weights": [1, -1]},
                "beta.weights",
                "-1",
            ),
            (
                {"distribution": "choice", "values": [1, 2], "weights": [0, 0]},
                "beta.weights",
                "0",
            ),
            ({"distribution": "choice", "values": [1, 2], "weights": 1.0}, "beta.weights", "1.0"),
            ({"distribution": "choice", "values": 3.0}, "beta.values", "3.0"),
        ],
    )
    def test_refuse_what_makes_no_sense(self, table: object, field: str, value: str) -> None:
        with pytest.raises(BadInput) as problem:
            make_distribution("population.beta", table)  # type: ignore[arg-type]
        message = str(problem.value)
        assert message.startswith(f"population.{field} ")
        assert value in message
        assert message.endswith(".")
        assert "\n" not in message


DRAWN = {
    "privacy_cost": UniformDistribution(0.5, 4.0),
    "data_size": Normal(600.0, 200.0, 1.0, 2_000.0),
    "beta": LogUniform(0.05, 20.0),
    "markup": Choice((0.0, 0.2)),
}


def drawn(owners: int, seed: int = 1) -> Population:
    return Population.draw(owners, DRAWN, np.random.SeedSequence(seed))


def columns(**given_: list[float]) -> dict[str, FloatArray]:
    owners = len(next(iter(given_.values())))
    standard = {"privacy_cost": 1.0, "data_size": 600.0, "beta": 1.0, "markup": 0.2}
    return {name: np.array(given_.get(name, [value] * owners)) for name, value in standard.items()}


class TestDrawing:
    def test_the_first_owners_of_a_larger_population_are_those_of_a_smaller_one(self) -> None:
        small, large = drawn(30), drawn(1_000)
        for name in (*FIELDS, "key"):
            np.testing.assert_array_equal(getattr(large, name)[:30], getattr(small, name))
        assert list(small.names) == list(range(30))

    def test_the_same_seed_draws_the_same_and_another_does_not(self) -> None:
        np.testing.assert_array_equal(drawn(50).privacy_cost, drawn(50).privacy_cost)
        assert not np.array_equal(drawn(50).privacy_cost, drawn(50, seed=2).privacy_cost)

    def test_fields_are_drawn_apart(self) -> None:
        one = drawn(2_000)
        changed = Population.draw(
            2_000, {**DRAWN, "beta": Constant(1.0)}, np.random.SeedSequence(1)
        )
        for name in ("privacy_cost", "data_size", "markup"):
            np.testing.assert_array_equal(getattr(changed, name), getattr(one, name))
        ranks = [np.argsort(np.argsort(getattr(one, n))) for n in ("privacy_cost", "beta")]
        assert abs(np.corrcoef(ranks)[0, 1]) < 0.08

    def test_every_field_follows_its_distribution(self) -> None:
        one = drawn(20_000)
        assert one.privacy_cost.min() >= 0.5
        assert one.privacy_cost.max() <= 4.0
        assert one.privacy_cost.mean() == pytest.approx(2.25, abs=0.03)
        assert np.median(one.beta) == pytest.approx(1.0, rel=0.1)
        assert set(np.unique(one.markup)) == {0.0, 0.2}

    def test_owners_hold_whole_records_and_at_least_one(self) -> None:
        spread = {**DRAWN, "data_size": UniformDistribution(0.0, 3.0)}
        sizes = Population.draw(500, spread, np.random.SeedSequence(1)).data_size
        assert set(np.unique(sizes)) == {1.0, 2.0, 3.0}


class TestKeys:
    def test_numbered_owners_have_their_number(self) -> None:
        assert drawn(5).key.tolist() == [0, 1, 2, 3, 4]
        named = Population.of(["3", "0", "12"], columns(beta=[1.0, 1.0, 1.0]))
        assert named.key.tolist() == [3, 0, 12]
        assert named.key.dtype == np.uint64

    def test_a_name_has_its_key_wherever_it_stands(self) -> None:
        one = Population.of(["anna", "bert"], columns(beta=[1.0, 1.0]))
        other = Population.of(["carl", "bert", "anna"], columns(beta=[1.0, 1.0, 1.0]))
        assert one.key.tolist() == other.key[[2, 1]].tolist()

    def test_keys_are_fixed_for_all_time(self) -> None:
        # A change here would change every published result with named owners.
        keys = Population.of(["anna", "Zürich"], columns(beta=[1.0, 1.0])).key.tolist()
        assert keys == [15007248279094446732, 17326536315603899656]

    def test_no_two_owners_share_a_key(self) -> None:
        names = [str(i) for i in range(3_000)]
        names += [f"owner {i}" for i in range(3_000)]
        names += [f"0{i}" for i in range(100)] + [f"+{i}" for i in range(100)]
        names += ["", " ", "1 ", "1.0", "\u0661", str(2**63), str(2**64), str(2**64 + 1)]
        keys = Population.of(names, columns(beta=[1.0] * len(names))).key
        assert len(set(keys.tolist())) == len(names)

    @given(st.lists(st.text(max_size=12), min_size=2, max_size=20, unique=True))
    def test_whatever_they_are_called(self, names: list[str]) -> None:
        keys = Population.of(names, columns(beta=[1.0] * len(names))).key
        assert len(set(keys.tolist())) == len(names)


class TestChecking:
    @pytest.mark.parametrize(
        ("name", "value", "remedy"),
        [
            ("privacy_cost", -0.1, "of at least 0"),
            ("privacy_cost", math.nan, "finite"),
            ("privacy_cost", math.inf, "finite"),
            ("data_size", 0.5, "of at least 1"),
            ("beta", 0.0, "above 0"),
            ("beta", -1.0, "above 0"),
            ("markup", -0.01, "of at least 0"),
        ],
    )
    def test_names_owner_field_value_and_remedy(self, name: str, value: float, remedy: str) -> None:
        good = {"privacy_cost": 1.0, "data_size": 1.0, "beta": 1.0, "markup": 0.0}[name]
        with pytest.raises(BadInput) as problem:
            Population.of(["anna", "bert"], columns(**{name: [good, value]}))
        message = str(problem.value)
        assert message.startswith(f"{name} of owner bert is {value!r}: give a finite number")
        assert remedy in message

    def test_the_limits_themselves_are_fine(self) -> None:
        limits = columns(privacy_cost=[0.0], data_size=[1.0], beta=[1e-9], markup=[0.0])
        assert len(Population.of(["anna"], limits)) == 1


class TestChanges:
    population = Population.of(
        ["anna", "bert", "carl", "dora"],
        columns(privacy_cost=[1.0, 2.0, 3.0, 4.0], beta=[1.0, 2.0, 3.0, 4.0]),
    )
    curator = (0.6, 0.2, 0.13)

    def after(self, *changes: Change, seed: int = 0) -> tuple[Phase, ...]:
        return phases(self.population, self.curator, changes, np.random.SeedSequence(seed))

    def test_without_any_there_is_one_phase(self) -> None:
        (only,) = self.after()
        assert only.start == 0
        np.testing.assert_array_equal(only.privacy_cost, self.population.privacy_cost)
        assert (only.quality_weight, only.quality_value, only.payment_cost) == self.curator

    def test_scale_multiplies_and_set_replaces(self) -> None:
        change = Change(100, scale=(("privacy_cost", 3.0),), set=(("markup", 0.5),))
        first, second = self.after(change)
        assert (first.start, second.start) == (0, 100)
        assert second.privacy_cost.tolist() == [3.0, 6.0, 9.0, 12.0]
        assert second.markup.tolist() == [0.5] * 4
        assert second.beta.tolist() == first.beta.tolist()
        assert first.privacy_cost.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert second.quality_value == 0.2

    def test_names_are_those_hit_and_no_others(self) -> None:
        _, second = self.after(Change(5, names=("dora", "bert"), set=(("beta", 9.0),)))
        assert second.beta.tolist() == [1.0, 9.0, 3.0, 9.0]

    @pytest.mark.parametrize(("share", "count"), [(0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
    def test_a_share_hits_that_many(self, share: float, count: int) -> None:
        _, second = self.after(Change(5, share=share, set=(("markup", 7.0),)))
        assert (second.markup == 7.0).sum() == count

    def test_whom_a_share_hits_is_up_to_the_seed(self) -> None:
        change = Change(5, share=0.5, set=(("markup", 7.0),))
        hits = {tuple(self.after(change, seed=seed)[1].markup == 7.0) for seed in range(40)}
        assert len(hits) == 6  # every two of the four
        again = [self.after(change, seed=3)[1].markup.tolist() for _ in range(2)]
        assert again[0] == again[1]

    def test_numbered_owners_are_called_by_their_number(self) -> None:
        change = Change(5, names=("2",), set=(("beta", 9.0),))
        hit = phases(drawn(4), self.curator, [change], np.random.SeedSequence(0))[1].beta == 9.0
        assert hit.tolist() == [False, False, True, False]

    def test_the_curator_changes_alone(self) -> None:
        change = Change(5, scale=(("quality_value", 2.0),), set=(("payment_cost", 0.3),))
        first, second = self.after(change)
        assert second.quality_value == pytest.approx(0.4)
        assert second.payment_cost == 0.3
        assert second.quality_weight == 0.6
        assert second.privacy_cost.tolist() == first.privacy_cost.tolist()

    def test_changes_add_up_in_order_of_time(self) -> None:
        twice = (("privacy_cost", 2.0),)
        later, earlier = Change(200, scale=twice), Change(100, set=(("privacy_cost", 5.0),))
        first, second, third = self.after(later, earlier)
        assert [phase.start for phase in (first, second, third)] == [0, 100, 200]
        assert second.privacy_cost.tolist() == [5.0] * 4
        assert third.privacy_cost.tolist() == [10.0] * 4

    def test_changes_at_one_time_make_one_phase(self) -> None:
        one, other = (
            Change(50, names=(name,), scale=(("privacy_cost", 10.0),)) for name in ("anna", "carl")
        )
        first, second = self.after(one, other)
        assert second.start == 50
        assert second.privacy_cost.tolist() == [10.0, 2.0, 30.0, 4.0]
        assert first.start == 0

    def test_whom_a_share_hits_does_not_depend_on_their_order(self) -> None:
        """Relabelling owners permutes results: the same owners are hit wherever they stand."""
        order = [2, 0, 3, 1]
        p = self.population
        moved = Population.of(
            [p.names[i] for i in order], {name: getattr(p, name)[order] for name in FIELDS}
        )
        change = Change(5, share=0.5, set=(("markup", 7.0),))
        for seed in range(5):
            here = self.after(change, seed=seed)[1].markup
            there = phases(moved, self.curator, [change], np.random.SeedSequence(seed))[1].markup
            np.testing.assert_array_equal(there, here[order])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                Change(5, 0.5, set=(("quality_value", 1.0),)),
                "quality_value is the curator's",
            ),
            (
                Change(5, names=("anna",), set=(("payment_cost", 1.0),)),
                "payment_cost is the curator's",
            ),
            (Change(5, set=(("data_size", 1.0),)), "data_size"),
            (Change(5, set=(("markup", -1.0),)), "markup is -1.0: give a number of at least 0"),
            (Change(5, scale=(("privacy_cost", -2.0),)), "privacy_cost is -2.0"),
            (Change(5, set=(("beta", 0.0),)), "beta is 0.0: beta must stay above 0"),
            (Change(5, scale=(("beta", 0.0),)), "beta must stay above 0"),
            (
                Change(5, scale=(("quality_weight", 2.0),)),
                r"quality_weight is 1.2: the weight must stay within \[0, 1\]",
            ),
            (Change(5, names=("emil",), set=(("beta", 1.0),)), "names emil is not an owner"),
        ],
    )
    def test_what_cannot_be_is_refused(self, change: Change, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            self.after(change)
