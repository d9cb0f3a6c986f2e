"""Studies beside the campaign, each stored as benchmarks/results/STUDY.json.

    python -m benchmarks studies sensitivity   # what the paper leaves open, one setting at a time
    python -m benchmarks studies adaptation    # privacy costs halve or double half-way
    python -m benchmarks studies lying         # what owners gain by lying, without a budget
    python -m benchmarks studies per-record    # accuracy of the default protection by epsilon
    python -m benchmarks studies fars          # accuracy by noise where 51 states are the owners

docs/explanation/results.md is made from what they store. Trainings are kept in ``runs/`` and not
repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import noisemarket as nm
from benchmarks.campaign import training_file
from benchmarks.lying import mean_and_most, most_gained_by_lying, surplus
from noisemarket.machine import Effort
from noisemarket.market.negotiation import run_options
from noisemarket.pricing import MECHANISMS
from noisemarket.privacy.zcdp import Neighbours, sigma_for_epsilon
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of
from noisemarket.study.results import half_width
from noisemarket.study.trainings import TrainingFile, TrainingTask

RESULTS = Path(__file__).parent / "results"
LEARNERS = ("dypp", "q_learning")
Rows = list[dict[str, Any]]

EPSILONS = (0.093, 0.2, 0.66, 1.07, 1.41)
"""Of every owner in ``per_record``, at the scenario's delta and rounds."""

ADAPTATION = 12_000
"""Interactions in ``adaptation``: half of them after the change."""


def sensitivity(seeds: int, _workers: int | None) -> dict[str, Any]:
    """One setting at a time: the curator's gain by contract, with the exact equilibrium's."""
    base = {"surface": "printed", "iterations": 10_000}
    varied: dict[str, Sequence[Any]] = {
        "learning_rate": (0.05, 0.1, 0.2, 0.5, 0.8),
        "optimism": (0.0, 0.5, 1.0, 2.0),
        "markup": (0.0, 0.2, 0.5),
        "protocol": ("signed", "simultaneous"),
        "iterations": (2_500, 5_000, 10_000, 20_000, 40_000, 80_000),
    }
    rows: Rows = []
    for name, values in varied.items():
        for value in values:
            row: dict[str, Any] = {"setting": name, "value": value}
            for seed in range(1, seeds + 1):
                given = {**base, name: value, "seed": seed}
                scenario = Scenario.from_preset("market", **given)
                for learner in LEARNERS:
                    result = nm.negotiate(scenario, mechanism=learner)
                    row.setdefault(learner, []).append(result.learned.curator_gain)
                row.setdefault("equilibrium", []).append(result.equilibrium.curator_gain)
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "base": base, "rows": rows}


