"""The paper's claims as testable statements, and what our trials say to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from noisemarket.game.levels import FloatArray
from noisemarket.mechanisms.convergence import RECOVERED
from noisemarket.reproduction.trials import Adaptation, Trials

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % confidence interval (Student's t)."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: FloatArray) -> Interval:
        """The interval of one value per seed."""
        n = len(values)
        t = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) if n > 1 else np.inf
        return cls(float(values.mean()), t * float(values.std(ddof=1)) / np.sqrt(n))

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.mean - self.half > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.mean + self.half < 0

    def shown(self, digits: int) -> str:
        """As text, with the given decimals."""
        return f"{self.mean:,.{digits}f} ± {self.half:,.{digits}f}"


@dataclass(frozen=True)
class Verdict:
    """One claim on one preset: seen or not, and the numbers."""

    claim: str
    preset: str
    seen: str
    numbers: str


def _seen(*wanted_positive: Interval) -> str:
    if all(interval.above_zero for interval in wanted_positive):
        return "yes"
    if any(interval.below_zero for interval in wanted_positive):
        return "no, the opposite" if len(wanted_positive) == 1 else "no"
    return "no difference" if len(wanted_positive) == 1 else "not shown"


def _played_and_signed(played: Interval, signed: Interval) -> str:
    """A verdict on what is played (exploration included) and on what is signed in the end."""
    first, second = _seen(played), _seen(signed)
    return first if first == second else f"as played: {first}; as signed: {second}"


def judge(trials: Mapping[str, Trials]) -> list[Verdict]:
    """All claims on the trials of one preset, by learner."""
    wolf, q, greedy = (trials[name] for name in ("dypp", "q_learning", "greedy"))
    preset, last = wolf.preset, wolf.iteration[-1]
    out = []

    def add(claim: str, seen: str, numbers: str) -> None:
        out.append(Verdict(claim, preset, seen, numbers))

    for series, claim, sign, digits in (
        ("saving", "Savings keep increasing, then settle", 1, 3),
        ("payment", "Payments keep decreasing, then settle", -1, 2),
    ):
        start, end = wolf.at_start(series), wolf.at_end(series)
        change = Interval.of(sign * (end - start))
        settled = bool((wolf.settled < last).mean() > 0.5)
        seen = _seen(change)
        add(
            claim,
            seen if settled or seen != "yes" else "yes, but not settled",
            f"from {Interval.of(start).shown(digits)} to {Interval.of(end).shown(digits)}, "
            f"settled at {_iterations(wolf, last)}",
        )
    speed = (
        f"settled at {_iterations(greedy, last)} (greedy), {_iterations(wolf, last)} (WoLF-PHC), "
        f"{_iterations(q, last)} (Q-learning)"
    )
    add(
        "Greedy converges fastest",
        _seen(Interval.of(wolf.settled - greedy.settled), Interval.of(q.settled - greedy.settled)),
        speed,
    )
    quality = (
        f"quality {Interval.of(greedy.quality).shown(1)} % (greedy), "
        f"{Interval.of(wolf.quality).shown(1)} % (WoLF-PHC), "
        f"{Interval.of(q.quality).shown(1)} % (Q-learning)"
    )
    add(
        "Greedy has the worst model performance",
        _seen(Interval.of(wolf.quality - greedy.quality), Interval.of(q.quality - greedy.quality)),
        quality,
    )
    add(
        "Q-learning needs the most iterations, WoLF-PHC is faster",
        _seen(Interval.of(q.settled - wolf.settled)),
        speed,
    )
    add(
        "WoLF-PHC gives better model utility than Q-learning",
        _played_and_signed(
            Interval.of(wolf.at_end("saving") - q.at_end("saving")),
            Interval.of(wolf.quality - q.quality),
        ),
        f"saving as played {_both(wolf, q, 'saving', 3)}; quality of the contracts "
        f"{Interval.of(wolf.quality).shown(1)} against {Interval.of(q.quality).shown(1)} %",
    )
    add(
        "WoLF-PHC gives lower payments than Q-learning",
        _played_and_signed(
            Interval.of(q.at_end("payment") - wolf.at_end("payment")),
            Interval.of(q.contract_payment - wolf.contract_payment),
        ),
        f"as played {_both(wolf, q, 'payment', 2)}; in the contracts "
        f"{Interval.of(wolf.contract_payment).shown(2)} against "
        f"{Interval.of(q.contract_payment).shown(2)}",
    )
    gap = Interval.of(wolf.equilibrium_gain - wolf.contract_gain)
    share = Interval.of(100 * wolf.contract_gain / wolf.equilibrium_gain)
    add(
        "WoLF-PHC converges to the Nash equilibrium",
        "no" if gap.above_zero else "yes",
        f"curator's gain {Interval.of(wolf.contract_gain).shown(2)}, "
        f"{share.shown(0)} % of the exact equilibrium's; exploitability "
        f"{Interval.of(wolf.exploitability).shown(3)} (WoLF-PHC), "
        f"{Interval.of(q.exploitability).shown(3)} (Q-learning), "
        f"{Interval.of(greedy.exploitability).shown(3)} (greedy)",
    )
    return out


def judge_adaptation(adaptations: Sequence[Adaptation]) -> list[Verdict]:
    """The claim that learners adapt to new preferences, one verdict per change."""
    out = []
    for change in dict.fromkeys(one.change for one in adaptations):
        by_learner = {one.learner: one for one in adaptations if one.change == change}
        wolf = by_learner["dypp"]
        seen = _seen(Interval.of(wolf.after - RECOVERED * wolf.before))
        out.append(
            Verdict(
                f"WoLF-PHC adapts when all privacy costs {change}",
                "market",
                "no" if seen.startswith("no,") else seen,
                "share of the equilibrium's gain before and after: "
                + ", ".join(_adapted(one) for one in by_learner.values()),
            )
        )
    return out


def _adapted(one: Adaptation) -> str:
    name = {"dypp": "WoLF-PHC", "q_learning": "Q-learning"}[one.learner]
    back = one.iterations[~np.isnan(one.iterations)]
    again = f"{len(back)} of {len(one.after)} seeds recover"
    if len(back):
        again += f", in the median in {np.median(back):,.0f} iterations"
    before, after = Interval.of(100 * one.before), Interval.of(100 * one.after)
    return f"{before.shown(0)} % and {after.shown(0)} % ({name}; {again})"


def _iterations(trials: Trials, last: float) -> str:
    settled = trials.settled < last
    text = Interval.of(trials.settled).shown(0)
    if settled.all():
        return text
    return f"{text} ({int((~settled).sum())} of {len(settled)} seeds had not settled)"


def _both(wolf: Trials, q: Trials, series: str, digits: int) -> str:
    first, second = Interval.of(wolf.at_end(series)), Interval.of(q.at_end(series))
    return f"{first.shown(digits)} against {second.shown(digits)}"
