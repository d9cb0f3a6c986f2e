"""The learning rules and the loop that plays them, compiled as they stand here.

A player's tables have a row per state: ``values`` (Q), ``policy``, ``total`` (the sum of its
policies over all visits), ``best`` (its greedy action) and ``visits``. Functions take these arrays
one by one, since Numba counts references to the arrays of a tuple, which would take most of the
time. Every sum runs from the first action to the last, so results have the same bits on every
machine.

The loop plays all iterations of one pair before the next, so that its tables stay in the cache. A
row's greedy action is searched for only when its value falls, and a pure row whose greedy action
stays is not climbed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray
from noisemarket.game.sides import scrambled
from noisemarket.pricing.rule import (
    CLIMBING,
    DEALS,
    EXPLORING,
    FIXED,
    PAYMENTS,
    PROPOSALS,
    QUOTES,
    SAVINGS,
)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function, and keep that on disk if there is a folder that can be written."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # Numba found no folder that it may write to
        return njit(nogil=True, error_model="numpy")(function)


_mix = njit(nogil=True)(scrambled)
_U = np.uint64
_GOLDEN = _U(0x9E3779B97F4A7C15)
_TO_UNIT = 1.0 / (1 << 32)

FAST, SLOW = 0.1, 0.005
"""Steps of the two averages of an owner's proposals."""

MOVED, AT_MOST_EVERY, LOOKS_EVERY = 1.2, 200, 10
"""The curator starts a pair anew when the averages are further apart than this; not again for so
many interactions; and it looks only so often."""

_ZERO: Any = np.int64(0)
_OWNER, _CURATOR = _ZERO, np.int64(1)  # the rows of the streams
"""A literal 0 or 1 would have Numba compile every function that gets it once more."""
_LOOK = (1 << 20) - 1  # every so many iterations, look whether the play is cancelled


class Numbers(NamedTuple):
    """The family of a rule, and the numbers of ``Settings``."""

    family: int
    discount: float
    learning_rate: float
    step_start: float
    step_slowing: float
    lose_ratio: float
    exploration: float


# Random numbers: SplitMix64 turns (seed, key) into the state of a xoshiro256++ generator.


@compiled
def seed_stream(streams: KeyArray, i: int, seed: np.uint64, key: np.uint64) -> None:
    """Set row ``i`` to the state of the stream that a seed and an owner's key name."""
    start = _mix(seed + _GOLDEN) ^ _mix(key + _GOLDEN + _GOLDEN)
    for word in range(4):
        streams[i, word] = _mix(start + _U(word + 1) * _GOLDEN)


@compiled
def next_word(streams: KeyArray, i: int) -> np.uint64:
    """The next 64 bits of the stream in row ``i``."""
    s0, s1, s2, s3 = streams[i, 0], streams[i, 1], streams[i, 2], streams[i, 3]
    word = s0 + s3
    word = ((word << _U(23)) | (word >> _U(41))) + s0
    streams[i, 2] = s2 ^ s0 ^ (s1 << _U(17))
    streams[i, 3] = s3 ^ s1
    streams[i, 1] = s1 ^ s2 ^ s0
    streams[i, 0] = s0 ^ s3 ^ s1
    streams[i, 3] = (streams[i, 3] << _U(45)) | (streams[i, 3] >> _U(19))
    return word


@compiled
def upper_uniform(streams: KeyArray, i: int) -> float:
    """An owner's next random number in [0, 1): the upper half of a word."""
    return np.float64(next_word(streams, i) >> _U(32)) * _TO_UNIT


@compiled
def lower_uniform(streams: KeyArray, i: int) -> float:
    """The curator's next random number in [0, 1): the lower half of a word."""
    return np.float64(next_word(streams, i) & _U(0xFFFFFFFF)) * _TO_UNIT


# The rules


@compiled
def draw(policy: FloatArray, row: int, actions: int, uniform: float, otherwise: int) -> int:
    """The action that a uniform number in [0, 1) picks; ``otherwise`` if rounding leaves none."""
    reached = 0.0
    for action in range(actions):
        reached += policy[row, action]
        if uniform < reached:
            return action
    return otherwise


@compiled
def act(
    rule: Numbers, policy: FloatArray, best: IntArray, row: int, actions: int, uniform: float
) -> int:
    """The action that a player takes in the state of this row."""
    greedy = best[row]
    if rule.family == CLIMBING and policy[row, greedy] < 1.0:
        return draw(policy, row, actions, uniform, greedy)
    if rule.family == EXPLORING and uniform < rule.exploration:
        return int(min(uniform / rule.exploration * actions, actions - 1))
    return greedy


