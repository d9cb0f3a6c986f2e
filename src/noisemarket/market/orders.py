"""A scenario made ready: its job, its training plan, its budgets, and what its money buys."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import (
    WEIGHTINGS,
    PublicFigures,
    Weighting,
    capped,
    counted,
    default_weight_cap,
    effective_noise,
    linear_steps,
    network_steps,
    owner_weights,
)
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.engine import Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.partition import (
    Partition,
    absent_partition,
    dirichlet_partition,
    own_partition,
)
from noisemarket.federated.protections import Protection
from noisemarket.federated.rounds import State, TrainingPlan
from noisemarket.files import digest
from noisemarket.game.environment import Contracts, Environment
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.ledger.money import prices, to_micro
from noisemarket.market.negotiation import run_options
from noisemarket.market.worker_processes import check_sendable
from noisemarket.owner.terms import fits, privacy_cap
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.clock import floor_level
from noisemarket.pricing.mechanism import Mechanism
from noisemarket.privacy.accountant import Accountant, PrivacyBudget, PrivacyStatement
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho_for_epsilon
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import AUTO, ModelKind, protection_of
from noisemarket.scenario.schema import TrainingSection

if TYPE_CHECKING:
    from torch import nn


AnyModel: TypeAlias = "ModelMaker | nn.Module | Callable[[], nn.Module]"
"""A model to start from, or what makes one."""


@dataclass(frozen=True)
class Order:
    """A scenario made ready to train. ``names`` are the owners', ``beta`` is their mean non-IID
    degree."""

    job: Job
    plan: TrainingPlan
    budgets: tuple[PrivacyBudget, ...]
    fingerprint: str
    names: tuple[str, ...] = ()
    beta: float = 1.0

    def start(self, job: str = "") -> State:
        """Where training starts; ``job`` is its name in the market."""
        return State.first(self.job.first_weights(), job)

    def statements(self, accountant: Accountant) -> tuple[PrivacyStatement, ...]:
        """What each owner has given up by this account, under its own name."""
        made = [accountant.statement(budget.owner) for budget in self.budgets]
        if self.names:
            made = [replace(one, owner=name) for one, name in zip(made, self.names, strict=True)]
        return tuple(made)


def order(
    scenario: Scenario,
    environment: Environment,
    sigma: FloatArray,
    *,
    data: Dataset | None = None,
    model: AnyModel | None = None,
    partition: Partition | None = None,
    protection: Protection | None = None,
    weighting: Weighting | None = None,
    like: Order | None = None,
) -> Order:
    """Load the data, deal it to the owners, and set up everything that training needs.

    What is given takes the place of what the scenario says. ``like`` is an order of the same
    scenario under other noise: its data is not loaded and dealt out once more.
    """
    training, privacy = scenario.training, scenario.privacy
    if data is None:
        data = load_data(training.data or None) if like is None else like.job.data
    if model is None and training.model == "features":
        data = data.with_features()
    own = [data.sha256.encode()]  # what the scenario does not say
    if partition is None:
        same = like is not None and like.job.data is data
        partition = like.job.partition if like and same else _dealt(scenario, environment, data)
    else:
        own += [np.ascontiguousarray(part, np.int64).tobytes() for part in partition.indices]
    maker = _maker(model, scenario, data)
    if protection is None:
        protection = protection_of(scenario, _kind_of(maker))
    else:
        check_sendable("protection", protection)
        own.append(pickle.dumps(protection))
    first = maker(scenario.seed).first_weights().astype(np.float64)
    if model is not None:
        own.append(first.tobytes())
    job = Job(data, partition, maker, protection, sigma, scenario.seed, privacy.noise)
    neighbours = Neighbours.named(privacy.neighbours)
    budgets = tuple(
        protection.budget(
            owner,
            float(sigma[owner]),
            dimension=first.size,
            records=int(size),
            neighbours=neighbours,
            delta=privacy.delta,
            rho_cap=_cap(scenario),
            simulated=privacy.noise == "simulated",
        )
        for owner, size in enumerate(partition.sizes)
    )
    _check_cap(scenario, budgets)
    beta = math.fsum(environment.population.beta) / len(environment)
    plan = plan_of(training, job, beta, weighting)
    own += [plan.shares.tobytes(), repr((plan.rate, plan.momentum, plan.averaging)).encode()]
    own.append(repr(sorted(protection.settings().items())).encode())
    names = tuple(map(str, environment.population.names))
    mark = _fingerprint(scenario, environment, sigma, own)
    return Order(job, plan, budgets, mark, names, beta)


def plan_of(
    training: TrainingSection, job: Job, beta: float, weighting: Weighting | None = None
) -> TrainingPlan:
    """How a job's updates are weighed and used. What ``training`` says takes the place of the rule,
    ``weighting`` that of the scenario's own."""
    figures = PublicFigures(job.sigma, counted(job.partition.sizes), training.rounds, beta)
    given = owner_weights(weighting or WEIGHTINGS.find(training.weighting)(), figures)
    cap = weight_cap_of(training, len(job))
    shares = capped(given, cap)
    if _kind_of(job.model) == "features":
        longest = max(job.protection.reach(int(size)) for size in job.partition.sizes)
        noise = effective_noise(job.sigma, shares) / math.sqrt(len(job))
        steps = linear_steps(noise, longest, training.rounds)
    else:
        steps = network_steps(job.sigma, shares)
    if training.server == "plain":
        steps = replace(steps, rate=1.0, averaging=0.0)
    return TrainingPlan(training.rounds, shares, steps.averaging, steps.rate, steps.momentum, cap)


