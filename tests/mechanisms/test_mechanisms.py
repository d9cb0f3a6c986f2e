"""Every mechanism under one conformance suite; convergence; changes; and the whole negotiation."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisemarket
from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.game.exploitability import exploitability
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.outcomes import Outcomes
from noisemarket.game.sides import SLACK
from noisemarket.learning.batch import play_batch
from noisemarket.learning.rules import RULES
from noisemarket.mechanisms import MECHANISMS, find_mechanism
from noisemarket.mechanisms.convergence import Recovery, converged_at, recoveries
from noisemarket.mechanisms.learned import Learned
from noisemarket.mechanisms.mechanism import Agreement, Progress, Trace
from noisemarket.mechanisms.tally import Tally, tally
from noisemarket.negotiation import Negotiation, negotiate, run_options
from noisemarket.scenario import Scenario

IMPOSED = {"no_dp"}
VOLUNTARY = [name for name in MECHANISMS if name not in IMPOSED]
LEARNED = [name for name, one in MECHANISMS.items() if isinstance(one, Learned)]

SCENARIOS: dict[str, tuple[str, dict[str, object]]] = {
    "market": ("market", {"owners": 24, "iterations": 1_500}),
    "paper": ("paper", {"owners": 24, "iterations": 1_500}),
    "mended": ("paper", {"owners": 24, "iterations": 1_500, "payoff": "privacy_loss"}),
    "many kinds": (
        "market",
        {
            "owners": 30, "iterations": 1_000,
            "beta": {"distribution": "log_uniform", "low": 0.05, "high": 20.0},
            "markup": {"distribution": "choice", "values": [0.0, 0.2, 1.0]},
            "privacy_cost": {"distribution": "lognormal", "median": 1.0, "sd": 0.8},
        },
    ),
    "one owner": ("market", {"owners": 1, "iterations": 300}),
    "one owner, paper": ("paper", {"owners": 1, "iterations": 300}),
    "3 x 2 levels": ("market", {"owners": 10, "iterations": 300, "J": 2, "K": 1}),
    "3 x 2 levels, paper": ("paper", {"owners": 10, "iterations": 300, "J": 2, "K": 1}),
    "2 x 2 levels": ("market", {"owners": 10, "iterations": 300, "J": 1, "K": 1}),
    "a change": (
        "market",
        {
            "owners": 16, "iterations": 1_000,
            "changes": [{"at": 500, "scale": {"privacy_cost": 2.0}}],
        },
    ),
    "worthless payments": ("market", {"owners": 8, "iterations": 300, "payment_value": 0.0}),
    "no privacy loss": ("market", {"owners": 8, "iterations": 300, "privacy_weight": 0.0}),
    "a curator who wants nothing": ("market", {"owners": 8, "iterations": 300, "varpi": 0.0}),
    "a curator who pays anything": ("market", {"owners": 8, "iterations": 300, "varpi": 1.0}),
}  # fmt: skip
SIGNED = [name for name, (preset, _) in SCENARIOS.items() if preset == "market"]


NO_MENU = {"worthless payments", "no privacy loss"}
"""Where a screening menu makes no sense, and is refused."""

CASES = [
    (scenario, name)
    for scenario in SCENARIOS
    for name in MECHANISMS
    if name != "pain_fl" or scenario not in NO_MENU
]


@cache
def negotiated(scenario: str, name: str) -> Negotiation:
    preset, settings = SCENARIOS[scenario]
    scenario = Scenario.from_preset(preset, surface="printed", **settings)
    return negotiate(scenario, mechanism=name, threads=2)


def curator_gains(result: Negotiation) -> FloatArray:
    """What the curator gains on each owner, over no trade."""
    contracts, gains = result.agreement.contracts, result.environment.curator_side().gains()
    return np.asarray(gains[np.arange(len(contracts)), contracts.saving, contracts.payment])


@pytest.mark.parametrize(("scenario", "name"), CASES)
class TestEveryMechanism:
    def test_makes_a_contract_for_every_owner(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        owners, contracts = len(result.environment), result.agreement.contracts
        savings, payments = result.environment.levels.shape
        assert len(contracts) == owners
        for levels, count in ((contracts.saving, savings), (contracts.payment, payments)):
            assert levels.shape == (owners,)
            assert levels.dtype == np.int64
            assert levels.min() >= 0
            assert levels.max() < count
        assert contracts.signed.shape == (owners,)
        assert contracts.signed.dtype == np.bool_
        assert result.agreement.complete
        assert result.agreement.done.shape == (owners,)

    def test_trades_nothing_without_a_signature(self, name: str, scenario: str) -> None:
        contracts = negotiated(scenario, name).agreement.contracts
        traded = (contracts.saving > 0) | (contracts.payment > 0)
        if name in IMPOSED:
            assert not contracts.signed.any()
        else:
            np.testing.assert_array_equal(contracts.signed, traded)

    def test_its_figures_add_up(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        contracts, environment = result.agreement.contracts, result.environment
        row, j, k = np.arange(len(contracts)), contracts.saving, contracts.payment
        levels, figures = environment.levels, result.learned
        assert figures.mean_saving == pytest.approx(levels.savings[j].mean())
        assert figures.mean_payment == pytest.approx(levels.payments[k].mean())
        assert figures.total_payment == pytest.approx(levels.payments[k].sum())
        owner = environment.owner_side().payoffs()[row, j, k]
        assert figures.mean_owner_payoff == pytest.approx(owner.mean(), abs=1e-12)
        curator = environment.curator_side().payoffs()
        assert figures.mean_curator_payoff == pytest.approx(curator[row, j, k].mean())
        assert figures.curator_gain == pytest.approx(curator_gains(result).mean(), abs=1e-9)
        quality = environment.curator_side().qualities()[row, j]
        assert figures.mean_quality == pytest.approx(quality.mean())
        assert figures.signed_share == contracts.signed.mean()

    def test_tells_the_watcher_of_every_owner_once(self, name: str, scenario: str) -> None:
        preset, settings = SCENARIOS[scenario]
        seen: list[Progress] = []
        short = {**settings, "iterations": 20, "changes": []}
        result = negotiate(
            Scenario.from_preset(preset, **short), mechanism=name, threads=2, watch=seen.append
        )
        told = np.zeros(len(result.environment), dtype=int)
        for progress in seen:
            told[progress.owners] += 1
            where = result.agreement.contracts.saving[progress.owners]
            np.testing.assert_array_equal(progress.contracts.saving, where)
        assert (told == 1).all()
        assert seen[-1].done == seen[-1].total == len(told)
        assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)


@pytest.mark.parametrize(
    ("scenario", "name"), [case for case in CASES if case[0] in SIGNED and case[1] in VOLUNTARY]
)
class TestEveryVoluntaryMechanismOfTheSignedMarket:
    def test_no_owner_signs_at_a_loss(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        contracts, owners = result.agreement.contracts, result.environment.owner_side()
        at = np.arange(len(contracts)), contracts.saving, contracts.payment
        assert owners.gains()[at].min() >= -SLACK
        assert owners.signs()[at].all()

    def test_the_curator_does_not_lose_either(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        if name != "pain_fl":  # a menu made for the mean quality may lose on single owners
            assert curator_gains(result).min() >= -SLACK
            games, contracts = result.environment.games(), result.agreement.contracts
            at = np.arange(len(contracts)), contracts.saving, contracts.payment
            assert games.agreed[at].all()
        assert result.learned.curator_gain >= -SLACK

    def test_the_first_best_is_better_for_the_curator_owner_by_owner(
        self, name: str, scenario: str
    ) -> None:
        best = curator_gains(negotiated(scenario, "first_best"))
        assert (best >= curator_gains(negotiated(scenario, name)) - 1e-8).all()

    def test_no_dp_has_the_best_model(self, name: str, scenario: str) -> None:
        highest = negotiated(scenario, "no_dp").learned.mean_quality
        assert highest >= negotiated(scenario, name).learned.mean_quality


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        ("worthless payments", "payment_value = 0.0: "),
        ("no privacy loss", "privacy_weight = 0.0: "),
    ],
)
def test_a_menu_that_makes_no_sense_is_refused(scenario: str, told: str) -> None:
    preset, settings = SCENARIOS[scenario]
    with pytest.raises(BadInput, match=told):
        negotiate(Scenario.from_preset(preset, **settings), mechanism="pain_fl")


@pytest.mark.parametrize("scenario", SIGNED)
def test_first_best_equilibrium_and_no_trade_in_this_order(scenario: str) -> None:
    best, solved, none = (
        negotiated(scenario, name).learned.curator_gain
        for name in ("first_best", "equilibrium", "uniform")
    )
    assert best >= solved - 1e-9
    assert solved >= -1e-9
    assert none == 0.0


class TestTheMarket:
    """The order of the mechanisms on the default market, on the paper's curve."""

    def test_who_gains_what(self) -> None:
        gain = {name: negotiated("market", name).learned.curator_gain for name in MECHANISMS}
        assert gain["first_best"] >= gain["equilibrium"] > gain["dypp"] > 0.5
        assert gain["dypp"] > gain["greedy"] == gain["uniform"] == 0.0
        assert gain["first_best"] > gain["pain_fl"] > 0.5
        assert gain["no_dp"] > gain["first_best"]  # the upper bound that nobody agreed to

    def test_uniform_dp_leaves_everything_as_it_is(self) -> None:
        figures = negotiated("market", "uniform").learned
        assert (figures.mean_saving, figures.mean_payment, figures.signed_share) == (0, 0, 0)
        assert figures.mean_owner_payoff == 0.0
        assert figures.mean_quality == pytest.approx(62.25, abs=0.005)

    def test_no_dp_takes_all_the_noise_for_nothing(self) -> None:
        figures = negotiated("market", "no_dp").learned
        assert figures.mean_saving == pytest.approx(0.6)
        assert (figures.mean_payment, figures.signed_share) == (0, 0)
        assert figures.mean_owner_payoff < -1.0
        assert figures.mean_quality == pytest.approx(96.83, abs=0.005)

    def test_everybody_trades_in_equilibrium(self) -> None:
        # The oracle's values are tested on their own; here, that the mechanism hands them through.
        scenario = Scenario.from_preset("market", surface="printed", owners=1, privacy_cost=1.0)
        contracts = negotiate(scenario, mechanism="equilibrium").agreement.contracts
        assert (contracts.saving[0], contracts.payment[0]) == (7, 27)  # 0.35 for 13.5
        assert contracts.signed[0]

    def test_greedy_in_the_papers_game_gives_all_for_nothing(self) -> None:
        contracts = negotiated("paper", "greedy").agreement.contracts
        assert (contracts.saving == 12).all()
        assert (contracts.payment == 0).all()

    def test_dypp_is_wolf_phc_and_every_other_rule_has_its_own_name(self) -> None:
        assert set(LEARNED) == {"dypp"} | set(RULES) - {"wolf_phc"}
        assert {MECHANISMS[name].rule for name in LEARNED} == set(RULES)  # type: ignore[attr-defined]

    def test_an_unknown_mechanism_is_refused(self) -> None:
        with pytest.raises(
            BadInput, match=r"mechanism = auction: choose one of: dypp, .*first_best"
        ):
            find_mechanism("auction")
        with pytest.raises(BadInput, match="auction"):
            negotiate(Scenario.from_preset("market", owners=1), mechanism="auction")

    def test_each_says_what_it_must_know(self) -> None:
        assert MECHANISMS["dypp"].knows == "nothing private"
        assert MECHANISMS["first_best"].knows == "everything"
        for one in MECHANISMS.values():
            assert one.knows


