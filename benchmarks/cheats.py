"""Every way to cheat that the market knows, at several contracts: found in which round, and paid?

    python -m benchmarks cheats                    # all cheats, sigma 0.1, 0.3 and 0.6, 30 rounds
    python -m benchmarks cheats --honest           # honest owners only: who is accused or not paid
    python -m benchmarks cheats --poison           # what cheats with the right noise cost
    python -m benchmarks cheats --cost             # what the tests of noise take of a processor
    python -m benchmarks cheats --quick            # two rounds, few owners: shows that all runs

A tenth of the owners has sold noise, down to the sigma of the column; the others keep 0.6. One of
the sellers cheats in every round (two for noise that is shared). Uploads pass through the market's
own inspection, and what is paid follows the market's own rule.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.support.cheats import CHEATS, Fault, FaultyEngine, bearing_mark
from tests.tiny_images import write_images

from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import train
from noisemarket.ledger.contract import Contract
from noisemarket.machine import Effort
from noisemarket.market.inspection import Contributions, UploadInspector
from noisemarket.market.offers import verdicts, work_of
from noisemarket.market.orders import Order, order
from noisemarket.market.training import SerialEngine
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.accountant import Accountant
from noisemarket.scenario import Scenario

KINDS = [kind for kind in CHEATS if kind not in ("zeros", "nan", "huge", "short")]
SIGMAS = 0.1, 0.3, 0.6
KEPT_SIGMA = 0.6
RESULTS = Path(__file__).parent / "results"
OFFERED = "2030-01-01T00:00:00+00:00", "2030-01-02T00:00:00+00:00"


@dataclass(frozen=True)
class Played:
    """What a job came to: per owner the finding, if any, and whether it is paid; the accuracy."""

    found: Mapping[int, Mapping[str, object]]
    refused: Mapping[int, int]
    paid: Mapping[int, bool]
    accuracy: float
    opened: float
    """Per cent of the test records with a backdoor's mark that the model takes for class 0."""


def play(
    made: Order, scenario: Scenario, faults: Sequence[Fault], *, inspected: bool = True
) -> Played:
    """Train a job with these cheats under the market's inspection, or under none."""
    contracts = contracts_of(made, scenario)
    rounds = made.plan.rounds
    state = made.start()
    watch = UploadInspector(
        contracts, scenario.market.false_alarm, rounds, state.weights.size,
        protection=made.job.protection,
    )  # fmt: skip

    added = Contributions(made, {})

    def inspect(number: int, weights: Weights, uploads: dict[int, Upload]) -> dict[int, str]:
        refused = watch.inspect(number, uploads) if inspected else {}
        added.bound(number, weights, uploads, refused)
        return refused

    with FaultyEngine(_QuickEngine(made.job), faults, made.job) as engine:
        for _ in train(
            engine, made.job, Accountant(made.budgets), made.plan, state, None, inspect,
            lambda _: watch.present(),
        ):  # fmt: skip
            pass
    came = ((result.delivered, result.refused) for result in state.results)
    judged = verdicts(contracts, came, watch)
    refused: dict[int, int] = {}
    for result in state.results:
        for owner, _ in result.refused:
            refused.setdefault(owner, result.number)
    return Played(
        watch.accused,
        refused,
        {
            owner: one.kept and contracts[owner].owed(one.delivered) > 0
            for owner, one in zip(contracts, judged, strict=True)
        },
        state.results[-1].averaged.accuracy if state.results[-1].averaged else 0.0,
        _opened(made, state.averaged),
    )


class _QuickEngine(SerialEngine):
    """Computes the features of a job's data once for all jobs on them."""

    known: ClassVar[dict[int, dict[str, Any]]] = {}

    def _arrays(self) -> dict[str, Any]:
        fixed = self.known.setdefault(id(self._job.data), {})
        if not fixed:
            fixed |= super()._arrays()
        uploads = np.zeros((len(self._job), self._first.size), np.float32)
        return {**fixed, "weights": self._first.copy(), "uploads": uploads}


@cache
def _marked(data: Dataset) -> Any:
    """Test records of other classes than 0, with the mark of a backdoor."""
    others = np.flatnonzero(data.test_labels != 0)[:2000]
    return data.ready(bearing_mark(data.test_images[others]))


def _opened(made: Order, weights: Weights) -> float:
    model, inputs = made.job.model(made.job.seed), _marked(made.job.data)
    right, _ = model.score(weights.astype(np.float32), inputs, np.zeros(len(inputs), np.int64))
    return 100.0 * right / len(inputs)


def contracts_of(made: Order, scenario: Scenario) -> dict[int, Contract]:
    """A contract for every owner, each paying 1, as the market would draw it up."""
    same = {
        **work_of(scenario, len(made.names)), "job": "job", "owner_key": "0" * 64,
        "curator_key": "1" * 64,
        "payment": 10**6, "offered_at": OFFERED[0], "expires_at": OFFERED[1],
    }  # fmt: skip
    return {
        index: contract_of(
            {**same, "owner": name, "saving": KEPT_SIGMA - sigma, "sigma": sigma}, budget, int(size)
        )
        for index, (name, sigma, budget, size) in enumerate(
            zip(made.names, made.job.sigma.tolist(), made.budgets, made.job.partition.sizes,
                strict=True)
        )
    }  # fmt: skip


