"""A market in the paper's five steps: negotiate, sign, train under contract, verify, pay.

Every step can be repeated without being done twice. Negotiation follows from the seed; contracts
follow from it and from the job's manifest; the ledger records each thing once; the accountant knows
a release again by its noise; training goes on from its checkpoint. So a job that is killed anywhere
is resumed by running it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import Checkpoint, State, check_charges, train
from noisemarket.files import save_arrays
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import SETTLED, SIGNED
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.money import MOST
from noisemarket.ledger.queries import documents, signatures
from noisemarket.ledger.settlement import settle
from noisemarket.ledger.store import Ledger
from noisemarket.market.begun_rounds import RoundBeginning
from noisemarket.market.deals import Deals, budget_of, strike
from noisemarket.market.event_file import EVENTS, EventFile
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
from noisemarket.market.faults import with_faults
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.lap_clock import LapClock
from noisemarket.market.market_folder import (
    CHECKPOINT,
    HEAD,
    JOB,
    MODEL,
    REFERENCE,
    TRACE,
    JobManifest,
    MarketFolder,
)
from noisemarket.market.offers import Curator, job_terms, record, refuse_expired
from noisemarket.market.outcome import MarketOutcome, MarketRun, Steps, closing_of
from noisemarket.market.owners import EngineMaker, LocalOwners, Owners
from noisemarket.market.preparation import PreparedMarket, prepare
from noisemarket.market.receipt_book import ReceiptBook
from noisemarket.market.spent_rounds import check_spent
from noisemarket.market.verdicts import round_entries, verdicts
from noisemarket.mechanisms.mechanism import Progress, Trace
from noisemarket.mechanisms.tables import OWNERS_COLUMNS, trace_csv
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario
from noisemarket.training import Order
from noisemarket.training.local_engine import LocalEngine

AT_ONCE = 200
"""Contracts that are signed before they are recorded together."""

Watch = Callable[[Progress], None]


def run_market(
    scenario: Scenario | PreparedMarket | None = None,
    folder: str | Path = "runs/market",
    *,
    engine: EngineMaker | None = None,
    owners: Owners | None = None,
    curator: str | Path | None = None,
    workers: int | None = None,
    threads: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] | None = None,
) -> MarketRun:
    """Run the market of a scenario in a folder, event by event; again, to resume it.

    Args:
        scenario: what to run, by default the preset ``market``.
        folder: where the job keeps all its files.
        engine: makes what trains the job, such as a subclass of ``Engine``; by default worker
            processes on this machine.
        owners: where the owners are, by default on this machine.
        curator: the folder of the curator's key, by default in the job's own folder.
        workers: how many worker processes train, by default one for each core.
        threads: how many threads negotiate, by default one for each core.
        watch: is told how negotiation goes.
        stop: when it returns True the job stops, and can be resumed.

    Returns:
        The run: an iterator of events. ``finish()`` runs it to the end and gives the outcome.

    Raises:
        BadInput: the scenario cannot be run. Nothing was written.

    Example:
        run = nm.run_market(nm.Scenario.from_preset("market", owners=10), "runs/small")
        for event in run:
            print(event)
        print(run.outcome.payments)
    """
    if not isinstance(scenario, PreparedMarket):
        scenario = prepare(scenario or Scenario.from_preset("market"))
    path = MarketFolder(Path(folder))
    engine = engine or (lambda job: LocalEngine(job, workers, stop))
    owners = owners or LocalOwners(scenario.scenario, path, engine, threads)
    key = path.curator if curator is None else Path(curator)
    return MarketRun(_Market(scenario, path, owners, key, stop or (lambda: False)).steps(watch))


class _Market:
    """One run of one job."""

    def __init__(
        self,
        market: PreparedMarket,
        folder: MarketFolder,
        owners: Owners,
        key: Path,
        stop: Callable[[], bool],
    ) -> None:
        self._market, self._scenario, self._folder = market, market.scenario, folder
        self._owners, self._key, self._stop = owners, key, stop

    def steps(self, watch: Watch) -> Steps:
        """Hold the folder and the ledger, and take the five steps."""
        self._folder.prepare()
        with self._folder.held(), EventFile(self._folder.curator / EVENTS) as file:
            resumed = (self._folder.path / JOB).exists()
            given = self._scenario.market
            directions = self._market.order.directions()
            kinds = 0 if directions is None else len(directions)
            manifest = self._folder.manifest(given.ledger, given.valid_hours, kinds)
            curator, note = Curator(self._key), self._folder.curator / HEAD
            with curator.ledger(self._folder.ledger(manifest), note) as ledger:
                book = ReceiptBook(curator, ledger, self._folder.curator)
                book.check(self._owners.receipts(manifest.job))
                watch = file.watching(watch)
                steps = self._job(ledger, curator, book, manifest, resumed, watch)
                return (yield from file.following(steps))

    def _job(
        self,
        ledger: Ledger,
        curator: Curator,
        book: ReceiptBook,
        manifest: JobManifest,
        resumed: bool,
        watch: Watch,
    ) -> Steps:
        clock, budget = LapClock(), budget_of(self._scenario)

        negotiation = self._owners.negotiate(manifest, curator.public_key, watch, self._stop)
        if not negotiation.agreement.complete:
            raise Interrupted("stopped while negotiating; nothing was signed yet.")
        self._write_trace(negotiation.agreement.trace)
        environment = negotiation.environment
        deals = strike(environment, negotiation.agreement.contracts, budget)
        played = clock.so_far()
        order = self._owners.with_noise(self._market.under(deals))
        checkpoint = Checkpoint(self._folder.curator / CHECKPOINT, order.fingerprint)
        state = self._state(manifest, order, checkpoint)
        keys = self._owners.keys(environment, deals)
        most = MOST if budget is None else budget
        about = {"weighting": self._scenario.training.weighting, "weights": _weights(order, keys)}
        ledger.append([entries.opened(manifest.job, most, curator.public_key, keys, **about)])
        yield Opened(manifest.job, len(keys), order.plan.rounds, budget, resumed)
        yield Negotiated(len(deals.deals), deals.agreed, deals.over_budget, deals.total, played)
        clock.lap("negotiate")

        drafts = self._drafts(ledger, manifest, order, curator, deals, keys)
        if state.rounds_done:  # who has not signed by then takes no part
            known = signatures(ledger, manifest.job)
            drafts = {index: one for index, one in drafts.items() if one.id in known}
        contracts = yield from self._sign(ledger, manifest, order, curator, drafts, book)
        left_out = [LeftOut(*one) for one in self._owners.left_out.items()]
        yield from left_out
        if not contracts:
            raise NoisemarketError("No owner has signed a contract.")
        clock.lap("sign")

        folder, directions = self._folder.curator / REFERENCE, order.directions()
        begun = RoundBeginning(ledger, manifest.job, directions, folder, self._owners.begin)
        inspector, statements = yield from self._train(
            ledger, order, contracts, state, checkpoint, begun
        )
        clock.lap("train")

        closing = self._settle(ledger, manifest, contracts, state, inspector, statements, book)
        self._owners.show(list(contracts), begun.kept())
        clock.lap("settle")
        yield from closing
        return MarketOutcome(
            negotiation=negotiation,
            deals=deals,
            order=order,
            results=tuple(state.results),
            statements=statements,
            seconds=clock.laps,
            **closing_of([*left_out, *closing]),
        )

    def _state(self, manifest: JobManifest, order: Order, checkpoint: Checkpoint) -> State:
        """Where training stands, if it is this job's."""
        first = order.start(manifest.job)
        state = checkpoint.load(first)
        if state is None:
            return first
        if state.job != manifest.job:
            raise BadInput("checkpoint", str(checkpoint.path), f"is not of the job in {JOB}.")
        return state

    def _drafts(
        self,
        ledger: Ledger,
        manifest: JobManifest,
        order: Order,
        curator: Curator,
        deals: Deals,
        keys: Mapping[str, str],
    ) -> dict[int, Contract]:
        """A contract for every owner, by index; refused if it has signed another in this job."""
        terms = job_terms(self._scenario, manifest)
        before = {known.owner: known.id for known in documents(ledger, manifest.job)}
        drafts = {}
        for index, deal in enumerate(deals.deals):
            if deal.owner not in keys:
                continue
            records = int(order.job.partition.sizes[index])
            draft = curator.draft(deal, keys[deal.owner], order.budgets[index], terms, records)
            if before.get(deal.owner, draft.id) != draft.id:
                remedy = "has signed another contract in this job: restore its scenario."
                raise BadInput("owner", deal.owner, remedy)
            drafts[index] = draft
        return drafts

    def _sign(
        self,
        ledger: Ledger,
        manifest: JobManifest,
        order: Order,
        curator: Curator,
        drafts: Mapping[int, Contract],
        book: ReceiptBook,
    ) -> Generator[Event, None, dict[int, Contract]]:
        """Have every owner and the curator sign, and record it; gives the contracts by index."""
        recorded = signatures(ledger, manifest.job)
        contracts: dict[int, Contract] = {}
        numbered = list(drafts.items())
        for first in range(0, len(numbered), AT_ONCE):
            some = dict(numbered[first : first + AT_ONCE])
            new = {index: one for index, one in some.items() if one.id not in recorded}
            for draft in new.values():
                refuse_expired(draft)
            signed = {
                index: SignedContract(one, *recorded[one.id])
                for index, one in some.items()
                if index not in new
            }
            for index, signature in self._owners.sign(new, order).items():
                signed[index] = curator.countersign(new[index], signature)
            signed = dict(sorted(signed.items()))
            record(ledger, signed.values())
            issued = book.issue({index: one.contract for index, one in signed.items()}, SIGNED)
            book.keep(issued, self._owners.keep(signed, issued))
            for index, one in signed.items():
                contracts[index] = agreed = one.contract
                yield Signed(
                    agreed.owner, agreed.id, agreed.saving, agreed.sigma, agreed.payment,
                    agreed.epsilon, agreed.delta,
                )  # fmt: skip
        return contracts

    def _train(
        self,
        ledger: Ledger,
        order: Order,
        contracts: Mapping[int, Contract],
        state: State,
        checkpoint: Checkpoint,
        begun: RoundBeginning,
    ) -> Generator[Event, None, tuple[UploadInspector, tuple[PrivacyStatement, ...]]]:
        """Train under contract from this state on, inspecting every upload."""
        findings: list[Accused] = []

        def report(owner: int, number: int, reason: str, evidence: dict[str, object]) -> None:
            findings.append(Accused(contracts[owner].owner, number, reason, evidence))

        alarm, rounds = self._scenario.market.false_alarm, order.plan.rounds
        inspector = UploadInspector(
            contracts, alarm, rounds, report, state.inspector, order.job.protection, state.kept,
            begun.directions, state.weights.size,
        )  # fmt: skip

        def inspect(number: int, weights: Weights, uploads: Mapping[int, Upload]) -> dict[int, str]:
            self._owners.sent(number, uploads)
            refused = inspector.inspect(number, weights, uploads)
            state.inspector, state.kept = inspector.state(), inspector.arrays()
            return refused

        def present(number: int) -> Sequence[int]:
            return self._owners.present(inspector.present(number))

        screened = self._scenario.market.aggregate == "screened"
        about = state.job, order.job.made_by
        with JournalledAccountant(self._owners.journal, order.budgets, *about) as accountant:
            check_charges(accountant, state)
            check_spent(ledger, state.job, contracts, state, accountant, checkpoint.path)
            for lines in round_entries(contracts, accountant, state.results):
                ledger.append(lines)
            self._folder.write_metrics(state.results)
            if state.rounds_done < rounds:
                honest = self._owners.engine(order)
                with with_faults(honest, self._scenario, contracts, order.job) as engine:
                    for result in train(
                        engine, order.job, accountant, order.plan, state, checkpoint, inspect,
                        present, inspector.left_out if screened else None, begin=begun.begin,
                        once=True,
                    ):  # fmt: skip
                        for lines in round_entries(contracts, accountant, [result]):
                            ledger.append(lines)
                        self._folder.write_metrics([result])
                        yield from findings
                        findings.clear()
                        yield RoundTrained(result, rounds)
                        if self._stop() and state.rounds_done < rounds:
                            raise Interrupted(f"stopped after {result.number} of {rounds} rounds.")
            statements = order.statements(accountant)
        model = self._folder.curator / MODEL
        save_arrays(model, weights=state.weights, averaged=state.averaged)
        return inspector, statements

    def _write_trace(self, trace: Trace | None) -> None:
        """How the game went, as far as the curator sees it."""
        if trace is not None:
            RunFolder(self._folder.curator).write_text(TRACE, trace_csv(trace, OWNERS_COLUMNS))

    def _settle(
        self,
        ledger: Ledger,
        manifest: JobManifest,
        contracts: Mapping[int, Contract],
        state: State,
        inspector: UploadInspector,
        statements: Sequence[PrivacyStatement],
        book: ReceiptBook,
    ) -> list[Event]:
        """Verify, pay, close, and tell the owners; gives what others are told after them."""
        rounds = ((result.delivered, result.refused) for result in state.results)
        found = verdicts(contracts, rounds, inspector)
        settlement = settle(ledger, manifest.job, found, batch=AT_ONCE)
        closing: list[Event] = []
        paid: dict[int, int] = {}
        for (index, contract), verdict in zip(contracts.items(), found, strict=True):
            named = (contract.owner, contract.id)
            closing.append(Verified(*named, verdict.kept, verdict.delivered, verdict.evidence))
            if verdict.kept:
                paid[index] = settlement.payments[contract.id]
                closing.append(Paid(*named, paid[index]))
            else:
                closing.append(Broken(*named, verdict.evidence))
        issued, head = book.issue(contracts, SETTLED, paid), str(ledger.head())
        told = {index: statements[index] for index in contracts}
        claims = {index: inspector.claim(index) for index in contracts}
        book.keep(issued, self._owners.settled(told, issued, claims))
        numbers = settlement.total, len(settlement.payments), len(settlement.broken)
        return [*closing, Settled(manifest.job, *numbers, head)]


def _weights(order: Order, owners: Collection[str]) -> dict[str, float]:
    """Each owner's part of the mean update if all deliver."""
    parts = zip(order.names, order.plan.shares.tolist(), strict=True)
    shares = {name: share for name, share in parts if name in owners}
    whole = math.fsum(shares.values())
    return {name: share / whole for name, share in shares.items()}