OWNERS = """owner,privacy_cost,data_size,beta,markup
anna,0.5,600,1,0.2
bert,0.9,600,5,0.0
carl,1.7,600,0.1,0.2
dora,3.1,600,20,0.4
7,0.7,600,1,0.1
0,2.2,600,2,0.2
"""


class TestRelabelling:
    @staticmethod
    def of_rows(folder: Path, rows: list[str]) -> Scenario:
        file = folder / f"{len(list(folder.iterdir()))}.csv"
        file.write_text("\n".join([OWNERS.splitlines()[0], *rows]) + "\n")
        return Scenario.from_preset("market", file=str(file), iterations=800)

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_owners_in_another_order_get_the_same_contracts(
        self, name: str, tmp_path: Path
    ) -> None:
        rows, order = OWNERS.splitlines()[1:], [3, 5, 0, 4, 2, 1]
        one = negotiate(self.of_rows(tmp_path, rows), mechanism=name).agreement
        other = self.of_rows(tmp_path, [rows[i] for i in order])
        moved = negotiate(other, mechanism=name).agreement
        for part in ("saving", "payment", "signed"):
            expected = getattr(one.contracts, part)[order]
            np.testing.assert_array_equal(getattr(moved.contracts, part), expected)
        if name in LEARNED:
            np.testing.assert_array_equal(moved.owner_policies, one.owner_policies[order])
            np.testing.assert_array_equal(
                moved.owner_exploitability, one.owner_exploitability[order]
            )

    @pytest.mark.parametrize("name", [*LEARNED, "equilibrium", "first_best"])
    def test_newcomers_do_not_disturb_the_others(self, name: str) -> None:
        few, many = (
            negotiate(Scenario.from_preset("market", owners=n, iterations=500), mechanism=name)
            for n in (5, 60)
        )
        for part in ("saving", "payment", "signed"):
            np.testing.assert_array_equal(
                getattr(many.agreement.contracts, part)[:5], getattr(few.agreement.contracts, part)
            )


