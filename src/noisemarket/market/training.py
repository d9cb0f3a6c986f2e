"""Training an order: from a scenario to a model and a privacy statement per owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.aggregation import Weighting
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.engine import Engine, Job, Weights, single_precision
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Protection
from noisemarket.federated.rounds import Checkpoint, RoundResult, check_charges
from noisemarket.federated.rounds import train as rounds_of
from noisemarket.market.local_engine import LocalEngine
from noisemarket.market.orders import AnyModel, Order, given_partition, given_sigma, order
from noisemarket.market.worker_processes import leave_unless_main
from noisemarket.privacy.accountant import Accountant, JournalledAccountant, PrivacyStatement
from noisemarket.scenario import Scenario

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class Training:
    """A finished or interrupted training: the rounds, the model, and what each owner gave up.

    ``weights`` are the final model and ``averaged`` the average of the models, both flat;
    ``module`` and ``load_into`` put them into a model. A training is ``complete`` if no round is
    left: all that were planned are done, or all that the owners' budgets allow.

    Example:
        ::

            trained = nm.train(scenario, sigma=0.1)
            scores = trained.module()(torch.from_numpy(data.ready(data.test_images)))
    """

    order: Order
    rounds: tuple[RoundResult, ...]
    weights: Weights
    averaged: Weights
    statements: tuple[PrivacyStatement, ...]
    complete: bool
    owners_at_cap: int

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy after each round, in per cent."""
        return [result.score.accuracy for result in self.rounds]

    @property
    def losses(self) -> list[float]:
        """Mean test loss after each round."""
        return [result.score.loss for result in self.rounds]

    @property
    def accuracy(self) -> float | None:
        """Test accuracy at the end, in per cent."""
        return self.accuracies[-1] if self.rounds else None

    @property
    def loss(self) -> float | None:
        """Mean test loss at the end."""
        return self.losses[-1] if self.rounds else None

    def module(self, *, averaged: bool = False) -> nn.Module:
        """The trained module of torch, with the final weights or the average of the models.

        Give it ``dataset.ready(images)``: inputs prepared as in training.
        """
        job, flat = self.order.job, self.averaged if averaged else self.weights
        module = getattr(job.model, "module", None)
        if module is None:
            remedy = "is not a module of torch: use its weights."
            raise BadInput("model", type(job.model).__name__, remedy)
        trained: nn.Module = module(single_precision(flat), job.seed)
        return trained

    def load_into(self, module: nn.Module, *, averaged: bool = False) -> nn.Module:
        """Put the final weights, or the average of the models, into a module of yours."""
        try:
            module.load_state_dict(self.module(averaged=averaged).state_dict())
        except RuntimeError:
            name = type(module).__name__
            raise BadInput("module", name, "is not built as the one that was trained.") from None
        return module


def train(
    scenario: Scenario | None = None,
    *,
    sigma: ArrayLike,
    data: Dataset | None = None,
    model: AnyModel | None = None,
    partition: Partition | Sequence[ArrayLike] | None = None,
    protection: Protection | None = None,
    weighting: Weighting | None = None,
    journal: str | Path | None = None,
    checkpoint: str | Path | None = None,
    workers: int | None = None,
    watch: Callable[[RoundResult], object] = lambda result: None,
    stop: Callable[[], bool] | None = None,
) -> Training:
    """Train a scenario under contracted noise, on this machine.

    Call it under ``if __name__ == "__main__"``: it starts processes that import your script.

    Args:
        scenario: by default the preset ``market``.
        sigma: one noise scale for all owners, or one for each.
        data: replaces the scenario's data.
        model: replaces its model: a class or function that makes one, or a model to start from.
        partition: for each owner the indices of its training records; it then says how many owners
            there are.
        protection: replaces the scenario's.
        weighting: replaces the scenario's.
        journal: file that every charge is written to before the release.
        checkpoint: file of the state after each round; a call that was cut off resumes from it.
        workers: processes that train; by default one per core.
        watch: callback for the result of every round.
        stop: when it returns True, the round under way is dropped and what is finished returned.

    Example:
        ::

            import noisemarket as nm

            if __name__ == "__main__":
                trained = nm.train(nm.Scenario.from_preset("market"), sigma=0.1)
                print(trained.accuracy, trained.statements[0].text())
    """
    leave_unless_main()
    scenario = scenario or Scenario.from_preset("market")
    if workers is not None and workers < 1:
        raise BadInput("workers", workers, "give at least 1.")
    if checkpoint is not None and journal is None:
        remedy = "name its journal too: a resumed job must know its spent budget."
        raise BadInput("checkpoint", str(checkpoint), remedy)
    if partition is not None:
        data = data or load_data(scenario.training.data or None)
        partition = given_partition(partition, data)
    records = None if data is None else data.records_of
    owners = len(records or ()) if partition is None else len(partition)
    if owners:
        people = scenario.population.model_copy(update={"owners": owners})
        scenario = scenario.model_copy(update={"population": people})
    environment = scenario.environment(records={} if partition is not None else records)
    noise = given_sigma(sigma, environment)
    job_order = order(
        scenario, environment, noise, data=data, model=model, partition=partition,
        protection=protection, weighting=weighting,
    )  # fmt: skip
    run = partial(carry_out, job_order, workers=workers, watch=watch, stop=stop)
    if journal is None:
        return run(Accountant(job_order.budgets))
    kept = None if checkpoint is None else Checkpoint(Path(checkpoint), job_order.fingerprint)
    with JournalledAccountant(journal, job_order.budgets) as accountant:
        return run(accountant, kept)


def carry_out(
    job_order: Order,
    accountant: Accountant,
    checkpoint: Checkpoint | None = None,
    *,
    engine: Callable[[Job], Engine] | None = None,
    workers: int | None = None,
    watch: Callable[[RoundResult], object] = lambda result: None,
    stop: Callable[[], bool] | None = None,
) -> Training:
    """Train what was ordered on this machine, from its checkpoint on, to the end.

    ``engine`` makes what trains it; by default as many processes as ``workers``.
    """
    engine = engine or (lambda job: LocalEngine(job, workers, stop))
    first = job_order.start()
    state = (checkpoint.load(first) if checkpoint else None) or first
    check_charges(accountant, state)
    complete = state.rounds_done >= job_order.plan.rounds
    if not complete:  # a job that is done needs no workers
        with engine(job_order.job) as running:
            rounds = rounds_of(
                running, job_order.job, accountant, job_order.plan, state, checkpoint
            )
            with suppress(Interrupted):  # the round under way is lost; its charge stands
                while not complete and not (stop is not None and stop()):
                    result = next(rounds, None)
                    complete = result is None
                    if result is not None:
                        watch(result)
    return Training(
        order=job_order,
        rounds=tuple(state.results),
        weights=state.weights,
        averaged=state.averaged,
        statements=job_order.statements(accountant),
        complete=complete or state.rounds_done >= job_order.plan.rounds,
        owners_at_cap=sum(not accountant.may_start(budget.owner) for budget in job_order.budgets),
    )