@compiled
def climb(policy: FloatArray, row: int, actions: int, greedy: int, step: float) -> None:
    """Move ``step`` of probability to the greedy action, from each other at most what it has."""
    share, rest = step / (actions - 1), 0.0
    policy[row, greedy] = 0.0
    for action in range(actions):
        left = policy[row, action] - share
        policy[row, action] = left if left > 0.0 else 0.0
        rest += policy[row, action]
    policy[row, greedy] = 1.0 - rest if rest < 1.0 else 0.0


@compiled
def learn(
    rule: Numbers,
    values: FloatArray,
    policy: FloatArray,
    total: FloatArray,
    best: IntArray,
    visits: IntArray,
    row: int,
    actions: int,
    action: int,
    reward: float,
    next_row: int,
    t: int,
) -> None:
    """Learn from iteration t: ``action`` in this row brought ``reward`` and led to ``next_row``.

    WoLF-PHC climbs towards the greedy action, slowly while winning and fast while losing. The
    paper's policy step adds psi to the greedy action and takes psi / (actions - 1) from each other,
    which makes probabilities negative. The original algorithm (Bowling & Veloso 2002) takes from
    each action no more than it has, and so does this. The average policy is updated before the win
    test, and the row that changes is the row of the state visited. As in the paper, nothing
    explores but the mixed policy itself. Plain hill-climbing has a ``lose_ratio`` of 1.
    """
    if rule.family == FIXED:
        return
    # The Bellman step of the paper's Q-function equation.
    target = reward + rule.discount * values[next_row, best[next_row]]
    old = values[row, action]
    value = old + rule.learning_rate * (target - old)
    values[row, action] = value
    before = best[row]
    greedy = before
    if action == before and value < old:
        greedy = 0
        for other in range(1, actions):
            if values[row, other] > values[row, greedy]:
                greedy = other
    elif value > values[row, before] or (value == values[row, before] and action < before):
        greedy = action
    best[row] = greedy
    if rule.family == EXPLORING:
        return

    visits[row] += 1
    if greedy == before and policy[row, greedy] == 1.0:
        total[row, greedy] += 1.0
        return
    # The policy wins if it earns more than the average policy, total / visits. The shift by the
    # highest value changes nothing but rounding, and makes exact ties exact.
    count, highest, gain = float(visits[row]), values[row, greedy], 0.0
    for a in range(actions):
        total[row, a] += policy[row, a]
        gain += (count * policy[row, a] - total[row, a]) * (values[row, a] - highest)
    step = 1.0 / (rule.step_start + t / rule.step_slowing)
    if not gain > 0.0:
        step *= rule.lose_ratio
    climb(policy, row, actions, greedy, step)


@compiled
def has_moved(averages: FloatArray, proposal: int, since: int) -> bool:
    """Take a proposal into its fast and its slow average; gives whether these are far apart (L1).

    ``since`` is how long ago the curator started its tables. To look every time would cost more
    than to average.
    """
    for j in range(averages.shape[1]):
        averages[0, j] -= FAST * averages[0, j]
        averages[1, j] -= SLOW * averages[1, j]
    averages[0, proposal] += FAST
    averages[1, proposal] += SLOW
    if since < AT_MOST_EVERY or since % LOOKS_EVERY != 0:
        return False
    distance = 0.0
    for j in range(averages.shape[1]):
        distance += abs(averages[0, j] - averages[1, j])
    return distance > MOVED


@compiled
def act_everywhere(
    rule: Numbers, policy: FloatArray, best: IntArray, uniforms: FloatArray, out: IntArray
) -> None:
    """What ``act`` chooses for every uniform number (a row of ``out`` each) in every state."""
    states, actions = policy.shape
    for i in range(len(uniforms)):
        for state in range(states):
            out[i, state] = act(rule, policy, best, state, actions, uniforms[i])


# The loop


class GameArrays(NamedTuple):
    """The games of some pairs. Tables are ``(pairs, phases, savings, payments)``.

    ``starts`` are the first iterations of the phases and, last, the number of iterations. ``keys``
    name the pairs' streams of random numbers. First Q-values are ``(pairs, phases, states,
    actions)``. ``changed[pair, phase]``: the owner's own preferences are not those before.
    """

    keys: KeyArray
    starts: IntArray
    owner_rewards: FloatArray
    curator_rewards: FloatArray
    agreed: BoolArray
    owner_first: FloatArray
    curator_first: FloatArray
    changed: BoolArray