@pytest.mark.parametrize("name", LEARNED)
class TestEveryLearner:
    def test_its_trace_says_how_the_play_went(self, name: str) -> None:
        scenario = Scenario.from_preset("market", owners=9, iterations=330, trace_every=100)
        agreement = negotiate(scenario, mechanism=name).agreement
        trace = agreement.trace
        assert trace is not None
        assert trace.iteration.tolist() == [100, 200, 300, 330]
        levels = Levels()
        for series, top in (
            (trace.saving, levels.sigma_max), (trace.offer, levels.sigma_max),
            (trace.payment, levels.payment_max), (trace.quote, levels.payment_max),
            (trace.signed_share, 1.0),
        ):  # fmt: skip
            assert series.shape == (4,)
            assert series.min() >= 0.0
            assert series.max() <= top
        assert (trace.saving <= trace.offer + 1e-12).all()
        assert (trace.payment <= trace.quote + 1e-12).all()
        assert trace.owner_reward.min() >= -SLACK
        assert trace.curator_reward.min() >= -SLACK

    def test_a_longer_negotiation_begins_like_a_shorter_one(self, name: str) -> None:
        short, long = (
            negotiate(
                Scenario.from_preset("market", owners=7, iterations=length), mechanism=name
            ).agreement.trace
            for length in (400, 900)
        )
        assert short is not None
        assert long is not None
        for part in ("iteration", "saving", "payment", "offer", "quote", "signed_share"):
            np.testing.assert_array_equal(getattr(long, part)[:8], getattr(short, part))

    def test_exploitability_is_never_negative(self, name: str) -> None:
        agreement = negotiated("market", name).agreement
        assert agreement.owner_exploitability is not None
        assert agreement.curator_exploitability is not None
        assert agreement.owner_exploitability.min() >= -1e-9
        assert agreement.curator_exploitability.min() >= -1e-9

    def test_exploitability_is_that_of_the_policies_from_where_the_play_stands(
        self, name: str
    ) -> None:
        result = negotiated("market", name)
        agreement, games = result.agreement, result.environment.games()
        rule, config = MECHANISMS[name].rule, run_options(result.scenario).play  # type: ignore[attr-defined]
        batch = play_batch(rule, config, [games], [0], result.environment.population.key)
        np.testing.assert_array_equal(agreement.owner_policies, batch.owner_policies)
        np.testing.assert_array_equal(agreement.curator_policies, batch.curator_policies)
        last = Outcomes.of(games, batch.last[:, 0], batch.last[:, 1])
        discount = result.scenario.learning.discount
        gaps = exploitability(batch.owner_policies, batch.curator_policies, games, last, discount)
        np.testing.assert_allclose(agreement.owner_exploitability, gaps.owner, atol=1e-12)
        np.testing.assert_allclose(agreement.curator_exploitability, gaps.curator, atol=1e-12)

    def test_stopped_at_once_it_has_done_nothing(self, name: str) -> None:
        result = negotiate(
            Scenario.from_preset("market", owners=40, iterations=50),
            mechanism=name, threads=1, stop=lambda: True,
        )  # fmt: skip
        assert not result.agreement.complete
        assert not result.agreement.done.any()
        assert not result.agreement.contracts.signed.any()
        summary = result.summary()
        assert (summary["complete"], summary["owners_done"]) == (False, 0)
        json.dumps(summary)

    def test_stopped_midway_it_keeps_what_is_finished(self, name: str) -> None:
        scenario = Scenario.from_preset("market", owners=64, iterations=300)
        whole = negotiate(scenario, mechanism=name)
        finished: list[int] = []
        part = negotiate(
            scenario, mechanism=name, threads=1,
            watch=lambda progress: finished.append(progress.done),
            stop=lambda: len(finished) >= 3,
        )  # fmt: skip
        done = part.agreement.done
        assert 0 < done.sum() < 64
        assert part.summary()["owners_done"] == done.sum() == finished[-1]
        for name_ in ("saving", "payment", "signed"):
            kept, full = (getattr(run.agreement.contracts, name_) for run in (part, whole))
            np.testing.assert_array_equal(kept[done], full[done])
            assert not kept[~done].any()
        expected = tally(whole.environment, whole.agreement.contracts, done)
        assert part.learned == expected
        assert part.agreement.trace is not None


