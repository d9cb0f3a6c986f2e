"""The reproduction: every learner on both presets, or on a scenario of one's own, over many seeds,
and the paper's claims tested.

A page makes some 25 comparisons, so each is decided at 0.05 / 25 (Bonferroni): a verdict is "yes"
or "no" only where the evidence is that strong, else "not shown". Numbers are shown with plain 95 %
intervals over seeds. Learners play the same seeds, so all comparisons are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats

from noisemarket.errors import BadInput
from noisemarket.game.levels import FloatArray, IntArray
from noisemarket.market.negotiation import Negotiation, negotiate, run_options
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.convergence import RECOVERED, TAIL, settled_at
from noisemarket.pricing.mechanism import Agreement
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.scenario.schema import ChangeSection
from noisemarket.study.results import half_width

LEARNERS = ("dypp", "q_learning", "greedy")
PRESETS = ("paper", "market")
CHANGES = {"halve": 0.5, "double": 2.0}
"""What happens to all privacy costs half-way through the trials of adaptation."""

ADAPTING = ("dypp", "q_learning")
ITERATIONS, FEWEST_ITERATIONS = 10_000, 100
"""The size of the game on the presets, and how short a game may be."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Trials:
    """One learner on one scenario over all seeds; every array has a row or an entry per seed.

    ``saving`` and ``payment`` are as played, block by block; quality, payment and gain of the
    contracts are as signed in the end.
    """

    scenario: str
    learner: str
    owners: int
    iteration: IntArray
    ranges: dict[str, float]
    saving: FloatArray
    payment: FloatArray
    quality: FloatArray
    contract_payment: FloatArray
    contract_gain: FloatArray
    exploitability: FloatArray
    equilibrium_gain: FloatArray

    def at_start(self, series: str) -> FloatArray:
        """A series' first block, per seed."""
        return np.asarray(getattr(self, series)[:, 0])

    def at_end(self, series: str) -> FloatArray:
        """A series' mean over its last tenth, per seed."""
        values = getattr(self, series)
        return np.asarray(values[:, -max(1, round(TAIL * values.shape[1])) :].mean(axis=1))

    def settled(self, horizon: int, *names: str) -> FloatArray:
        """Iterations after which all these series stay where they are at the horizon, per seed.

        A longer run extends a shorter one, so the first ``horizon`` iterations are what a run of
        that length would have been. Infinite where a series has not settled.
        """
        blocks = int(np.searchsorted(self.iteration, horizon, side="right"))
        out = np.zeros(len(self.saving))
        for name in names:
            for seed, series in enumerate(getattr(self, name)[:, :blocks]):
                at = settled_at(series, self.iteration[:blocks], self.ranges[name])
                out[seed] = max(out[seed], np.inf if at is None else at)
        return out


@dataclass(frozen=True)
class Adaptation:
    """One learner through one change of all privacy costs, an entry per seed.

    ``before`` and ``after`` are the curator's gain as a share of the exact equilibrium's, late
    before the change and late after it, NaN where the equilibrium has no gain; ``iterations`` to
    recover are NaN where it did not.
    """

    scenario: str
    change: str
    learner: str
    before: FloatArray
    after: FloatArray
    iterations: FloatArray


def presets(settings: Sequence[str] = ()) -> dict[str, Scenario]:
    """The paper's game as printed and as its workflow means it, both on its printed surface.

    Both learn at the rate 0.1 and never start anew, whatever ``market`` does by default;
    ``settings`` are put on top.
    """
    usual = ["surface=printed", f"iterations={ITERATIONS}", "learning_rate=0.1", "reopen=false"]
    return {
        preset: own_game(load_scenario(preset=preset, settings=[*usual, *settings]))
        for preset in PRESETS
    }


def own_game(scenario: Scenario) -> Scenario:
    """The game of a scenario, without its changes of preferences; refused if it is too short, or
    if the learners cannot play it."""
    iterations = scenario.learning.iterations
    if iterations < FEWEST_ITERATIONS:
        remedy = f"give at least {FEWEST_ITERATIONS}: a shorter game shows nothing."
        raise BadInput("learning.iterations", iterations, remedy)
    game = scenario.model_copy(update={"changes": ()})
    environment, options = game.environment(), run_options(game)
    for learner in LEARNERS:
        find_mechanism(learner).check(environment, options)
    return game


