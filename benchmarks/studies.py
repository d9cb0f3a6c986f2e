"""Studies beside the campaign, each stored as benchmarks/results/STUDY.json.

    python -m benchmarks studies sensitivity   # what the paper leaves open, one setting at a time
    python -m benchmarks studies best          # the learners at their best: a sweep
    python -m benchmarks studies adaptation    # privacy costs halve or double half-way
    python -m benchmarks studies epsilon       # owners who count epsilon: clock, bisection, DyPP
    python -m benchmarks studies fashion       # Fashion-MNIST: accuracy over noise, clock and DyPP
    python -m benchmarks studies uneven        # few sellers of uneven data
    python -m benchmarks studies lying         # what owners gain by lying, without a budget
    python -m benchmarks studies per-record    # accuracy of the default protection by epsilon
    python -m benchmarks studies gain-per-money  # the clock for at most 120 against DyPP for 300

docs/explanation/results.md is made from what they store. Trainings are kept in ``runs/`` and not
repeated.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import noisemarket as nm
from benchmarks.campaign import BEST, ON_FEATURES, Settings, compared, training_file
from noisemarket.federated.data_files import load_data
from noisemarket.machine import Effort
from noisemarket.market.local_engine import SerialEngine
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import plan_of
from noisemarket.market.summary import deployed
from noisemarket.market.training import carry_out
from noisemarket.pricing import MECHANISMS
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.zcdp import Neighbours, sigma_for_epsilon
from noisemarket.scenario import Scenario, load_scenario
from noisemarket.scenario.account import protection_of
from noisemarket.study.compare import Plan
from noisemarket.study.lying import mean_and_most, most_gained_by_lying
from noisemarket.study.results import NO_TRADE, Row, half_width, means, paired_p
from noisemarket.study.trainings import Orders, TrainingFile, TrainingTask

RESULTS = Path(__file__).parent / "results"
EXAMPLES = Path(__file__).parent.parent / "examples"
CHANGING = EXAMPLES / "changing.toml"
FASHION = "/usr/share/datasets/fashion-mnist"
LEARNERS = ("dypp", "q_learning")
Rows = list[dict[str, Any]]

LOWER = 0.05
"""The floor of sellers in the second run of the clock auction of ``gain``."""

EPSILONS = (0.093, 0.2, 0.66, 1.07, 1.41)
"""Of every owner in ``per_record``, at the scenario's delta and rounds."""

EVEN = 1e9
"""A beta at which weights count no difference between owners."""