def trace_of(
    saving: list[float],
    payment: list[float] | None = None,
    block: int = 50,
    reward: list[float] | None = None,
) -> Trace:
    """A trace by hand, one entry per block."""
    series = np.array(saving, dtype=float)
    paid = np.zeros(len(series)) if payment is None else np.array(payment, dtype=float)
    ends = np.arange(1, len(series) + 1) * block
    zeros = np.zeros(len(series))
    curator = zeros if reward is None else np.array(reward, dtype=float)
    return Trace(ends, series, paid, zeros, zeros, zeros, zeros, curator)


LEVELS = Levels()  # a band of 0.012 in savings and of 0.32 in payments


class TestConvergence:
    def test_a_constant_run_has_converged_from_the_start(self) -> None:
        assert converged_at(trace_of([0.3] * 20), LEVELS) == 0

    def test_too_few_blocks_to_tell(self) -> None:
        assert converged_at(trace_of([0.3] * 9), LEVELS) is None
        assert converged_at(trace_of([0.3] * 10), LEVELS) == 0

    def test_from_the_block_on_that_stays(self) -> None:
        assert converged_at(trace_of([0.0] * 5 + [0.3] * 15), LEVELS) == 250

    def test_the_slower_of_saving_and_payment_counts(self) -> None:
        saving, payment = [0.0] * 5 + [0.3] * 15, [16.0] * 8 + [4.0] * 12
        assert converged_at(trace_of(saving, payment), LEVELS) == 400
        assert converged_at(trace_of(payment=saving, saving=[0.1] * 20), LEVELS) == 0

    def test_a_return_into_the_band_does_not_count_before_the_last_excursion(self) -> None:
        assert converged_at(trace_of([0.3] * 10 + [0.1] + [0.3] * 29), LEVELS) == 550

    def test_the_band_is_two_per_cent_of_the_range(self) -> None:
        inside, outside = ([0.3 + off] * 10 + [0.3] * 30 for off in (0.0119, 0.0121))
        assert converged_at(trace_of(inside), LEVELS) == 0
        assert converged_at(trace_of(outside), LEVELS) == 500

    def test_noise_of_the_end_is_allowed_before_it(self) -> None:
        noisy = [0.3 + (-1) ** i * 0.03 for i in range(40)]
        assert converged_at(trace_of(noisy), LEVELS) == 0
        assert converged_at(trace_of([0.0] * 10 + noisy), LEVELS) == 500

    @pytest.mark.parametrize("blocks", [100, 400])
    def test_a_jump_in_the_last_tenth_is_no_convergence(self, blocks: int) -> None:
        late = blocks // 20
        assert converged_at(trace_of([0.0] * (blocks - late) + [0.6] * late), LEVELS) is None

    @pytest.mark.parametrize("blocks", [100, 400])
    def test_a_run_that_still_drifts_has_not_converged(self, blocks: int) -> None:
        assert converged_at(trace_of(np.linspace(0.0, 0.6, blocks).tolist()), LEVELS) is None