@dataclass(frozen=True)
class Study:
    """The games to play, by name, with callbacks for progress and for stopping.

    Each is played with ``seeds`` seeds from its own on. In the last of them all costs change.
    """

    games: Mapping[str, Scenario]
    seeds: int
    threads: int | None
    advance: Callable[[str, str], None]
    stop: Callable[[], bool]

    @property
    def runs(self) -> int:
        """Negotiations in all."""
        return self.seeds * (len(LEARNERS) * len(self.games) + len(ADAPTING) * len(CHANGES))

    def trials(self) -> Iterator[Trials]:
        """All trials; ends early, between learners, when ``stop`` says so."""
        for name, scenario in self.games.items():
            for learner in LEARNERS:
                results = self._run(scenario, learner, name)
                if results is None:
                    return
                yield _collect(name, learner, results)

    def adaptations(self) -> Iterator[Adaptation]:
        """The trials of adaptation; ends early, between learners, when ``stop`` says so."""
        name, scenario = [*self.games.items()][-1]
        half = scenario.learning.iterations
        learning = scenario.learning.model_copy(update={"iterations": 2 * half})
        for change, factor in CHANGES.items():
            changes = (ChangeSection(at=half, scale={"privacy_cost": factor}),)
            changing = scenario.model_copy(update={"learning": learning, "changes": changes})
            for learner in ADAPTING:
                results = self._run(changing, learner, f"costs {change}")
                if results is None:
                    return
                recoveries = [one for result in results for one in result.recoveries]
                yield Adaptation(
                    scenario=name,
                    change=change,
                    learner=learner,
                    before=np.array([one.efficiency_before for one in recoveries], dtype=float),
                    after=np.array([one.efficiency_after for one in recoveries], dtype=float),
                    iterations=np.array([one.iterations for one in recoveries], dtype=float),
                )

    def _run(self, scenario: Scenario, learner: str, title: str) -> list[Negotiation] | None:
        """One negotiation per seed, or None if it was stopped."""
        results = []
        for seed in range(scenario.seed, scenario.seed + self.seeds):
            if self.stop():
                return None
            seeded = scenario.model_copy(update={"seed": seed})
            results.append(negotiate(seeded, mechanism=learner, threads=self.threads))
            self.advance(title, learner)
        return results


def _collect(scenario: str, learner: str, results: list[Negotiation]) -> Trials:
    traces = [result.agreement.trace for result in results]

    def series(name: str) -> FloatArray:
        return np.array([getattr(trace, name) for trace in traces])

    def figure(name: str) -> FloatArray:
        return np.array([getattr(result.learned, name) for result in results])

    levels = results[0].environment.levels
    return Trials(
        scenario=scenario,
        learner=learner,
        owners=len(results[0].environment),
        iteration=series("iteration")[0],
        ranges={"saving": levels.sigma_max, "payment": levels.payment_max},
        saving=series("saving"),
        payment=series("payment"),
        quality=figure("mean_quality"),
        contract_payment=figure("mean_payment"),
        contract_gain=figure("curator_gain"),
        exploitability=np.array([_exploitability(result.agreement) for result in results]),
        equilibrium_gain=np.array([result.equilibrium.curator_gain for result in results]),
    )


def _exploitability(agreement: Agreement) -> float:
    owner, curator = agreement.owner_exploitability, agreement.curator_exploitability
    assert owner is not None  # learners know both
    assert curator is not None
    return float(owner.mean() + curator.mean())


# Claims

SHOWN, DECISIVE = 0.95, 1.0 - 0.05 / 25
HORIZONS = (4, 2, 1)
"""Speeds are compared after a quarter, a half and all of the run."""

TURN_BACK = 0.05
"""Part of its way that a series may go back and still "keep increasing"."""

YES, NO, OPPOSITE, OPEN = "yes", "no", "no, the opposite", "not shown"
MARKET = "market: as the paper's workflow means it, without learning.reopen"
VERDICTS = (
    'yes, no and "no, the opposite" hold at 99.8 %; not shown: these seeds cannot tell; partly: '
    f"the right way, but back by over {100 * TURN_BACK:.0f} % of it; as played: with the moves "
    "that try things out; as signed: by the contracts"
)
"""What the columns and the cells of the table of claims mean."""

_NO_GAIN = "the exact equilibrium leaves the curator no gain"


def interval(values: FloatArray, confidence: float = SHOWN) -> tuple[float, float]:
    """Mean of one value per seed, and half of its confidence interval (Student's t)."""
    half = half_width(values, confidence) if len(values) > 1 else math.inf
    return float(values.mean()), half


