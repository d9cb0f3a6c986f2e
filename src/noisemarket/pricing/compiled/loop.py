"""The compiled loop: plays whole games, pair after pair, so that a pair's tables stay in cache.

``pricing/play.py`` is the same loop in plain Python; read that first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from noisemarket.game.behaviour import scrambled
from noisemarket.game.jit import cached
from noisemarket.pricing.compiled import stamp_of
from noisemarket.pricing.compiled.arguments import (
    CLIMBING,
    DEALS,
    PAYMENTS,
    PROPOSALS,
    QUOTES,
    SAVINGS,
    Batch,
    GameArrays,
    LoopSettings,
    Scratch,
)
from noisemarket.pricing.compiled.simd import GROUP, LOWEST, POLICY, TOTAL, pointer
from noisemarket.pricing.compiled.steps import MOVING, act, cell, learn
from noisemarket.pricing.draws import GOLDEN, TO_UNIT
from noisemarket.pricing.lanes import LANES

_U = np.uint64
_LOOK = (1 << 20) - 1  # every so many iterations, look whether the play is cancelled
_GOLDEN = _U(GOLDEN)
_mix = njit(nogil=True)(scrambled)


@njit(nogil=True)
def _rotate(word: Any, by: int) -> Any:
    return (word << _U(by)) | (word >> _U(64 - by))


@njit(nogil=True, error_model="numpy")
def _lay_out(
    table: Any,
    best_action: Any,
    best_value: Any,
    count: Any,
    settled: Any,
    row: int,
    at: int,
    first: Any,
) -> None:
    """Write a player's rows as they are before the first iteration."""
    states, actions = first.shape
    groups = (actions + LANES - 1) // LANES
    for state in range(states):
        best = 0
        for action in range(groups * LANES):
            where = cell(at, action)
            real = action < actions
            table[where] = first[state, action] if real else LOWEST
            table[where + POLICY] = 1.0 / actions if real else 0.0
            table[where + TOTAL] = 0.0
            if real and first[state, action] > first[state, best]:
                best = action
        best_action[row] = best
        best_value[row] = first[state, best]
        count[row] = 0
        settled[row] = MOVING
        row += 1
        at += groups * GROUP


@njit(nogil=True, error_model="numpy")
def _read_policy(family: int, table: Any, best_action: Any, row: int, at: int, out: Any) -> None:
    """What a player would play now, without exploring."""
    states, actions = out.shape
    groups = (actions + LANES - 1) // LANES
    for state in range(states):
        for action in range(actions):
            if family == CLIMBING:
                out[state, action] = table[cell(at, action) + POLICY]
            else:
                out[state, action] = 1.0 if action == best_action[row] else 0.0
        row += 1
        at += groups * GROUP


@njit(nogil=True, error_model="numpy")
def _usual_deal(seen: Any, agreed: Any, shape: tuple[int, int], window: int) -> tuple[int, int]:
    """The deal a pair made most often of late, or (0, 0) if it mostly made none."""
    deals, most, best_j, best_k = 0, 0, 0, 0
    for j in range(shape[0]):
        for k in range(shape[1]):
            times = seen[j, k]
            if times and agreed[j, k] and j + k > 0:
                deals += times
                if times > most:
                    most, best_j, best_k = times, j, k
    return (best_j, best_k) if 2 * deals >= window else (0, 0)