def taken(
    trace: Trace,
    starts: list[int],
    possible: list[float] | None = None,
    no_trade: list[float] | None = None,
) -> list[Recovery]:
    """Recoveries with given equilibrium gains; without them, to recover is to settle."""
    gains = possible or [0.0] * len(starts)
    exact = [Tally(0, 0, 0, 0, gain, 0, 0, 0) for gain in gains]
    return recoveries(trace, LEVELS, starts, exact, np.array(no_trade or [0.0] * len(starts)))


class TestRecovery:
    def test_counts_from_the_change(self) -> None:
        trace = trace_of([0.3] * 12 + [0.1] * 28, [8.0] * 13 + [2.0] * 27)
        (one,) = taken(trace, [0, 500])
        assert (one.at, one.iterations) == (500, 150)
        assert (one.saving_before, one.saving_after) == pytest.approx((0.3, 0.1))
        assert (one.payment_before, one.payment_after) == pytest.approx((8.0, 2.0))

    def test_none_without_a_change_or_for_one_that_never_came(self) -> None:
        trace = trace_of([0.3] * 20)
        assert taken(trace, [0]) == []
        (late,) = taken(trace, [0, 1_000])
        assert (late.iterations, late.saving_before, late.saving_after) == (None, 0.3, None)

    def test_two_changes_in_one_block(self) -> None:
        first, second = taken(trace_of([0.3] * 40), [0, 1_001, 1_010])
        assert (first.at, first.iterations, first.saving_after) == (1_001, None, None)
        assert (second.at, second.iterations) == (1_010, 0)

    def test_at_once_if_nothing_moves(self) -> None:
        (one,) = taken(trace_of([0.3] * 20), [0, 500])
        assert one.iterations == 0

    def test_each_change_is_judged_up_to_the_next(self) -> None:
        trace = trace_of([0.1] * 20 + [0.1] * 4 + [0.4] * 16 + [0.4] * 2 + [0.2] * 18)
        first, second = taken(trace, [0, 1_000, 2_000])
        assert (first.at, first.iterations) == (1_000, 200)
        assert (second.at, second.iterations) == (2_000, 100)
        assert (first.saving_before, first.saving_after) == pytest.approx((0.1, 0.4))
        assert (second.saving_before, second.saving_after) == pytest.approx((0.4, 0.2))

    def test_a_change_within_a_block(self) -> None:
        trace = trace_of([0.3] * 12 + [0.1] * 28)
        (one,) = taken(trace, [0, 520])
        assert (one.at, one.iterations) == (520, 80)

    def test_the_levels_are_those_of_the_last_tenth(self) -> None:
        trace = trace_of([0.0] * 18 + [0.3] * 2 + [0.5] * 18 + [0.2] * 2)
        (one,) = taken(trace, [0, 1_000])
        assert (one.saving_before, one.saving_after) == pytest.approx((0.3, 0.2))

    def test_never_if_it_was_still_moving(self) -> None:
        trace = trace_of([0.3] * 20 + [0.1] * 95 + [0.6] * 5)
        (one,) = taken(trace, [0, 1_000])
        assert one.iterations is None


