"""How the learning rate and the first Q-values decide what is learned.

    python examples/sweep.py                  # about half a minute on two cores
    python examples/sweep.py --seeds 2        # a quick look
    python examples/sweep.py --best           # how far each rule comes at its best, five minutes

For every learning rate and optimism (first Q-values, in the best payoff that a side can conceive)
it plays the market preset with WoLF-PHC and with Q-learning. The table has the per cent of owners
that sign, and the curator's gain over no trade in per cent of the exact equilibrium's: from the
contracts, and as played in the last tenth of the run. All are means over seeds.

With --best it plays longer, with higher first values, with less and more exploration, and on all
shipped surfaces on which trade pays; the table has the gain from the contracts over the learning
rates, as a mean over seeds and surfaces.
"""

from __future__ import annotations

import argparse

import noisemarket as nm

LEARNERS = {"dypp": "WoLF-PHC", "q_learning": "Q-learning"}
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
OPTIMISM = (0.0, 0.5, 1.0, 2.0)
SURFACES = ("printed", "paper-mnist", "sharded-mnist")
LENGTHS = (5_000, 20_000, 80_000)
HIGHER = (1.5, 2.0, 3.0)
EXPLORATION = (0.02, 0.2)


def gain(learner: str, seed: int, **settings: object) -> float:
    """The curator's gain by contract, as a share of the equilibrium's; a mean over surfaces."""
    shares = []
    for surface in SURFACES:
        scenario = nm.Scenario.from_preset("market", surface=surface, seed=seed, **settings)
        result = nm.negotiate(scenario, mechanism=learner)
        exact = result.equilibrium.curator_gain
        shares.append(result.learned.curator_gain / exact if exact > 0.0 else 1.0)
    return sum(shares) / len(shares)


def variants(longest: int = LENGTHS[-1]) -> dict[str, tuple[str, dict[str, object]]]:
    """What may make a learner better: a longer run, higher first values, other exploration."""
    columns: dict[str, tuple[str, dict[str, object]]] = {}
    for learner, name in LEARNERS.items():
        for length in LENGTHS:
            columns[f"{name}, {length:,}"] = (learner, {"iterations": min(length, longest)})
        for first in HIGHER:
            columns[f"{name}, {LENGTHS[-1]:,}, optimism {first:g}"] = (
                learner,
                {
                    "iterations": min(LENGTHS[-1], longest),
                    "optimism": first,
                },
            )
    for share in EXPLORATION:
        columns[f"Q-learning, {LENGTHS[-1]:,}, exploration {share:g}"] = (
            "q_learning", {"iterations": min(LENGTHS[-1], longest), "exploration": share},
        )  # fmt: skip
    return columns


def best(seeds: int, owners: int, longest: int) -> None:
    """Print a line for each variant, with a column for each learning rate."""
    print(f"| | {' | '.join(f'{rate:g}' for rate in RATES)} |\n{'|---' * (1 + len(RATES))}|")
    for name, (learner, settings) in variants(longest).items():
        cells = []
        for rate in RATES:
            runs = [
                gain(learner, seed, owners=owners, learning_rate=rate, **settings)
                for seed in range(1, seeds + 1)
            ]
            cells.append(f"{100 * sum(runs) / len(runs):.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def outcome(learner: str, **settings: float) -> tuple[float, float, float]:
    """Share of owners that sign, and the curator's gain by contract and in the late play."""
    result = nm.negotiate(
        nm.Scenario.from_preset("market", surface="printed", **settings), mechanism=learner
    )
    assert result.agreement.trace is not None
    played = result.agreement.trace.curator_reward
    exact = result.equilibrium.curator_gain
    late = played[-max(1, len(played) // 10) :].mean()
    return result.learned.signed_share, result.learned.curator_gain / exact, late / exact


def main() -> None:
    """Print one line of the table for each learning rate and optimism."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--owners", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--best", action="store_true")
    given = parser.parse_args()
    if given.best:
        best(given.seeds, given.owners, longest=8 * given.iterations)
        return
    figures = ("signed", "contracts", "played")
    heads = [f"{name} {figure}" for name in LEARNERS.values() for figure in figures]
    print(f"| learning rate | optimism | {' | '.join(heads)} |\n{'|---' * 8}|")
    for rate in RATES:
        for optimism in OPTIMISM:
            cells = []
            for learner in LEARNERS:
                rows = [
                    outcome(
                        learner,
                        seed=seed,
                        owners=given.owners,
                        iterations=given.iterations,
                        learning_rate=rate,
                        optimism=optimism,
                    )
                    for seed in range(1, given.seeds + 1)
                ]
                cells += [
                    f"{100 * sum(column) / len(rows):.0f}" for column in zip(*rows, strict=True)
                ]
            print(f"| {rate:g} | {optimism:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