def adaptation(seeds: int, _workers: int | None) -> dict[str, Any]:
    """All privacy costs change half-way: the share of the equilibrium's gain before and after."""
    players: dict[str, tuple[str, dict[str, Any]]] = {
        "dypp as printed": ("dypp", {"reopen": False}),
        "dypp": ("dypp", {}),
        "q_learning": ("q_learning", {}),
    }
    rows: Rows = []
    for factor in (0.5, 2.0):
        for name, (mechanism, own) in players.items():
            length = ADAPTATION
            row: dict[str, Any] = {"factor": factor, "player": name, "interactions": length}
            for seed in range(1, seeds + 1):
                change = {"at": length // 2, "scale": {"privacy_cost": factor}}
                scenario = Scenario.from_preset(
                    "market",
                    surface="printed",
                    seed=seed,
                    iterations=length,
                    changes=[change],
                    **own,
                )
                (seen,) = nm.negotiate(scenario, mechanism=mechanism).recoveries
                row.setdefault("before", []).append(seen.efficiency_before)
                row.setdefault("after", []).append(seen.efficiency_after)
                row.setdefault("recovered_after", []).append(seen.iterations)
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


def per_record(seeds: int, workers: int | None) -> dict[str, Any]:
    """Accuracy of the default model and protection by the epsilon of every owner; 0: no noise."""
    rows: Rows = []
    for beta, epsilons in ((1.0, (*EPSILONS, 0.0)), (0.1, (1.07,))):
        scenario = Scenario.from_preset("market", beta=beta)
        owners, size = scenario.population.owners, int(scenario.population.data_size)  # type: ignore[arg-type]
        privacy, rounds = scenario.privacy, scenario.training.rounds
        reach = protection_of(scenario).sensitivity(0, size, Neighbours.REPLACE_ONE)
        file = TrainingFile(training_file(f"study-per-record-{beta:g}"))
        for epsilon in epsilons:
            sigma = epsilon and sigma_for_epsilon(reach, epsilon, privacy.delta, rounds)
            tasks = [TrainingTask(seed, np.full(owners, sigma)) for seed in range(1, seeds + 1)]
            file.train(scenario, tasks, workers=workers)
            ends = [file.results[task.key].accuracies[-1] for task in tasks]
            row = {"beta": beta, "epsilon": epsilon or None, "sigma": sigma, "accuracies": ends}
            row |= {"accuracy": float(np.mean(ends)), "half_width": half_width(ends)}
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


def fars(seeds: int, workers: int | None) -> dict[str, Any]:
    """Accuracy with 51 states as owners: all noise, six sellers by the seed, all, no noise."""
    scenario = Scenario.from_preset("fars")
    owners, most = scenario.population.owners, scenario.game.sigma_max
    file = TrainingFile(training_file("study-fars"))
    rows: Rows = []
    for sellers, sigma in ((0, most), (6, 0.1), (owners, 0.1), (owners, 0.0)):
        tasks = []
        for seed in range(1, seeds + 1):
            noise = np.full(owners, most)
            noise[np.random.default_rng((seed, 11)).permutation(owners)[:sellers]] = sigma
            tasks.append(TrainingTask(seed, noise))
        file.train(scenario, tasks, workers=workers)
        ends = [file.results[task.key].accuracies[-1] for task in tasks]
        row = {"sellers": sellers, "sigma": sigma, "accuracies": ends}
        row |= {"accuracy": float(np.mean(ends)), "half_width": half_width(ends)}
        rows.append(row)
        print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


def lying(seeds: int, _workers: int | None) -> dict[str, Any]:
    """What owners gain by lying to each mechanism without a budget, beside what honesty brings."""
    rows: Rows = []
    for model in ("cnn", "features"):
        given = Scenario.from_preset("market", model=model)
        for name in (name for name in MECHANISMS if name not in ("uniform", "no_dp")):
            row: dict[str, Any] = {"surface": given.surface_name(), "mechanism": name}
            for seed in range(1, seeds + 1):
                scenario = given.model_copy(update={"seed": seed, "mechanism": name})
                environment, options = scenario.environment(), run_options(scenario)
                made = MECHANISMS[name].run(environment, options)
                gained = most_gained_by_lying(environment, MECHANISMS[name], options, made)
                mean, most = mean_and_most(gained)
                side, contracts = environment.owner_side(), made.contracts
                honest = surplus(side, contracts.saving, contracts.payment)
                row.setdefault("mean", []).append(mean)
                row.setdefault("most", []).append(most)
                row.setdefault("honest", []).append(float(honest.mean()))
                row.setdefault("sellers", []).append(int((contracts.saving > 0).sum()))
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


STUDIES: dict[str, tuple[Callable[[int, int | None], dict[str, Any]], int]] = {
    "sensitivity": (sensitivity, 5),
    "adaptation": (adaptation, 10),
    "per-record": (per_record, 10),
    "fars": (fars, 3),
    "lying": (lying, 10),
}
"""Each study and over how many seeds."""


def main(arguments: Iterable[str] | None = None) -> None:
    """Make a study and store it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args(None if arguments is None else list(arguments))
    study, seeds = STUDIES[given.study]
    effort = Effort()
    found = study(given.seeds or seeds, given.workers)
    more = f" --seeds {given.seeds}" if given.seeds else ""
    document = {
        "what": (study.__doc__ or "").splitlines()[0],
        "command": f"python -m benchmarks studies {given.study}{more}",
        **effort.as_dict(),
        **{key: value for key, value in found.items() if key != "rows"},
    }
    lines = ",\n".join(json.dumps(row) for row in found["rows"])
    out = given.out or RESULTS / f"{given.study}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        json.dumps(document)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n", encoding="utf-8"
    )
    print(f"Stored: {out}")


if __name__ == "__main__":
    main()