class Jobs:
    """Jobs of one size, with data loaded and dealt out once for each non-IID degree."""

    def __init__(self, owners: int, rounds: int, protection: str, data: str = "") -> None:
        self._owners, self._rounds, self._data = owners, rounds, {"data": data} if data else {}
        self._protection = protection
        self._made: dict[tuple[float, int], Order] = {}

    def scenario(self, beta: float = 1.0, seed: int = 1, **more: object) -> Scenario:
        """The scenario of a job."""
        return Scenario.from_preset(
            "market", owners=self._owners, rounds=self._rounds, beta=beta, seed=seed,
            noise="simulated", protection=self._protection, **self._data, **more,
        )  # fmt: skip

    def order(self, scenario: Scenario, sigma: float, sellers: int) -> Order:
        """The job in which the first owners have sold down to this sigma."""
        beta, noise = float(scenario.population.beta), np.full(self._owners, KEPT_SIGMA)  # type: ignore[arg-type]
        noise[:sellers] = sigma
        environment, key = scenario.environment(), (beta, scenario.seed)
        made = order(scenario, environment, noise, like=self._made.get(key))
        self._made.setdefault(key, made)
        return made


def campaign(jobs: Jobs, owners: int, kinds: Sequence[str]) -> Table:
    """A row for each way to cheat."""
    table = Table("cheat", *(f"sigma {sigma:g}" for sigma in SIGMAS))
    for kind in kinds:
        cells = []
        for sigma in SIGMAS:
            scenario = jobs.scenario()
            made = jobs.order(scenario, sigma, max(2, owners // 10))
            faults = [Fault(1, kind)] + ([Fault(0, kind)] if kind == "shared_noise" else [])
            cells.append(_cell(play(made, scenario, faults)))
        table.add_row(kind, *cells)
    return table


def _cell(seen: Played) -> str:
    if 1 in seen.found:
        found = seen.found[1]
        evidence = found["evidence"]
        test = evidence.get("test", "length") if isinstance(evidence, dict) else "length"
        return f"round {found['round']}, {test}"
    paid = "paid" if seen.paid[1] else "not paid"
    if 1 in seen.refused:
        return f"refused from round {seen.refused[1]}, {paid}"
    return paid


def honest(owners: int, rounds: int, protection: str, seeds: int) -> list[dict[str, Any]]:
    """Who of honest owners is accused, and who is not paid, at several non-IID degrees.

    The tests see noise, not records: there are few of these, so that there can be many jobs.
    """
    images = write_images(Path(tempfile.mkdtemp()), 100 * owners, 100)
    jobs, rows = Jobs(owners, rounds, protection, str(images)), []
    some = max(1, owners // 10)
    for beta, (sigma, sellers) in product(
        (0.1, 1.0, 10.0), ((0.1, some), (0.1, owners), (0.3, owners), (0.6, owners))
    ):
        row: dict[str, Any] = {"beta": beta, "sigma": sigma, "sellers": sellers, "jobs": seeds}
        row |= {"owners": seeds * owners, "accused": 0, "unpaid": 0}
        for seed in range(1, seeds + 1):
            scenario = jobs.scenario(beta, seed)
            seen = play(jobs.order(scenario, sigma, sellers), scenario, [])
            row["accused"] += len(seen.found)
            row["unpaid"] += sum(not paid for paid in seen.paid.values())
        rows.append(row)
    return rows


def honest_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of ``honest``."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


POISONS = "push", "soft_push", "wrong_labels", "free_rider", "backdoor"
"""Cheats whose noise is right: no test of noise can find them, and they are paid."""

RECORDS, TESTED = 20_000, 2000
"""Of MNIST: for all owners together, and for the test."""

SOLD = {"a tenth": 0.1, "all": 1.0}
"""Which part of the owners has sold down to the sigma of a row."""


def poison(sizes: Sequence[int], rounds: int, seeds: int) -> list[dict[str, Any]]:
    """Accuracy under cheats with the right noise, under the market's own defaults.

    The cheats are among the sellers, whose weight is the largest.
    """
    rows = []
    images = write_images(Path(tempfile.mkdtemp()), RECORDS, TESTED)
    for owners in sizes:
        jobs = Jobs(owners, rounds, "per_record", str(images))
        for (name, part), sigma in product(SOLD.items(), SIGMAS):
            if name == "all" and (sigma == KEPT_SIGMA or owners > 20):
                continue  # where all keep 0.6, nobody has sold
            for kind, cheats in _cases(owners):
                row: dict[str, Any] = {"owners": owners, "sold": name, "sigma": sigma}
                row |= {"cheat": kind, "cheats": cheats}
                row |= {"accuracies": [], "opened": [], "paid": 0}
                for seed in range(1, seeds + 1):
                    scenario = jobs.scenario(1.0, seed)
                    made = jobs.order(scenario, sigma, max(2, round(part * owners)))
                    faults = [Fault(owner, kind) for owner in range(cheats)]
                    seen = play(made, scenario, faults)
                    row["accuracies"].append(round(seen.accuracy, 2))
                    row["opened"].append(round(seen.opened, 1))
                    row["paid"] += sum(seen.paid[owner] for owner in range(cheats))
                rows.append(row)
                print(row, flush=True)
    return rows


def _cases(owners: int) -> list[tuple[str, int]]:
    """None, one, 5 % and 20 % of the owners."""
    counts = sorted({1, max(1, owners // 20), max(1, owners // 5)})
    return [("none", 0), *product(POISONS, counts)]


def poison_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The mean accuracies of ``poison``."""
    table = Table(
        "owners", "sold", "sigma", "cheat", "cheats", "accuracy", "backdoor opens", "paid"
    )
    for row in rows:
        named = (row[name] for name in ("owners", "sold", "sigma", "cheat", "cheats"))
        means = (f"{np.mean(row[name]):.1f}" for name in ("accuracies", "opened"))
        table.add_row(*map(str, named), *means, str(row["paid"]))
    return table


def store(
    rows: Sequence[Mapping[str, Any]], command: str, effort: Effort, out: Path, **more: object
) -> None:
    """Keep rows for docs/explanation/results.md."""
    document = {"command": f"python -m benchmarks cheats {command}", **effort.as_dict(), **more}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps(document)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n"
    out.write_text(text, encoding="utf-8")
    print(f"Stored: {out}")


def cost(sizes: Sequence[int] = (100, 1000, 10_000)) -> Table:
    """Processor time of the tests of uploads in a round, beside that of training."""
    table = Table("owners", "checks, ms an owner", "kept, MB")
    scenario = Scenario.from_preset("market", noise="simulated")
    environment = scenario.environment()
    made = order(scenario, environment, np.full(len(environment), KEPT_SIGMA))
    contracts, dimension = contracts_of(made, scenario), made.start().weights.size
    for owners in sizes:
        rng = np.random.default_rng(1)
        same = {owner: contracts[owner % len(contracts)] for owner in range(owners)}
        watch = UploadInspector(same, 1e-3, 30, dimension)
        for number in (1, 2):
            sent = rng.standard_normal((owners, dimension), dtype=np.float32)
            uploads = dict(enumerate(sent * np.float32(KEPT_SIGMA)))
            began = time.process_time()
            watch.inspect(number, uploads)
            took = time.process_time() - began
        kept = sum(array.nbytes for array in watch.arrays.values())
        table.add_row(f"{owners:,}", f"{1e3 * took / owners:.2f}", f"{kept / 1e6:.0f}")
    with SerialEngine(made.job) as engine:
        weights = engine.first_weights()
        engine.train(1, weights, range(len(environment)))
        began = time.process_time()
        engine.train(2, weights, range(len(environment)))
        took = time.process_time() - began
    table.add_row("training", f"{1e3 * took / len(environment):.2f}", "")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--owners", type=int, help="by default 100, with --honest 10")
    parser.add_argument("--rounds", type=int, help="by default 30, with --honest 5")
    parser.add_argument("--protection", default="sharded", help="sharded or dp_sgd")
    parser.add_argument("--seeds", type=int, help="of --poison, by default 3; of --honest, 17")
    parser.add_argument("--kind", action="append", choices=KINDS, help="these cheats only")
    parser.add_argument("--honest", action="store_true", help="204 small jobs: is anybody accused?")
    parser.add_argument("--poison", action="store_true")
    parser.add_argument("--cost", action="store_true", help="what the tests of noise take")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="where --poison and --honest store theirs")
    given = parser.parse_args(arguments)
    usual = (10, 5, 17) if given.honest else (100, 30, 3)
    owners, rounds, seeds = (
        said or usual[at] for at, said in enumerate((given.owners, given.rounds, given.seeds))
    )
    if given.quick:
        owners, rounds, seeds = 20, 2, 1
    began, effort = time.monotonic(), Effort()
    if given.cost:
        table = cost((100, 1000) if given.quick else (100, 1000, 10_000))
    elif given.honest:
        rows = honest(owners, rounds, given.protection, seeds)
        table = honest_table(rows)
        if given.out or not given.quick:
            out = given.out or RESULTS / "honest-owners.json"
            store(rows, "--honest", effort, out, owners=owners, rounds=rounds)
    elif given.poison:
        rows = poison((20,) if given.quick else (20, 100), rounds, seeds)
        table = poison_table(rows)
        if given.out or not given.quick:
            out = given.out or RESULTS / "cheats.json"
            store(rows, "--poison", effort, out, rounds=rounds, seeds=seeds)
    else:
        table = campaign(Jobs(owners, rounds, given.protection), owners, given.kind or KINDS)
    Console(width=160 if not sys.stdout.isatty() else None).print(table)
    print(f"{owners} owners, {rounds} rounds, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
