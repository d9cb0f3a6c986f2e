"""A market in the paper's five steps: negotiate, sign, train under contract, verify, pay.

Every step can be repeated without being done twice. Negotiation follows from the seed; contracts
follow from it and from the job's manifest; the ledger records each thing once; the accountant knows
a release again by its noise; training goes on from its checkpoint. So a job that is killed anywhere
is resumed by running it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.aggregation import effective_noise, effective_share
from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.federated.rounds import Checkpoint, State, check_charges, train
from noisemarket.files import exclusive, save_arrays, write_atomic
from noisemarket.game.environment import Contracts
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import SETTLED, SIGNED, SIMULATED
from noisemarket.ledger.keys import KeyPair, SignedContract
from noisemarket.ledger.money import MOST, UNITS, prices
from noisemarket.ledger.queries import documents, signatures
from noisemarket.ledger.store import LEDGER_FILE, Ledger, open_ledger
from noisemarket.market import events
from noisemarket.market.channel import (
    Channel,
    ChannelEngine,
    EngineMaker,
    LocalChannel,
    UploadBook,
)
from noisemarket.market.events import EVENTS, Event, EventFile
from noisemarket.market.inspection import Contributions, UploadInspector
from noisemarket.market.lasting import with_lasting_owners
from noisemarket.market.negotiation import OWNERS_COLUMNS, Negotiation, run_options, trace_csv
from noisemarket.market.offers import (
    ReceiptBook,
    RoundBeginning,
    Verdict,
    countersign,
    record,
    refuse_expired,
    round_entries,
    settle,
    verdicts,
    work_of,
)
from noisemarket.market.orders import (
    Order,
    PreparedMarket,
    budget_of,
    more_saving,
    prepare,
    within_budget,
)
from noisemarket.market.outcome import (
    BROKEN,
    LEFT_OUT,
    PAID,
    MarketOutcome,
    MarketRun,
    OwnerOutcome,
    Steps,
)
from noisemarket.market.owners import ChannelAsker, Owners
from noisemarket.market.run_folder import (
    CHECKPOINT,
    HEAD,
    JOB,
    MODEL,
    TRACE,
    JobManifest,
    MarketFolder,
)
from noisemarket.market.training import LocalEngine
from noisemarket.owner.invitations import JobInvitation, drawn_up
from noisemarket.owner.terms import CURRENCY, WEIGHTS, fits
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Watch
from noisemarket.privacy.accountant import JournalledAccountant, PrivacyStatement
from noisemarket.scenario import Scenario

AT_ONCE = 200
"""Contracts that are signed before they are recorded together."""


class NobodySigned(NoisemarketError):
    """No owner would, or could, take part in a job."""


def run_market(
    scenario: Scenario | PreparedMarket | None = None,
    folder: str | Path = "runs/market",
    *,
    engine: EngineMaker | None = None,
    channel: Channel | None = None,
    curator: str | Path | None = None,
    owners: str | Path | None = None,
    renew: bool = False,
    workers: int | None = None,
    threads: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Callable[[], bool] | None = None,
) -> MarketRun:
    """Run the market of a scenario in a folder, event by event; again, to resume it.

    Args:
        scenario: what to run, by default the preset ``market``.
        folder: where the job keeps all its files.
        engine: makes what trains owners on this machine, such as a subclass of ``Engine``; by
            default worker processes.
        channel: the way to the owners, by default to owners that this process acts for.
        curator: the folder of the curator's key, by default in the job's own folder.
        owners: a folder of owners that outlive the run, with their wallets, the curator's key and,
            unless the scenario names another, one ledger of all jobs; by default owners are thrown
            away with the job.
        renew: whether these owners take the scenario's numbers in the place of their own.
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
    ledger = scenario.scenario.market.ledger
    if owners is not None and not ledger:
        ledger = f"sqlite:///{(Path(owners) / LEDGER_FILE).absolute()}"
    if channel is None:
        lasting = None
        if owners is not None:
            scenario, lasting = with_lasting_owners(scenario, path, Path(owners), renew=renew)
        channel = LocalChannel(scenario, path, engine, lasting)
    market, line, stopped = scenario, channel, stop or (lambda: False)

    def steps() -> Steps:
        """Hold the folder and the ledger, and take the five steps."""
        path.prepare()
        with exclusive(path.curator, "folder"), EventFile(path.curator / EVENTS) as file:
            resumed, manifest = (path.path / JOB).exists(), path.manifest(ledger)
            home = None if owners is None else Path(owners) / path.curator.name
            key = KeyPair.obtain(curator or path.curator, home)
            with open_ledger(path.ledger(manifest), curator=key, note=path.curator / HEAD) as chain:
                book = ReceiptBook(key, chain, path.curator)
                book.check(line.noted(manifest.job, key.public_hex))
                names = [str(name) for name in market.environment.population.names]
                asked = Owners(line, names, path.curator)
                job = _OpenJob(market, path, asked, manifest, key, chain, book, threads, stopped)
                return (yield from file.following(job.steps(file.watching(watch), resumed)))

    return MarketRun(steps())


