"""Mechanisms that learn: their trace, their exploitability, stopping, changing preferences."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.conformance.mechanism_suite import negotiated

from noisemarket.errors import BadInput
from noisemarket.game.exploitability import exploitability
from noisemarket.game.levels import Levels
from noisemarket.game.sides import SLACK
from noisemarket.game.value import worth
from noisemarket.market.negotiation import Negotiation, negotiate, run_options
from noisemarket.pricing import MECHANISMS
from noisemarket.pricing.dypp import Learned, play_batch, work_through
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.compiled

LEARNED = [name for name, one in MECHANISMS.items() if isinstance(one, Learned)]


@pytest.mark.parametrize("name", LEARNED)
class TestEveryLearner:
    def test_its_trace_says_how_the_play_went(self, name: str) -> None:
        scenario = Scenario.from_preset("market", owners=9, iterations=170)
        agreement = negotiate(scenario, mechanism=name).agreement
        trace = agreement.trace
        assert trace is not None
        assert trace.iteration.tolist() == [50, 100, 150, 170]
        levels = Levels()
        for series, top in (
            (trace.saving, levels.sigma_max), (trace.proposal, levels.sigma_max),
            (trace.payment, levels.payment_max), (trace.quote, levels.payment_max),
            (trace.signed_share, 1.0),
        ):  # fmt: skip
            assert series.shape == (4,)
            assert series.min() >= 0.0
            assert series.max() <= top
        assert (trace.saving <= trace.proposal + 1e-12).all()
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
        for part in ("iteration", "saving", "payment", "proposal", "quote", "signed_share"):
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
        last = batch.last
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
        expected = worth(whole.environment, whole.agreement.contracts, done)
        assert part.learned == expected
        assert part.agreement.trace is not None


@pytest.mark.parametrize("name", ["dypp", "q_learning"])
def test_interrupted_it_ends_soon_however_long_the_game(name: str) -> None:
    """A pair would play for minutes, and several wait: none of them is waited for."""
    scenario = Scenario.from_preset("market", owners=12, iterations=10**9)
    asked = 0

    def interrupt() -> bool:
        nonlocal asked
        asked += 1
        if asked > 5:  # the pool is full, and its threads are playing
            raise KeyboardInterrupt
        return False

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        negotiate(scenario, mechanism=name, threads=2, stop=interrupt)
    assert time.monotonic() - start < 200
    assert not [one for one in threading.enumerate() if one.name.startswith("noisemarket")]


def test_stopped_it_waits_for_what_runs_and_for_nothing_that_waits() -> None:
    begun: list[int] = []
    free = threading.Event()

    def work(some: slice) -> int:
        begun.append(some.start)
        free.wait(300)
        return some.start

    def stop() -> bool:
        if begun:
            free.set()
        return bool(begun)

    parts = [slice(at, at + 1) for at in range(8)]
    assert [some for some, _ in work_through(parts, work, 1, stop)] == parts[:1]
    assert begun == [0]


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


def late_savings(result: Negotiation) -> tuple[float, float]:
    """Mean saving shortly before the change half-way, and shortly before the end."""
    trace = result.agreement.trace
    assert trace is not None
    before, after = np.split(trace.saving, 2)
    return float(before[-8:].mean()), float(after[-8:].mean())


class TestChangingPreferences:
    """Measured with these seeds; the direction is what counts, with half the measured effect."""

    def test_dypp_sells_more_once_privacy_is_cheap(self) -> None:
        # Costs fall from 4 to 1: saving 0.063 -> 0.095.
        result = changed("dypp", {"scale": {"privacy_cost": 0.25}}, privacy_cost=4.0)
        before, after = late_savings(result)
        assert after > before + 0.015
        assert [one.at for one in result.recoveries] == [4_000]

    def test_dypp_sells_less_once_privacy_is_dear(self) -> None:
        # Costs rise from 1 to 3: saving 0.177 -> 0.009.
        result = changed("dypp", {"scale": {"privacy_cost": 3.0}}, privacy_cost=1.0)
        before, after = late_savings(result)
        assert before > 0.12
        assert after < before - 0.06

    def test_a_curator_with_a_worthless_task_buys_nothing(self) -> None:
        # The present proposal is then worth less than its price at any price.
        change = {"scale": {"quality_value": 0.02}}
        result = changed("dypp", change)
        before, after = late_savings(result)
        assert before > 0.08
        assert after == pytest.approx(0.0, abs=1e-3)
        assert not result.agreement.contracts.signed.any()

    def test_contracts_are_signed_under_the_new_preferences(self) -> None:
        result = changed("q_learning", {"scale": {"privacy_cost": 3.0}}, privacy_cost=1.0)
        contracts = result.agreement.contracts
        at = np.arange(len(contracts)), contracts.saving, contracts.payment
        assert contracts.signed.any()
        assert result.environment.owner_side().gains()[at].min() >= -SLACK
        assert result.environment.phases[-1].privacy_cost[0] == 3.0

    def test_before_the_change_it_is_as_if_there_were_none(self) -> None:
        settings: dict[str, Any] = {"owners": 6, "iterations": 1_000}
        settings |= {"model": "cnn", "mechanism": "dypp"}
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
        with pytest.raises(BadInput, match=r"changes.*at is 400: .* up to 399\."):
            negotiate(scenario)
        in_time = Scenario.from_preset("market", owners=6, iterations=401, changes=change)
        assert len(negotiate(in_time).environment.phases) == 2