def weight_cap_of(training: TrainingSection, owners: int) -> float:
    """The largest share of one of so many owners in the mean of a round."""
    said = training.weight_cap
    return default_weight_cap(owners) if said == AUTO else float(said)


def given_sigma(sigma: ArrayLike, environment: Environment) -> FloatArray:
    """One noise scale for all owners, or one for each, checked."""
    owners, names = len(environment), environment.population.names
    try:
        values = np.asarray(sigma, dtype=float)
    except (TypeError, ValueError):
        raise BadInput("sigma", sigma, "give a number, or one for each owner.") from None
    if values.shape not in ((), (owners,)):
        remedy = f"give one number, or one for each of the {owners:,} owners."
        raise BadInput("sigma", f"values of shape {values.shape}", remedy)
    highest = environment.levels.sigma_max
    bad = np.flatnonzero(~((values >= 0.0) & (values <= highest * (1 + 1e-9))))
    if bad.size:
        owner = f"owner {names[bad[0]]}" if values.ndim else "all owners"
        remedy = f"give a number from 0 to sigma_max = {highest:g}."
        raise BadInput(f"sigma of {owner}", float(values.flat[bad[0]]), remedy)
    return np.broadcast_to(values, owners).copy()


def _fingerprint(
    scenario: Scenario, environment: Environment, sigma: FloatArray, own: Sequence[bytes] = ()
) -> str:
    """What tells this job from any other: how it trains, its owners and their contracts.

    Owners and data (in ``own``) count by what they are, not by the files they were read from. What
    owners keep to themselves is not part of it: a reader of the checkpoint could guess it.
    """
    population = environment.population
    beside = {"rho_budget", "epsilon_budget"}  # what owners allow says nothing of how they train
    unset = beside if scenario.privacy.settings else beside | {"settings"}
    settings = {
        "seed": scenario.seed,
        "training": scenario.training.model_dump(mode="json", exclude={"data"}),
        "privacy": scenario.privacy.model_dump(mode="json", exclude=unset),
        "names": list(map(str, population.names)),
    }
    figures = (population.beta, population.data_size, sigma)
    parts = [np.ascontiguousarray(values, dtype=float).tobytes() for values in figures]
    return digest(json.dumps(settings).encode(), *parts, *own).hex()


def given_partition(given: Partition | Sequence[ArrayLike], data: Dataset) -> Partition:
    """Index lists as a partition: nobody empty, no record with two owners."""
    lists = given.indices if isinstance(given, Partition) else given
    indices = [np.asarray(own) for own in lists]
    if not indices:
        raise BadInput("partition", "nothing", "give the indices of at least one owner.")
    records = len(data.train_labels)
    for owner, own in enumerate(indices):
        field = f"partition of owner {owner}"
        if own.ndim != 1 or own.size == 0 or not np.issubdtype(own.dtype, np.integer):
            shown = f"{own.dtype} values of shape {own.shape}"
            raise BadInput(field, shown, "give a list of whole numbers, at least one.")
        wrong = own[(own < 0) | (own >= records)]
        if wrong.size:
            raise BadInput(field, int(wrong[0]), f"give indices from 0 to {records - 1}.")
    held = np.bincount(np.concatenate(indices), minlength=records)
    if held.max() > 1:
        twice = int(held.argmax())
        raise BadInput("partition", twice, "is held twice: give each record to one owner.")
    if isinstance(given, Partition):
        return given
    return Partition(tuple(np.sort(own).astype(np.int64) for own in indices))