class LoopSettings(NamedTuple):
    """How to play and what to record.

    A trace has a point every ``trace_every`` iterations; deals are read from the last ``window``.
    With ``per_message`` above 0 the game is one by messages: the curator learns from that many
    interactions at a time, after all of them. With ``reopen`` players start anew after a change.
    """

    sees_proposal: bool
    owner_seed: np.uint64
    curator_seed: np.uint64
    trace_every: int
    window: int
    per_message: int
    reopen: bool


class Batch(NamedTuple):
    """What a batch of pairs played.

    ``counts`` are sums of level numbers over all pairs, a row per block of iterations: proposals,
    quotes, then the savings, payments and number of the deals signed. ``payoffs`` are the sums of
    the owner's and the curator's rewards. Per pair: ``deals`` (usual saving and payment of late, 0
    and 0 for none), ``last`` (saving and payment played last) and both final policies.
    """

    counts: IntArray
    payoffs: FloatArray
    deals: IntArray
    last: IntArray
    owner_policies: FloatArray
    curator_policies: FloatArray


@compiled
def _begin(
    values: FloatArray,
    policy: FloatArray,
    total: FloatArray,
    best: IntArray,
    visits: IntArray,
    row: int,
    first: FloatArray,
) -> None:
    """Write a player's rows, from ``row`` on, as they are before the first iteration."""
    states, actions = first.shape
    for state in range(states):
        greedy = 0
        for action in range(actions):
            values[row, action] = first[state, action]
            policy[row, action] = 1.0 / actions
            total[row, action] = 0.0
            if first[state, action] > first[state, greedy]:
                greedy = action
        best[row], visits[row] = greedy, 0
        row += 1


@compiled
def _read_policy(
    family: int, policy: FloatArray, best: IntArray, row: int, out: FloatArray
) -> None:
    """What a player would play now, without exploring."""
    states, actions = out.shape
    for state in range(states):
        for action in range(actions):
            out[state, action] = 1.0 if action == best[row] else 0.0
            if family == CLIMBING:
                out[state, action] = policy[row, action]
        row += 1


@compiled
def _usual_deal(seen: IntArray, agreed: BoolArray, window: int) -> tuple[int, int]:
    """The deal a pair made most often of late, or (0, 0) if it mostly made none."""
    deals, most, best_j, best_k = 0, 0, 0, 0
    for j in range(seen.shape[0]):
        for k in range(seen.shape[1]):
            times = seen[j, k]
            if times and agreed[j, k] and j + k > 0:
                deals += times
                if times > most:
                    most, best_j, best_k = times, j, k
    return (best_j, best_k) if 2 * deals >= window else (0, 0)


