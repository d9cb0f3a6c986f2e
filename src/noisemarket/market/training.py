"""Training on this machine: from a scenario to a model and a privacy statement per owner.

On a CPU nothing beats a lean loop per owner on one core: owners are handed out largest first to
workers that share the images, the global model and the place for uploads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from numpy.typing import ArrayLike, NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.aggregation import Weighting
from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import load_data
from noisemarket.federated.engine import TEST_BATCH, Engine, Job, Score, Weights, single_precision
from noisemarket.federated.models.model import ModelMaker, Records
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Protection, Upload
from noisemarket.federated.rounds import Checkpoint, RoundResult, check_charges
from noisemarket.federated.rounds import train as rounds_of
from noisemarket.machine import available_cores
from noisemarket.market.orders import AnyModel, Order, given_partition, given_sigma, order
from noisemarket.market.worker_processes import (
    WorkerProcesses,
    check_sendable,
    leave_unless_main,
)
from noisemarket.owner.round import OwnerTrainer
from noisemarket.privacy.accountant import Accountant, JournalledAccountant, PrivacyStatement
from noisemarket.privacy.noise import NoiseSource
from noisemarket.scenario import Scenario

if TYPE_CHECKING:
    from torch import nn

MOST_KEPT = 2**28
"""Bytes of records that a worker keeps from round to round; others it makes anew."""

LOTS = 16
"""Messages of owners that a worker gets in a round: so many that none waits long for another."""

Task = tuple[str, int, tuple[int, ...]]
"""``train``, a round and some owners; or ``score``, the first of the test records, and no owner."""
Views = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class OwnerWork:
    """What a worker needs of a job besides the arrays; ``places`` are where owners' records lie."""

    model: ModelMaker
    protection: Protection
    seed: int
    noise: NoiseSource
    sigma: NDArray[np.float64]
    places: tuple[slice, ...]

    @classmethod
    def of(cls, job: Job) -> tuple[OwnerWork, dict[str, NDArray[Any]]]:
        """The work of a job, and its arrays: an owner's records lie together."""
        if not len(job.data.train_labels):
            remedy = "has no owner's records: put a file per owner there, or run over Flower."
            raise BadInput("data", job.data.source, remedy)
        held = {id(own): own for own in job.partition.indices}
        ends = np.cumsum([len(own) for own in held.values()]).tolist()
        ranges = zip(held.items(), ends, strict=True)
        places = {name: slice(end - len(own), end) for (name, own), end in ranges}
        owned, first = np.concatenate([*held.values()]), job.first_weights()
        together = np.array_equal(owned, np.arange(len(job.data.train_labels)))
        arrays = {
            "train_inputs": job.data.train_inputs(None if together else owned),
            "train_labels": job.data.train_labels if together else job.data.train_labels[owned],
            "test_inputs": job.data.test_inputs,
            "test_labels": job.data.test_labels,
            "weights": first,
            "uploads": np.zeros((len(job), first.size), np.float32),
        }
        of_owners = tuple(places[id(own)] for own in job.partition.indices)
        noise = job.noise_source()
        return cls(job.model, job.protection, job.seed, noise, job.sigma, of_owners), arrays

    def __call__(self, views: Views) -> Callable[..., Any]:
        model = self.model(self.seed)
        trainer = OwnerTrainer(model, self.protection, self.seed)
        cache: dict[int, Records] = {}
        room = MOST_KEPT

        def prepared(owner: int) -> Records:
            place = self.places[owner]
            if (known := cache.get(place.start)) is not None:
                return known
            return model.records(views["train_inputs"][place], views["train_labels"][place])

        def keep(owner: int, records: Records) -> None:
            """After the training: by now records hold all that they ever will."""
            nonlocal room
            place = self.places[owner]
            if place.start in cache:
                return
            size = records.added_bytes
            size = views["train_inputs"][place].nbytes if size is None else size
            if size <= room:
                cache[place.start] = records
                room -= size

        def work(task: Task, *_tell: object) -> Any:
            kind, number, owners = task
            weights = views["weights"]
            if kind == "score":
                part = slice(number, number + TEST_BATCH)
                inputs, labels = views["test_inputs"][part], views["test_labels"][part]
                with model.one_thread():
                    return model.score(single_precision(weights), inputs, labels.copy())
            waiting = deque[tuple[int, Records]]()

            def coming() -> Iterator[tuple[int, Records, float]]:
                for owner in owners:
                    waiting.append((owner, prepared(owner)))
                    yield *waiting[-1], float(self.sigma[owner])

            for upload in trainer.uploads(number, weights, self.noise, coming()):
                owner, records = waiting.popleft()
                views["uploads"][owner] = upload
                keep(owner, records)
            return None

        return work


