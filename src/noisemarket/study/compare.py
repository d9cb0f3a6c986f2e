"""Compare mechanisms on the same owners, data and seeds: decide, train, and put both together.

Every mechanism decides in every case (mechanism, budget, seed). Cases that leave the owners of a
seed with the same noise share one training, and trainings of an earlier run are not repeated.
``compare`` does all of it in one call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from noisemarket.errors import BadInput, Interrupted
from noisemarket.files import read_text, write_atomic
from noisemarket.formats import finite
from noisemarket.game.environment import Environment
from noisemarket.game.levels import FloatArray
from noisemarket.game.value import JointValue
from noisemarket.ledger.money import to_micro
from noisemarket.market.baselines import epsilons
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import check_weighting, prepare, with_caps, within_budget
from noisemarket.market.worker_processes import leave_unless_main
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.mechanism import Agreement, Mechanism
from noisemarket.pricing.rule import Rule
from noisemarket.scenario import Scenario, dump_scenario
from noisemarket.study.results import NO_TRADE, Case, Row
from noisemarket.study.trainings import TRAININGS, TrainingFile, TrainingTask, TrainingWork

SEEDS = 10
BUDGETS = (30.0, 100.0, 300.0)
"""What is compared unless the user says otherwise, where the scenario has no budget of its own."""

AnyMechanism = str | Mechanism | type[Rule]
Parts = Mapping[str, Mechanism]
"""The mechanisms of a comparison by the names that they have in it."""


@dataclass(frozen=True)
class Plan:
    """What to compare: mechanisms, budgets (None: no limit) and seeds; and the command for it."""

    mechanisms: tuple[str, ...]
    budgets: tuple[float | None, ...]
    seeds: tuple[int, ...]
    command: str = ""


@contextmanager
def or_left_out(name: str) -> Iterator[None]:
    """Add to the remedy of a refused mechanism that it can be left out."""
    try:
        yield
    except BadInput as bad:
        remedy = f"{bad.remedy[:-1]}, or leave {name} out of the comparison."
        raise BadInput(bad.field, bad.value, remedy) from None


def parts_of(mechanisms: Sequence[AnyMechanism] | None = None) -> dict[str, Mechanism]:
    """The mechanisms by name, those of one's own too; by default all that owners agree to.

    Nobody agrees to train without noise (``no_dp``): it is compared where it is named.
    """
    if mechanisms is None:
        mechanisms = [name for name in MECHANISMS if name != "no_dp"]
    if isinstance(mechanisms, str) or not mechanisms:
        raise BadInput("mechanisms", mechanisms, "give a list of at least one mechanism.")
    parts: dict[str, Mechanism] = {}
    for given in mechanisms:
        part = find_mechanism(given)
        name = given if isinstance(given, str) else part.name
        if name in parts:
            remedy = "is there twice: name each mechanism once, and let one's own differ in name."
            raise BadInput("mechanisms", name, remedy)
        parts[name] = part
    return parts


def check(scenario: Scenario, parts: Parts, *, trained: bool = True) -> None:
    """Refuse what cannot be compared, before anything is done."""
    if trained:
        common = prepare(scenario.model_copy(update={"mechanism": NO_TRADE})).environment
    else:
        common = with_caps(scenario)
    for name, mechanism in parts.items():
        with or_left_out(name):
            if trained:
                check_weighting(mechanism, scenario.model_copy(update={"mechanism": name}))
            mechanism.check(common, run_options(scenario))


# Decisions


@dataclass(frozen=True, eq=False)
class Decision(Case):
    """A mechanism's decision in one case: each owner's noise, and what the contracts are worth.

    ``welfare_prices`` is what a point of quality and a unit of money are worth to the curator, and
    a unit of money to an owner.
    """

    sigma: FloatArray
    welfare_prices: tuple[float, float, float]


def decisions(
    scenario: Scenario,
    plan: Plan,
    *,
    parts: Parts | None = None,
    threads: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Decision]:
    """Every mechanism on the same owners, which are drawn once for each seed.

    A mechanism that buys owner by owner knows no budget. It is run once for all budgets, and of its
    deals those with most gain per money are struck, as ``run`` does. ``parts`` are the mechanisms;
    by default they are found by the names in the plan.
    """
    chosen = parts or parts_of(plan.mechanisms)
    for name, mechanism in chosen.items():
        if name in MECHANISMS:
            _compile(mechanism, scenario)
    for seed in plan.seeds:
        seeded = scenario.model_copy(update={"seed": seed})
        environment = with_caps(seeded)
        for name, mechanism in chosen.items():
            yield from _decisions(
                name, mechanism, seeded, environment, plan.budgets, threads, stop
            )  # fmt: skip


def _compile(mechanism: Mechanism, scenario: Scenario) -> None:
    """Let it decide for two owners first, so that no seed's seconds include compilation."""
    if scenario.population.file:
        return
    two = scenario.population.model_copy(update={"owners": 2})
    small = scenario.model_copy(update={"population": two, "changes": ()})
    with suppress(BadInput):  # raised again for the real owners
        mechanism.run(small.environment(), run_options(small))