def sensitivity(seeds: int, _workers: int | None) -> dict[str, Any]:
    """One setting at a time: the curator's gain by contract, with the exact equilibrium's."""
    base = {"surface": "printed", "iterations": 10_000}
    varied: dict[str, Sequence[Any]] = {
        "learning_rate": (0.05, 0.1, 0.2, 0.4, 0.8),
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


def best(seeds: int, _workers: int | None) -> dict[str, Any]:
    """How far each learner comes at its best: the sweep of examples/sweep.py."""
    sweep = runpy.run_path(str(EXAMPLES / "sweep.py"))
    rows: Rows = []
    for name, (learner, settings) in sweep["variants"]().items():
        shares = [
            [
                sweep["gain"](learner, seed, learning_rate=rate, **settings)
                for seed in range(1, seeds + 1)
            ]
            for rate in sweep["RATES"]
        ]
        rows.append({"variant": name, "learner": learner, "settings": settings, "shares": shares})
        print(name, [round(float(np.mean(one)), 2) for one in shares], flush=True)
    return {"seeds": seeds, "rates": sweep["RATES"], "rows": rows}


def adaptation(seeds: int, _workers: int | None) -> dict[str, Any]:
    """All privacy costs change half-way: the share of the equilibrium's gain before and after."""
    players: dict[str, tuple[str, dict[str, Any]]] = {}
    for learner in LEARNERS:
        players[learner] = learner, {"iterations": 10_000}
        own = dict(BEST[learner])
        players[f"{learner} at its best"] = learner, own | {"iterations": 2 * own["iterations"]}
    players["bisection"] = "bisection", {"iterations": 10_000}
    rows: Rows = []
    for factor in (0.5, 2.0):
        for name, (mechanism, own) in players.items():
            length = own["iterations"]
            row: dict[str, Any] = {"factor": factor, "player": name, "interactions": length}
            for seed in range(1, seeds + 1):
                change = {"at": length // 2, "scale": {"privacy_cost": factor}}
                scenario = Scenario.from_preset(
                    "market", surface="printed", seed=seed, **own, changes=[change]
                )
                (seen,) = nm.negotiate(scenario, mechanism=mechanism).recoveries
                row.setdefault("before", []).append(seen.efficiency_before)
                row.setdefault("after", []).append(seen.efficiency_after)
                row.setdefault("recovered_after", []).append(seen.iterations)
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows, "changing": changing(seeds)}


def changing(seeds: int) -> Rows:
    """Both changes of examples/changing.toml: iterations until each player is back, None: never."""
    rows: Rows = []
    for mechanism in ("dypp", "phc", "q_learning", "bisection"):
        row: dict[str, Any] = {"player": mechanism, "first": [], "second": [], "gain": []}
        for seed in range(1, seeds + 1):
            scenario = load_scenario(CHANGING, settings={"seed": seed})
            result = nm.negotiate(scenario, mechanism=mechanism)
            first, second = (seen.iterations for seen in result.recoveries)
            row["first"].append(first)
            row["second"].append(second)
            row["gain"].append(result.learned.curator_gain / result.equilibrium.curator_gain)
        rows.append(row)
        print(row, flush=True)
    return rows


def epsilon(seeds: int, workers: int | None) -> dict[str, Any]:
    """Owners whose loss is the epsilon sold, not the noise given up; sellers keep noise 0.2."""
    scenario = Scenario.from_preset("market", payoff="epsilon_loss", floor=0.2)
    file = TrainingFile(training_file("study-epsilon"))
    return {"seeds": seeds, "floor": 0.2, "rows": three(scenario, seeds, file, workers)}


def fashion(seeds: int, workers: int | None) -> dict[str, Any]:
    """The same market on harder pictures."""
    scenario = Scenario.from_preset("market", data=FASHION, population={"floor": 0.1})
    file = TrainingFile(training_file("study-fashion"))
    rows = three(scenario, seeds, file, workers)
    sigmas = (0.6, 0.3, 0.1, 0.0)
    tasks = [
        TrainingTask(seed, np.full(scenario.population.owners, sigma))
        for seed in range(1, seeds + 1)
        for sigma in sigmas
    ]
    file.train(scenario, tasks, workers=workers)
    ends = [file.results[task.key].accuracies[-1] for task in tasks]
    by_sigma = [
        {"sigma": sigma, "accuracies": ends[place :: len(sigmas)]}
        for place, sigma in enumerate(sigmas)
    ]
    return {"seeds": seeds, "rows": rows, "by_sigma": by_sigma}


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


def three(scenario: Scenario, seeds: int, file: TrainingFile, workers: int | None) -> Rows:
    """Clock, bisection and DyPP at their best under two budgets, a short row for each case."""
    plan = Plan(("clock", "bisection", "dypp"), (100.0, 300.0), tuple(range(1, seeds + 1)))
    names = ("mechanism", "budget", "seed", "paid", "sellers", "accuracy", "epsilon_sold")
    rows = compared(scenario, plan, ON_FEATURES, file, workers).rows()
    return [{name: getattr(row, name) for name in names} for row in rows]


def gain(seeds: int, workers: int | None) -> dict[str, Any]:
    """What a unit of money buys: the clock auction for at most 120 against DyPP for about 300.

    On the surface of the features DyPP finds no trade that pays and spends nothing; so it plays on
    the surface of the CNN, on which it would spend more than 300: by default, with the best
    settings of the sweep, and with these where all owners keep the noise that the sellers of the
    clock keep.
    """
    numbers, file = tuple(range(1, seeds + 1)), TrainingFile(training_file("gain-per-money"))
    market, lower = Scenario.from_preset("market"), Scenario.from_preset("market", floor=LOWER)
    clock, papers = (Plan((name,), (budget,), numbers)
                     for name, budget in (("clock", 120.0), ("dypp", 300.0)))  # fmt: skip
    by_default: Settings = {"dypp": {"surface": "sharded-mnist"}}
    kept = Scenario.from_preset("market", population={"floor": LOWER})
    runs: dict[str, tuple[Scenario, Plan, Settings]] = {
        "no trade": (market, Plan((NO_TRADE,), (None,), numbers), {}),
        "clock, at most 120": (market, clock, {}),
        f"clock, at most 120, floor {LOWER:g}": (lower, clock, {}),
        "DyPP by default, at most 300": (market, papers, by_default),
        "DyPP at its best, at most 300": (market, papers, ON_FEATURES),
        f"DyPP at its best, at most 300, floor {LOWER:g}": (kept, papers, ON_FEATURES),
        "full knowledge, at most 120": (market, replace(clock, mechanisms=("best_portfolio",)), {}),
    }
    found: dict[str, list[Row]] = {}
    for name, (scenario, plan, own) in runs.items():
        own = {key: value for key, value in own.items() if key in plan.mechanisms}
        rows = compared(scenario, plan, own, file, workers).rows()
        found[name] = [row for row in rows if row.mechanism == plan.mechanisms[0]]
        print(name, [round(row.accuracy, 2) for row in found[name]], flush=True)
    spent = round(sum(one.cpu_seconds for one in file.results.values()))
    lines = [gain_line(name, some, found["no trade"]) for name, some in found.items()]
    best = dict(BEST["dypp"])
    return {"dypp": best, "floor": LOWER, "training_cpu_seconds": spent, "rows": lines}


def gain_line(name: str, rows: list[Row], nothing: list[Row]) -> dict[str, Any]:
    """Means over the seeds, with half of the 95 % interval; gains are paired with no trade."""
    (mean,) = means(rows)
    gains = [one.accuracy - other.accuracy for one, other in zip(rows, nothing, strict=True)]
    return {
        "name": name,
        "seeds": len(rows),
        "paid": mean["paid"],
        "paid_most": max(row.paid for row in rows),
        "sellers": mean["sellers"],
        "accuracy": mean["accuracy"],
        "accuracies": [row.accuracy for row in rows],
        "gain": float(np.mean(gains)),
        "gain_half_width": half_width(gains),
        "gain_p": paired_p(np.array(gains)),
    }


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
                honest = side.surplus(contracts.saving, contracts.payment)
                row.setdefault("mean", []).append(mean)
                row.setdefault("most", []).append(most)
                row.setdefault("honest", []).append(float(honest.mean()))
                row.setdefault("sellers", []).append(int((contracts.saving > 0).sum()))
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


def uneven(seeds: int, _workers: int | None) -> dict[str, Any]:
    """Few sellers of uneven data: weights by noise with and without the term for it."""
    data = load_data(None).with_features()
    rows: Rows = []
    for beta in (0.1, 0.3, 1.0):
        cases = [(0, 0.6), (2, 0.1), (7, 0.1), (7, 0.05), (20, 0.05)]
        for sellers, sigma in cases:
            row: dict[str, Any] = {"beta": beta, "sellers": sellers, "sigma": sigma}
            for seed in range(1, seeds + 1):
                scenario = Scenario.from_preset("market", beta=beta, seed=seed)
                noise = np.full(scenario.population.owners, scenario.game.sigma_max)
                noise[np.random.default_rng((seed, 11)).permutation(len(noise))[:sellers]] = sigma
                ready = Orders(scenario, data).under(TrainingTask(seed, noise))
                for name, known in {"with": ready.beta, "without": EVEN}.items():
                    plan = plan_of(scenario.training, ready.job, known)
                    done = carry_out(
                        replace(ready, plan=plan), Accountant(ready.budgets), engine=SerialEngine
                    )
                    row.setdefault(name, []).append(deployed(done.rounds[-1]))
            rows.append(row)
            print(row, flush=True)
    return {"seeds": seeds, "rows": rows}


STUDIES: dict[str, tuple[Callable[[int, int | None], dict[str, Any]], int]] = {
    "sensitivity": (sensitivity, 5),
    "best": (best, 3),
    "adaptation": (adaptation, 10),
    "epsilon": (epsilon, 10),
    "fashion": (fashion, 10),
    "per-record": (per_record, 10),
    "uneven": (uneven, 3),
    "lying": (lying, 10),
    "gain-per-money": (gain, 10),
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