def laid_out(job: Job) -> Job:
    """A job of a linear model, for many trainings: each owner's features already lie together."""
    ends = np.cumsum(job.partition.sizes)
    indices = tuple(np.split(np.arange(ends[-1]), ends[:-1]))
    data = job.data.laid_out(np.concatenate(job.partition.indices))
    return replace(job, data=data, partition=replace(job.partition, indices=indices))


class SerialEngine(Engine):
    """Trains in this process, on one core: faster for many trainings, one per process."""

    _views: Views
    _lots = 1
    """Into how many messages the owners of a round are divided."""

    def __init__(self, job: Job) -> None:
        self._job, self._first = job, job.first_weights()
        work, self._views = OwnerWork.of(job)
        self._work = work(self._views)

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        sizes = self._job.partition.sizes
        order = sorted(owners, key=lambda owner: (-int(sizes[owner]), owner))
        most = max(1, -(-len(order) // self._lots))
        lots = [tuple(order[at : at + most]) for at in range(0, len(order), most)]
        self._answers(weights, [("train", round_number, lot) for lot in lots])
        return dict(zip(owners, self._views["uploads"][list(owners)], strict=True))

    def score(self, weights: Weights) -> Score:
        images = len(self._job.data.test_labels)
        parts: list[Task] = [("score", first, ()) for first in range(0, images, TEST_BATCH)]
        answers = self._answers(weights, parts)
        right = sum(answers[part][0] for part in parts)
        loss = sum(answers[part][1] for part in parts)
        return Score(100.0 * right / images, loss / images)

    def _answers(self, weights: Weights, tasks: list[Task]) -> dict[Task, Any]:
        self._views["weights"][...] = weights
        return {task: self._work(task) for task in tasks}

    def close(self) -> None:
        """Nothing was started."""


class LocalEngine(SerialEngine):
    """Trains with worker processes, by default one per core. When ``stop`` returns True it drops
    work under way, closes and raises ``Interrupted``."""

    def __init__(
        self, job: Job, workers: int | None = None, stop: Callable[[], bool] | None = None
    ) -> None:
        leave_unless_main()
        check_sendable("model", job.model)
        check_sendable("protection", job.protection)
        self._job, self._first = job, job.first_weights()
        work, arrays = OwnerWork.of(job)
        _check_room(sum(array.nbytes for array in arrays.values()))
        count = max(1, min(workers or available_cores(), len(job)))
        self._lots = LOTS * count
        self._processes = WorkerProcesses(count, work, arrays, stop)
        self._views = self._processes.views

    def _answers(self, weights: Weights, tasks: list[Task]) -> dict[Task, Any]:
        """Have tasks done with this global model, and collect the answers."""
        if not self._processes.running:
            raise NoisemarketError("The engine is closed: start another.")
        self._views["weights"][...] = weights
        return dict(self._processes.answers(tasks))

    def close(self) -> None:
        self._processes.close()
        self._views = {}


def _check_room(needed: int) -> None:
    """Refuse what would not fit, as far as the system says: processes would be killed for it."""
    free = psutil.virtual_memory().available
    if needed > free:
        raise NoisemarketError(
            f"Training needs {needed / 1e6:.0f} MB of memory for what the workers share, and "
            f"{free / 1e6:.0f} MB are free: take fewer owners or a smaller model."
        )


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
    """Train what was ordered on this machine, from its checkpoint on. ``engine`` makes what trains
    it."""
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