def _dealt(scenario: Scenario, environment: Environment, data: Dataset) -> Partition:
    population = environment.population
    if data.holders is not None and not data.owners:  # they are on their owners' hosts
        return absent_partition(population.data_size)
    if data.holders is not None:
        names = list(map(str, population.names))
        if sorted(names) != sorted(data.owners):
            odd = sorted(set(names) ^ set(data.owners))[0]
            remedy = "is an owner of the population or of the records, but not of both."
            raise BadInput("owner", odd, remedy)
        place = {name: number for number, name in enumerate(data.owners)}
        order = [place[name] for name in names]
        return own_partition(data.holders, order)
    rng = np.random.default_rng(np.random.SeedSequence(scenario.seed, spawn_key=(7,)))
    owners, sizes = len(environment), population.data_size
    return dirichlet_partition(data.train_labels, owners, population.beta, rng, data_size=sizes)


def network_of(training: TrainingSection, classes: int, side: int) -> ModelMaker:
    """The CNN that a scenario asks for, for square images of that side."""
    from noisemarket.federated.models.cnn import CNN
    from noisemarket.federated.models.torch_model import TorchMaker

    first, second, hidden = training.widths
    plain = training.network == "plain"
    return TorchMaker(
        partial(
            CNN, (first, second), hidden, classes, side,
            downsampling="pool" if plain else "stride", normalise=not plain,
        )
    )  # fmt: skip


def _kind_of(maker: ModelMaker) -> ModelKind:
    """Whose settings suit a model: any other than a linear one is taken for a network."""
    return "features" if isinstance(maker, LinearMaker) else "cnn"


def _maker(model: AnyModel | None, scenario: Scenario, data: Dataset) -> ModelMaker:
    if model is None and scenario.training.model == "features":
        assert data.features is not None
        return LinearMaker(data.classes, data.features.dimension)
    if model is None:
        shape, training = data.image_shape, scenario.training
        if shape != shape[:1] * 2 or not data.channel:
            remedy = "the CNN takes square grey pictures: set training.model to features for "
            remedy += "vectors, or give a model of your own."
            raise BadInput("data", f"items of {' x '.join(map(str, shape))}", remedy)
        return network_of(training, data.classes, shape[0])
    if isinstance(model, ModelMaker):
        return model
    from torch import nn

    from noisemarket.federated.models.torch_model import TorchMaker

    build: Any = partial(copy.deepcopy, model) if isinstance(model, nn.Module) else model
    check_sendable("model", build)
    module = build() if callable(build) else build
    if not isinstance(module, nn.Module):
        remedy = "give a class or function that makes a torch.nn.Module."
        raise BadInput("model", type(module).__name__, remedy)
    return TorchMaker(build)


def _cap(scenario: Scenario) -> float:
    """The rho that an owner may spend in the whole job; infinite without a cap."""
    privacy = scenario.privacy
    caps = [privacy.rho_cap or math.inf]
    if privacy.epsilon_cap > 0:
        caps.append(gaussian_rho_for_epsilon(privacy.epsilon_cap, privacy.delta))
    return min(caps)


def _check_cap(scenario: Scenario, budgets: Sequence[PrivacyBudget]) -> None:
    """Refuse a cap under which nobody can take part in a single round."""
    accountant, privacy = Accountant(budgets), scenario.privacy
    if any(accountant.may_start(budget.owner) for budget in budgets):
        return
    least = min(budget.rho_per_round for budget in budgets)
    kind, value, cost = "rho", privacy.rho_cap, least
    if budgets[0].rho_cap != value:
        kind, value, cost = "epsilon", privacy.epsilon_cap, gaussian_epsilon(least, privacy.delta)
    remedy = f"does not allow one round, which costs {kind} {cost:.4g}: raise it, or the noise."
    if math.isinf(least):
        remedy = "cannot be kept: nothing bounds what a round costs; drop it, or choose another "
        remedy += "protection, or more noise than 0."
    raise BadInput(f"privacy.{kind}_cap", value, remedy)


def within_budget(
    environment: Environment, contracts: Contracts, budget: int | None
) -> Contracts:  # fmt: skip
    """The contracts that a budget in micro-units pays: most gain for the curator per money first.
    The others are left out; None is no limit."""
    if budget is None:
        return contracts
    cost = np.array(prices(environment.levels.payments), dtype=object)[contracts.payment]
    gain = np.zeros(len(contracts))  # over no trade
    for some in environment.slices():
        row = np.arange(some.stop - some.start)
        gains = environment.curator_side(-1, some).gains()
        gain[some] = gains[row, contracts.saving[some], contracts.payment[some]]
    worth = gain / np.maximum(cost.astype(float), 1.0)
    taken, left = np.ones(len(contracts), dtype=bool), budget
    for index in np.argsort(-worth, kind="stable"):
        if cost[index] <= left:
            left -= cost[index]
        else:
            taken[index] = False
    return Contracts(
        np.where(taken, contracts.saving, 0),
        np.where(taken, contracts.payment, 0),
        contracts.signed & taken,
    )