def shown(values: FloatArray, digits: int) -> str:
    """The interval of one value per seed as text, with the given decimals."""
    mean, half = interval(values)
    return f"{mean:,.{digits}f} ± {half:,.{digits}f}"


@dataclass(frozen=True)
class ClaimVerdict:
    """One claim on one scenario: seen or not, and the numbers."""

    claim: str
    scenario: str
    seen: str
    numbers: str


def positive(values: FloatArray) -> str:
    """Whether the mean of one value per seed is above zero, beyond doubt."""
    if not len(values):
        return OPEN
    mean, half = interval(values, DECISIVE)
    if mean - half > 0:
        return YES
    return OPPOSITE if mean + half < 0 else OPEN


def sooner(first: FloatArray, second: FloatArray) -> str:
    """Whether the first is sooner, seed by seed: a sign test, in which never is later than any."""
    wins, losses = int((first < second).sum()), int((first > second).sum())
    if wins + losses == 0 or stats.binomtest(wins, wins + losses).pvalue > 1.0 - DECISIVE:
        return OPEN
    return YES if wins > losses else OPPOSITE


def all_of(verdicts: Sequence[str]) -> str:
    """A claim of several parts: seen if each is, refuted if any is."""
    if all(verdict == YES for verdict in verdicts):
        return YES
    return NO if OPPOSITE in verdicts or NO in verdicts else OPEN


def moves(series: FloatArray, sign: int) -> tuple[str, float]:
    """Whether series (a row per seed) keep moving up (or down), and what part they turn back by."""
    count = min(20, series.shape[1])
    parts = np.array(
        [[row[0], *(part.mean() for part in np.array_split(row, count))] for row in sign * series]
    )
    way = parts.max(axis=1) - parts[:, 0]
    back = float(np.mean((parts.max(axis=1) - parts[:, -1]) / np.where(way > 0, way, 1.0)))
    seen = positive(parts[:, -1] - parts[:, 0])
    return ("partly" if seen == YES and back > TURN_BACK else seen), back


def judge(trials: Mapping[str, Trials]) -> list[ClaimVerdict]:
    """All claims on the trials of one scenario, by learner."""
    wolf, q, greedy = (trials[name] for name in ("dypp", "q_learning", "greedy"))
    return [
        *(_shape(wolf, series, sign) for series, sign in (("saving", 1), ("payment", -1))),
        _speed("Greedy converges fastest", greedy, [wolf, q]),
        _quality(greedy, wolf, q),
        _speed("Q-learning needs the most iterations, WoLF-PHC is faster", wolf, [q]),
        _played_and_signed(
            "WoLF-PHC gives better model utility than Q-learning", wolf.scenario, 1,
            ("saving as played {}", wolf.at_end("saving"), q.at_end("saving"), 3),
            ("quality of the contracts {} %", wolf.quality, q.quality, 1),
        ),
        _played_and_signed(
            "WoLF-PHC gives lower payments than Q-learning", wolf.scenario, -1,
            ("as played {}", wolf.at_end("payment"), q.at_end("payment"), 2),
            ("in the contracts {}", wolf.contract_payment, q.contract_payment, 2),
        ),
        _nash(wolf, q, greedy),
    ]  # fmt: skip


def _shape(wolf: Trials, series: str, sign: int) -> ClaimVerdict:
    last = int(wolf.iteration[-1])
    seen, back = moves(getattr(wolf, series), sign)
    settled = np.isfinite(wolf.settled(last, series))
    if seen == YES and not settled.all():
        seen = f"yes, but settled in {int(settled.sum())} of {len(settled)} seeds only"
    digits = 3 if series == "saving" else 2
    start, end = (shown(at(series), digits) for at in (wolf.at_start, wolf.at_end))
    word = "increasing" if sign > 0 else "decreasing"
    numbers = f"from {start} to {end}"
    if seen == "partly":
        numbers += f", having turned back by {100 * back:.0f} % of the way"
    return ClaimVerdict(
        f"{series.capitalize()}s keep {word}, then settle", wolf.scenario, seen, numbers
    )