def _build(stamp: int) -> Any:
    @cached(nogil=True, error_model="numpy")
    def play_all(games: GameArrays, settings: LoopSettings, output: Batch, scratch: Scratch) -> int:
        family, sees_proposal = settings.family, settings.sees_proposal
        exploration = settings.exploration
        discount, learning_rate = settings.discount, settings.learning_rate
        lose_ratio, window = settings.lose_ratio, settings.window
        starts, counts, payoffs, seen = games.starts, output.counts, output.payoffs, scratch.seen
        cancelled = scratch.cancelled
        pairs, phases, savings, payments = games.owner_rewards.shape
        iterations = starts[phases]
        groups_o, groups_c = (savings + LANES - 1) // LANES, (payments + LANES - 1) // LANES
        width_o, width_c = groups_o * GROUP, groups_c * GROUP
        rows_o, base_c = payments, payments * width_o
        table, best_value = pointer(scratch.tables), pointer(scratch.best_values)
        best_action = pointer(scratch.rows[0])
        count, settled = pointer(scratch.rows[1]), pointer(scratch.rows[2])
        pays_o, pays_c = pointer(games.owner_rewards), pointer(games.curator_rewards)
        agrees = pointer(games.agreed)

        for n in range(pairs):
            _lay_out(table, best_action, best_value, count, settled, 0, 0, games.owner_first[n])
            _lay_out(
                table, best_action, best_value, count, settled, rows_o, base_c,
                games.curator_first[n],
            )  # fmt: skip
            seen[:] = 0
            start = _mix(settings.seed + _GOLDEN) ^ _mix(games.keys[n] + _GOLDEN + _GOLDEN)
            s0 = _mix(start + _GOLDEN)
            s1 = _mix(start + _U(2) * _GOLDEN)
            s2 = _mix(start + _U(3) * _GOLDEN)
            s3 = _mix(start + _U(4) * _GOLDEN)

            j, k, state_c, phase = 0, 0, 0, 0
            cells = n * phases * savings * payments
            reward_c, win_step_before = 0.0, 0.0
            proposals, quotes, savings_sum, payments_sum, deal_sum = 0, 0, 0, 0, 0
            pay_o, pay_c = 0.0, 0.0
            in_block, left, ends = 0, settings.trace_every, starts[1]
            for t in range(iterations + 1):
                word = s0 + s3
                word = _rotate(word, 23) + s0
                shifted = s1 << _U(17)
                s2 ^= s0
                s3 ^= s1
                s1 ^= s2
                s0 ^= s3
                s2 ^= shifted
                s3 = _rotate(s3, 45)

                # The owner proposes; that proposal completes the curator's last transition.
                proposal = act(
                    family, table, k * width_o, groups_o, savings, best_action[k], settled[k],
                    np.float64(word >> _U(32)) * TO_UNIT, exploration,
                )  # fmt: skip
                next_c = proposal if sees_proposal else j
                if t > 0:
                    learn(
                        family, table, best_action, best_value, count, settled,
                        rows_o + state_c, base_c + state_c * width_c, groups_c, payments, k,
                        reward_c + discount * best_value[rows_o + next_c],
                        learning_rate, win_step_before, lose_ratio * win_step_before,
                    )  # fmt: skip
                if t == iterations:
                    break
                if t & _LOOK == 0 and cancelled[0]:
                    return stamp
                if t == ends:
                    phase += 1
                    cells += savings * payments
                    ends = starts[phase + 1]
                j, state_c = proposal, next_c
                # The curator quotes; that quote completes the owner's transition.
                quote = act(
                    family, table, base_c + state_c * width_c, groups_c, payments,
                    best_action[rows_o + state_c], settled[rows_o + state_c],
                    np.float64(word & _U(0xFFFFFFFF)) * TO_UNIT, exploration,
                )  # fmt: skip
                outcome = cells + j * payments + quote
                reward_o, reward_c = pays_o[outcome], pays_c[outcome]
                win_step = 1.0 / (settings.step_start + t / settings.step_slowing)
                learn(
                    family, table, best_action, best_value, count, settled,
                    k, k * width_o, groups_o, savings, j,
                    reward_o + discount * best_value[quote],
                    learning_rate, win_step, lose_ratio * win_step,
                )  # fmt: skip
                win_step_before = win_step
                k = quote

                deal = int(agrees[outcome])
                proposals += j
                quotes += k
                savings_sum += deal * j
                payments_sum += deal * k
                deal_sum += deal * int(j + k > 0)
                pay_o += reward_o
                pay_c += reward_c
                if t >= iterations - window:
                    seen[j, k] += 1
                left -= 1
                if left == 0 or t == iterations - 1:
                    counts[in_block, PROPOSALS] += proposals
                    counts[in_block, QUOTES] += quotes
                    counts[in_block, SAVINGS] += savings_sum
                    counts[in_block, PAYMENTS] += payments_sum
                    counts[in_block, DEALS] += deal_sum
                    payoffs[in_block, 0] += pay_o
                    payoffs[in_block, 1] += pay_c
                    proposals, quotes, savings_sum, payments_sum, deal_sum = 0, 0, 0, 0, 0
                    pay_o, pay_c = 0.0, 0.0
                    in_block += 1
                    left = settings.trace_every

            output.last[n, 0], output.last[n, 1] = j, k
            output.deals[n, 0], output.deals[n, 1] = _usual_deal(
                seen, games.agreed[n, phase], (savings, payments), window
            )
            _read_policy(family, table, best_action, 0, 0, output.owner_policies[n])
            _read_policy(family, table, best_action, rows_o, base_c, output.curator_policies[n])
        return stamp

    return play_all


play_all = _build(stamp_of("draws.py", "lanes.py", "../game/behaviour.py"))
"""Plays all pairs and writes the results into ``output``; the caller owns every array."""