@dataclass(frozen=True)
class _OpenJob:
    """A job whose folder and ledger are held."""

    market: PreparedMarket
    folder: MarketFolder
    owners: Owners
    manifest: JobManifest
    curator: KeyPair
    ledger: Ledger
    book: ReceiptBook
    threads: int | None
    stop: Callable[[], bool]

    def steps(self, watch: Watch, resumed: bool) -> Steps:
        scenario, manifest, curator = self.market.scenario, self.manifest, self.curator
        budget, seconds, since = budget_of(scenario), dict[str, float](), time.monotonic()

        def lap(step: str) -> None:
            nonlocal since
            now = time.monotonic()
            seconds[step] = now - since
            since = now

        environment, description = self.market.environment, self.market.order.job.data.description
        work, levels = work_of(scenario, len(environment), description), environment.levels
        work[WEIGHTS] = self.market.order.job.first_weights().size
        if scenario.market.currency != UNITS:
            work[CURRENCY] = scenario.market.currency
        invitation = JobInvitation(manifest.job, curator.public_hex, work, levels)
        negotiation = self._negotiate(invitation, watch)
        if not negotiation.agreement.complete:
            raise Interrupted("stopped while negotiating; nothing was signed yet.")
        if (trace := negotiation.agreement.trace) is not None:  # as far as the curator sees it
            write_atomic(self.folder.curator / TRACE, trace_csv(trace, OWNERS_COLUMNS))
        agreed = negotiation.agreement.contracts
        deals = within_budget(negotiation.environment, agreed, budget)
        trades = int((deals.saving > 0).sum())
        moved = (deals.saving != agreed.saving) | (deals.payment != agreed.payment)
        amounts = prices(levels.payments)
        total = sum(amounts[level] for level in deals.payment)
        played = time.monotonic() - since
        order = self.owners.channel.prepare(self.market.under(deals), manifest.job)
        checkpoint = Checkpoint(self.folder.curator / CHECKPOINT, order.fingerprint)
        state = self._state(order, checkpoint)
        keys = self.owners.keys(invitation)
        most = MOST if budget is None else budget
        about: dict[str, Any] = {"weighting": scenario.training.weighting}
        about["weights"] = _weights(order, keys)
        if description:
            about["description"] = description.text
        simulated = self.owners.channel.here and order.job.data.holders is None
        if simulated:  # their records are dealt out
            about["owners"] = SIMULATED
        if math.isfinite(cap := self.market.order.budgets[0].rho_cap):
            about["privacy_cap"] = cap
        if (currency := scenario.market.currency) != UNITS:
            about["currency"] = currency
        self.ledger.append([entries.opened(manifest.job, most, curator.public_hex, keys, **about)])
        yield events.Opened(manifest.job, len(keys), order.plan.rounds, budget, resumed)
        yield events.Negotiated(len(deals), trades, int(moved.sum()), total, played)
        lap("negotiate")

        drafts = self._drafts(order, deals, keys, invitation)
        if state.rounds_done:  # owners that have not signed by then take no part
            known = signatures(self.ledger, manifest.job)
            drafts = {index: one for index, one in drafts.items() if one.id in known}
        contracts = yield from self._sign(order, drafts)
        yield from [events.LeftOut(*one) for one in self.owners.left_out.items()]
        if not contracts:
            raise NobodySigned("No owner has signed a contract.")
        lap("sign")

        begun = RoundBeginning(self.ledger, manifest.job)
        inspector, statements = yield from self._train(order, contracts, state, checkpoint, begun)
        lap("train")

        found, closing, head = self._settle(contracts, state, inspector)
        lap("settle")
        yield from closing
        rows = self._rows(order, deals, statements, found, Contributions(order, state.kept))
        shares = order.plan.shares
        outcome = MarketOutcome(
            job=manifest.job,
            preset=scenario.preset,
            mechanism=scenario.mechanism,
            seed=scenario.seed,
            weighting=scenario.training.weighting,
            sigma_max=scenario.game.sigma_max,
            owners=tuple(rows),
            agreed=trades,
            over_budget=int(moved.sum()),
            effective_noise=effective_noise(order.job.sigma, shares),
            effective_share=effective_share(shares),
            neighbours=str(statements[0].neighbours),
            guaranteed=all(one.guaranteed for one in statements),
            secure_noise=not any(one.simulated for one in statements),
            results=tuple(state.results),
            head=head,
            currency=currency,
            simulated_owners=simulated,
            seconds=seconds,
            negotiation=negotiation,
            order=order,
            statements=statements,
        )
        outcome.save(self.folder.path)
        return outcome

    def _rows(
        self,
        order: Order,
        deals: Contracts,
        statements: Sequence[PrivacyStatement],
        found: Sequence[Verdict],
        added: Contributions,
    ) -> Iterator[OwnerOutcome]:
        levels, left_out = self.market.environment.levels, self.owners.left_out
        judged = {one.contract.owner: one for one in found}
        amounts, weights = prices(levels.payments), order.plan.shares / order.plan.shares.sum()
        for index, (name, statement) in enumerate(zip(order.names, statements, strict=True)):
            saving, payment = int(deals.saving[index]), int(deals.payment[index])
            verdict, broken = judged.get(name), ""
            if verdict is not None and not verdict.kept:
                broken = str(verdict.evidence.get("reason", ""))
            lowered, error = added.figures(index)
            yield OwnerOutcome(
                owner=name,
                records=int(order.job.partition.sizes[index]),
                saving_level=saving,
                payment_level=payment,
                saving=float(levels.savings[saving]),
                sigma=levels.sigma_left(saving),
                payment_micro=amounts[payment],
                weight=float(weights[index]),
                rho=statement.rho_total,
                epsilon=statement.epsilon,
                delta=statement.delta,
                releases=statement.releases,
                paid_micro=verdict.payment if verdict and verdict.kept else None,
                state=LEFT_OUT if verdict is None else PAID if verdict.kept else BROKEN,
                reason=left_out.get(name) or broken or self._at_cap(index, saving),
                loss_lowered=lowered,
                loss_lowered_error=error,
            )

    def _at_cap(self, index: int, saving: int) -> str:
        """Why the owner sells no more, if its privacy cap is why."""
        scenario, levels = self.market.scenario, self.market.environment.levels
        budget, rounds = self.market.order.budgets[index], self.market.order.plan.rounds
        if fits(budget, levels.sigma_left(more_saving(scenario, levels, saving)), rounds):
            return ""
        allowed = [one for one in levels.sigmas.tolist() if fits(budget, one, rounds)]
        if not allowed:
            return "its privacy cap does not allow all rounds, even unpaid"
        return f"its privacy cap allows no less noise than {min(allowed):g}"

    def _negotiate(self, invitation: JobInvitation, watch: Watch) -> Negotiation:
        """Agree contracts: in arrays where all owners are simulated here, else by messages."""
        scenario, environment = self.market.scenario, self.market.environment
        channel, options = (
            self.owners.channel,
            run_options(scenario, self.threads, watch, self.stop),
        )
        if not channel.simulated:
            folder = self.folder.curator
            asker = ChannelAsker(self.owners, invitation, environment, options, folder)
            options = replace(options, asker=asker)
        agreement = find_mechanism(scenario.mechanism).run(environment, options)
        if channel.simulated:
            channel.agree(invitation, agreement.contracts)
        return Negotiation(scenario, environment, agreement)

    def _state(self, order: Order, checkpoint: Checkpoint) -> State:
        """Where training stands, if it is this job's."""
        first = order.start(self.manifest.job)
        state = checkpoint.load(first)
        if state is None:
            return first
        if state.job != self.manifest.job:
            raise BadInput("checkpoint", str(checkpoint.path), f"is not of the job in {JOB}.")
        return state

    def _drafts(
        self, order: Order, deals: Contracts, keys: Mapping[str, str], invitation: JobInvitation
    ) -> dict[int, Contract]:
        """A contract per owner, the same at every resume; refused if the owner signed another."""
        manifest, drafts = self.manifest, {}
        before = {known.owner: known.id for known in documents(self.ledger, manifest.job)}
        for index, name in enumerate(order.names):
            if name not in keys:
                continue
            records = int(order.job.partition.sizes[index])
            draft = drawn_up(
                invitation, name, keys[name], (int(deals.saving[index]), int(deals.payment[index])),
                (manifest.opened_at, manifest.expires_at), order.budgets[index], records,
            )  # fmt: skip
            if before.get(name, draft.id) != draft.id:
                remedy = "has signed another contract in this job: restore its scenario."
                raise BadInput("owner", name, remedy)
            drafts[index] = draft
        return drafts

    def _sign(
        self, order: Order, drafts: Mapping[int, Contract]
    ) -> Generator[Event, None, dict[int, Contract]]:
        """Have every owner and the curator sign, and record it; gives the contracts by index."""
        recorded = signatures(self.ledger, self.manifest.job)
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
            for index, signature in self.owners.sign(new, order).items():
                signed[index] = countersign(self.curator, new[index], signature)
            signed = dict(sorted(signed.items()))
            record(self.ledger, signed.values())
            issued = self.book.issue({index: one.contract for index, one in signed.items()}, SIGNED)
            self.book.keep(issued, self.owners.keep(signed, issued))
            for index, one in signed.items():
                contracts[index] = agreed = one.contract
                yield events.Signed(
                    agreed.owner, agreed.id, agreed.saving, agreed.sigma, agreed.payment,
                    agreed.epsilon, agreed.delta,
                )  # fmt: skip
        return contracts

    def _train(
        self,
        order: Order,
        contracts: Mapping[int, Contract],
        state: State,
        checkpoint: Checkpoint,
        begun: RoundBeginning,
    ) -> Generator[Event, None, tuple[UploadInspector, tuple[PrivacyStatement, ...]]]:
        """Train under contract from this state on, inspecting every upload."""
        findings: list[events.Accused] = []

        def report(owner: int, number: int, reason: str, evidence: dict[str, object]) -> None:
            findings.append(events.Accused(contracts[owner].owner, number, reason, evidence))

        alarm, rounds = self.market.scenario.market.false_alarm, order.plan.rounds
        inspector = UploadInspector(
            contracts, alarm, rounds, state.weights.size, report, state.inspector,
            order.job.protection, state.kept,
        )  # fmt: skip

        added = Contributions(order, state.kept)

        def inspect(number: int, weights: Weights, uploads: dict[int, Upload]) -> dict[int, str]:
            refused = inspector.inspect(number, uploads)
            added.bound(number, weights, uploads, refused)
            received = {} if book is None else {"received": book.received}
            state.inspector = {**inspector.state(), **received}
            state.kept = {**inspector.arrays, **added.arrays}
            return refused

        book = self._uploads(contracts, state)
        about = state.job, order.job.made_by
        with JournalledAccountant(self.owners.channel.journal, order.budgets, *about) as accountant:
            check_charges(accountant, state)
            begun.check_spent(contracts, state, accountant, checkpoint.path)
            for lines in round_entries(contracts, accountant, state.results):
                self.ledger.append(lines)
            self.folder.write_metrics(state.results)
            if state.rounds_done < rounds:
                with ChannelEngine(self.owners.channel, order.job, state.job, book) as engine:
                    for result in train(
                        engine, order.job, accountant, order.plan, state, checkpoint, inspect,
                        lambda _: self.owners.present(inspector.present()),
                        begin=begun.begin, once=True,
                    ):  # fmt: skip
                        for lines in round_entries(contracts, accountant, [result]):
                            self.ledger.append(lines)
                        self.folder.write_metrics([result])
                        yield from findings
                        findings.clear()
                        yield events.RoundTrained(result, rounds)
                        if self.stop() and state.rounds_done < rounds:
                            raise Interrupted(f"stopped after {result.number} of {rounds} rounds.")
            statements = order.statements(accountant)
        model = self.folder.curator / MODEL
        save_arrays(model, weights=state.weights, averaged=state.averaged)
        return inspector, statements

    def _uploads(self, contracts: Mapping[int, Contract], state: State) -> UploadBook | None:
        """The book of the uploads that came; none for owners that this process acts for."""
        if self.owners.channel.simulated:
            return None
        received = state.inspector.get("received", {})
        known = {int(owner): (int(number), str(name)) for owner, (number, name) in received.items()}
        return UploadBook(self.curator, {index: one.id for index, one in contracts.items()}, known)

    def _settle(
        self,
        contracts: Mapping[int, Contract],
        state: State,
        inspector: UploadInspector,
    ) -> tuple[list[Verdict], list[Event], str]:
        """Verify, pay, close, and tell the owners; gives also what to tell others, and the head."""
        rounds = ((result.delivered, result.refused) for result in state.results)
        found = verdicts(contracts, rounds, inspector)
        settle(self.ledger, self.manifest.job, found, batch=AT_ONCE)
        closing: list[Event] = []
        for one in found:
            named = (one.contract.owner, one.contract.id)
            closing.append(events.Verified(*named, one.kept, one.delivered, one.evidence))
            closing.append(
                events.Paid(*named, one.payment)
                if one.kept
                else events.Broken(*named, one.evidence)
            )
        paid = {index: one.payment for index, one in zip(contracts, found, strict=True) if one.kept}
        issued, head = self.book.issue(contracts, SETTLED, paid), str(self.ledger.head())
        book = self._uploads(contracts, state)
        last = {i: book.receipt(i, one.rounds + 1) for i, one in contracts.items() if book}
        self.book.keep(issued, self.owners.settled(issued, last))
        total, kept = sum(paid.values()), len(paid)
        closing.append(events.Settled(self.manifest.job, total, kept, len(found) - kept, head))
        return found, closing, head


def _weights(order: Order, owners: Collection[str]) -> dict[str, float]:
    """Each owner's part of the mean update if all deliver."""
    parts = zip(order.names, order.plan.shares.tolist(), strict=True)
    shares = {name: share for name, share in parts if name in owners}
    whole = math.fsum(shares.values())
    return {name: share / whole for name, share in shares.items()}
