"""The curator's channel to the owners: all that a job knows of them.

``Channel.ask`` takes a question to each owner and gives the replies that came. ``LocalChannel`` has
the owners in this process and hands training to worker processes; ``flower_channel`` carries the
same questions over Flower's grid. All above it is written once. ``tests/conformance`` has the suite
that a channel has to pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import Engine, Job, Score, Weights, at_model
from noisemarket.federated.protections import Upload
from noisemarket.files import Closing
from noisemarket.game.environment import Contracts
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.receipts import UploadReceipt, upload_digest
from noisemarket.market.orders import Order, PreparedMarket
from noisemarket.market.run_folder import JOURNAL, MarketFolder
from noisemarket.owner.folder import Declined, OwnerFolder, owner_folder
from noisemarket.owner.invitations import JobInvitation
from noisemarket.owner.owner_messages import JobSettled, Question, Refused, Reply, Train, Update
from noisemarket.owner.simulated import SimulatedOwner, preferences
from noisemarket.owner.terms import in_relation
from noisemarket.pricing.rule import seeds
from noisemarket.privacy.accountant import read_journal
from noisemarket.privacy.noise import round_noise

EngineMaker = Callable[[Job], Engine]
"""Makes what trains a job: for example a subclass of ``Engine``."""


class Channel(Closing):
    """The way to the owners of a job, by their index in the population."""

    simulated = False
    """Whether the owners are simulated in this process, from the scenario."""

    here = False
    """Whether all owners are on this machine, which deals records out to them unless the data has
    owners."""

    lasting = True
    """Whether the owners outlive the job, so that one may be left out that took part before."""

    patience = 0.0
    """Seconds to wait for an owner that is away."""

    journal: Path
    """Where the market keeps its account of what the owners give up."""

    @abstractmethod
    def ask(
        self, questions: Mapping[int, Question], timeout: float | None = None
    ) -> dict[int, Reply]:
        """Put questions of one kind to owners; gives the replies that came in time.

        An owner that will not or cannot answer gives ``Refused``; one that is away or too late
        is not in the answer. The same question again gets the same reply.
        """

    def present(self) -> Collection[int] | None:
        """The owners that can be asked now; None for all."""
        return None

    def noted(self, job: str, curator_key: str) -> Iterable[tuple[Head, str]]:
        """Heads of the ledger that owners were shown in the job, and where that is written, as far
        as it can be read before anything is done."""
        return ()

    def agree(self, invitation: JobInvitation, contracts: Contracts) -> None:
        """Tell simulated owners what was agreed without asking them one by one."""
        raise NoisemarketError("Owners that are not simulated here have to be asked.")

    @abstractmethod
    def prepare(self, order: Order, job: str) -> Order:
        """The order with what the owners' side has to add: where noise comes from."""

    @abstractmethod
    def start_training(self, job: Job) -> None:
        """Make ready for questions of the kind ``Train``, and for ``score``."""

    @abstractmethod
    def score(self, weights: Weights) -> Score:
        """Test a model on the job's test records."""

    def settled(self) -> None:
        """All owners know that the job is settled."""

    def close(self) -> None:
        """End training."""