def _speed(claim: str, fast: Trials, others: Sequence[Trials]) -> ClaimVerdict:
    last, verdicts, parts = int(fast.iteration[-1]), [], []
    for part in HORIZONS:
        horizon = last // part
        times = {t.learner: t.settled(horizon, "saving", "payment") for t in (fast, *others)}
        verdicts.append(all_of([sooner(times[fast.learner], times[t.learner]) for t in others]))
        medians = ", ".join(f"{_name(name)} {_median(time)}" for name, time in times.items())
        parts.append(f"after {horizon:,}: {medians}")
    same = len(set(verdicts)) == 1
    seen = verdicts[0] if same else "depends on the length of the run"
    return ClaimVerdict(claim, fast.scenario, seen, "settled (median) " + "; ".join(parts))


def _quality(greedy: Trials, wolf: Trials, q: Trials) -> ClaimVerdict:
    seen = all_of([positive(other.quality - greedy.quality) for other in (wolf, q)])
    each = ", ".join(f"{shown(t.quality, 1)} % ({_name(t.learner)})" for t in (greedy, wolf, q))
    claim = "Greedy has the worst model performance"
    return ClaimVerdict(claim, greedy.scenario, seen, f"quality of the contracts {each}")


def _played_and_signed(
    claim: str, scenario: str, sign: int, *pairs: tuple[str, FloatArray, FloatArray, int]
) -> ClaimVerdict:
    """A claim on what is played (exploration included) and on what is signed in the end.

    Each pair has the words for its numbers, what should be more (or, by ``sign``, less), what it is
    compared with, and how many decimals to show.
    """
    played, signed = (positive(sign * (first - second)) for _, first, second, _ in pairs)
    seen = played if played == signed else f"as played: {played}; as signed: {signed}"
    numbers = "; ".join(
        words.format(" against ".join(shown(one, digits) for one in both))
        for words, *both, digits in pairs
    )
    return ClaimVerdict(claim, scenario, seen, numbers)


def _nash(wolf: Trials, q: Trials, greedy: Trials) -> ClaimVerdict:
    """Equal within 5 % of the equilibrium's gain, or not."""
    claim = "WoLF-PHC converges to the Nash equilibrium"
    gainful = wolf.equilibrium_gain > 0
    if not gainful.any():
        numbers = f"curator's gain {shown(wolf.contract_gain, 2)}; {_NO_GAIN}"
        return ClaimVerdict(claim, wolf.scenario, OPEN, numbers)
    share = wolf.contract_gain[gainful] / wolf.equilibrium_gain[gainful]
    near = positive(np.minimum(share - 0.95, 1.05 - share))
    exploitable = ", ".join(
        f"{shown(t.exploitability, 3)} ({_name(t.learner)})" for t in (wolf, q, greedy)
    )
    numbers = (
        f"curator's gain {shown(wolf.contract_gain, 2)}, {shown(100 * share, 0)} % of the exact "
        f"equilibrium's; exploitability {exploitable}"
    )
    return ClaimVerdict(claim, wolf.scenario, NO if near == OPPOSITE else near, numbers)


def judge_adaptation(adaptations: Sequence[Adaptation]) -> list[ClaimVerdict]:
    """The claim that learners adapt to new preferences, one verdict per change."""
    out = []
    for change in dict.fromkeys(one.change for one in adaptations):
        by_learner = {one.learner: one for one in adaptations if one.change == change}
        wolf = by_learner["dypp"]
        apart = wolf.after - RECOVERED * wolf.before
        seen = positive(apart[~np.isnan(apart)])
        claim = f"WoLF-PHC adapts when all privacy costs {change}"
        shares = ", ".join(_adapted(one) for one in by_learner.values())
        numbers = f"share of the equilibrium's gain before and after: {shares}"
        seen = NO if seen == OPPOSITE else seen
        out.append(ClaimVerdict(claim, wolf.scenario, seen, numbers))
    return out


def _adapted(one: Adaptation) -> str:
    back = one.iterations[~np.isnan(one.iterations)]
    again = f"{len(back)} of {len(one.after)} seeds recover"
    if len(back):
        again += f", in the median in {np.median(back):,.0f} iterations"
    known = ~np.isnan(one.before + one.after)
    if not known.any():
        return f"{_NO_GAIN} ({_name(one.learner)}; {again})"
    before, after = (shown(100 * share[known], 0) for share in (one.before, one.after))
    return f"{before} % and {after} % ({_name(one.learner)}; {again})"


def _name(learner: str) -> str:
    return {"dypp": "WoLF-PHC", "q_learning": "Q-learning"}.get(learner, learner)


def _median(times: FloatArray) -> str:
    middle = float(np.sort(times)[len(times) // 2])
    return "never" if math.isinf(middle) else f"{middle:,.0f}"