def _decisions(
    name: str,
    mechanism: Mechanism,
    scenario: Scenario,
    environment: Environment,
    budgets: Sequence[float | None],
    threads: int | None,
    stop: Callable[[], bool],
) -> Iterator[Decision]:
    levels = environment.levels
    left = np.array([levels.sigma_left(level) for level in range(levels.saving_levels + 1)])
    side, joint = environment.owner_side(), JointValue.of(environment)
    made: Agreement | None = None
    seconds = 0.0
    for budget in budgets:
        if made is None or mechanism.joint:
            paid = "none" if budget is None else budget
            market = scenario.market.model_copy(update={"budget": paid})
            priced = scenario.model_copy(update={"market": market})
            options = run_options(priced, threads, stop=stop)
            start = time.process_time()
            with or_left_out(name):
                made = mechanism.run(environment, options)
            seconds = time.process_time() - start
        if not made.complete:
            raise Interrupted("stopped; finished trainings are saved.")
        micro = None if budget is None else to_micro(budget, "budget")
        struck = within_budget(environment, made.contracts, micro)
        gains = side.payoffs_of(struck.saving, struck.payment) - side.base()
        yield Decision(
            mechanism=name,
            budget=budget,
            seed=scenario.seed,
            paid=float(levels.payments[struck.payment].sum()),
            predicted_value=joint.gain(struck),
            owners_surplus=float(gains.sum()),
            worse_off=int((gains < -1e-9).sum()),
            sellers=int((struck.saving > 0).sum()),
            messages=made.messages,
            seconds=seconds,
            sigma=left[struck.saving],
            welfare_prices=(joint.quality_price, joint.money_price, environment.payment_value),
        )


# Through to the trained model


def compared(
    scenario: Scenario,
    plan: Plan,
    file: TrainingFile,
    *,
    parts: Parts | None = None,
    workers: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[int, int], object] = lambda done, total: None,
) -> list[Row]:
    """A row for every case; no trade, which all are measured by, is a case too.

    Equal noise of one seed is trained once. ``parts`` is as in ``decisions``.
    """
    parts = {NO_TRADE: find_mechanism(NO_TRADE), **(parts or parts_of(plan.mechanisms))}
    decided = [*decisions(scenario, plan, parts=parts, threads=workers, stop=stop)]
    each = [TrainingTask(one.seed, one.sigma) for one in decided]
    tasks = sorted({task.key: task for task in each}.values(), key=lambda task: task.seed)
    file.train(scenario, tasks, workers=workers, stop=stop, watch=watch)
    work = TrainingWork(scenario)
    ends = [(file.results[task.key].accuracies, epsilons(work.order(task))) for task in each]
    cases = [*zip(decided, ends, strict=True)]
    no_trade = {one.seed: end for one, end in cases if one.mechanism == NO_TRADE}
    return [_row(one, *end, *no_trade[one.seed]) for one, end in cases]


def _row(
    decision: Decision,
    accuracies: Sequence[float],
    epsilon: FloatArray,
    no_trade: Sequence[float],
    epsilon_before: FloatArray,
) -> Row:
    """A decision with the accuracies after each round and each owner's epsilon, under it and
    without trade."""
    quality_price, money_price, owners_price = decision.welfare_prices
    value = quality_price * (accuracies[-1] - no_trade[-1]) - money_price * decision.paid
    welfare = None
    if money_price * owners_price > 0:
        welfare = value / money_price + decision.owners_surplus / owners_price
    bounded = bool(np.isfinite(epsilon_before).all())
    sold = epsilon - epsilon_before if bounded else np.full(len(epsilon), np.inf)
    return Row(
        **decision.case(),
        accuracy=accuracies[-1],
        trained_value=value,
        social_welfare=welfare,
        epsilon_sold=finite(float(sold.sum())),
        accuracy_per_round=list(accuracies),
    )