def budget_of(scenario: Scenario) -> int | None:
    """The curator's budget in micro-units."""
    given = scenario.market.budget
    return None if given == "none" else to_micro(float(given), "market.budget")


@dataclass(frozen=True)
class PreparedMarket:
    """A scenario that can be run. ``order`` is the job with all owners' noise."""

    scenario: Scenario
    environment: Environment
    order: Order

    def under(self, contracts: Contracts) -> Order:
        """The job under these contracts; none allows more than its rounds cost."""
        sigma = self.environment.levels.sigmas[contracts.saving]
        agreed = order(self.scenario, self.environment, sigma, like=self.order)
        rounds = agreed.plan.rounds
        for budget, name in zip(agreed.budgets, agreed.names, strict=True):
            if math.isinf(budget.rho_per_round) and math.isfinite(budget.rho_cap):
                remedy = f"cannot hold for owner {name}, which would add no noise: drop the cap, "
                remedy += "or give owners a population.floor above 0."
                raise BadInput("privacy cap", budget.rho_cap, remedy)
        budgets = tuple(replace(b, rho_cap=privacy_cap(b, rounds)) for b in agreed.budgets)
        return replace(agreed, budgets=budgets)


def prepare(scenario: Scenario, *, secrets: bool = True) -> PreparedMarket:
    """Make a scenario ready to run, or refuse it. With ``secrets`` this machine acts for the owners
    too: the scenario must say what only they know."""
    mechanism = find_mechanism(scenario.mechanism)
    check_weighting(mechanism, scenario)
    environment = scenario.environment(secrets=secrets)
    if not secrets:
        check_asks(scenario, environment)
    mechanism.check(environment, run_options(scenario))
    full = np.full(len(environment), scenario.game.sigma_max)
    made = order(scenario, environment, full)
    if secrets and not len(made.job.data.train_labels):
        remedy = "has no owner's records: put a file per owner there, or run over Flower."
        raise BadInput("data", made.job.data.source, remedy)
    return PreparedMarket(scenario, _within_cap(environment, made), made)


def with_caps(scenario: Scenario) -> Environment:
    """The game of a scenario as ``run`` plays it: no owner sells more than its cap allows."""
    environment = scenario.environment()
    if math.isinf(_cap(scenario)):
        return environment  # without the data, which takes a second to load
    full = np.full(len(environment), scenario.game.sigma_max)
    return _within_cap(environment, order(scenario, environment, full))


def _within_cap(environment: Environment, made: Order) -> Environment:
    """The owners, none of which sells more noise than its privacy cap allows for all rounds."""
    if math.isinf(made.budgets[0].rho_cap):
        return environment
    rounds, sigmas = made.plan.rounds, environment.levels.sigmas.tolist()
    least = [
        min((sigma for sigma in sigmas if fits(budget, sigma, rounds)), default=sigmas[0])
        for budget in made.budgets
    ]
    floor = np.maximum(environment.population.floor, least)
    return replace(environment, population=replace(environment.population, floor=floor))


def check_asks(scenario: Scenario, environment: Environment) -> None:
    """Refuse a mechanism that needs what only owners know, where owners answer for themselves."""
    mechanism = find_mechanism(scenario.mechanism)
    if mechanism.knows == "everything":
        remedy = (
            "needs the private numbers of all owners, which owners on their own machines do not "
            "tell: choose a mechanism that asks them, such as clock."
        )
        raise BadInput("mechanism", scenario.mechanism, remedy)
    if "spread" in mechanism.knows and not environment.population.privacy_cost.any():
        remedy = "needs to know how costs are spread, and the population file does not say it."
        raise BadInput("mechanism", scenario.mechanism, remedy)


def check_weighting(mechanism: Mechanism, scenario: Scenario) -> None:
    """Refuse a mechanism that values owners together where updates are not weighted by noise."""
    if mechanism.joint and scenario.training.weighting != "noise":
        remedy = f"{scenario.mechanism} counts on weights by noise: give noise."
        raise BadInput("training.weighting", scenario.training.weighting, remedy)


def more_saving(scenario: Scenario, levels: Levels, saving: int) -> int:
    """The next level of saving that a mechanism could have bought from an owner."""
    if find_mechanism(scenario.mechanism).joint:  # sellers keep the floor, others everything
        return max(saving, floor_level(levels, scenario.market.floor))
    return min(saving + 1, levels.saving_levels)