class TestEfficiency:
    """To settle is not to recover: the curator's gain must come back, too."""

    def test_recovers_when_the_gain_is_back(self) -> None:
        gains = [0.8] * 20 + [0.1] * 6 + [1.6] * 14
        (one,) = taken(trace_of([0.3] * 40, reward=gains), [0, 1_000], possible=[1.0, 2.0])
        assert (one.iterations, one.settled) == (300, 0)
        assert (one.efficiency_before, one.efficiency_after) == pytest.approx((0.8, 0.8))

    def test_a_collapse_is_no_recovery(self) -> None:
        gains = [0.8] * 20 + [0.05] * 20
        (one,) = taken(trace_of([0.3] * 40, reward=gains), [0, 1_000], possible=[1.0, 1.0])
        assert (one.iterations, one.settled) == (None, 0)
        assert one.efficiency_after == pytest.approx(0.05)

    def test_five_per_cent_less_is_near_enough(self) -> None:
        for after, back in ((0.77, 0), (0.75, None)):
            trace = trace_of([0.3] * 40, reward=[0.8] * 20 + [after] * 20)
            (one,) = taken(trace, [0, 1_000], possible=[1.0, 1.0])
            assert one.iterations == back

    def test_rewards_are_counted_over_no_trade(self) -> None:
        trace = trace_of([0.3] * 40, reward=[7.8] * 20 + [3.8] * 20)
        (one,) = taken(trace, [0, 1_000], possible=[1.0, 1.0], no_trade=[7.0, 3.0])
        assert (one.efficiency_before, one.efficiency_after) == pytest.approx((0.8, 0.8))
        assert one.iterations == 0

    def test_none_where_there_is_nothing_to_gain(self) -> None:
        (one,) = taken(trace_of([0.3] * 40), [0, 1_000], possible=[1.0, 0.0])
        assert one.efficiency_after is None
        assert one.iterations == one.settled == 0


