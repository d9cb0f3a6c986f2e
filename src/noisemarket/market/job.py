"""The paper's five steps in order: negotiate, sign, train under contract, aggregate, verify, pay.

Every step can be repeated without being done twice. Negotiation follows from the seed; contracts
follow from it and from the job's card; the ledger records each thing once; the accountant knows a
release again by its noise; training goes on from its checkpoint. So a job that is killed anywhere
is resumed by running it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import Engine, Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import (
    Checkpoint,
    RoundResult,
    State,
    check_charges,
    train,
)
from noisemarket.files import save_arrays
from noisemarket.game.environment import Environment
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.money import MOST, to_micro
from noisemarket.ledger.queries import documents, signatures
from noisemarket.ledger.settlement import settle
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.market.deals import Deals, strike
from noisemarket.market.events import (
    Accused,
    Broken,
    Event,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
    Signed,
    Verified,
)
from noisemarket.market.faults import Fault, FaultyEngine
from noisemarket.market.folder import CHECKPOINT, JOB, METRICS, MODEL, JobManifest, MarketFolder
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.owners import EngineMaker, LocalOwners, Offer, Owners
from noisemarket.market.parties import Curator, privacy_cap, terms_of
from noisemarket.market.verdicts import round_entries, verdicts
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.mechanism import Progress
from noisemarket.negotiation import Negotiation
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario
from noisemarket.training import Order, order
from noisemarket.training.local_engine import LocalEngine

AT_ONCE = 200
"""Contracts that are signed before they are recorded together."""


@dataclass
class MarketOutcome:
    """What a job has come to so far; ``run`` fills it in as it goes."""

    negotiation: Negotiation | None = None
    deals: Deals | None = None
    order: Order | None = None
    results: list[RoundResult] = field(default_factory=list)
    statements: list[PrivacyStatement] = field(default_factory=list)
    payments: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    head: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    scenario: Scenario | None = None,
    folder: str | Path = "runs/market",
    *,
    engine: EngineMaker | None = None,
    owners: Owners | None = None,
    curator: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    outcome: MarketOutcome | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Run the market of a scenario in a folder, event by event; again, to resume it.

    ``engine`` makes what trains the job, by default worker processes on this machine. ``owners``
    says where the owners are, by default in this process. The curator's key is in the folder
    ``curator``, by default in the job's own. ``watch`` hears how negotiation goes;
    when ``stop`` returns True the job stops and can be resumed.
    """
    scenario, place = scenario or Scenario.from_preset("market"), MarketFolder(Path(folder))
    engine = engine or (lambda job: LocalEngine(job, workers, stop))
    owners = owners or LocalOwners(scenario, place, engine, threads)
    key = place.curator if curator is None else Path(curator)
    return _Market(scenario, place, owners, key, outcome or MarketOutcome(), stop).run(watch)


def check(scenario: Scenario) -> None:
    """Refuse what could not be run: unknown names, too little data, a cap that allows no round."""
    find_mechanism(scenario.mechanism)
    environment = scenario.environment()
    _check_faults(scenario, environment)
    order(scenario, environment, np.full(len(environment), scenario.game.sigma_max))


def _check_faults(scenario: Scenario, environment: Environment) -> None:
    names = set(map(str, environment.population.names))
    for fault in scenario.faults:
        if fault.owner not in names:
            raise BadInput("faults.owner", fault.owner, "is no owner of this scenario.")