@compiled
def play_all(
    rule: Numbers,
    games: GameArrays,
    settings: LoopSettings,
    output: Batch,
    cancelled: BoolArray,
) -> None:
    """Play all pairs, one after the other, and write the results into ``output``.

    The owner's state is the last payment quoted. The curator's is the proposal before it
    (``sees_proposal``) or the previous one. Each learns as soon as it knows its next state: the
    curator when the next proposal has come, so one more proposal is made at the end. Another thread
    may set ``cancelled[0]`` to end the play; the batch is then worth nothing.

    One table has the rows of both players, the owner's first.
    """
    starts, counts, payoffs = games.starts, output.counts, output.payoffs
    owner_rewards, curator_rewards, agreed = (
        games.owner_rewards,
        games.curator_rewards,
        games.agreed,
    )
    pairs, phases, savings, payments = owner_rewards.shape
    iterations, window = starts[phases], settings.window
    sees_proposal, per_message = settings.sees_proposal, settings.per_message
    rows, width = payments + savings, max(payments, savings)
    values, policy, total = (
        np.empty((rows, width)),
        np.empty((rows, width)),
        np.empty((rows, width)),
    )
    best, visits = np.empty(rows, np.int64), np.empty(rows, np.int64)
    seen, streams = np.empty((savings, payments), np.int64), np.empty((2, 4), np.uint64)
    averages = np.empty((2, savings))
    # What the curator has not learned from yet: its states, quotes and rewards. The first is from
    # before the present message.
    states, quotes = np.empty(per_message + 1, np.int64), np.empty(per_message + 1, np.int64)
    said, rewards = np.empty(per_message + 1, np.int64), np.empty(per_message + 1)

    for n in range(pairs):
        _begin(values, policy, total, best, visits, _ZERO, games.owner_first[n, 0])
        _begin(values, policy, total, best, visits, payments, games.curator_first[n, 0])
        seed_stream(streams, _OWNER, settings.owner_seed, games.keys[n])
        seed_stream(streams, _CURATOR, settings.curator_seed, games.keys[n])
        seen[:] = 0
        averages[:] = 1.0 / savings
        j, k, state, reward = _ZERO, _ZERO, _ZERO, 0.0
        phase, heard_phase, unheard = 0, 0, 0
        owner_since, curator_since = _ZERO, _ZERO  # when each side started its tables
        proposals, quoted, saved, paid, signed, owner_sum, curator_sum = 0, 0, 0, 0, 0, 0.0, 0.0
        block, left = 0, settings.trace_every
        for t in range(iterations + 1):
            if phase + 1 < phases and t == starts[phase + 1]:
                phase += 1
                if settings.reopen and games.changed[n, phase]:
                    _begin(values, policy, total, best, visits, _ZERO, games.owner_first[n, phase])
                    owner_since = t
            # The owner proposes; that proposal completes the curator's last transition.
            proposal = act(rule, policy, best, k, savings, upper_uniform(streams, _OWNER))
            next_state = proposal if sees_proposal else j
            if t > 0 and per_message == 0:
                learn(
                    rule, values, policy, total, best, visits,
                    payments + state, payments, k, reward, payments + next_state,
                    t - 1 - curator_since,
                )  # fmt: skip
            if t == iterations:
                break
            if t & _LOOK == 0 and cancelled[0]:
                return
            j, state = proposal, next_state
            if settings.reopen and per_message == 0 and has_moved(averages, j, t - curator_since):
                first = games.curator_first[n, phase]
                _begin(values, policy, total, best, visits, payments, first)
                curator_since = t

            # The curator quotes; that quote completes the owner's transition.
            uniform = lower_uniform(streams, _CURATOR)
            quote = act(rule, policy, best, payments + state, payments, uniform)
            got, reward = owner_rewards[n, phase, j, quote], curator_rewards[n, phase, j, quote]
            learn(
                rule, values, policy, total, best, visits,
                k, savings, j, got, quote, t - owner_since,
            )  # fmt: skip
            k = quote
            if per_message > 0:
                unheard += 1
                states[unheard], quotes[unheard], rewards[unheard] = state, k, reward
                said[unheard] = j
                if unheard == per_message or t == iterations - 1:
                    for i in range(1, unheard + 1):
                        heard = t - unheard + i
                        if heard_phase < phase and heard == starts[heard_phase + 1]:
                            heard_phase += 1
                        if heard > 0:
                            learn(
                                rule, values, policy, total, best, visits,
                                payments + states[i - 1], payments, quotes[i - 1], rewards[i - 1],
                                payments + states[i], heard - 1 - curator_since,
                            )  # fmt: skip
                        if settings.reopen and has_moved(averages, said[i], heard - curator_since):
                            first = games.curator_first[n, heard_phase]
                            _begin(values, policy, total, best, visits, payments, first)
                            curator_since = heard
                    states[0], quotes[0], rewards[0] = state, k, reward
                    unheard = 0

            deal = int(agreed[n, phase, j, k])
            proposals += j
            quoted += k
            saved += deal * j
            paid += deal * k
            signed += deal * int(j + k > 0)
            owner_sum += got
            curator_sum += reward
            if t >= iterations - window:
                seen[j, k] += 1
            left -= 1
            if left == 0 or t == iterations - 1:
                counts[block, PROPOSALS] += proposals
                counts[block, QUOTES] += quoted
                counts[block, SAVINGS] += saved
                counts[block, PAYMENTS] += paid
                counts[block, DEALS] += signed
                payoffs[block, 0] += owner_sum
                payoffs[block, 1] += curator_sum
                proposals, quoted, saved, paid, signed = 0, 0, 0, 0, 0
                owner_sum, curator_sum = 0.0, 0.0
                block, left = block + 1, settings.trace_every

        output.last[n, 0], output.last[n, 1] = j, k
        output.deals[n, 0], output.deals[n, 1] = _usual_deal(seen, agreed[n, phase], window)
        _read_policy(rule.family, policy, best, _ZERO, output.owner_policies[n])
        _read_policy(rule.family, policy, best, payments, output.curator_policies[n])
