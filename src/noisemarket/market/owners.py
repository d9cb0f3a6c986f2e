"""Where the owners are: on this machine, or on machines of their own.

An owner that cannot be reached, declines or gives unusable answers before it has signed is left
out: the job goes on without it. On one machine that does not happen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from noisemarket.federated.engine import Engine, Job
from noisemarket.game.environment import Environment
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.market.deals import Deals
from noisemarket.market.market_folder import JOURNAL, JobManifest, MarketFolder
from noisemarket.market.negotiation import Negotiation, negotiate
from noisemarket.market.offers import job_terms
from noisemarket.market.orders import Order
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import OwnerFolder, owner_folder
from noisemarket.owner.terms import Deal, JobTerms, contract_of
from noisemarket.pricing.mechanism import Stop, Watch
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.scenario import Scenario

EngineMaker = Callable[[Job], Engine]
"""Makes what trains a job: for example a subclass of ``Engine``."""


class Owners(ABC):
    """The owners of a job, as the market deals with them, by their index in the population."""

    @property
    @abstractmethod
    def journal(self) -> Path:
        """Where the market keeps its account of what the owners give up."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Owners that are left out, and why."""
        return {}

    @abstractmethod
    def negotiate(
        self, manifest: JobManifest, curator_key: str, watch: Watch, stop: Stop
    ) -> Negotiation:
        """Play the game with all owners."""

    @abstractmethod
    def with_noise(self, order: Order) -> Order:
        """An order with what the owners' side has to add: where noise comes from."""

    @abstractmethod
    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        """The owners' public keys, by name."""

    @abstractmethod
    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        """The signatures of those who accept."""

    def receipts(self, job: str) -> Sequence[Receipt]:
        """Receipts of the job that can be read before anything is done, wherever that is so."""
        return ()

    @abstractmethod
    def keep(
        self, signed: Mapping[int, SignedContract], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        """Give the owners their contracts with both signatures, and receipts of them.

        Returns:
            The receipts with the owners' signatures, of those who answer. An owner that has one of
            a later state of the ledger gives that one.
        """

    @abstractmethod
    def engine(self, order: Order) -> Engine:
        """What trains the owners."""

    def present(self, owners: Sequence[int]) -> Sequence[int]:
        """Those of these owners that can be asked now."""
        return owners

    @abstractmethod
    def settled(
        self, statements: Mapping[int, PrivacyStatement], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        """Tell the owners what they gave up, and give them receipts of what they are paid.

        Returns:
            As ``keep``.
        """


class LocalOwners(Owners):
    """Owners that this process acts for, each with a folder of its own."""

    def __init__(
        self,
        scenario: Scenario,
        folder: MarketFolder,
        engine: EngineMaker,
        threads: int | None = None,
    ) -> None:
        self._scenario, self._folder = scenario, folder
        self._engine, self._threads = engine, threads
        self._agents: list[OwnerAgent] = []
        self._deals: tuple[Deal, ...] = ()
        self._terms: JobTerms | None = None
        self._curator_key = ""

    @property
    def journal(self) -> Path:
        return self._folder.owners / JOURNAL

    def negotiate(
        self, manifest: JobManifest, curator_key: str, watch: Watch, stop: Stop
    ) -> Negotiation:
        self._terms, self._curator_key = job_terms(self._scenario, manifest), curator_key
        return negotiate(self._scenario, threads=self._threads, watch=watch, stop=stop)

    def with_noise(self, order: Order) -> Order:
        if order.job.noise != "secure":
            return order
        return replace(order, job=replace(order.job, noise_key=self._folder.noise_key()))

    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        self._agents, self._deals, keys = [], deals.deals, {}
        for owner in environment.population:
            folder = OwnerFolder(
                owner.name, owner_folder(self._folder.owners, owner.name), one_job=True
            )
            agent = OwnerAgent(folder)
            keys[owner.name] = agent.public_key
            own = {"privacy_cost": owner.privacy_cost, "markup": owner.markup, "floor": owner.floor}
            folder.keep_private(own)
            self._agents.append(agent)
        return keys

    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        assert self._terms is not None
        signatures = {}
        for index, contract in contracts.items():
            agent, budget = self._agents[index], order.budgets[index]
            expected = contract_of(
                self._deals[index], agent.public_key, self._curator_key, budget, self._terms,
                int(order.job.partition.sizes[index]),
            )  # fmt: skip
            signatures[index] = agent.sign(contract, [expected])
        return signatures

    def receipts(self, job: str) -> Sequence[Receipt]:
        folders = [path for path in self._folder.owners.iterdir() if path.is_dir()]
        found = (OwnerFolder(path.name, path, one_job=True).receipts(job) for path in folders)
        return [receipt for some in found for receipt in some if receipt.job == job]

    def keep(
        self, signed: Mapping[int, SignedContract], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        return {
            index: self._agents[index].keep(contract, self._curator_key, receipts[index])
            for index, contract in signed.items()
        }

    def engine(self, order: Order) -> Engine:
        return self._engine(order.job)

    def settled(
        self, statements: Mapping[int, PrivacyStatement], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        kept = {}
        for index, statement in statements.items():
            own = self._agents[index]
            kept[index] = own.settle(receipts[index], statement)
        self._folder.forget_noise_key()
        return kept
