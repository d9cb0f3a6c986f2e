"""The verdicts on the paper's claims: right where the answer is known, and never over-claimed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray
from noisemarket.market.negotiation import negotiate
from noisemarket.scenario import Scenario
from noisemarket.scenario.schema import ChangeSection
from noisemarket.study.reproduce import (
    Adaptation,
    Study,
    Trials,
    _collect,
    all_of,
    interval,
    judge,
    judge_adaptation,
    moves,
    own_game,
    positive,
    sooner,
)

SEEDS, BLOCKS = 20, 200


def noisy(level: float, spread: float = 0.01, seed: int = 0) -> FloatArray:
    return level + spread * np.random.default_rng(seed).standard_normal(SEEDS)


class TestInterval:
    def test_known_by_hand(self) -> None:
        mean, half = interval(np.array([1.0, 2.0, 3.0]))
        assert mean == 2.0
        assert half == pytest.approx(4.302652729911275 / np.sqrt(3))

    def test_one_seed_shows_nothing(self) -> None:
        assert interval(np.array([5.0]))[1] == np.inf

    def test_covers_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(1)
        seen = [interval(rng.standard_normal(10)) for _ in range(2000)]
        hits = [abs(mean) <= half for mean, half in seen]
        assert 0.935 < np.mean(hits) < 0.965


class TestPositive:
    def test_clear_cases(self) -> None:
        assert positive(noisy(1.0)) == "yes"
        assert positive(noisy(-1.0)) == "no, the opposite"

    def test_absence_of_evidence_is_not_shown(self) -> None:
        assert positive(noisy(0.0, spread=1.0)) == "not shown"
        assert positive(np.array([1.0])) == "not shown"

    def test_what_a_plain_interval_would_call_seen_is_not(self) -> None:
        values = noisy(0.0, spread=1.0)
        values += 2.3 * values.std(ddof=1) / np.sqrt(SEEDS) - values.mean()
        mean, half = interval(values)
        assert mean - half > 0
        assert positive(values) == "not shown"


class TestSooner:
    def test_never_is_later_than_any(self) -> None:
        never = np.full(SEEDS, np.inf)
        assert sooner(np.full(SEEDS, 9_000.0), never) == "yes"
        assert sooner(never, np.full(SEEDS, 9_000.0)) == "no, the opposite"
        assert sooner(never, never) == "not shown"

    def test_too_few_seeds(self) -> None:
        assert sooner(np.zeros(5), np.ones(5)) == "not shown"

    @given(st.integers(0, SEEDS))
    def test_follows_the_binomial_law(self, wins: int) -> None:
        first = np.where(np.arange(SEEDS) < wins, 0.0, 2.0)
        expected = "yes" if wins >= 18 else "no, the opposite" if wins <= 2 else "not shown"
        assert sooner(first, np.ones(SEEDS)) == expected


def test_all_of() -> None:
    assert all_of(["yes", "yes"]) == "yes"
    assert all_of(["yes", "not shown"]) == "not shown"
    assert all_of(["yes", "no, the opposite"]) == "no"


class TestMoves:
    ramp = np.linspace(0.0, 1.0, BLOCKS)

    def rows(self, series: FloatArray) -> FloatArray:
        noise = 0.001 * np.random.default_rng(2).standard_normal((SEEDS, BLOCKS))
        return np.asarray(series + noise)

    def test_up_and_down(self) -> None:
        assert moves(self.rows(self.ramp), 1)[0] == "yes"
        assert moves(self.rows(-self.ramp), -1)[0] == "yes"
        assert moves(self.rows(self.ramp), -1)[0] == "no, the opposite"

    def test_a_trace_of_few_points(self) -> None:
        verdict, back = moves(self.rows(self.ramp)[:, ::40], 1)
        assert (verdict, back) == ("yes", 0.0)

    def test_turning_back_is_not_keeping_on(self) -> None:
        back = np.where(self.ramp < 0.5, self.ramp, 0.75 - 0.5 * self.ramp)
        seen, part = moves(self.rows(back), 1)
        assert seen == "partly"
        assert part == pytest.approx(0.5, abs=0.06)


def trials(learner: str, saving: float, settles: int, gain: float = 1.0) -> Trials:
    """A learner whose saving rises until block ``settles`` and stays."""
    blocks = np.arange(BLOCKS)
    rng = np.random.default_rng(3)
    rise = saving * np.minimum(blocks / max(settles, 1), 1.0)
    series = rise + 1e-4 * rng.standard_normal((SEEDS, BLOCKS))
    return Trials(
        scenario="market",
        learner=learner,
        owners=3,
        iteration=50 * (blocks + 1),
        ranges={"saving": 0.6, "payment": 16.0},
        saving=series,
        payment=8.0 - 10 * series,
        quality=60 + 50 * series[:, -1],
        contract_payment=8.0 - 10 * series[:, -1],
        contract_gain=noisy(gain),
        exploitability=noisy(0.1),
        equilibrium_gain=np.ones(SEEDS),
    )


def verdicts(gain: float = 1.0) -> dict[str, str]:
    by_learner = {
        "dypp": trials("dypp", 0.4, 20, gain),
        "q_learning": trials("q_learning", 0.3, 40),
        "greedy": trials("greedy", 0.0, 0),
    }
    return {verdict.claim: verdict.seen for verdict in judge(by_learner)}


def test_a_world_as_the_paper_describes_it() -> None:
    assert set(verdicts().values()) == {"yes"}
    assert len(verdicts()) == 8


@pytest.mark.parametrize(("gain", "seen"), [(0.7, "no"), (1.5, "no"), (0.95, "not shown")])
def test_beating_or_missing_the_equilibrium_is_not_reaching_it(gain: float, seen: str) -> None:
    assert verdicts(gain)["WoLF-PHC converges to the Nash equilibrium"] == seen


def test_speed_that_depends_on_the_length_of_the_run() -> None:
    wolf, q = trials("dypp", 0.4, 20), trials("q_learning", 0.3, 5)
    drift = np.linspace(0.0, 0.2, BLOCKS)
    late = Trials(**{**vars(q), "saving": q.saving + np.where(np.arange(BLOCKS) > 60, drift, 0.0)})
    seen = {v.claim: v.seen for v in judge({"dypp": wolf, "q_learning": late, "greedy": q})}
    assert seen["Q-learning needs the most iterations, WoLF-PHC is faster"].startswith("depends")


def test_adaptation() -> None:
    def one(learner: str, after: float) -> Adaptation:
        times = np.full(SEEDS, 100.0 if after > 0.7 else np.nan)
        return Adaptation("market", "halve", learner, noisy(0.7), noisy(after), times)

    for after, seen in ((0.72, "yes"), (0.3, "no")):
        (verdict,) = judge_adaptation([one("dypp", after), one("q_learning", 0.7)])
        assert verdict.seen == seen
        assert f"{SEEDS if after > 0.7 else 0} of {SEEDS} seeds recover" in verdict.numbers


@pytest.mark.compiled
def test_a_trial_has_a_row_per_seed() -> None:
    scenario = Scenario.from_preset("market", surface="printed", owners=2, iterations=50)
    result = negotiate(scenario, mechanism="greedy", threads=1)
    trials = _collect("market", "greedy", [result, result])
    assert trials.saving.shape == (2, len(trials.iteration))
    owner, curator = result.agreement.owner_exploitability, result.agreement.curator_exploitability
    assert owner is not None
    assert curator is not None
    np.testing.assert_allclose(trials.exploitability, owner.mean() + curator.mean())


def test_an_equilibrium_without_gain_decides_nothing() -> None:
    """On a scenario of one's own it may be that nothing is worth trading."""
    by_learner = {
        name: replace(trials(name, 0.0, 0, gain=0.0), equilibrium_gain=np.zeros(SEEDS))
        for name in ("dypp", "q_learning", "greedy")
    }
    found = {verdict.claim: verdict for verdict in judge(by_learner)}
    nash = found["WoLF-PHC converges to the Nash equilibrium"]
    assert nash.seen == "not shown"
    assert "no gain" in nash.numbers
    unknown = np.full(SEEDS, np.nan)
    adapted = [
        Adaptation("mine", "double", name, unknown, unknown, unknown)
        for name in ("dypp", "q_learning")
    ]
    (verdict,) = judge_adaptation(adapted)
    assert (verdict.scenario, verdict.seen) == ("mine", "not shown")
    assert "nan" not in verdict.numbers