class LocalChannel(Channel):
    """Owners that this process acts for, each with a folder; ``lasting`` ones outlive the run."""

    simulated = here = True

    def __init__(
        self,
        market: PreparedMarket,
        folder: MarketFolder,
        engine: EngineMaker,
        lasting: Sequence[SimulatedOwner] | None = None,
    ) -> None:
        self._market, self._folder, self._make = market, folder, engine
        self._lasting, self.lasting = lasting, lasting is not None
        self._order: Order | None = None
        self._engine: Engine | None = None
        self.journal = folder.owners / JOURNAL

    @cached_property
    def owners(self) -> list[SimulatedOwner]:
        if self._lasting is not None:
            return list(self._lasting)
        environment, root = self._market.environment, self._folder.owners
        seed = seeds(self._market.scenario.play_seed())[0]
        names = map(str, environment.population.names)
        return [
            SimulatedOwner(
                OwnerFolder(name, owner_folder(root, name), one_job=True),
                preferences(environment, index, seed),
            )
            for index, name in enumerate(names)
        ]

    def ask(
        self, questions: Mapping[int, Question], timeout: float | None = None
    ) -> dict[int, Reply]:
        first = next(iter(questions.values()), None)
        if isinstance(first, Train):
            if self._engine is None:
                raise NoisemarketError("Training has not started: call start_training.")
            charged = self._charged(first, questions)
            sent = self._engine.train(first.round_number, first.weights, charged)
            return {index: Update(one) for index, one in sent.items() if one is not None}
        if isinstance(first, JobSettled) and self._order is not None:
            statements = self._order.statements(read_journal(self.journal))
            for owner, statement in zip(self.owners, statements, strict=True):
                owner.statement = statement
        replies: dict[int, Reply] = {}
        for index, question in questions.items():
            try:
                replies[index] = self.owners[index].handle(question)
            except Declined as problem:
                replies[index] = Refused(str(problem))
        return replies

    def _charged(self, first: Train, owners: Iterable[int]) -> list[int]:
        """Those of the owners whose wallets, if they have any, cover a round; it is charged."""
        if self._lasting is None or self._order is None:
            return list(owners)
        noise, number = at_model(self._order.job.noise_source(), first.weights), first.round_number
        return [
            index
            for index in owners
            if self.owners[index].spend(
                first.job, number, round_noise(noise, index, number).release_id()
            )
        ]

    def noted(self, job: str, curator_key: str) -> Iterable[tuple[Head, str]]:
        owners: Iterable[OwnerFolder] = (owner.folder for owner in self._lasting or ())
        if self._lasting is None:
            folders = (path for path in self._folder.owners.iterdir() if path.is_dir())
            owners = (OwnerFolder(path.name, path, one_job=True) for path in folders)
        return [head for owner in owners for head in owner.noted(job, curator_key)]

    def agree(self, invitation: JobInvitation, contracts: Contracts) -> None:
        levels = zip(contracts.saving.tolist(), contracts.payment.tolist(), strict=True)
        for owner, (saving, payment) in zip(self.owners, levels, strict=True):
            owner.agree(invitation, saving, payment)

    def prepare(self, order: Order, job: str) -> Order:
        if order.job.noise == "secure":
            order = replace(order, job=replace(order.job, noise_key=self._folder.noise_key()))
        self._order = order
        sizes, dimension = order.job.partition.sizes.tolist(), order.job.first_weights().size
        for owner, budget, records in zip(self.owners, order.budgets, sizes, strict=True):
            own = budget
            if owner.wallet() is not None:
                relation = owner.folder.neighbours()
                reach = order.job.protection.sensitivity(dimension, int(records), relation)
                named = replace(budget, owner=owner.folder.name)
                own = in_relation(named, replace(named, sensitivity=reach, neighbours=relation))
            owner.work = budget, own, int(records)
        return order

    def start_training(self, job: Job) -> None:
        self._engine = self._make(job)

    def score(self, weights: Weights) -> Score:
        assert self._engine is not None
        return self._engine.score(weights)

    def settled(self) -> None:
        self._folder.forget_noise_key()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class UploadBook:
    """The last upload of every owner, by round and digest, of which the curator gives receipts."""

    def __init__(
        self, key: KeyPair, contracts: Mapping[int, str], received: Mapping[int, tuple[int, str]]
    ) -> None:
        self._key, self._contracts, self.received = key, contracts, dict(received)

    def receipt(self, owner: int, before: int) -> UploadReceipt:
        """A receipt of an owner's last upload before this round."""
        last = self.received.get(owner, (0, ""))
        return UploadReceipt.of(self._key, self._contracts[owner], before, *last)


class ChannelEngine(Engine):
    """Trains owners by questions over a channel. Those without a usable reply give None."""

    def __init__(
        self, channel: Channel, job: Job, name: str, book: UploadBook | None = None
    ) -> None:
        self._channel, self._job, self._name, self._book = channel, job, name, book
        self._first = job.first_weights()
        channel.start_training(job)

    def first_weights(self) -> Weights:
        return self._first.copy()

    def train(
        self, round_number: int, weights: Weights, owners: Sequence[int]
    ) -> dict[int, Upload | None]:
        sigma, book, name = self._job.sigma, self._book, self._name
        replies = self._channel.ask(
            {
                owner: Train(name, round_number, float(sigma[owner]), weights, receipt)
                for owner in owners
                for receipt in [None if book is None else book.receipt(owner, round_number)]
            }
        )
        uploads: dict[int, Upload | None] = dict.fromkeys(owners)
        for owner, reply in replies.items():
            if isinstance(reply, Update):
                uploads[owner] = reply.weights
                if book is not None:
                    book.received[owner] = round_number, upload_digest(reply.weights)
        return uploads

    def score(self, weights: Weights) -> Score:
        return self._channel.score(weights)

    def close(self) -> None:
        self._channel.close()
