"""When play has settled, and how it recovers from a change, on traces made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from noisemarket.game.levels import Levels
from noisemarket.game.value import Worth
from noisemarket.pricing.convergence import Recovery, converged_at, recoveries
from noisemarket.pricing.mechanism import Trace


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
    exact = [Worth(0, 0, 0, 0, gain, 0, 0, 0, 0, 0, 0) for gain in gains]
    return recoveries(trace, LEVELS, starts, exact, np.array(no_trade or [0.0] * len(starts)))


class TestRecovery:
    def test_counts_from_the_change(self) -> None:
        trace = trace_of([0.3] * 12 + [0.1] * 28, [8.0] * 13 + [2.0] * 27)
        (one,) = taken(trace, [0, 500])
        assert (one.at, one.iterations) == (500, 150)

    def test_none_without_a_change_or_for_one_that_never_came(self) -> None:
        trace = trace_of([0.3] * 20)
        assert taken(trace, [0]) == []
        (late,) = taken(trace, [0, 1_000])
        assert (late.iterations, late.efficiency_after) == (None, None)

    def test_two_changes_in_one_block(self) -> None:
        first, second = taken(trace_of([0.3] * 40), [0, 1_001, 1_010])
        assert (first.at, first.iterations, first.efficiency_after) == (1_001, None, None)
        assert (second.at, second.iterations) == (1_010, 0)

    def test_at_once_if_nothing_moves(self) -> None:
        (one,) = taken(trace_of([0.3] * 20), [0, 500])
        assert one.iterations == 0

    def test_each_change_is_judged_up_to_the_next(self) -> None:
        trace = trace_of([0.1] * 20 + [0.1] * 4 + [0.4] * 16 + [0.4] * 2 + [0.2] * 18)
        first, second = taken(trace, [0, 1_000, 2_000])
        assert (first.at, first.iterations) == (1_000, 200)
        assert (second.at, second.iterations) == (2_000, 100)

    def test_a_change_within_a_block(self) -> None:
        trace = trace_of([0.3] * 12 + [0.1] * 28)
        (one,) = taken(trace, [0, 520])
        assert (one.at, one.iterations) == (520, 80)

    def test_the_levels_are_those_of_the_last_tenth(self) -> None:
        gains = [0.0] * 18 + [0.3] * 2 + [0.5] * 18 + [0.2] * 2
        (one,) = taken(trace_of([0.3] * 40, reward=gains), [0, 1_000], possible=[1.0, 1.0])
        assert (one.efficiency_before, one.efficiency_after) == pytest.approx((0.3, 0.2))

    def test_never_if_it_was_still_moving(self) -> None:
        trace = trace_of([0.3] * 20 + [0.1] * 95 + [0.6] * 5)
        (one,) = taken(trace, [0, 1_000])
        assert one.iterations is None


class TestEfficiency:
    """To settle is not to recover: the curator's gain must come back, too."""

    def test_recovers_when_the_gain_is_back(self) -> None:
        gains = [0.8] * 20 + [0.1] * 6 + [1.6] * 14
        (one,) = taken(trace_of([0.3] * 40, reward=gains), [0, 1_000], possible=[1.0, 2.0])
        assert one.iterations == 300
        assert (one.efficiency_before, one.efficiency_after) == pytest.approx((0.8, 0.8))

    def test_a_collapse_is_no_recovery(self) -> None:
        gains = [0.8] * 20 + [0.05] * 20
        (one,) = taken(trace_of([0.3] * 40, reward=gains), [0, 1_000], possible=[1.0, 1.0])
        assert one.iterations is None
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
        assert one.iterations == 0