def test_seeds_without_gain_are_left_out() -> None:
    before, after = noisy(0.7), noisy(0.3)
    before[:3] = np.nan
    one = Adaptation("mine", "double", "dypp", before, after, np.full(SEEDS, np.nan))
    (verdict,) = judge_adaptation([one])
    assert verdict.seen == "no"
    assert "70 ± 0 % and 30 ± 0 %" in verdict.numbers


@pytest.mark.compiled
def test_costs_change_half_way_through_a_scenario_of_one_s_own() -> None:
    scenario = Scenario.from_preset(
        "market", surface="printed", owners=2, iterations=200, seed=5, reopen=True,
        changes=[{"at": 100, "scale": {"privacy_cost": 9.0}}],
    )  # fmt: skip
    steps: list[tuple[str, str]] = []
    game = own_game(scenario)
    study = Study({"mine": game}, 2, 1, lambda *step: steps.append(step), lambda: False)
    trials, adaptations = list(study.trials()), list(study.adaptations())
    assert len(steps) == study.runs == 2 * (3 + 4)
    assert [one.learner for one in trials] == ["dypp", "q_learning", "greedy"]
    assert all(one.iteration[-1] == 200 for one in trials)
    assert {(one.scenario, one.change) for one in adaptations} == {
        ("mine", "halve"), ("mine", "double"),
    }  # fmt: skip
    learning = game.learning.model_copy(update={"iterations": 400})
    changes = (ChangeSection(at=200, scale={"privacy_cost": 0.5}),)
    changing = game.model_copy(update={"learning": learning, "changes": changes, "seed": 6})
    (recovery,) = negotiate(changing, mechanism="dypp", threads=1).recoveries
    assert adaptations[0].after[1] == recovery.efficiency_after, "with reopen, as the scenario says"


def test_a_game_that_is_too_short_is_refused() -> None:
    with pytest.raises(BadInput, match=r"learning.iterations is 99: give at least 100"):
        own_game(Scenario.from_preset("market", iterations=99))