class _Market:
    """One run of one job."""

    def __init__(
        self,
        scenario: Scenario,
        folder: MarketFolder,
        owners: Owners,
        key: Path,
        outcome: MarketOutcome,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._scenario, self._folder, self._out = scenario, folder, outcome
        self._owners, self._key, self._stop = owners, key, stop or (lambda: False)

    def run(self, watch: Callable[[Progress], None]) -> Iterator[Event]:
        self._folder.prepare()
        with self._folder.held():
            yield from self._steps(watch)

    def _steps(self, watch: Callable[[Progress], None]) -> Iterator[Event]:
        market = self._scenario.market
        resumed = (self._folder.path / JOB).exists()
        card = self._folder.card(market.ledger, market.valid_hours)
        with open_ledger(self._folder.ledger(card)) as ledger:
            started = time.monotonic()
            curator = Curator(self._key)
            deals, environment, told = self._negotiate(card, curator, watch)
            made = self._order(environment, deals)
            checkpoint = Checkpoint(self._folder.curator / CHECKPOINT, made.fingerprint)
            state = self._state(card, made, checkpoint)
            keys = self._owners.keys(environment, deals)
            budget = self._budget()
            most = MOST if budget is None else budget
            ledger.append([entries.opened(card.job, most, curator.public_key, keys)])
            yield Opened(card.job, len(keys), made.plan.rounds, budget, resumed)
            yield told
            started = self._took("negotiate", started)
            contracts = yield from self._sign(ledger, card, made, curator, deals, keys)
            started = self._took("sign", started)
            watcher = yield from self._train(ledger, made, contracts, state, checkpoint)
            started = self._took("train", started)
            closing = self._settle(ledger, card, contracts, state, watcher)
            self._took("settle", started)
            yield from closing

    def _negotiate(
        self, card: JobManifest, curator: Curator, watch: Callable[[Progress], None]
    ) -> tuple[Deals, Environment, Negotiated]:
        start = time.monotonic()
        done = self._owners.negotiate(card, curator.public_key, watch, self._stop)
        if not done.agreement.complete:
            raise Interrupted("stopped while negotiating; nothing was signed yet.")
        deals = strike(done.environment, done.agreement.contracts, self._budget())
        self._out.negotiation, self._out.deals = done, deals
        seconds = time.monotonic() - start
        told = Negotiated(len(deals.deals), deals.agreed, deals.refused, deals.total, seconds)
        return deals, done.environment, told

    def _order(self, environment: Environment, deals: Deals) -> Order:
        _check_faults(self._scenario, environment)
        sigma = np.array([deal.sigma for deal in deals.deals])
        made = order(self._scenario, environment, sigma)
        rounds = made.plan.rounds
        budgets = tuple(replace(b, rho_cap=privacy_cap(b, rounds)) for b in made.budgets)
        self._out.order = made = self._owners.ready(replace(made, budgets=budgets))
        return made

    def _state(self, card: JobManifest, made: Order, checkpoint: Checkpoint) -> State:
        """Where training stands, if it is this job's."""
        state = checkpoint.load()
        if state is None:
            state = made.start(card.job)
        elif state.job != card.job:
            raise BadInput("checkpoint", str(checkpoint.path), f"is not of the job in {JOB}.")
        return state

    def _budget(self) -> int | None:
        given = self._scenario.market.budget
        return None if given == "none" else to_micro(float(given), "market.budget")

    def _sign(
        self,
        ledger: Ledger,
        card: JobManifest,
        made: Order,
        curator: Curator,
        deals: Deals,
        keys: Mapping[str, str],
    ) -> Generator[Event, None, dict[int, Contract]]:
        """Offer, sign and record a contract with every owner; gives the contracts by place."""
        terms = terms_of(self._scenario, card)
        before = {known.owner: known.id for known in documents(ledger, card.job)}
        recorded = signatures(ledger, card.job)
        contracts: dict[int, Contract] = {}
        places = [place for place, deal in enumerate(deals.deals) if deal.owner in keys]
        for at in range(0, len(places), AT_ONCE):
            offers = []
            for place in places[at : at + AT_ONCE]:
                deal, budget = deals.deals[place], made.budgets[place]
                records = int(made.job.partition.sizes[place])
                contract = curator.offer(deal, keys[deal.owner], budget, terms, records)
                if before.get(contract.owner, contract.id) != contract.id:
                    remedy = "has signed another contract in this job: restore its scenario."
                    raise BadInput("owner", contract.owner, remedy)
                offers.append(Offer(place, contract))
            signed = {
                one.place: SignedContract(one.contract, *recorded[one.contract.id])
                for one in offers
                if one.contract.id in recorded
            }
            new = [one for one in offers if one.place not in signed]
            accepted = self._owners.accept(new, made)
            for one in new:
                if one.place in accepted:
                    signature = accepted[one.place]
                    signed[one.place] = curator.countersign(one.contract, signature)
            lines = []
            for place in sorted(signed):
                contracts[place] = signed[place].contract
                lines += [entries.offered(contracts[place]), entries.signed(signed[place])]
            ledger.append(lines)
            self._owners.keep(signed)
            for place in sorted(signed):
                contract = contracts[place]
                yield Signed(
                    contract.owner, contract.id, contract.saving, contract.sigma,
                    contract.payment, contract.epsilon, contract.delta,
                )  # fmt: skip
        self._out.left_out = dict(self._owners.left_out)
        for owner, reason in self._out.left_out.items():
            yield LeftOut(owner, reason)
        if not contracts:
            raise NoisemarketError("No owner has signed a contract.")
        return contracts

    def _train(
        self,
        ledger: Ledger,
        made: Order,
        contracts: dict[int, Contract],
        state: State,
        checkpoint: Checkpoint,
    ) -> Generator[Event, None, UploadInspector]:
        """Train under contract from this state on, watching the uploads; gives the watch back."""
        findings: list[Accused] = []

        def report(owner: int, number: int, reason: str, evidence: dict[str, object]) -> None:
            findings.append(Accused(contracts[owner].owner, number, reason, evidence))

        market, rounds = self._scenario.market, made.plan.rounds
        watcher = UploadInspector(
            contracts, market.false_alarm, rounds, report, state.inspector, made.job.protection
        )

        def inspect(number: int, weights: Weights, uploads: Mapping[int, Upload]) -> dict[int, str]:
            refused = watcher.inspect(number, weights, uploads)
            state.inspector = watcher.state()
            return refused

        def present(number: int) -> Sequence[int]:
            return self._owners.present(watcher.present(number))

        with JournalledAccountant(self._owners.journal, made.budgets) as accountant:
            check_charges(accountant, state)
            for lines in round_entries(contracts, accountant, state.results):
                ledger.append(lines)
            self._metrics(state.results)
            if state.round_number < rounds:
                with self._engine(made, contracts) as at_work:
                    steps = train(
                        at_work, made.job, accountant, made.plan, state, checkpoint, inspect,
                        present,
                    )  # fmt: skip
                    for result in steps:
                        for lines in round_entries(contracts, accountant, [result]):
                            ledger.append(lines)
                        self._metrics([result])
                        yield from findings
                        findings.clear()
                        yield RoundTrained(result, rounds)
                        if self._stop() and state.round_number < rounds:
                            raise Interrupted(f"stopped after {result.number} of {rounds} rounds.")
            self._out.statements = list(made.statements(accountant))
        self._out.results = list(state.results)
        model = self._folder.curator / MODEL
        save_arrays(model, weights=state.weights, averaged=state.averaged)
        return watcher

    def _engine(self, made: Order, contracts: Mapping[int, Contract]) -> Engine:
        places = {contract.owner: place for place, contract in contracts.items()}
        faults = [
            Fault(places[fault.owner], fault.kind, fault.factor, fault.first, fault.last)
            for fault in self._scenario.faults
            if fault.owner in places
        ]
        at_work = self._owners.engine(made)
        if not faults:
            return at_work
        sigma = {place: contract.sigma for place, contract in contracts.items()}
        return FaultyEngine(at_work, faults, sigma, self._scenario.seed)

    def _metrics(self, results: list[RoundResult]) -> None:
        folder = RunFolder(self._folder.curator)
        lines = "".join(json.dumps(result.to_dict()) + "\n" for result in results)
        if not results or results[0].number == 1:
            folder.write_text(METRICS, lines)
        else:
            folder.append(METRICS, lines)

    def _settle(
        self,
        ledger: Ledger,
        card: JobManifest,
        contracts: Mapping[int, Contract],
        state: State,
        watcher: UploadInspector,
    ) -> list[Event]:
        """Verify, pay, close, and tell the owners; gives what is to be told to others."""
        rounds = ((result.delivered, result.refused) for result in state.results)
        found = verdicts(contracts, rounds, watcher)
        settlement = settle(ledger, card.job, found, batch=AT_ONCE)
        told: list[Event] = []
        paid: dict[int, int] = {}
        for (place, contract), verdict in zip(contracts.items(), found, strict=True):
            named = (contract.owner, contract.id)
            told.append(Verified(*named, verdict.kept, verdict.delivered, verdict.evidence))
            if verdict.kept:
                paid[place] = amount = settlement.payments[contract.id]
                self._out.payments[contract.owner] = amount
                told.append(Paid(*named, amount))
            else:
                self._out.broken[contract.owner] = str(verdict.evidence.get("reason", ""))
                told.append(Broken(*named, verdict.evidence))
        self._out.head = str(ledger.head())
        statements = {place: self._out.statements[place] for place in contracts}
        self._owners.settled(statements, paid, self._out.head)
        numbers = settlement.total, len(settlement.payments), len(settlement.broken)
        return [*told, Settled(card.job, *numbers, self._out.head)]

    def _took(self, step: str, since: float) -> float:
        now = time.monotonic()
        self._out.seconds[step] = now - since
        return now
