"""What else the owners of a job could have sold, and what training would have come to then.

An experiment for one party that holds all the data and all secrets, as a simulation does. One
baseline trains without noise on the same records, so beside a statement that guarantees epsilon it
guarantees nothing: with one's own data and real noise it has to be asked for, and its files are for
the user alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.aggregation import effective_noise
from noisemarket.federated.data_files import PUBLIC
from noisemarket.federated.rounds import Checkpoint, RoundResult
from noisemarket.files import private_folder
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import FloatArray
from noisemarket.game.value import worth
from noisemarket.ledger.money import MICRO
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import Order, budget_of, plan_of, within_budget
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.run_folder import RunFolder
from noisemarket.market.training import SerialEngine, carry_out, laid_out
from noisemarket.market.worker_processes import in_processes
from noisemarket.pricing import find_mechanism
from noisemarket.privacy.accountant import JournalledAccountant
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.scenario import Scenario

UNIFORM, MARKET, NO_DP = "uniform_dp", "market", "no_dp"
"""All noise (no trade), that of the contracts, and none."""

BASELINES = "baselines/rounds.jsonl"
"""Where a run keeps the rounds of its baselines as they are trained, a line each."""


def harmless(scenario: Scenario) -> bool:
    """Whether training without noise tells nothing: data is public, or all noise is simulated."""
    return scenario.training.data in PUBLIC or scenario.privacy.noise == "simulated"


@dataclass(frozen=True)
class Draw:
    """One baseline to be trained: its name, its noise, and which draw of the noise."""

    name: str
    sigma: FloatArray
    draw: int


class BaselineWork:
    """Trains baselines of a job, here or in another process; tells the result of every round.

    Where weights and the server's steps follow the noise, they follow that of the baseline. The
    noise is simulated; each draw has its own. A stopped baseline resumes.
    """

    def __init__(
        self,
        scenario: Scenario,
        order: Order,
        folder: Path,
        *,
        serial: bool = True,
        workers: int | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        if serial:
            order = replace(order, job=laid_out(order.job))
        self._scenario, self._order = scenario, with_noise(order, scenario, order.job.sigma)
        self._folder, self._serial, self._workers, self._stop = folder, serial, workers, stop

    def __call__(
        self, task: Draw, tell: Callable[[RoundResult], object]
    ) -> tuple[RoundResult, ...]:  # fmt: skip
        seed, stem = self._order.job.seed, task.name
        if task.draw > 1:
            seed, stem = _seed(seed, task.draw), f"{task.name}-{task.draw}"
        named = f"{task.name} {task.draw} {self._order.fingerprint}"
        order = with_noise(self._order, self._scenario, task.sigma, seed)
        order = replace(order, fingerprint=named)
        private_folder(self._folder)
        checkpoint = Checkpoint(self._folder / f"{stem}.npz", named, private=True)
        journal = self._folder / f"{stem}.journal"
        journal.touch(mode=0o600)
        with JournalledAccountant(journal, order.budgets) as accountant:
            done = carry_out(
                order, accountant, checkpoint, engine=SerialEngine if self._serial else None,
                workers=self._workers, watch=tell, stop=self._stop,
            )  # fmt: skip
        if not done.complete:
            raise Interrupted("stopped; what was finished is kept.")
        return done.rounds


def draws_of(others: Sequence[Alternative], draws: int) -> list[Draw]:
    """The baselines to train: no noise has no draws, and the market has trained its first one."""
    tasks = []
    for one in others:
        if one.same_as is None:
            first, last = 2 if one.name == MARKET else 1, 1 if one.name == NO_DP else draws
            tasks += [Draw(one.name, one.sigma, draw) for draw in range(first, last + 1)]
    return tasks


def train_baselines(
    folder: RunFolder,
    outcome: MarketOutcome,
    tasks: Sequence[Draw],
    told: Callable[[Draw, RoundResult], object],
    workers: int | None,
    stop: Callable[[], bool],
) -> dict[str, list[Sequence[RoundResult]]]:
    """The rounds of each baseline, of all its draws; linear models train all at once."""

    def note(line: dict[str, object]) -> None:
        folder.append(BASELINES, json.dumps(line) + "\n", private=True)

    def watch(task: Draw, result: RoundResult) -> None:
        told(task, result)
        note({"baseline": task.name, "draw": task.draw, "result": result.to_dict()})

    scenario = outcome.negotiation.scenario
    path = private_folder((folder.path / BASELINES).parent)
    note({"rounds": scenario.training.rounds * len(tasks)})
    if scenario.training.model == "features":
        work = BaselineWork(scenario, outcome.order, path)
        trained = in_processes(work, tasks, watch, workers=workers, stop=stop)
    else:
        own = BaselineWork(
            scenario, outcome.order, path, serial=False, workers=workers, stop=stop
        )  # fmt: skip
        trained = ((task, own(task, partial(watch, task))) for task in tasks)
    done = {(task.name, task.draw): result for task, result in trained}
    out: dict[str, list[Sequence[RoundResult]]] = {}
    for task in tasks:
        out.setdefault(task.name, []).append(done[task.name, task.draw])
    return out


def with_noise(
    order: Order, scenario: Scenario, sigma: FloatArray, seed: int | None = None
) -> Order:
    """An order with other noise, which is simulated; no cap ends it."""
    seed = order.job.seed if seed is None else seed
    job = replace(order.job, sigma=sigma, noise="simulated", noise_key=None, seed=seed)
    budgets = tuple(
        replace(budget, sigma=float(kept), simulated=True, rho_cap=float("inf"))
        for budget, kept in zip(order.budgets, sigma, strict=True)
    )
    plan = plan_of(scenario.training, job, order.beta)
    return replace(order, job=job, plan=plan, budgets=budgets)


def _seed(seed: int, draw: int) -> int:
    return int(np.random.SeedSequence((seed, draw)).generate_state(1, np.uint64)[0] >> 1)


PAPERS, CLOCK, FULL_KNOWLEDGE = "dypp", "clock", "best_portfolio"
"""What every market is shown beside: the paper's mechanism or, where that is its own, the clock
auction; and the best with all costs known."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """Contracts for the owners of a job, and what they are worth.

    ``effective_noise`` is the one noise of all owners that would leave the mean as noisy.
    ``predicted_value`` (the curator's, by the loss surface) and ``owners_surplus`` are gains over
    no trade; None for noise that nobody agreed to leave out. ``same_as`` names an alternative with
    the same noise, whose training would be the same.
    """

    name: str
    mechanism: str | None
    sigma: FloatArray
    paid: float
    sellers: int
    effective_noise: float
    epsilon: FloatArray
    predicted_value: float | None
    owners_surplus: float | None
    same_as: str | None = None


def alternatives(outcome: MarketOutcome, threads: int | None = None) -> list[Alternative]:
    """The market of a job between no trade and no noise, beside what else could have been bought.

    Beside it stand DyPP (or, where that is the market's own mechanism, the clock auction), as the
    same scenario would run it, and the best that a curator who knew all costs could buy. That has
    the market's budget, or else what the market paid (no limit if it paid nothing), so that money
    compares; with a target, the least money for it. A mechanism that cannot serve the scenario is
    left out, and so is one that counts on weights by noise where updates are weighed otherwise.
    """
    environment, scenario = outcome.negotiation.environment, outcome.negotiation.scenario
    agreed = outcome.negotiation.agreement.contracts
    by_noise = scenario.training.weighting == "noise"
    budget, options = budget_of(scenario), run_options(scenario, threads)
    contracts: dict[str, tuple[str | None, Contracts]] = {
        UNIFORM: ("uniform", Contracts.same(len(environment), 0, 0)),
        MARKET: (scenario.mechanism, within_budget(environment, agreed, budget)),
        NO_DP: (None, Contracts.same(len(environment), environment.levels.saving_levels, 0)),
    }
    beside = CLOCK if scenario.mechanism == PAPERS else PAPERS
    paid = sum(outcome.payments.values())
    for name in (beside, FULL_KNOWLEDGE):
        mechanism = find_mechanism(name)
        if name == scenario.mechanism or (mechanism.joint and not by_noise):
            continue
        if name == FULL_KNOWLEDGE and budget is None and options.demand.target is None and paid:
            options = replace(options, demand=replace(options.demand, budget=paid / MICRO))
            budget = paid
        with suppress(BadInput):
            run = mechanism.run(environment, options)
            contracts[name] = name, within_budget(environment, run.contracts, budget)
    own = (MARKET, CLOCK) if beside == CLOCK else (PAPERS, MARKET)
    valued = {
        name: _valued(name, *contracts[name], environment, outcome)
        for name in (UNIFORM, *own, FULL_KNOWLEDGE, NO_DP)
        if name in contracts
    }
    return _without_repeats(valued)


def _valued(
    name: str,
    mechanism: str | None,
    contracts: Contracts,
    environment: Environment,
    outcome: MarketOutcome,
) -> Alternative:
    figures = worth(environment, contracts)
    levels = environment.levels
    sigma = np.array([levels.sigma_left(int(level)) for level in contracts.saving])
    if name == MARKET:  # on Flower, some owners may not have signed
        sigma = outcome.order.job.sigma
    made = with_noise(outcome.order, outcome.negotiation.scenario, sigma)
    agreed = mechanism is not None
    return Alternative(
        name=name,
        mechanism=mechanism,
        sigma=sigma,
        paid=sum(outcome.payments.values()) / MICRO if name == MARKET else figures.total_payment,
        sellers=int((contracts.saving > 0).sum()) if agreed else 0,
        effective_noise=effective_noise(sigma, made.plan.shares),
        epsilon=epsilons(made),
        predicted_value=figures.predicted_value if agreed else None,
        owners_surplus=figures.owners_surplus if agreed else None,
    )


def epsilons(made: Order) -> FloatArray:
    """The epsilon that each owner gives up if it delivers every round."""
    rho = np.array([budget.rho_per_round for budget in made.budgets]) * made.plan.rounds
    delta, of = made.budgets[0].delta, np.unique(rho)
    each = np.array([gaussian_epsilon(float(one), delta) for one in of])
    return np.asarray(each[np.searchsorted(of, rho)])


def _without_repeats(valued: Mapping[str, Alternative]) -> list[Alternative]:
    """Mark alternatives with the noise of another: one training serves them all."""
    trained: list[Alternative] = []
    same_as: dict[str, str] = {}
    for name in dict.fromkeys((MARKET, UNIFORM, NO_DP, *valued)):
        one = valued[name]
        twin = next((x for x in trained if np.array_equal(x.sigma, one.sigma)), None)
        if twin is None:
            trained.append(one)
        else:
            same_as[name] = twin.name
    return [replace(one, same_as=same_as.get(name)) for name, one in valued.items()]