def changed(learner: str, change: dict[str, Any], **settings: object) -> Negotiation:
    scenario = Scenario.from_preset(
        "market",
        surface="printed",
        owners=48,
        iterations=8_000,
        changes=[{"at": 4_000, **change}],
        **settings,
    )
    return negotiate(scenario, mechanism=learner)


class TestChangingPreferences:
    """Measured with these seeds; the direction is what counts, with half the measured effect."""

    def test_dypp_sells_more_once_privacy_is_cheap(self) -> None:
        # Costs fall from 4 to 1: saving 0.063 -> 0.095.
        (one,) = changed("dypp", {"scale": {"privacy_cost": 0.25}}, privacy_cost=4.0).recoveries
        assert one.at == 4_000
        assert one.saving_after > one.saving_before + 0.015

    def test_dypp_sells_less_once_privacy_is_dear(self) -> None:
        # Costs rise from 1 to 3: saving 0.177 -> 0.009.
        result = changed("dypp", {"scale": {"privacy_cost": 3.0}}, privacy_cost=1.0)
        (one,) = result.recoveries
        assert one.saving_before > 0.12
        assert one.saving_after < one.saving_before - 0.06

    def test_a_curator_with_a_worthless_task_buys_nothing(self) -> None:
        # The present offer is then worth less than its price at any price.
        change = {"who": "curator", "scale": {"quality_value": 0.02}}
        result = changed("dypp", change)
        (one,) = result.recoveries
        assert one.saving_before > 0.08
        assert one.saving_after == pytest.approx(0.0, abs=1e-3)
        assert not result.agreement.contracts.signed.any()

    def test_contracts_are_signed_under_the_new_preferences(self) -> None:
        result = changed("q_learning", {"scale": {"privacy_cost": 3.0}}, privacy_cost=1.0)
        contracts = result.agreement.contracts
        at = np.arange(len(contracts)), contracts.saving, contracts.payment
        assert contracts.signed.any()
        assert result.environment.owner_side().gains()[at].min() >= -SLACK
        assert result.environment.phases[-1].privacy_cost[0] == 3.0

    def test_before_the_change_it_is_as_if_there_were_none(self) -> None:
        settings = {"owners": 6, "iterations": 1_000, "trace_every": 50}
        change = [{"at": 500, "scale": {"privacy_cost": 3.0}}]
        with_, without = (
            negotiate(Scenario.from_preset("market", changes=changes, **settings)).agreement.trace
            for changes in (change, [])
        )
        assert with_ is not None
        assert without is not None
        np.testing.assert_array_equal(with_.saving[:10], without.saving[:10])
        assert not np.array_equal(with_.saving[10:], without.saving[10:])

    def test_a_change_that_would_never_come_is_refused(self) -> None:
        # Else contracts would be judged by preferences under which they were not made.
        change = [{"at": 400, "scale": {"privacy_cost": 0.1}}]
        scenario = Scenario.from_preset("market", owners=6, iterations=400, changes=change)
        with pytest.raises(BadInput, match=r"changes.*at = 400: .* up to 399\."):
            negotiate(scenario)
        in_time = Scenario.from_preset("market", owners=6, iterations=401, changes=change)
        assert len(negotiate(in_time).environment.phases) == 2


REQUIRED = {
    "preset", "mechanism", "owners", "iterations", "seed", "mean_saving", "mean_payment",
    "mean_owner_payoff", "curator_gain", "signed_share", "converged_at", "equilibrium",
    "first_best", "exploitability",
}  # fmt: skip
FIGURES = {"mean_saving", "mean_payment", "mean_owner_payoff", "curator_gain"}