# In one call


def compare(
    scenario: Scenario | None = None,
    *,
    mechanisms: Sequence[AnyMechanism] | None = None,
    seeds: int | Sequence[int] = SEEDS,
    budgets: Sequence[float | None] | None = None,
    folder: str | Path | None = None,
    workers: int | None = None,
    watch: Callable[[int, int], object] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Compare mechanisms on the same owners, data and seeds, through to the trained model.

    Call it under ``if __name__ == "__main__"``: it starts processes that import your script. No
    trade, which all are measured by, is always compared too (``uniform``).

    Args:
        scenario: by default the preset ``market``.
        mechanisms: names in ``MECHANISMS``, and your own among them: instances of ``Mechanism``
            or subclasses of ``Rule``. By default all but ``no_dp``.
        seeds: how many, from the scenario's seed on, or which ones.
        budgets: what the curator may pay in all, None for no limit; by default the scenario's
            budget or, where it has none, 30, 100 and 300.
        folder: keeps finished trainings: a call that was cut off resumes from it, and a call with
            more mechanisms, budgets or seeds trains only what is new.
        workers: processes that train, and threads that learn; by default one per core.
        watch: called with the number of trainings that are done, and of all.
        stop: when it returns True, the comparison ends with ``Interrupted``.

    Returns:
        A row for every mechanism, budget and seed; ``vars(row)`` is a dict, for a data frame.

    Raises:
        BadInput: a value of the scenario or an argument cannot be used.

    Example:
        ::

            rows = nm.compare(scenario, mechanisms=["clock", "dypp"], seeds=3, budgets=[40])
            points = {(row.mechanism, row.seed): row.accuracy for row in rows}
    """
    scenario = scenario or Scenario.from_preset("market")
    if workers is not None and workers < 1:
        raise BadInput("workers", workers, "give at least 1.")
    parts = parts_of(mechanisms)
    plan = plan_of(scenario, parts, seeds, budgets)
    leave_unless_main()
    check(scenario, parts)
    with ExitStack() as stack:
        place = Path(folder or stack.enter_context(TemporaryDirectory(prefix="noisemarket-")))
        _claim(place, scenario)
        file = stack.enter_context(TrainingFile(place / TRAININGS))
        return compared(scenario, plan, file, parts=parts, workers=workers, stop=stop, watch=watch)


def plan_of(
    scenario: Scenario,
    parts: Parts,
    seeds: int | Sequence[int] = SEEDS,
    budgets: Sequence[float | None] | None = None,
    command: str = "",
) -> Plan:
    """The plan for these mechanisms; arguments are as in ``compare``."""
    return Plan(tuple(parts), _budgets(scenario, budgets), _seeds(scenario, seeds), command)


def _budgets(scenario: Scenario, given: Sequence[float | None] | None) -> tuple[float | None, ...]:
    if given is None:
        own = scenario.market.budget
        return BUDGETS if own == "none" else (float(own),)
    out = tuple(None if one is None else float(one) for one in given)
    for one in out:
        if one is not None and not (isfinite(one) and one >= 0.0):
            raise BadInput("budgets", one, "give amounts of money, or none for no limit.")
    if not out or len(set(out)) < len(out):
        raise BadInput("budgets", given, "give at least one, and name each budget once.")
    return out


def _seeds(scenario: Scenario, given: int | Sequence[int]) -> tuple[int, ...]:
    out = range(scenario.seed, scenario.seed + given) if isinstance(given, int) else given
    if not out or len(set(out)) < len(out) or min(out) < 0:
        raise BadInput("seeds", given, "give at least 1, or a list of seeds, each once.")
    return tuple(out)


def _claim(folder: Path, scenario: Scenario) -> None:
    """Write the scenario into its folder, or see that the folder is this scenario's."""
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / "scenario.toml", dump_scenario(scenario)
    if not file.exists():
        write_atomic(file, text)
    elif read_text("folder", file) != text:
        remedy = "has trainings of another scenario: give another folder."
        raise BadInput("folder", str(folder), remedy)
