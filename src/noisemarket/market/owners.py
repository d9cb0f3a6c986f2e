"""Where the owners are: in this process, or on machines of their own.

An owner that cannot be reached, refuses or answers rubbish before it has signed is left out: the
job goes on without it. In one process that does not happen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from noisemarket.federated.engine import Engine, Job
from noisemarket.game.environment import Environment
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.market.deals import Deals
from noisemarket.market.folder import JOURNAL, JobManifest, MarketFolder
from noisemarket.market.parties import JobTerms, Owner, owner_folder, terms_of
from noisemarket.mechanisms.mechanism import Progress
from noisemarket.negotiation import Negotiation, negotiate
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.scenario import Scenario
from noisemarket.training import Order

EngineMaker = Callable[[Job], Engine]


@dataclass(frozen=True)
class Offer:
    """A contract for the owner at this place."""

    place: int
    contract: Contract


class Owners(ABC):
    """The owners of a job, as the market deals with them. Places are those of the population."""

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
        self,
        card: JobManifest,
        curator_key: str,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Negotiation:
        """Play the game with all owners."""

    @abstractmethod
    def ready(self, made: Order) -> Order:
        """An order with what the owners' side has to add: where noise comes from."""

    @abstractmethod
    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        """The owners' public keys."""

    @abstractmethod
    def accept(self, offers: Sequence[Offer], made: Order) -> dict[int, str]:
        """The signatures of those who accept, by place."""

    @abstractmethod
    def keep(self, signed: Mapping[int, SignedContract]) -> None:
        """Give the owners their contracts with both signatures."""

    @abstractmethod
    def engine(self, made: Order) -> Engine:
        """What trains the owners."""

    def present(self, owners: Sequence[int]) -> Sequence[int]:
        """Those of these owners that can be asked now."""
        return owners

    @abstractmethod
    def settled(
        self, statements: Mapping[int, PrivacyStatement], paid: Mapping[int, int], head: str
    ) -> None:
        """Tell the owners what they gave up and what they are paid; who is not named, nothing."""


class LocalOwners(Owners):
    """Owners that this process plays, each with a folder of its own."""

    def __init__(
        self,
        scenario: Scenario,
        folder: MarketFolder,
        engine: EngineMaker,
        threads: int | None = None,
    ) -> None:
        self._scenario, self._folder = scenario, folder
        self._engine, self._threads = engine, threads
        self._owners: list[Owner] = []
        self._terms: JobTerms | None = None
        self._curator_key = ""

    @property
    def journal(self) -> Path:
        return self._folder.owners / JOURNAL

    def negotiate(
        self,
        card: JobManifest,
        curator_key: str,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Negotiation:
        self._terms, self._curator_key = terms_of(self._scenario, card), curator_key
        return negotiate(self._scenario, threads=self._threads, watch=watch, stop=stop)

    def ready(self, made: Order) -> Order:
        if made.job.noise != "secure":
            return made
        return replace(made, job=replace(made.job, noise_key=self._folder.noise_key()))

    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        self._owners = [
            Owner(
                owner_folder(self._folder.owners, deal.owner),
                deal,
                {"privacy_cost": secret.privacy_cost, "markup": secret.markup},
                self._curator_key,
            )
            for deal, secret in zip(deals.deals, environment.population, strict=True)
        ]
        return {owner.deal.owner: owner.public_key for owner in self._owners}

    def accept(self, offers: Sequence[Offer], made: Order) -> dict[int, str]:
        assert self._terms is not None
        signatures = {}
        for one in offers:
            budget, records = made.budgets[one.place], int(made.job.partition.sizes[one.place])
            owner = self._owners[one.place]
            signatures[one.place] = owner.accept(one.contract, budget, self._terms, records)
        return signatures

    def keep(self, signed: Mapping[int, SignedContract]) -> None:
        for place, contract in signed.items():
            self._owners[place].keep(contract)

    def engine(self, made: Order) -> Engine:
        return self._engine(made.job)

    def settled(
        self, statements: Mapping[int, PrivacyStatement], paid: Mapping[int, int], head: str
    ) -> None:
        for place, statement in statements.items():
            self._owners[place].keep_statement(statement, paid.get(place))
        self._folder.forget_noise_key()