class TestTheSummary:
    @pytest.mark.parametrize("name", MECHANISMS)
    @pytest.mark.parametrize("scenario", ["market", "paper", "one owner", "a change"])
    def test_holds_what_scripts_rely_on(self, name: str, scenario: str) -> None:
        result = negotiated(scenario, name)
        summary = result.summary()
        assert set(summary) >= REQUIRED
        for exact in ("equilibrium", "first_best"):
            assert set(summary[exact]) >= FIGURES  # type: ignore[arg-type]
        again = json.loads(json.dumps(summary, allow_nan=False))
        assert again == summary
        assert summary["mechanism"] == name
        assert summary["preset"] == result.scenario.preset
        assert summary["owners"] == len(result.environment)
        assert summary["complete"] is True

    def test_learners_have_an_exploitability_and_the_others_none(self) -> None:
        for name in MECHANISMS:
            summary = negotiated("market", name).summary()
            if name in LEARNED:
                total = summary["owner_exploitability"] + summary["curator_exploitability"]  # type: ignore[operator]
                assert summary["exploitability"] == pytest.approx(total)
            else:
                assert summary["exploitability"] is None
                assert summary["converged_at"] is None

    def test_beside_each_figure_stand_the_exact_ones(self) -> None:
        result = negotiated("market", "dypp")
        for exact in ("equilibrium", "first_best"):
            assert result.summary()[exact] == negotiated("market", exact).learned.as_dict()

    def test_a_change_is_in_the_summary(self) -> None:
        (one,) = negotiated("a change", "dypp").summary()["recoveries"]  # type: ignore[misc]
        assert one["at"] == 500
        assert set(one) >= {"iterations", "saving_before", "saving_after"}

    def test_the_learner_given_overrides_the_scenarios(self) -> None:
        scenario = Scenario.from_preset("market", owners=2, iterations=20, mechanism="greedy")
        assert negotiate(scenario).summary()["mechanism"] == "greedy"
        assert negotiate(scenario, mechanism="uniform").summary()["mechanism"] == "uniform"
        assert scenario.mechanism == "greedy"

    def test_the_earlier_name_of_the_argument(self) -> None:
        scenario = Scenario.from_preset("market", owners=2)
        assert negotiate(scenario, learner="uniform").scenario.mechanism == "uniform"
        with pytest.raises(BadInput, match="give only one"):
            negotiate(scenario, learner="uniform", mechanism="no_dp")

    def test_the_public_names_are_these(self) -> None:
        assert noisemarket.negotiate is negotiate
        assert noisemarket.MECHANISMS is MECHANISMS
        with pytest.raises(AttributeError, match="auction"):
            noisemarket.auction  # noqa: B018


class TestTallies:
    @staticmethod
    def run(owners: int) -> tuple[Environment, Agreement]:
        scenario = Scenario.from_preset("market", owners=owners)
        environment = scenario.environment()
        return environment, find_mechanism("first_best").run(environment, run_options(scenario))

    def test_many_owners_are_counted_in_slices(self) -> None:
        environment, agreement = self.run(9_000)
        row = np.arange(9_000)
        contracts = agreement.contracts
        gains = environment.curator_side().gains()[row, contracts.saving, contracts.payment]
        figures = tally(environment, contracts)
        assert isinstance(figures, Tally)
        assert figures.curator_gain == pytest.approx(gains.mean())
        assert figures.signed_share == contracts.signed.mean()

    def test_only_the_owners_that_are_done_count(self) -> None:
        environment, agreement = self.run(10)
        done = np.arange(10) < 4
        payments = environment.levels.payments[agreement.contracts.payment]
        figures = tally(environment, agreement.contracts, done)
        assert figures.mean_payment == pytest.approx(payments[:4].mean())
        assert figures.total_payment == pytest.approx(payments[:4].sum())


def test_each_exact_answer_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.from_preset("market", owners=3, iterations=50)
    result, solved = negotiate(scenario), []
    run = type(MECHANISMS["equilibrium"]).run

    def counted(self: object, *given: object) -> object:
        solved.append(self)
        return run(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(MECHANISMS["equilibrium"]), "run", counted)
    for _ in range(3):
        assert result.equilibrium == result.exactly("equilibrium", 0)
        result.summary()
    assert len(solved) == 1
